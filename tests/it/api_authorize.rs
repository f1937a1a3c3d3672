//! `/v1/authorize`: what gateways ask, by headers or by a query, and what they get.

use serde_json::json;

use crate::support::api::{Answer, Caller};
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::outbox::Outbox;

const TOKEN: &str = "a-token-for-one-test-0123456789";

struct Gateway {
    outbox: Outbox,
    api: Caller,
    _daemon: Daemon,
}

impl Gateway {
    async fn start(variables: &[(&str, &str)]) -> Self {
        let outbox = Outbox::start();
        // A busy machine may be slow, and a check that is not judged in time has no headers.
        let setup = DaemonSetup::on(&outbox.server.url())
            .env("QUOTABELL__HTTP__TOKEN", TOKEN)
            .env("QUOTABELL__CHECK__TIMEOUT", "5s");
        let setup = variables.iter().fold(setup, |setup, (name, value)| setup.env(name, value));
        let mut daemon = setup.start().await;
        daemon.becomes_ready().await;
        let api = Caller::of(&mut daemon).await.with_token(TOKEN);
        assert_eq!(api.put("/v1/subjects/alice", &json!({"limits": {"requests": 10, "tokens": 5}})).await.status, 200);
        Self { outbox, api, _daemon: daemon }
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.api.send(method, path, headers, "a body").await
    }
}

/// Gateways pass on the method of their client, and append its path.
#[tokio::test]
async fn a_gateway_is_answered_by_status_and_header_fields_alone() {
    let gateway = Gateway::start(&[]).await;
    let alice = ("x-quota-subject", "alice");
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"] {
        for path in ["/v1/authorize", "/v1/authorize/", "/v1/authorize/orders/7?subject=eve&units=99"] {
            let allowed = gateway.ask(method, path, &[alice]).await;
            assert_eq!((allowed.status, allowed.text.as_str()), (200, ""), "{method} {path}");
            assert_eq!(allowed.header("ratelimit-policy"), Some(r#""day";q=10;w=86400"#));
            let refused = gateway.ask(method, path, &[alice, ("x-quota-units", "11")]).await;
            assert_eq!(refused.status, 429, "{method} {path}");
            assert!(refused.header("retry-after").is_some() && refused.header("ratelimit").is_some());
        }
    }
    let of_tokens = [alice, ("x-quota-metric", "tokens"), ("x-quota-units", "6")];
    gateway.ask("GET", "/v1/authorize", &of_tokens).await.expect_problem(429, "alice asks for 6 of tokens");
    let recorded = [alice, ("x-quota-units", "4"), ("x-quota-record", "true"), ("x-quota-id", "one")];
    for _ in 0..2 {
        assert_eq!(gateway.ask("GET", "/v1/authorize", &recorded).await.status, 200);
    }
    eventually("the event counts once", || async {
        let totals = gateway.outbox.totals().await;
        ((totals.counted, totals.duplicates) == (1, 1)).then_some(())
    })
    .await;
}

/// nginx knows 401 and 403 alone; its configuration names the query, and a client's header must not change it.
#[tokio::test]
async fn a_query_wins_over_headers_and_may_ask_for_403() {
    let gateway = Gateway::start(&[]).await;
    let query = "/v1/authorize?subject=alice&units=11&deny=403";
    let forged = [("x-quota-subject", "bob"), ("x-quota-units", "1")];
    let refused = gateway.ask("GET", query, &forged).await;
    refused.expect_problem(403, "alice asks for 11 of requests");
    assert_eq!(refused.header("x-quota-status"), Some("429"));
    assert_eq!(gateway.ask("GET", "/v1/authorize?subject=alice&units=10&deny=403", &[]).await.status, 200);
    for (query, why) in [
        ("", "it needs the header X-Quota-Subject"),
        ("?subject=", "subject:"),
        ("?subject=alice&units=0", "units: units must be decimal digits"),
        ("?subject=alice&metric=No", "metric:"),
        ("?subject=alice&record=yes", "record:"),
        ("?subject=alice&deny=404", "deny: must be 403"),
        ("?subject=alice&user=bob", "user"),
    ] {
        gateway.ask("GET", &format!("/v1/authorize{query}"), &[]).await.expect_problem(400, why);
    }
    gateway.api.without_token().get("/v1/authorize?subject=alice").await.expect_problem(401, "Bearer TOKEN");
}

/// An API whose callers are named by another header need not copy it.
#[tokio::test]
async fn the_header_of_the_subject_is_chosen() {
    let gateway = Gateway::start(&[("QUOTABELL__CHECK__SUBJECT_HEADER", "X-Customer")]).await;
    let asked = [("x-customer", "alice"), ("x-quota-subject", "bob"), ("x-quota-units", "11")];
    gateway.ask("GET", "/v1/authorize", &asked).await.expect_problem(429, "alice asks for 11");
    gateway.ask("GET", "/v1/authorize", &[]).await.expect_problem(400, "it needs the header X-Customer");
}

/// A gateway knows the key alone: the limit of its team or organization must refuse too, and be named by its level.
#[tokio::test]
async fn a_gateway_is_refused_by_the_limit_of_any_level() {
    let gateway = Gateway::start(&[("QUOTABELL__SUBJECTS__SEPARATOR", "/")]).await;
    for (level, limit) in [("acme", 30), ("acme%2Fsearch", 20), ("acme%2Fsearch%2Fkey-7", 10)] {
        let path = format!("/v1/subjects/{level}");
        assert_eq!(gateway.api.put(&path, &json!({"limits": {"requests": limit}})).await.status, 200);
    }
    let of = |subject: &str, units: u64| format!("/v1/authorize?subject={subject}&units={units}&record=true");
    let ask = async |subject: &str, units: u64| gateway.ask("GET", &of(subject, units), &[]).await;
    for (subject, units, policy, whose) in [
        (
            "acme/search/key-7",
            11,
            "(day)",
            "acme/search/key-7 asks for 11 of requests, more than the whole limit (day)",
        ),
        ("acme/search/key-8", 21, "(2/day)", "by the limit of acme/search (2/day)"),
        ("acme/chat/key-1", 31, "(1/day)", "by the limit of acme (1/day)"),
    ] {
        let refused = ask(subject, units).await;
        refused.expect_problem(429, whose);
        assert!(refused.json()["detail"].as_str().is_some_and(|detail| detail.ends_with(policy)), "{}", refused.text);
    }
    let allowed = ask("acme/search/key-7", 10).await;
    assert_eq!(allowed.status, 200, "{}", allowed.text);
    let policies = "\"day\";q=10;w=86400, \"2/day\";q=20;w=86400, \"1/day\";q=30;w=86400";
    assert_eq!(allowed.header("ratelimit-policy"), Some(policies));
    // What is recorded counts at all levels: 10 are left to the team, 20 to the organization.
    eventually("it is counted", || async { (gateway.outbox.totals().await.counted == 1).then_some(()) }).await;
    ask("acme/search/key-8", 11).await.expect_problem(429, "by the limit of acme/search (2/day)");
    ask("acme/chat/key-1", 21).await.expect_problem(429, "by the limit of acme (1/day)");
    assert_eq!(ask("acme/chat/key-1", 20).await.status, 200);
    gateway.ask("GET", "/v1/authorize?subject=acme//key", &[]).await.expect_problem(400, "empty part");
}

/// A gateway that adds its header and leaves its client's must not be answered about the client's choice.
#[tokio::test]
async fn a_header_that_is_sent_twice_is_refused() {
    let gateway = Gateway::start(&[]).await;
    for (name, first, second) in [
        ("X-Quota-Subject", "eve", "alice"),
        ("X-Quota-Metric", "tokens", "requests"),
        ("X-Quota-Units", "1", "11"),
        ("X-Quota-Id", "one", "two"),
        ("X-Quota-Record", "false", "true"),
    ] {
        let subject = [("x-quota-subject", "alice")].into_iter().filter(|_| name != "X-Quota-Subject");
        let headers: Vec<_> = subject.chain([(name, first), (name, second)]).collect();
        for path in ["/v1/authorize", "/v1/authorize/orders"] {
            let why = format!("the header {name} is sent twice");
            gateway.ask("GET", path, &headers).await.expect_problem(400, &why);
        }
    }
    // The header that a parameter replaces may be a client's.
    let forged = [("x-quota-subject", "eve"), ("x-quota-subject", "bob")];
    gateway.ask("GET", "/v1/authorize?subject=alice&units=11", &forged).await.expect_problem(429, "alice asks for 11");
}
