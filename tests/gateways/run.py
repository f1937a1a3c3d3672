"""Runs each gateway with the files of packaging/gateways and compares what clients get with the table of
docs/gateways.md: `run.py BINARY [FILE ...]`. tools/test-gateways.sh installs what this needs.
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from cases import ALICE, BOB, Cases, Report, scoped_token
from gateways import KINDS, Gateway, fails_closed, invalid_subject
from programs import Daemon, backend, redis

DOCUMENT = Path(__file__).parents[2] / "docs/gateways.md"
# The columns of the table that hold outcomes, and those with the latency in one run.
OUTCOMES = ["unknown key", "allowed", "refused", "cannot judge", "wrong token", "lacks scope", "no answer"]
OUTCOMES += ["no answer, closed"]
LATENCIES = ["without, ms", "with, ms", "added, ms"]


def rows_documented():
    """The table of the document: for each file, its cells by the names of their columns."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("|")]
    names, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert names == ["file", *OUTCOMES, *LATENCIES], f"{DOCUMENT.name}: the table has the columns {names}"
    rows = [dict(zip(names, row, strict=True)) for row in rows]
    # The first cell is a link: [`name`](path).
    return {row["file"].split("`")[1]: row for row in rows}


class Run:
    """One gateway with programs of its own, which are stopped at the end."""

    def __init__(self, name, binary, folder, stack):
        self.name, self.folder, self.stack = name, folder, stack
        folder.mkdir()
        self.redis = self.start(redis(folder))
        self.api = self.start(backend(folder))
        self.daemon = self.start(Daemon(binary, folder, self.redis.port))

    def start(self, program):
        self.stack.callback(program.stop)
        return program

    def gateway(self, title, change=str):
        gateway = Gateway(self.name, self.folder / title, self.daemon.port, self.api.port, change)
        return self.start(gateway)

    def play(self, report, row):
        """Plays all cases, and returns the median latency without and with quotabell, and what it added."""
        cases = Cases(report, self.gateway("open"), self.daemon, self.api, row)
        if self.name == "nginx-auth-request.conf":
            cases.first_refused()
        cases.set_limits()
        cases.unknown_keys()
        cases.allowed()
        cases.refused()
        cases.methods()
        cases.forged()
        if self.name.startswith("nginx"):
            cases.internal()
        latency = cases.latency()
        cases.unlimited()
        cases.counted()
        cases.redis_hangs(self.redis)
        cases.wrong_token()
        cases.invalid_subject(self.gateway("invalid", invalid_subject))

        closed = Cases(report, self.gateway("closed", fails_closed), self.daemon, self.api, row)
        closed.expect("closed: refuses", closed.ask(BOB).status == 429)
        closed.expect("closed: allows", closed.ask(ALICE).status == 200)
        self.daemon.hang()
        cases.unanswered("hangs", "no answer")
        closed.unanswered("hangs, closed", "no answer, closed")
        self.daemon.kill()
        cases.unanswered("is gone", "no answer")
        closed.unanswered("is gone, closed", "no answer, closed")
        return latency


def try_token(report, binary, folder):
    folder.mkdir()
    with ExitStack() as stack:
        server = redis(folder)
        stack.callback(server.stop)
        daemon = Daemon(binary, folder, server.port)
        stack.callback(daemon.stop)
        scoped_token(report, daemon)


def try_gateway(report, name, binary, folder, row):
    """Plays all cases of a gateway. Returns what the document should say about it, or None if a program failed."""
    failed_before, report.seen = report.failed, {}
    cells = None
    try:
        with ExitStack() as stack:
            latency = Run(name, binary, folder, stack).play(report, row)
        outcomes = [", ".join(sorted(report.seen.get(column, ["?"]))) for column in OUTCOMES]
        cells = [name, *outcomes, *(f"{took_ms:.2f}" for took_ms in latency)]
    except Exception as error:  # The next gateway may still be tried.
        report.expect("runs to its end", False, repr(error))
    if report.failed > failed_before:
        for log in sorted(folder.glob("*/gateway.log")):
            print(f"  {log.parent.name}: {log.read_text()[-2000:]}")
    return cells


def main():
    binary, *chosen = sys.argv[1:]
    binary = str(Path(binary).resolve())
    if unknown := set(chosen) - set(KINDS):
        sys.exit(f"error: {', '.join(sorted(unknown))}: no gateway has such a file\nhint: one of {', '.join(KINDS)}")
    documented, report = rows_documented(), Report()
    report.expect("the document has a row for each gateway", set(documented) == set(KINDS), sorted(documented))
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        try_token(report, binary, Path(temporary) / "token")
        for name in chosen or KINDS:
            print(name, flush=True)
            rows.append(try_gateway(report, name, binary, Path(temporary) / name, documented.get(name, {})))
    print("\nas in the table of docs/gateways.md:")
    for row in [["file", *OUTCOMES, *LATENCIES], *filter(None, rows)]:
        print(" | ".join(row))
    print(f"\n{report.passed} passed, {report.failed} failed")
    sys.exit(report.failed > 0)


main()
