"""Runs each producer with the files of packaging/producers, and compares what quotabell counts with what was sent:
`run.py BINARY [PRODUCER]...`. tools/test-producers.sh fetches what this needs.
"""

import gzip
import http.server
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/gateways"))
from programs import Daemon, Program, backend, call, eventually, free_port, listens, redis  # noqa: E402

FILES = ROOT / "packaging/producers"
SYSLOG_NG = ROOT / "target/peers/syslog-ng"
# The programs that no registry has.
FLUENT_BIT = os.environ.get("FLUENT_BIT")
VECTOR = os.environ.get("VECTOR")
REDPANDA_CONNECT = os.environ.get("REDPANDA_CONNECT")
# A name that rsyslog would split at its spaces, and whose `%s` would end it.
ODD = 'kunde-é "x" %s \\ 😀'
NGINX_CONF = """
user root;
daemon off;
pid nginx.pid;
events { worker_connections 512; }
http {
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include usage.conf;
    server {
        listen 127.0.0.1:PORT;
        location / { proxy_pass http://127.0.0.1:API; }
    }
}
"""


def expect(what, sent, counted):
    if sent != counted:
        sys.exit(f"FAILED {what}: sent {sent}, counted {counted}")
    print(f"  {what}: {counted}", flush=True)


class Run:
    """One producer with programs of its own, which are stopped at the end."""

    # Settings of the daemon, TOML.
    SETTINGS = ""

    def __init__(self, binary, folder, stack):
        self.folder, self.stack, self.sent = folder, stack, {}
        folder.mkdir()
        # Keeps the events when it is killed.
        self.redis_options = ["--appendonly", "yes", "--appendfsync", "always"]
        self.redis = self.start(redis(folder, *self.redis_options))
        self.daemon = self.start(Daemon(binary, folder, self.redis.port, self.SETTINGS))

    def start(self, program):
        self.stack.callback(program.stop)
        return program

    def restart_redis(self):
        self.redis = self.start(redis(self.folder, *self.redis_options, port=self.redis.port))

    def redis_cli(self, *arguments):
        command = ["redis-cli", "-p", str(self.redis.port), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def counted(self):
        """What has been counted today, by subject and metric."""
        used = {}
        for subject, metric in self.sent:
            # The path names the subject of one test by its bytes.
            path = "".join(f"%{byte:02X}" for byte in subject.encode())
            answer = self.daemon.admin("GET", f"/v1/subjects/{path}/usage")
            # Such as a 503 while Redis is away.
            told = answer.json()["metrics"] if answer.status == 200 else []
            metrics = {metric["metric"]: metric["windows"] for metric in told}
            days = [window["used"] for window in metrics.get(metric, []) if window["window"] == "day"]
            used[subject, metric] = days[0] if days else 0
        return used

    def write(self, file, used_as, changes):
        """Copies a file of packaging/producers with paths in the folder."""
        text = (FILES / file).read_text()
        for old, new in changes.items():
            assert old in text, f"{file}: {old} is missing"
            text = text.replace(old, new)
        (self.folder / used_as).write_text(text)

    def expect_counted(self, what):
        try:
            eventually("all is counted", lambda: self.counted() == self.sent)
        except TimeoutError:
            for log in sorted(self.folder.glob("*.log")):
                print(f"{log.name}: {log.read_text()[-2000:]}")
        expect(what, self.sent, self.counted())
        metrics = call(self.daemon.port, target="/metrics").body.decode().splitlines()
        refused = [line for line in metrics if line.startswith("quotabell_events_refused_total{") and line[-2:] != " 0"]
        expect(f"{what}, refused", [], refused)


class AccessLog(Run):
    """nginx and syslog-ng."""

    def __init__(self, binary, folder, stack):
        super().__init__(binary, folder, stack)
        self.api = self.start(backend(folder))
        self.port = free_port()
        self.log = folder / "usage.log"
        name = ODD.replace("\\", "\\\\").replace('"', '\\"')
        logs = {"/var/log/nginx/": f"{folder}/"}
        self.write("nginx-usage.conf", "usage.conf", logs | {'"bob"': f'"{name}"'})
        (folder / "nginx.conf").write_text(NGINX_CONF.replace("PORT", str(self.port)).replace("API", str(self.api.port)))
        command = ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
        self.nginx = self.start(Program(command, folder / "nginx.log"))
        self.nginx.waits_for("listens", lambda: listens(self.port))
        self.write("syslog-ng.conf", "quotabell.conf", logs | {"port(6379)": f"port({self.redis.port})"})
        (folder / "main.conf").write_text(f'@version: 3.38\n@include "{folder}/quotabell.conf"\n')
        self.syslog_ng = self.start_syslog_ng()

    def start_syslog_ng(self):
        libraries = [SYSLOG_NG / "usr/lib/syslog-ng", *SYSLOG_NG.glob("usr/lib/*-linux-gnu"), *SYSLOG_NG.glob("lib/*-linux-gnu")]
        command = [str(SYSLOG_NG / "usr/sbin/syslog-ng"), "--foreground", "--stderr", "--no-caps"]
        command += [f"--module-path={SYSLOG_NG}/usr/lib/syslog-ng/3.38", f"--cfgfile={self.folder}/main.conf"]
        command += [f"--{name}={self.folder}/{name}" for name in ("persist-file", "pidfile", "control")]
        environment = {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}
        return self.start(Program(command, self.folder / "syslog-ng.log", environment))

    def ask(self, key, subject, target="/orders", method="GET", units=1):
        """A request whose units are counted for the subject, if there is one."""
        answer = call(self.port, method, target, [("X-Api-Key", key)] if key else [])
        if subject:
            self.sent[subject, "requests"] = self.sent.get((subject, "requests"), 0) + units
        return answer.status

    def alice(self, times):
        for _ in range(times):
            self.ask("key-of-alice", "alice")

    def play(self):
        for _ in range(3):
            self.ask("key-of-alice", "alice")
        self.ask("key-of-alice", "alice", method="POST")
        self.ask("key-of-alice", "alice", "/units/1234", units=1234)
        self.ask("key-of-alice", "alice", "/units/-5")
        self.ask("key-of-alice", "alice", "/units/0", units=0)
        self.ask("key-of-bob", ODD, '/a%22%5C?"%20x', units=1)
        # These are not counted.
        for target in ["/status/404", "/status/500", "/status/302"]:
            self.ask("key-of-alice", None, target)
        self.ask("key-of-eve", None)
        self.ask(None, None)
        self.expect_counted("requests")

        self.redis_cli("config", "set", "maxmemory", "1")
        self.alice(5)
        log = self.folder / "syslog-ng.log"
        # More often than the 3 times after which syslog-ng drops a line by default.
        eventually("Redis refuses", lambda: log.read_text().count("OOM") > 4)
        self.redis_cli("config", "set", "maxmemory", "0")
        self.expect_counted("requests while Redis refuses")

        self.redis.kill()
        self.alice(5)
        eventually("Redis is missed", lambda: log.read_text().count("Connection refused") > 4)
        self.restart_redis()
        self.expect_counted("requests while Redis is away")

        for _ in range(3):
            self.alice(100)
            self.syslog_ng.kill()
            self.alice(20)
            self.syslog_ng = self.start_syslog_ng()
        self.expect_counted("requests while syslog-ng is killed")

        for number in range(3):
            self.alice(50)
            self.rotate(number)
            self.expect_counted("requests while the log is rotated")

        # More lines than syslog-ng reads ahead.
        self.redis_cli("config", "set", "maxmemory", "1")
        self.alice(500)
        self.rotate(3)
        self.redis_cli("config", "set", "maxmemory", "0")
        self.expect_counted("requests while the log is rotated and Redis refuses")

    def rotate(self, number):
        """As logrotate does."""
        self.log.rename(self.folder / f"usage.log.{number}")
        self.alice(5)
        self.nginx.send(signal.SIGUSR1)
        eventually("nginx opens the new file", self.log.exists)
        self.alice(5)


class LiteLlm(Run):
    SETTINGS = '[stream]\npartitions = 4\n[subjects]\nseparator = "/"\n'

    def play(self):
        command = [sys.executable, str(Path(__file__).with_name("litellm_calls.py")), str(FILES)]
        # Without asking a server for the prices of models.
        environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        environment |= {"QUOTABELL_REDIS_URL": f"redis://127.0.0.1:{self.redis.port}"}
        environment |= {"QUOTABELL_PARTITIONS": "4", "QUOTABELL_SEPARATOR": "/"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.redis.kill()
        with (self.folder / "litellm.log").open("wb") as log:
            calls = subprocess.Popen(command, env=environment, stderr=log, text=True, **pipes)
        try:
            told = json.loads(calls.stdout.readline())
            self.restart_redis()
            self.sent = {("acme/alice", metric): units for metric, units in told.items()}
            self.expect_counted("tokens")
            # Two for each completion that somebody pays for.
            information = self.redis_cli("xinfo", "stream", "usage:2").splitlines()
            expect("events", "6", information[information.index("entries-added") + 1])
        finally:
            calls.stdin.close()
            calls.wait()


class Scripted(http.server.BaseHTTPRequestHandler):
    """Answers with one status after the other, then with 202, and keeps the events of each request."""

    statuses, requests = [], []

    def do_POST(self):
        body = gzip.decompress(self.rfile.read(int(self.headers["content-length"])))
        self.requests.append([json.loads(line)["id"] for line in body.splitlines()])
        self.send_response(self.statuses.pop(0) if self.statuses else 202)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Shipper(Run):
    """A program that sends the lines of a log over HTTP, and the log as nginx-usage.conf writes it."""

    # What it logs when it watches the log, when it will send a request again, and when it drops one.
    WATCHES, REPEATS, DROPS = "", "", ""
    # The answers after which it sends a request again.
    REPEATED = []

    def __init__(self, binary, folder, stack):
        super().__init__(binary, folder, stack)
        self.log, self.ids, self.output = folder / "usage.log", 0, folder / "shipper.log"
        self.output.touch()
        self.lines(5)
        self.shipper = self.start_shipper(self.daemon.port)

    def configured(self, port):
        """Its command, with the configuration for this port."""
        raise NotImplementedError

    def start_shipper(self, port):
        command, watched = self.configured(port), self.said(self.WATCHES)
        program = self.start(Program(command, self.output, {"VECTOR_INTERNAL_LOG_RATE_LIMIT": "0"}))
        program.waits_for("watches the log", lambda: self.said(self.WATCHES) > watched)
        return program

    def lines(self, number, subject="alice", units=1, is_short=False):
        with self.log.open("a") as log:
            for self.ids in range(self.ids + 1, self.ids + number + 1):
                event = {"subject": subject, "metric": "requests", "units": str(units), "id": f"{self.ids:032x}"}
                event["ts"] = str(int(time.time() * 1000))
                if is_short:
                    event = {"subject": subject, "id": event["id"]}
                log.write(json.dumps(event) + "\n")
        self.sent[subject, "requests"] = self.sent.get((subject, "requests"), 0) + number * units

    def said(self, text):
        return self.output.read_text(errors="replace").count(text)

    def play(self):
        self.lines(1, ODD, 1234)
        self.expect_counted("lines")

        self.redis_cli("config", "set", "maxmemory", "1")
        self.lines(5)
        eventually("Redis refuses", lambda: self.said(self.REPEATS) > 2)
        self.redis_cli("config", "set", "maxmemory", "0")
        self.expect_counted("lines while Redis refuses")

        self.redis.kill()
        self.lines(5)
        before = self.said(self.REPEATS)
        eventually("Redis is missed", lambda: self.said(self.REPEATS) > before + 2)
        self.restart_redis()
        self.expect_counted("lines while Redis is away")

        for _ in range(3):
            self.lines(100)
            self.shipper.kill()
            self.lines(20)
            self.shipper = self.start_shipper(self.daemon.port)
        self.expect_counted("lines while it is killed")

        for _ in range(3):
            self.lines(20)
            self.log.rename(self.folder / "usage.log.1")
            self.lines(20)
            self.expect_counted("lines while the log is rotated")

        self.shipper.kill()
        self.lines(40_000, is_short=True)
        self.shipper = self.start_shipper(self.daemon.port)
        self.expect_counted("lines of a long outage")
        expect("requests that were dropped", 0, self.said(self.DROPS))

        with self.log.open("a") as log:
            log.write('{"subject":"alice","units":"many"}\n')
        eventually("it is dropped", lambda: self.said(self.DROPS) == 1)
        self.lines(1)
        eventually("the next line is counted", lambda: self.counted() == self.sent)
        self.shipper.stop()
        self.repeats()

    def repeats(self):
        """Each status in turn, from a server in place of quotabell."""
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scripted) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.log.unlink()
            (self.folder / "usage.log.1").unlink()
            self.lines(1)
            Scripted.statuses[:], Scripted.requests[:] = [*self.REPEATED, 202], []
            self.shipper = self.start_shipper(server.server_port)
            eventually("it is sent again", lambda: len(Scripted.requests) > len(self.REPEATED))
            for status in [400, 413]:
                Scripted.statuses.append(status)
                sent = len(Scripted.requests)
                self.lines(1)
                eventually("it is sent", lambda: len(Scripted.requests) > sent)
            self.lines(1)
            eventually("the next one is sent", lambda: Scripted.requests[-1] == [f"{self.ids:032x}"])
            self.shipper.stop()
            server.shutdown()
        ids = [f"{number:032x}" for number in range(self.ids - 3, self.ids + 1)]
        repeated = [ids[:1]] * len(self.REPEATED)
        expect("events by request", repeated + [[one] for one in ids], Scripted.requests)


class FluentBit(Shipper):
    WATCHES, REPEATS, DROPS = "inotify_fs_add", "HTTP status=503", "will not be retried"
    REPEATED = [408, 429, 500, 503]

    def configured(self, port):
        changes = {"/var/log/nginx/": f"{self.folder}/", "/var/lib/fluent-bit/": f"{self.folder}/{port}-"}
        # Without the pauses of a long outage.
        changes |= {"port: 9464": f"port: {port}", "scheduler.cap: 30": "scheduler.cap: 2\n  scheduler.base: 1"}
        self.write("fluent-bit.yaml", "fluent-bit.yaml", changes)
        return [FLUENT_BIT, "-c", str(self.folder / "fluent-bit.yaml")]


class Vector(Shipper):
    WATCHES, REPEATS, DROPS = "to watch", "Retrying after response.", "dropping the request."
    REPEATED = [401, 403, 404, 408, 429, 500, 502, 503, 504]

    def configured(self, port):
        data = self.folder / f"vector-{port}"
        data.mkdir(exist_ok=True)
        changes = {"/var/log/nginx/": f"{self.folder}/", "/var/lib/vector": str(data), ":9464/": f":{port}/"}
        # Without the pauses of a long outage.
        changes |= {"    batch:": "    request: { retry_max_duration_secs: 1 }\n    batch:"}
        self.write("vector.yaml", "vector.yaml", changes)
        return [VECTOR, "--config", str(self.folder / "vector.yaml")]


class RedpandaConnect(Run):
    """Messages from a file in place of Kafka."""

    MESSAGES = [
        {"customer": "alice", "request_id": "r1", "units": 3},
        {"customer": "alice", "request_id": "r1", "units": 3},
        {"customer": "alice", "request_id": 2},
        {"customer": "alice", "request_id": "2"},
        {"customer": "alice"},
        {"customer": "alice", "request_id": None, "units": None},
        {"customer": ODD, "request_id": "r3", "units": "4"},
        {"customer": 7, "request_id": "r4", "units": 2_500_000},
    ]

    def play(self):
        messages = self.folder / "messages"
        messages.write_text("".join(json.dumps(message) + "\n" for message in self.MESSAGES))
        text = (FILES / "redpanda-connect.yaml").read_text()
        kafka = text[text.index("input:") : text.index("pipeline:")]
        changes = {kafka: f"input:\n  file: {{ paths: [{messages}] }}\n", ":4195": f":{free_port()}"}
        self.write("redpanda-connect.yaml", "connect.yaml", changes | {":6379": f":{self.redis.port}"})
        self.redis.kill()
        log = self.folder / "connect.log"
        connect = self.start(Program([REDPANDA_CONNECT, "run", str(self.folder / "connect.yaml")], log))
        connect.waits_for("misses Redis", lambda: "connection refused" in log.read_text())
        self.restart_redis()
        self.sent = {("alice", "requests"): 6, (ODD, "requests"): 4, ("7", "requests"): 2_500_000}
        self.expect_counted("messages while Redis is away")


PRODUCERS = {
    "nginx": AccessLog,
    "fluent-bit": FluentBit,
    "vector": Vector,
    "litellm": LiteLlm,
    "redpanda-connect": RedpandaConnect,
}
# What the environment names; None if it does not.
PROGRAMS = {"fluent-bit": FLUENT_BIT, "vector": VECTOR, "redpanda-connect": REDPANDA_CONNECT}


def main():
    binary, *chosen = sys.argv[1:]
    if unknown := set(chosen) - set(PRODUCERS):
        sys.exit(f"error: no producer is named {', '.join(sorted(unknown))}\nhint: {', '.join(PRODUCERS)}")
    names = list(chosen or PRODUCERS)
    lacking = [name for name in names if PROGRAMS.get(name, "there") is None]
    for name in names:
        if name in lacking:
            continue
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
            PRODUCERS[name](str(Path(binary).resolve()), Path(temporary) / name, stack).play()
    for name in lacking:
        variable = name.upper().replace("-", "_")
        print(f"not run: {name} ({variable} must name the program)")


main()
