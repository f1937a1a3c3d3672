"""Checks the dashboard in packaging/grafana: it is what its script writes, and each query answers on a Prometheus.

Run by tools/test-grafana.sh. Two daemons share a stream of two partitions. Events, checks, webhooks that arrive and
emails that fail keep them at work until every query has data. The expressions of the alert rules are asked too.
"""

import http.server
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import promql_parser
import yaml

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "packaging" / "grafana"
BINARY = Path(os.environ["QUOTABELL"]).resolve()
PROMETHEUS = Path(os.environ["PROMETHEUS"])
TOKEN = "0123456789abcdef-of-a-test"
# What Grafana replaces. Prometheus scrapes every second here.
VARIABLES = {"$__rate_interval": "5s", "$__range": "1m", "$namespace": ".*", "$job": ".+", "$instance": ".+"}
SECONDS_MAX = 120


def expect(holds, message):
    if not holds:
        raise AssertionError(message)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def answers(url):
    try:
        return bool(get(url))
    except OSError:
        return False


def eventually(what, probe, seconds=60):
    """Asks until the answer is true, with a bound."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := probe():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


class Query:
    """An expression of a panel or a rule, as Prometheus gets it."""

    def __init__(self, where, expression, legend=""):
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        self.where, self.expression, self.legend = where, expression, legend

    def metrics(self):
        """The names of the metrics, by another parser than Prometheus'."""
        found = set()

        def visit(node):
            if isinstance(node, promql_parser.VectorSelector):
                found.add(node.name)
            for name in ("expr", "lhs", "rhs", "vector_selector", "param", "args"):
                inner = getattr(node, name, None)
                for one in inner if isinstance(inner, list) else [inner]:
                    if one is not None and not isinstance(one, (str, int, float)):
                        visit(one)

        visit(promql_parser.parse(self.expression))
        expect(found, f"{self.where} asks for no metric: {self.expression}")
        return {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}


def queries_of_panels(dashboard):
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield Query(f"the panel {panel['title']}", target["expr"], target["legendFormat"])


def queries_of_rules():
    for group in yaml.safe_load((ROOT / "packaging" / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield Query(f"the rule {rule['alert']}", rule["expr"])


class Receiver(http.server.BaseHTTPRequestHandler):
    """Accepts every webhook."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Deployment:
    """Redis, two daemons, a receiver and Prometheus, in a folder of their own."""

    def __init__(self, folder):
        self.folder, self.processes, self.rounds = Path(folder), [], 0
        self.receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=self.receiver.serve_forever, daemon=True).start()
        self.redis = free_port()
        self.daemons = [free_port(), free_port()]
        self.prometheus = f"http://127.0.0.1:{free_port()}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            process.wait(60)
        self.receiver.shutdown()

    def environment(self):
        url = f"http://127.0.0.1:{self.receiver.server_port}/"
        hook = {"channel": "webhook", "url": url, "secret": "whsec_" + "a" * 32}
        settings = {
            "REDIS__URL": f"redis://127.0.0.1:{self.redis}",
            "STREAM__PARTITIONS": "2",
            "HTTP__TOKEN": TOKEN,
            # One port for two daemons.
            "CONSOLE__LISTEN": "off",
            "WEBHOOK__ALLOW_HTTP": "true",
            "WEBHOOK__ALLOW_PRIVATE_NETWORKS": "true",
            "EMAIL__SMTP_URL": f"smtp://127.0.0.1:{free_port()}",
            "FALLBACK__CONTACTS": json.dumps([hook, {"channel": "email", "address": "a@example.com"}]),
        }
        return {"PATH": os.environ["PATH"], **{f"QUOTABELL__{name}": value for name, value in settings.items()}}

    def spawn(self, name, command, **options):
        log = open(self.folder / f"{name}.log", "w")
        self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **options))

    def start(self):
        options = ["--port", str(self.redis), "--save", "", "--maxmemory-policy", "noeviction"]
        self.spawn("redis", ["redis-server", *options])
        for port in self.daemons:
            environment = {**self.environment(), "QUOTABELL__HTTP__LISTEN": f"127.0.0.1:{port}"}
            self.spawn(f"daemon-{port}", [BINARY, "run"], env=environment)
        for port in self.daemons:
            eventually("a daemon is ready", lambda: answers(f"http://127.0.0.1:{port}/readyz"))
        scrape = {
            "job_name": "quotabell",
            "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in self.daemons]}],
        }
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ROOT / "packaging" / "alerts.yaml")],
            "scrape_configs": [scrape],
        }
        (self.folder / "prometheus.yml").write_text(json.dumps(settings))
        address = self.prometheus.removeprefix("http://")
        options = ["--config.file=prometheus.yml", f"--web.listen-address={address}", "--storage.tsdb.path=series"]
        self.spawn("prometheus", [PROMETHEUS, *options])
        eventually("Prometheus is ready", lambda: answers(f"{self.prometheus}/-/ready"))

    def work(self):
        """Events that raise alerts, and checks."""
        self.rounds += 1
        for number in range(4):
            subject = f"subject-{self.rounds}-{number}"
            command = [BINARY, "emit", "--subject", subject, "--units", "5000"]
            subprocess.run(command, env=self.environment(), check=True, capture_output=True, timeout=60)
            body = json.dumps({"subject": subject, "metric": "requests", "units": 1}).encode()
            headers = {"content-type": "application/json", "authorization": f"Bearer {TOKEN}"}
            url = f"http://127.0.0.1:{self.daemons[number % 2]}/v1/check"
            try:
                urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10)
            except urllib.error.HTTPError as error:
                expect(error.code == 429, f"a check was answered with {error.code}")

    def redis_cli(self, *command):
        options = ["redis-cli", "-p", str(self.redis)]
        subprocess.run([*options, *command], check=True, capture_output=True, timeout=60)

    def disturb(self):
        """Another group keeps entries, and a key of the second partition is overwritten, which stops its counting."""
        self.redis_cli("XGROUP", "CREATE", "usage:0", "idle", "0", "MKSTREAM")
        self.redis_cli("SET", "quota_checkpoint:{usage:1}", "overwritten")

    def declared(self):
        """The metrics that the daemons report."""
        texts = "\n".join(get(f"http://127.0.0.1:{port}/metrics") for port in self.daemons)
        return set(re.findall(r"(?m)^# TYPE (\w+)", texts))

    def ask(self, query):
        parameters = urllib.parse.urlencode({"query": query.expression})
        try:
            answer = json.loads(get(f"{self.prometheus}/api/v1/query?{parameters}"))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query.where}: {error.read().decode()}: {query.expression}") from None
        expect(answer["status"] == "success", f"{query.where}: {answer}")
        return [one for one in answer["data"]["result"] if one["value"][1] != "NaN"]


def the_dashboard_is_what_its_script_writes():
    specification = importlib.util.spec_from_file_location("dashboard", FOLDER / "dashboard.py")
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    same = (FOLDER / "quotabell.json").read_text() == script.text()
    expect(same, "packaging/grafana/quotabell.json is not what dashboard.py writes: run make grafana")


def panels_are_within_the_grid_and_apart(dashboard):
    taken, numbers = {}, [panel["id"] for panel in dashboard["panels"]]
    expect(len(set(numbers)) == len(numbers), "two panels have the same id")
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        expect(at["x"] + at["w"] <= 24, f"{panel['title']} is too wide")
        for cell in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            other = taken.setdefault(cell, panel["title"])
            expect(other is panel["title"], f"{panel['title']} covers {other}")


def metrics_exist(queries, declared):
    expect(len(declared) > 30, f"the daemons report only {declared}")
    for query in queries:
        unknown = query.metrics() - declared
        expect(not unknown, f"{query.where} asks for {unknown}")


def every_metric_has_a_panel(queries, declared):
    shown = {name for query in queries for name in query.metrics()}
    expect(declared <= shown, f"no panel shows {declared - shown}")


def queries_have_data(deployment, queries):
    waiting = list(queries)
    end = time.monotonic() + SECONDS_MAX
    while waiting and time.monotonic() < end:
        deployment.work()
        waiting = [query for query in waiting if not deployment.ask(query)]
    expect(not waiting, "no data: " + ", ".join(f"{query.where} ({query.expression})" for query in waiting))
    for query in queries:
        result = deployment.ask(query)
        for label in re.findall(r"{{(\w+)}}", query.legend):
            # One partition and a daemon outside Kubernetes have no such label.
            named = all(label in one["metric"] for one in result)
            expect(named, f"{query.where} has no label {label} for its legend: {result[:1]}")


def rules_are_evaluated(deployment, rules):
    for query in rules:
        query.metrics()
        deployment.ask(query)
    groups = json.loads(get(f"{deployment.prometheus}/api/v1/rules"))["data"]["groups"]
    evaluated = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    expect(len(evaluated) == len(rules), f"Prometheus has {evaluated}")
    bad = {name for name, health in evaluated.items() if health not in ("ok", "unknown")}
    expect(not bad, f"Prometheus can't evaluate {bad}")


def faults_are_found(deployment, declared):
    """The test can fail."""
    for expression in ("sum(rate(quotabell_event_counted_total[5m]))",):
        try:
            metrics_exist([Query("a sample", expression)], declared)
        except AssertionError:
            continue
        raise AssertionError(f"accepted: {expression}")
    for expression in ("sum(rate(quotabell_lag_entries[5m])", "rate(quotabell_lag_entries)"):
        try:
            query = Query("a sample", expression)
            query.metrics()
            deployment.ask(query)
        except (AssertionError, ValueError):
            continue
        raise AssertionError(f"accepted: {expression}")


def main():
    passed = failed = 0

    def test(name, *arguments):
        nonlocal passed, failed
        try:
            name(*arguments)
            passed += 1
            print(f"ok    {name.__name__.replace('_', ' ')}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL  {name.__name__.replace('_', ' ')}\n{traceback.format_exc()}", flush=True)

    test(the_dashboard_is_what_its_script_writes)
    dashboard = json.loads((FOLDER / "quotabell.json").read_text())
    test(panels_are_within_the_grid_and_apart, dashboard)
    queries, rules = list(queries_of_panels(dashboard)), list(queries_of_rules())
    with tempfile.TemporaryDirectory() as folder, Deployment(folder) as deployment:
        deployment.start()
        deployment.disturb()
        test(queries_have_data, deployment, queries)
        declared = deployment.declared()
        test(metrics_exist, queries + rules, declared)
        test(every_metric_has_a_panel, queries, declared)
        test(rules_are_evaluated, deployment, rules)
        test(faults_are_found, deployment, declared)
    print(f"{len(queries)} queries of panels and {len(rules)} of rules; {len(declared)} metrics")
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
