"""What a client gets: one function for each case of docs/gateways.md."""

import contextlib
import http.client
import json
import re
import signal
import socket
import statistics

from programs import GATEWAY_TOKEN, OTHER_TOKEN, call, eventually

ALICE = ("X-Api-Key", "key-of-alice")
BOB = ("X-Api-Key", "key-of-bob")
# What bob may use; alice may use more than a run sends.
BOBS_LIMIT = 3
PAIRS = 500
# A gateway waits 0.3 s for quotabell; the rest is room for a busy machine.
ANSWER_MAX_S = 2.0
QUOTA_FIELDS = ("ratelimit", "ratelimit-policy", "retry-after")


class Report:
    """Counts what passed and failed, and keeps the outcomes of a gateway by the columns of the table."""

    def __init__(self):
        self.passed = self.failed = 0
        self.seen = {}

    def expect(self, what, is_right, got=None):
        if is_right:
            self.passed += 1
        else:
            self.failed += 1
            print(f"  FAILED {what}" + ("" if got is None else f": got {got}"), flush=True)


def shown(answer):
    fields = {name: answer.headers[name] for name in (*QUOTA_FIELDS, "content-type") if name in answer.headers}
    return f"{answer.status} {fields} {answer.body[:200]!r} in {answer.took_s:.2f} s"


def outcome(answer):
    """As the table of the document names it."""
    return "proceeds" if answer.status == 200 and answer.reached else str(answer.status)


class Cases:
    """The cases of one gateway."""

    def __init__(self, report, gateway, daemon, api, row):
        self.report, self.gateway, self.daemon, self.api, self.row = report, gateway, daemon, api, row
        # Requests of alice that quotabell has judged.
        self.judged = 0

    def ask(self, key, method="GET", target="/orders/7", headers=(), body=None):
        return call(self.gateway.port, method, target, [key, *headers] if key else list(headers), body)

    def alice(self, *arguments, **named):
        self.judged += 1
        return self.ask(ALICE, *arguments, **named)

    def reached(self):
        return call(self.api.port, target="/count").json()["count"]

    def expect(self, what, is_right, answer=None):
        self.report.expect(what, is_right, answer and shown(answer))

    def expect_outcome(self, what, column, answer):
        expected, got = self.row[column], outcome(answer)
        self.report.seen.setdefault(column, set()).add(got)
        self.expect(f"{what}: {expected}", got in expected.split(", "), answer)
        self.expect(f"{what}: within {ANSWER_MAX_S} s", answer.took_s < ANSWER_MAX_S, answer)
        # Envoy's filter has no field for it.
        if answer.status == 503 and "envoy-ext-authz" not in self.row["file"]:
            self.expect(f"{what}: Retry-After", answer.headers["retry-after"] == "1", answer)

    def set_limits(self):
        self.daemon.set_subject("bob", {"limits": {"requests": BOBS_LIMIT}})
        self.daemon.set_subject("alice", {"limits": {"requests": 1_000_000}})
        # Settings take effect within a second.
        eventually("alice's limit applies", lambda: self.ask(ALICE).status == 200)
        self.judged += 1

    def unknown_keys(self):
        before = self.reached()
        for headers in [[], [("X-Api-Key", "")], [("X-Api-Key", "key-of-eve")], [("X-Quota-Subject", "alice")]]:
            self.expect_outcome(f"{headers}", "unknown key", self.ask(None, headers=headers))
        self.expect("unknown keys do not reach the API", self.reached() == before)

    def allowed(self):
        answer = self.ask(BOB, headers=[("Authorization", "Bearer of-the-client"), ("X-Other", "kept")])
        self.expect("allowed", answer.status == 200 and answer.reached, answer)
        fields = {name: answer.headers[name] for name in QUOTA_FIELDS if name in answer.headers}
        self.report.seen["allowed"] = ["RateLimit" if fields else "-"]
        told = {"ratelimit": '"day";r=3;t=', "ratelimit-policy": '"day";q=3;w=86400'}
        told = told if self.row["allowed"] == "RateLimit" else {}
        is_right = fields.keys() == told.keys() and all(fields[name].startswith(told[name]) for name in told)
        self.expect(f"allowed: {told or 'no fields'}", is_right, answer)
        got = dict(answer.json()["headers"])
        self.expect("the API gets the subject", got.get("x-quota-subject") == "bob", answer)
        authorization = got.get("authorization")
        self.expect("the API gets the client's Authorization", authorization == "Bearer of-the-client", answer)
        self.expect("the API gets other headers", got.get("x-other") == "kept", answer)
        self.expect("the API does not get the token", GATEWAY_TOKEN not in answer.body.decode(), answer)

    def methods(self):
        for method in ["HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]:
            body = b"x" * 100_000 if method in ("POST", "PUT", "PATCH") else None
            answer = self.alice(method, body=body)
            self.expect(f"{method} proceeds", answer.status == 200 and answer.reached, answer)
            if method != "HEAD":
                told = answer.json()
                sent = (method, len(body or b""))
                self.expect(f"the API gets {sent}", (told["method"], told["body_bytes"]) == sent, answer)
        self.judged += 1
        client = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=10)
        client.request("POST", "/", iter([b"ab", b"cde"]), dict([ALICE]))
        told = json.loads(client.getresponse().read())
        client.close()
        self.report.expect("the API gets a chunked body", told["body_bytes"] == 5, told)
        for target in ["/", "/a%2Fb/%C3%A4%20?x=1&y=%20&subject=eve&deny=404", "/v1/authorize?subject=eve", "/?a=?"]:
            answer = self.alice(target=target)
            self.expect(f"{target} proceeds", answer.status == 200 and answer.reached, answer)
            self.expect(f"the API gets {target}", answer.json()["target"] == target, answer)
        # These are the API's own, and not quotabell's.
        for status in [401, 403, 404, 429, 500, 502, 503, 504]:
            before = self.reached()
            answer = self.alice(target=f"/status/{status}")
            self.expect(f"the API's own {status}", answer.status == status and answer.reached, answer)
            self.expect(f"the API's own {status}, asked once", self.reached() == before + 1)

    def forged(self):
        """A client's own headers must not change what is judged: alice's requests proceed and count one unit each."""
        for headers in [
            [("X-Quota-Subject", "bob")],
            [("x-quota-subject", "bob"), ("X-QUOTA-SUBJECT", "bob")],
            [("X-Quota-Units", "999999")],
            [("X-Quota-Metric", "tokens")],
            [("X-Quota-Record", "false")],
            [("X-Quota-Id", "one")],
            [("X-Quota-Id", "one")],
            [("X-Quota-Status", "429")],
            [("RateLimit", '"day";r=0;t=1'), ("Retry-After", "5")],
        ]:
            answer = self.alice(headers=headers)
            self.expect(f"{headers} proceeds", answer.status == 200 and answer.reached, answer)
            told = [(name, value) for name, value in answer.json()["headers"] if name.startswith("x-quota-")]
            # A header of answers, which means nothing in a request.
            told = [(name, value) for name, value in told if name != "x-quota-status"]
            self.expect(f"{headers}: the API gets only the subject", told == [("x-quota-subject", "alice")], answer)
        headers = [(f"X-Quota-{name}", "1") for name in ["Subject", "Metric", "Units", "Id", "Record"]]
        answer = self.ask(None, target="/health", headers=headers)
        told = [name for name, _ in answer.json()["headers"] if name.startswith("x-quota-")]
        self.expect("/health is free, and the API gets nothing", answer.status == 200 and not told, answer)

    def internal(self):
        """The location that asks quotabell is nothing for clients."""
        for key in (ALICE, None):
            answer = self.ask(key, target="/_quota")
            self.expect("/_quota is 404", answer.status == 404 and not answer.reached, answer)

    def refused(self):
        for _ in range(BOBS_LIMIT - 1):
            answer = self.ask(BOB)
            self.expect("up to the limit", answer.status == 200, answer)
        eventually("bob's requests are counted", lambda: self.used("bob") == BOBS_LIMIT)
        before = self.reached()
        answer = self.ask(BOB)
        self.expect_outcome("beyond the limit", "refused", answer)
        self.expect("refused: RateLimit", (answer.headers["ratelimit"] or "").startswith('"day";r=0;t='), answer)
        self.expect("refused: RateLimit-Policy", answer.headers["ratelimit-policy"] == '"day";q=3;w=86400', answer)
        wait_s = int(answer.headers["retry-after"] or 0)
        self.expect("refused: Retry-After until midnight", 0 < wait_s <= 86400, answer)
        self.expect("refused: a problem", answer.headers["content-type"] == "application/problem+json", answer)
        self.expect("refused: its body", answer.body and answer.json()["status"] == 429, answer)
        self.expect("refused: no internal header", "x-quota-status" not in answer.headers, answer)
        for method, target, headers, body in [
            ("HEAD", "/", [], None),
            ("OPTIONS", "/", [], None),
            ("POST", "/", [], b"x" * 100_000),
            ("DELETE", "/", [], None),
            ("GET", "/?subject=alice&units=1&deny=404", [], None),
            ("GET", "/v1/authorize?subject=alice", [], None),
            ("GET", "/../authorize?subject=alice", [], None),
            ("GET", "//?subject=alice", [], None),
            ("GET", "/%00", [], None),
            ("GET", "/health/../orders", [], None),
            ("GET", "/health/", [], None),
            ("GET", "/", [("X-Quota-Subject", "alice")], None),
            ("GET", "/", [("X-Quota-Subject", "alice"), ("X-Quota-Subject", "alice")], None),
            ("GET", "/", [("X_Quota_Subject", "alice")], None),
            ("GET", "/", [("X-Quota-Status", "200")], None),
            ("GET", "/", [("X-Quota-Metric", "tokens")], None),
            ("GET", "/", [("Authorization", "Bearer of-the-client")], None),
            ("GET", "/", [("Connection", "close, X-Quota-Subject, Authorization, X-Quota-Record")], None),
        ]:
            answer = self.ask(BOB, method, target, headers, body)
            # Some gateways refuse odd targets themselves.
            is_refused = answer.status == 429 or (
                target.startswith(("/%00", "/..", "//", "/health/..")) and answer.status in (301, 308, 400, 404)
            )
            self.expect(f"{method} {target} {headers} is refused", is_refused and not answer.reached, answer)
        self.expect("refused requests do not reach the API", self.reached() == before)

    def used(self, subject):
        metrics = self.daemon.admin("GET", f"/v1/subjects/{subject}/usage").json()["metrics"]
        windows = [window for metric in metrics for window in metric["windows"]]
        return next((window["used"] for window in windows if window["window"] == "day"), 0)

    def counted(self):
        with contextlib.suppress(TimeoutError):
            eventually("alice's requests are counted", lambda: self.used("alice") >= self.judged)
        used = self.used("alice")
        self.report.expect(
            "each request that proceeds is counted once", used == self.judged, f"{used} of {self.judged}"
        )

    def first_refused(self):
        """What the document promises: of a plan with 5,000 requests a day, the 5,001st is refused.

        A request whose question got no answer in time proceeds and may not count, so as many more may follow.
        """
        client = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=10)
        answers = [call(self.gateway.port, headers=[ALICE], connection=client) for _ in range(5000)]
        client.close()
        statuses = {answer.status for answer in answers}
        self.report.expect("5,000 requests proceed", statuses == {200}, statuses)
        unanswered = sum("ratelimit" not in answer.headers for answer in answers)
        counted = 5000 - unanswered
        for _ in range(unanswered + 1):
            eventually("the answered requests are counted", lambda: self.used("alice") >= counted)
            answer = self.ask(ALICE)
            if answer.status == 429:
                break
            counted += "ratelimit" in answer.headers
        self.judged += 5000
        self.counted()
        self.expect("the 5,001st is refused", answer.status == 429 and not answer.reached, answer)
        self.expect("the 5,001st: fields", answer.headers["ratelimit-policy"] == '"day";q=5000;w=86400', answer)

    def unlimited(self):
        """Without a limit there are no fields, and none that are empty."""
        self.daemon.set_subject("alice", {"plan": "unlimited"})
        answer = eventually("alice's plan applies", self.proceeds_unlimited)
        fields = [name for name in QUOTA_FIELDS if name in answer.headers]
        self.expect("unlimited: no fields", answer.reached and not fields, answer)

    def proceeds_unlimited(self):
        answer = self.alice()
        return answer if not answer.headers["ratelimit"] else None

    def redis_hangs(self, redis):
        redis.send(signal.SIGSTOP)
        try:
            answer = self.ask(ALICE)
            self.expect_outcome("Redis hangs", "cannot judge", answer)
        finally:
            redis.send(signal.SIGCONT)
        eventually("quotabell judges again", lambda: self.ask(BOB).status == 429)

    def invalid_subject(self, gateway):
        """A subject that comes from a client in the end must not open the gateway: here it is too long."""
        before = self.reached()
        answer = call(gateway.port, headers=[BOB])
        self.expect("an invalid subject does not proceed", answer.status in (400, 503), answer)
        self.expect("an invalid subject does not reach the API", self.reached() == before)

    def wrong_token(self):
        """The gateway has a token of nobody, and then one of somebody without the scope."""
        for column, tokens in [
            ("wrong token", (OTHER_TOKEN, "a-third-token-0123456789")),
            ("lacks scope", (OTHER_TOKEN, GATEWAY_TOKEN)),
        ]:
            self.daemon.set_tokens(*tokens)
            for key in (ALICE, BOB):
                self.expect_outcome(column, column, self.ask(key))
        self.daemon.set_tokens(GATEWAY_TOKEN, OTHER_TOKEN)

    def unanswered(self, what, column):
        for method, key, body in [
            ("GET", ALICE, None),
            ("GET", BOB, None),
            ("HEAD", BOB, None),
            ("POST", ALICE, b"x" * 100_000),
        ]:
            before = self.reached()
            answer = self.ask(key, method, body=body, headers=[("RateLimit", "forged"), ("X-Quota-Subject", "eve")])
            self.expect_outcome(f"{what}: {method}", column, answer)
            fields = [name for name in ("ratelimit", "ratelimit-policy", "x-quota-status") if name in answer.headers]
            self.expect(f"{what}: {method} without fields", not fields, answer)
            proceeds = self.row[column] == "proceeds"
            times = self.reached() - before
            self.expect(f"{what}: {method} reaches the API {int(proceeds)} times", times == proceeds, answer)
            if proceeds and answer.reached and method != "HEAD":
                told = answer.json()
                self.expect(f"{what}: the API gets the body", told["body_bytes"] == len(body or b""), answer)
                subjects = [value for name, value in told["headers"] if name == "x-quota-subject"]
                self.expect(f"{what}: the API gets the subject", subjects == [key[1].removeprefix("key-of-")], answer)
        # Unknown keys never proceed.
        self.expect_outcome(f"{what}: no key", "unknown key", self.ask(None))

    def latency(self):
        """Medians of requests on one connection, in ms: without quotabell, with it, and the difference."""
        client = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=10)
        client.connect()
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        took = {"/health": [], "/orders/7": []}
        for _ in range(PAIRS):
            for target, times_ms in took.items():
                answer = call(self.gateway.port, target=target, headers=[ALICE], connection=client)
                assert answer.status == 200, shown(answer)
                times_ms.append(answer.took_s * 1000)
        self.judged += PAIRS
        client.close()
        without, asked = (statistics.median(times_ms) for times_ms in took.values())
        return without, asked, asked - without


def scoped_token(report, daemon):
    """The gateway's token opens no route that reads or deletes: each one of the OpenAPI document that needs a scope."""
    document = call(daemon.port, target="/openapi.json").json()
    asked = 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            scopes = [scope for rule in operation.get("security", []) for scope in rule.get("token", [])]
            if not scopes or set(scopes) <= {"check", "events:write"}:
                continue
            target = re.sub(r"\{\w+\}", "alice", path)
            headers = [("Authorization", f"Bearer {GATEWAY_TOKEN}"), ("Content-Type", "application/json")]
            answer = call(daemon.port, method.upper(), target, headers, b"{}" if method != "get" else None)
            report.expect(f"the gateway's token: {method} {path} is 403", answer.status == 403, shown(answer))
            asked += 1
    report.expect("the gateway's token was tried on many routes", asked > 20, asked)
