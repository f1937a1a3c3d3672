"""Checks the chart and the manifests in packaging/: what is rendered, what is refused, and whether a daemon runs.

Run by tools/test-kubernetes.sh. The schemas of Kubernetes' own kinds are those of kubernetes-validate, in the oldest
version that the chart allows and in the newest one. Those of ServiceMonitor, PrometheusRule and ScaledObject are the
types that cloudcoil generates from the definitions of prometheus-operator 0.80 and KEDA 2.16.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
import urllib.error
import urllib.request
from pathlib import Path

import kubernetes_validate
import yaml
from cloudcoil.models.keda.v1alpha1 import ScaledObject
from cloudcoil.models.prometheus_operator.v1 import PrometheusRule, ServiceMonitor

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent
KUBERNETES = ROOT / "packaging" / "kubernetes"
sys.path.insert(0, str(KUBERNETES))

from helm import Helm, Refused  # noqa: E402
import render  # noqa: E402

BINARY = Path(os.environ["QUOTABELL"]).resolve()
SECRETS = "/run/secrets/quotabell"
VERSIONS = ["1.25", "1.37"]
CUSTOM = {"ServiceMonitor": ServiceMonitor, "PrometheusRule": PrometheusRule, "ScaledObject": ScaledObject}
# What a secret contains, by the file that it is mounted as; tokens are in a folder of their own.
SECRET = {"redis_url": "redis://127.0.0.1:1", "smtp_url": "smtp://127.0.0.1:1", "http_token": "0123456789abcdef"}
CONFIG = yaml.safe_load((KUBERNETES / "values.yaml").read_text())["config"]

VALUES = {
    "no values": {},
    "one daemon, and a Redis without a password": {
        "replicas": 1,
        "redis": {"existingSecret": ""},
        "config": {"redis": {"url": "redis://redis:6379/3"}},
    },
    "a configuration as text": {"configText": 'default_plan = "pro"\n\n[plans.pro]\nlimits = { "tokens.in" = 5 }\n'},
    "numbers, quotes, dots and letters of every kind": {
        "config": {
            "retry": {"factor": 2.5, "first": "1s"},
            "stream": {"key": 'a "b" \\ c', "event_ids_max": 1000000000},
            "check": {"on_error": "deny", "timeout": None},
            "plans": {"Größe 1": {"limits": {"tokens.in": 9007199254740991}, "rate": {"requests": "60/1m"}}},
            "default_plan": "Größe 1",
            "webhook": {"allow_http": True, "allowed_networks": ["10.1.0.0/16"]},
        }
    },
    "everything": {
        "nameOverride": "quota",
        "image": {"repository": "registry.example.com/quotabell", "tag": "1"},
        "imagePullSecrets": [{"name": "registry"}],
        "config": {**CONFIG, "stream": {"partitions": 8}},
        "smtp": {"existingSecret": "mail", "key": "smtp"},
        "http": {
            "existingSecret": "http",
            "tokens": [
                {"name": "gateway", "existingSecret": "tokens", "key": "gateway", "scopes": ["check"]},
                {"name": "shop", "existingSecret": "tokens", "key": "shop", "scopes": ["read", "subjects:write"]},
            ],
        },
        "console": {"enabled": True, "publicUrl": "https://quota.example.com/console/"},
        "shutdown": {"preStopSeconds": 0, "drainSeconds": 60},
        "readinessPath": "/healthz",
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "api"},
        "priorityClassName": "high",
        "serviceAccountName": "quota",
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        "extraEnv": [{"name": "QUOTABELL__LOG__LEVEL", "value": "debug"}],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
        "service": {"type": "NodePort", "port": 80, "annotations": {"a": "b"}},
        "podDisruptionBudget": {"maxUnavailable": "50%"},
        "serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "docsUrl": "https://example.com/quotabell/"},
        "keda": {"enabled": True, "serverAddress": "http://prometheus:9090", "maxReplicas": 8, "lagEntries": 2000000},
        "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {"matchLabels": {"team": "api"}}}]},
    },
}

# Values that are refused, and a part of the message.
REFUSED = [
    ({"replica": 3}, "additional properties 'replica' not allowed"),
    ({"replicas": "3"}, "at '/replicas': got string, want integer"),
    ({"image": {"tag": 1}}, "at '/image/tag': got number, want string"),
    ({"readinessPath": "/ready"}, "at '/readinessPath': value must be one of '/readyz', '/healthz'"),
    ({"redis": {"url": "redis://redis"}}, "additional properties 'url' not allowed"),
    ({"redis": {"existingSecret": "Not A Name"}}, "at '/redis/existingSecret'"),
    ({"redis": {"existingSecret": ""}}, "no Redis is named"),
    ({"config": "text"}, "at '/config': got string, want object"),
    ({"config": {"redis": {"url": "redis://redis"}}}, "config.redis.url would have no effect"),
    ({"config": {"http": {"listen": "0.0.0.0:80"}}}, "config.http.listen would have no effect: use service.port"),
    ({"console": {"enabled": True}, "config": {"console": {"listen": "off"}}}, "config.console.listen would have no"),
    ({"console": {"publicUrl": "https://quota.example.com"}}, "console.publicUrl needs console.enabled"),
    ({"console": {"enabled": True, "publicUrl": "quota.example.com"}}, "at '/console/publicUrl'"),
    ({"config": {"shutdown": {"drain": "9s"}}}, "config.shutdown.drain would have no effect"),
    ({"config": {"a": 1}, "configText": "b = 2"}, "config and configText are both set"),
    ({"smtp": {"existingSecret": "a"}, "config": {"email": {"smtp_url": "smtp://b"}}}, "config.email.smtp_url would"),
    ({"http": {"tokens": [{"name": "a", "existingSecret": "a", "key": "a", "scopes": ["all"]}]}}, "scopes/0"),
    ({"http": {"tokens": [{"name": "a/b", "existingSecret": "a", "key": "a", "scopes": ["read"]}]}}, "tokens/0/name"),
    ({"keda": {"enabled": True}}, "at '/keda/serverAddress'"),
    ({"keda": {"enabled": True, "serverAddress": "http://p"}}, "keda.maxReplicas is 4, and config.stream.partitions 1"),
    ({"keda": {"enabled": True, "serverAddress": "http://p", "minReplicas": 9}}, "keda.minReplicas is above"),
    ({"podDisruptionBudget": {"maxUnavailable": 0}}, "at '/podDisruptionBudget/maxUnavailable'"),
    ({"serviceMonitor": {"interval": "often"}}, "at '/serviceMonitor/interval'"),
    ({"prometheusRule": {"docsUrl": "example.com"}}, "at '/prometheusRule/docsUrl'"),
]


def expect(holds, message):
    if not holds:
        raise AssertionError(message)


def eventually(what, probe, seconds=20):
    """Asks until the answer is true, with a bound."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := probe():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


class Rendered:
    """The documents that the chart makes of some values."""

    def __init__(self, helm, values, namespace="quotabell"):
        texts = render.documents(helm.template(render.CHART, values, namespace=namespace))
        self.documents = {kind: yaml.safe_load(text) for kind, text in texts.items()}

    def pod(self):
        return self.documents["Deployment"]["spec"]["template"]

    def container(self):
        return self.pod()["spec"]["containers"][0]

    def environment(self):
        return {variable["name"]: variable["value"] for variable in self.container()["env"]}

    def mount(self, folder):
        """Writes the configuration and the secrets into the folder, as a pod sees them. Returns the environment."""
        (folder / "quotabell.toml").write_text(self.documents["ConfigMap"]["data"]["quotabell.toml"])
        volumes = {volume["name"]: volume for volume in self.pod()["spec"]["volumes"]}
        for source in volumes["secrets"]["projected"]["sources"]:
            for item in source["secret"]["items"]:
                file = folder / item["path"]
                file.parent.mkdir(exist_ok=True)
                file.write_text(SECRET.get(item["path"], f"0123456789abcdef-{file.name}") + "\n")
        there = {name: value.replace(SECRETS, str(folder)) for name, value in self.environment().items()}
        return {"PATH": os.environ["PATH"], "QUOTABELL_CONFIG": str(folder / "quotabell.toml"), **there}


def check_schemas(rendered):
    for kind, document in rendered.documents.items():
        if kind in CUSTOM:
            # The types ignore unknown fields, so what they read must be what was written.
            read = CUSTOM[kind].model_validate(document).model_dump(by_alias=True, exclude_unset=True, mode="json")
            expect(read == document, f"{kind} has fields that its definition lacks: {document} became {read}")
            continue
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)


def check_pod(rendered):
    """What no schema says."""
    documents, spec, container = rendered.documents, rendered.pod()["spec"], rendered.container()
    selector = documents["Deployment"]["spec"]["selector"]["matchLabels"]
    expect(selector.items() <= rendered.pod()["metadata"]["labels"].items(), "the Deployment selects other pods")
    expect(documents["Service"]["spec"]["selector"] == selector, "the Service selects other pods")
    for kind in ("PodDisruptionBudget", "ServiceMonitor"):
        if kind in documents:
            expect(documents[kind]["spec"]["selector"]["matchLabels"] == selector, f"{kind} selects other pods")
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    expect(mounted == {volume["name"] for volume in spec["volumes"]}, "volumes and mounts differ")
    named = {port["name"] for port in container["ports"]}
    targets = {port["targetPort"] for port in documents["Service"]["spec"]["ports"]}
    expect(named == targets, f"the Service leads to {targets}, the pods have {named}")
    for rule in documents.get("NetworkPolicy", {"spec": {"ingress": []}})["spec"]["ingress"]:
        expect({port["port"] for port in rule["ports"]} == named, f"the NetworkPolicy opens {rule['ports']}")
    security = {**spec["securityContext"], **container["securityContext"]}
    expect(security["runAsUser"] == 10001 and security["runAsNonRoot"], "the user of the image is 10001")
    expect(security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"], "the root is read-only")
    drain = int(rendered.environment()["QUOTABELL__SHUTDOWN__DRAIN"].removesuffix("s"))
    wait = int(container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["", 0])[1])
    expect(spec["terminationGracePeriodSeconds"] > drain + wait, "Kubernetes kills the pod before it has drained")
    expect(("replicas" in documents["Deployment"]["spec"]) != ("ScaledObject" in documents), "who sets the replicas?")


def check_configuration(rendered):
    """`quotabell check-config` accepts the file with the variables and secrets of the pod."""
    with tempfile.TemporaryDirectory() as folder:
        environment = rendered.mount(Path(folder))
        command = [BINARY, "check-config", "--offline"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        expect(done.returncode == 0, done.stderr)
        return tomllib.loads(done.stdout)


def manifests_are_those_of_the_chart():
    for version in "34":
        with tempfile.TemporaryDirectory() as folder:
            render.render(folder, version)
            for name in render.FILES:
                same = Path(folder, name).read_text() == (KUBERNETES / name).read_text()
                expect(same, f"packaging/kubernetes/{name} is not what Helm {version} renders: run make kubernetes")


def the_chart_has_the_version_of_the_program():
    chart = yaml.safe_load((render.CHART / "Chart.yaml").read_text())
    package = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]
    expect(chart["version"] == chart["appVersion"] == package, f"{chart} is not {package}")


def rules_are_those_of_the_one_file():
    alerts = yaml.safe_load(render.ALERTS.read_text())
    with Helm() as helm:
        rule = Rendered(helm, {"prometheusRule": {"enabled": True}}).documents["PrometheusRule"]
        expect(rule["spec"] == alerts, "the PrometheusRule is not packaging/alerts.yaml")
        based = {"prometheusRule": {"enabled": True, "docsUrl": "https://example.com/"}}
        for group in Rendered(helm, based).documents["PrometheusRule"]["spec"]["groups"]:
            for one in group["rules"]:
                expect(one["annotations"]["runbook_url"].startswith("https://example.com/docs/"), one)


def values_are_accepted(values):
    for version in "34":
        with Helm(version) as helm:
            findings = json.loads(helm.lint(render.CHART, values))
            grave = [one for one in findings["messages"] if one["severity"] != "INFO"]
            expect(findings["passed"] and not grave, f"helm lint with Helm {version}: {findings}")
            rendered = Rendered(helm, values)
            check_schemas(rendered)
            check_pod(rendered)
            check_configuration(rendered)


def settings_are_those_of_the_values():
    with Helm() as helm:
        of = lambda name: check_configuration(Rendered(helm, VALUES[name]))  # noqa: E731
        settings = of("numbers, quotes, dots and letters of every kind")
        expect(settings["plans"]["Größe 1"]["limits"] == {"tokens.in": 9007199254740991}, settings["plans"])
        expect(settings["retry"]["factor"] == 2.5 and settings["check"]["timeout"] == "100ms", settings)
        expect(settings["stream"]["key"] == 'a "b" \\ c', settings["stream"])
        expect(of("no values")["redis"]["url_file"].endswith("/redis_url"), "the secret is not used")
        everything = of("everything")
        expect([token["name"] for token in everything["http"]["tokens"]] == ["gateway", "shop"], everything["http"])
        console = {"listen": "0.0.0.0:9465", "public_url": "https://quota.example.com/console/"}
        expect(everything["console"] == console, everything["console"])
        expect(of("no values")["console"]["listen"] == "127.0.0.1:9465", "the console is exposed")
        expect(everything["shutdown"]["drain"] == "1m" and everything["stream"]["partitions"] == 8, everything)
        scaled = Rendered(helm, VALUES["everything"], namespace="prod").documents["ScaledObject"]
        query = scaled["spec"]["triggers"][0]["metadata"]["query"]
        series = 'quotabell_lag_entries{namespace="prod",job="quotabell"}'
        expect(query == f"sum(max by (partition) ({series}))", query)


def values_are_refused(values, message):
    for version in "34":
        with Helm(version) as helm:
            try:
                helm.template(render.CHART, values)
            except Refused as refusal:
                expect(message in str(refusal), f"Helm {version} says: {refusal}")
                continue
            raise AssertionError(f"Helm {version} accepts {values}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def status(url):
    try:
        return urllib.request.urlopen(url, timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def a_daemon_runs_with_the_manifests():
    """The daemon waits for Redis as the probes expect, becomes ready, and drains within the time that it gets."""
    texts = render.documents((KUBERNETES / "quotabell.yaml").read_text().split("---\n", 1)[1])
    rendered = Rendered.__new__(Rendered)
    rendered.documents = {kind: yaml.safe_load(text) for kind, text in texts.items()}
    container = rendered.container()
    probes = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    started = []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        environment = rendered.mount(folder)
        redis_port, http_port = free_port(), free_port()
        (folder / "redis_url").write_text(f"redis://127.0.0.1:{redis_port}\n")
        environment["QUOTABELL__HTTP__LISTEN"] = f"127.0.0.1:{http_port}"
        environment["QUOTABELL__CONSOLE__LISTEN"] = "off"
        asked = lambda probe: status(f"http://127.0.0.1:{http_port}{probes[probe]}")  # noqa: E731
        try:
            with open(folder / "log", "w") as log:
                started.append(subprocess.Popen([BINARY, *container["args"]], env=environment, stderr=log, cwd="/"))
            daemon = started[0]
            eventually("the daemon lives", lambda: asked("startupProbe") == 200)
            expect(asked("readinessProbe") == 503, "a daemon without Redis is ready")
            options = ["--port", str(redis_port), "--dir", str(folder), "--appendonly", "yes"]
            options += ["--maxmemory-policy", "noeviction"]
            started.append(subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL))
            eventually("the daemon is ready", lambda: asked("readinessProbe") == 200)
            expect(asked("livenessProbe") == 200, "a ready daemon lives")
            daemon.send_signal(signal.SIGTERM)
            expect(daemon.wait(rendered.pod()["spec"]["terminationGracePeriodSeconds"]) == 0, "the drain failed")
        except Exception:
            print((folder / "log").read_text(), file=sys.stderr)
            raise
        finally:
            for process in started:
                if process.poll() is None:
                    process.terminate()
                    process.wait(20)


def tests():
    yield "the manifests are those of the chart", manifests_are_those_of_the_chart
    yield "the chart has the version of the program", the_chart_has_the_version_of_the_program
    yield "rules are those of packaging/alerts.yaml", rules_are_those_of_the_one_file
    for name, values in VALUES.items():
        yield f"accepted: {name}", lambda values=values: values_are_accepted(values)
    yield "settings are those of the values", settings_are_those_of_the_values
    for values, message in REFUSED:
        yield f"refused: {message}", lambda values=values, message=message: values_are_refused(values, message)
    yield "a daemon runs with the manifests", a_daemon_runs_with_the_manifests


def main():
    passed = failed = 0
    for name, test in tests():
        try:
            test()
            passed += 1
            print(f"ok    {name}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL  {name}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
