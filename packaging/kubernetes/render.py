#!/usr/bin/env python3
"""Renders the manifests of this folder from the chart.

    render.py [FOLDER]      writes quotabell.yaml, monitoring.yaml and keda.yaml into FOLDER, by default this one

`make kubernetes` installs what it needs and runs it; `make test-kubernetes` renders again and compares.
"""

import re
import sys
from pathlib import Path

import yaml

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from helm import Helm  # noqa: E402

CHART = HERE.parent / "helm" / "quotabell"
ALERTS = HERE.parent / "alerts.yaml"

# Values beside those of values.yaml, the kinds that a file takes of what they render, and its first lines.
FILES = {
    "quotabell.yaml": (
        {},
        ["ConfigMap", "Deployment", "Service", "PodDisruptionBudget"],
        """\
The daemon. Change the configuration and the image, and create the secrets first:

  kubectl create namespace quotabell
  kubectl -n quotabell create secret generic quotabell-redis --from-literal=url=redis://user:password@redis:6379/0
  kubectl -n quotabell create secret generic quotabell-smtp --from-literal=url=smtps://user:password@mail:465
  kubectl -n quotabell create secret generic quotabell-http --from-literal=token="$(openssl rand -hex 32)"
  kubectl -n quotabell apply -f quotabell.yaml""",
    ),
    "monitoring.yaml": (
        {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
        ["ServiceMonitor", "PrometheusRule"],
        """\
For the Prometheus operator. Add the labels by which your Prometheus selects monitors and rules:

  kubectl -n quotabell apply -f monitoring.yaml""",
    ),
    "keda.yaml": (
        {
            "keda": {"enabled": True, "serverAddress": "http://prometheus-operated.monitoring.svc:9090"},
            "config": {"stream": {"partitions": 4}},
        },
        ["ScaledObject"],
        """\
For KEDA, with several partitions. Change the address of Prometheus, set stream.partitions to maxReplicaCount or more,
and remove `replicas` from the Deployment, so that applying it again does not undo the scaling.""",
    ),
}


def documents(rendered):
    """The text of each document by its kind."""
    texts = (text.strip() for text in re.split(r"(?m)^---\n", rendered))
    return {yaml.safe_load(text)["kind"]: text for text in texts if text}


def render(folder, version="4"):
    base = yaml.safe_load((HERE / "values.yaml").read_text())
    with Helm(version) as helm:
        for name, (extra, kinds, title) in FILES.items():
            values = {**base, **extra, "config": {**base["config"], **extra.get("config", {})}}
            of_kind = documents(helm.template(CHART, values))
            head = "".join(f"# {line}".rstrip() + "\n" for line in title.splitlines())
            head += "#\n# Rendered from packaging/helm/quotabell by `make kubernetes`.\n"
            text = head + "".join(f"---\n{of_kind[kind]}\n" for kind in kinds)
            Path(folder, name).write_text(re.sub(r"[ \t]+\n", "\n", text))


if __name__ == "__main__":
    # Helm reads no file outside the chart.
    (CHART / "alerts.yaml").write_text(ALERTS.read_text())
    render(sys.argv[1] if len(sys.argv) > 1 else HERE)
