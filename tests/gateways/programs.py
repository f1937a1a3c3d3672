"""The programs around the gateways: Redis, the daemon and the API. Each is stopped by its process id."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

WAIT_MAX_S = 20
# The files of packaging/gateways have this in place of a token, so the tests use it as one.
GATEWAY_TOKEN = "REPLACE-WITH-THE-TOKEN"
OTHER_TOKEN = "another-token-0123456789"
ADMIN_TOKEN = "a-token-that-may-do-everything"


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def eventually(what, condition):
    """Waits until the condition holds, and returns what it returned."""
    deadline = time.monotonic() + WAIT_MAX_S
    while not (held := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {WAIT_MAX_S} s: {what}")
        os.sched_yield()
    return held


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


class Answer:
    def __init__(self, response, took_s):
        self.status, self.took_s = response.status, took_s
        self.body = response.read()
        self.headers = response.headers

    def json(self):
        return json.loads(self.body)

    @property
    def reached(self):
        """Whether the API answered."""
        return self.headers.get("x-api") == "reached"


def call(port, method="GET", target="/", headers=(), body=None, connection=None):
    """One request, with the target as it is, and with any header any number of times."""
    client = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_MAX_S)
    start = time.monotonic()
    client.putrequest(method, target, skip_accept_encoding=True)
    for name, value in headers:
        client.putheader(name, value)
    if body is not None:
        client.putheader("Content-Length", str(len(body)))
    client.endheaders(body)
    answer = Answer(client.getresponse(), time.monotonic() - start)
    if connection is None:
        client.close()
    return answer


class Program:
    """A process with its log in a file."""

    def __init__(self, command, log, environment=None, cwd=None):
        self.log, self.name = log, Path(command[0]).name
        ours = {name: value for name, value in os.environ.items() if not name.startswith("QUOTABELL")}
        with log.open("ab") as file:
            options = {
                "stdin": subprocess.DEVNULL,
                "stdout": file,
                "stderr": file,
                "env": ours | (environment or {}),
                "cwd": cwd,
            }
            self.process = subprocess.Popen(command, **options)

    def waits_for(self, what, condition):
        def check():
            if self.process.poll() is not None:
                raise ChildProcessError(f"{self.name} ended with {self.process.returncode}:\n{self.log.read_text()}")
            return condition()

        return eventually(f"{self.name} {what}; its log: {self.log}", check)

    def send(self, number):
        self.process.send_signal(number)

    def stop(self):
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            try:
                self.process.wait(WAIT_MAX_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self):
        self.send(signal.SIGKILL)
        self.process.wait()


def backend(folder):
    port = free_port()
    program = Program([sys.executable, str(Path(__file__).with_name("backend.py")), str(port)], folder / "api.log")
    program.waits_for("listens", lambda: listens(port))
    program.port = port
    return program


def redis(folder, *options, port=None):
    port = port or free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder), *options]
    program = Program(command, folder / "redis.log")
    program.waits_for("listens", lambda: listens(port))
    program.port = port
    return program


class Daemon(Program):
    """quotabell with a token for gateways, `check.on_error = "deny"`, and a plan of 5,000 requests a day."""

    def __init__(self, binary, folder, redis_port, more=""):
        self.port = free_port()
        self.folder = folder
        (folder / "admin-token").write_text(ADMIN_TOKEN)
        self.write_tokens(GATEWAY_TOKEN, OTHER_TOKEN)
        config = folder / "quotabell.toml"
        config.write_text(
            f'[redis]\nurl = "redis://127.0.0.1:{redis_port}"\n'
            f'[http]\nlisten = "127.0.0.1:{self.port}"\ntoken_file = "{folder}/admin-token"\n'
            f'[[http.tokens]]\nname = "gateway"\nfile = "{folder}/gateway-token"\nscopes = ["check", "events:write"]\n'
            f'[[http.tokens]]\nname = "reader"\nfile = "{folder}/reader-token"\nscopes = ["read"]\n'
            '[console]\nlisten = "off"\n[check]\non_error = "deny"\n[plans.unlimited]\nlimits = {}\n' + more
        )
        super().__init__([binary, "run", "--config", str(config)], folder / "quotabell.log")
        self.waits_for("is ready", lambda: listens(self.port) and call(self.port, target="/readyz").status == 200)

    def admin(self, method, target, body=None):
        headers = [("Authorization", f"Bearer {ADMIN_TOKEN}"), ("Content-Type", "application/json")]
        return call(self.port, method, target, headers, None if body is None else json.dumps(body).encode())

    def set_subject(self, subject, settings):
        answer = self.admin("PUT", f"/v1/subjects/{subject}", settings)
        assert answer.status == 200, answer.body

    def hang(self):
        """Stops it until it is killed. Returns when each thread has stopped."""
        self.send(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.process.pid}/task")

        def is_stopped():
            return all(b") T " in (task / "stat").read_bytes() for task in tasks.iterdir())

        eventually("the daemon stops", is_stopped)

    def write_tokens(self, gateway, reader):
        (self.folder / "gateway-token").write_text(gateway)
        (self.folder / "reader-token").write_text(reader)

    def set_tokens(self, gateway, reader):
        self.write_tokens(gateway, reader)
        answer = self.admin("POST", "/v1/reload", {})
        assert answer.status == 200, answer.body
