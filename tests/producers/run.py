"""Runs each producer with the files of packaging/producers, and compares what quotabell counts with what was sent:
`run.py BINARY [nginx] [litellm]`. tools/test-producers.sh fetches what this needs.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/gateways"))
from programs import Daemon, Program, backend, call, eventually, free_port, listens, redis  # noqa: E402

FILES = ROOT / "packaging/producers"
SYSLOG_NG = ROOT / "target/peers/syslog-ng"
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
        self.write("nginx-usage.conf", "usage.conf", {'"bob"': f'"{name}"'})
        (folder / "nginx.conf").write_text(NGINX_CONF.replace("PORT", str(self.port)).replace("API", str(self.api.port)))
        command = ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
        self.nginx = self.start(Program(command, folder / "nginx.log"))
        self.nginx.waits_for("listens", lambda: listens(self.port))
        self.write("syslog-ng.conf", "quotabell.conf", {"port(6379)": f"port({self.redis.port})"})
        (folder / "main.conf").write_text(f'@version: 3.38\n@include "{folder}/quotabell.conf"\n')
        self.syslog_ng = self.start_syslog_ng()

    def write(self, file, used_as, changes):
        text = (FILES / file).read_text().replace("/var/log/nginx/", f"{self.folder}/")
        for old, new in changes.items():
            assert old in text, f"{file}: {old} is missing"
            text = text.replace(old, new)
        (self.folder / used_as).write_text(text)

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
        self.ask("key-of-alice", "alice", "/units/0")
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


PRODUCERS = {"nginx": AccessLog, "litellm": LiteLlm}


def main():
    binary, *chosen = sys.argv[1:]
    if unknown := set(chosen) - set(PRODUCERS):
        sys.exit(f"error: no producer is named {', '.join(sorted(unknown))}\nhint: {', '.join(PRODUCERS)}")
    for name in chosen or PRODUCERS:
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
            PRODUCERS[name](str(Path(binary).resolve()), Path(temporary) / name, stack).play()


main()
