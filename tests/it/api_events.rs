//! `POST /v1/events` of the real daemon: every form of a body, and what is counted of it.

use std::io::Write as _;

use crate::support::api::{Answer, Caller};
use crate::support::binary::quotabell;
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::outbox::Outbox;
use flate2::Compression;
use flate2::write::GzEncoder;
use redis::streams::StreamRangeReply;
use serde_json::{Value, json};

const TOKEN: &str = "a-token-for-one-test-0123456789";
pub const PATH: &str = "/v1/events";
pub const JSON: &str = "application/json";
pub const LINES: &str = "application/x-ndjson";
pub const CLOUD_EVENT: &str = "application/cloudevents+json";
pub const CLOUD_EVENTS: &str = "application/cloudevents-batch+json";
const RULES: &str =
    r#"{"Litellm.Tokens":{"metrics":{"tokens.in":"data.prompt_tokens","tokens.out":"data.usage.out","requests":1}}}"#;

/// A daemon with a token, and its Redis.
pub struct Ingesting {
    pub books: Outbox,
    pub daemon: Daemon,
    pub api: Caller,
}

impl Ingesting {
    pub async fn start() -> Self {
        Self::with(|setup| setup).await
    }

    pub async fn with(more: impl FnOnce(DaemonSetup) -> DaemonSetup) -> Self {
        let books = Outbox::start();
        let setup = DaemonSetup::on(&books.server.url())
            .env("QUOTABELL__HTTP__TOKEN", TOKEN)
            .env("QUOTABELL__STREAM__TRIM", "never")
            .env("QUOTABELL__EVENTS__TYPES", RULES);
        let mut daemon = more(setup).start().await;
        daemon.becomes_ready().await;
        let api = Caller::of(&mut daemon).await.with_token(TOKEN);
        Self { books, daemon, api }
    }

    pub async fn send(&self, content_type: &str, body: impl Into<reqwest::Body>) -> Answer {
        self.api.send("POST", PATH, &[("content-type", content_type)], body).await
    }

    /// The fields of the entries of the stream, `name=value`.
    pub async fn entries(&self) -> Vec<String> {
        let stream: StreamRangeReply = self.books.run("XRANGE", &["usage", "-", "+"]).await;
        let fields = |entry: &redis::streams::StreamId| {
            let mut fields: Vec<String> =
                entry.map.keys().map(|name| format!("{name}={}", entry.get::<String>(name).expect("text"))).collect();
            fields.sort();
            fields.join(" ")
        };
        stream.ids.iter().map(fields).collect()
    }

    /// Waits until this number of entries is counted and this number of them counted before.
    pub async fn counts(&self, counted: u64, duplicates: u64) {
        eventually("they are counted", || async {
            let totals = self.books.totals().await;
            (totals.counted + totals.duplicates + totals.refused >= counted + duplicates).then_some(())
        })
        .await;
        let totals = self.books.totals().await;
        assert_eq!((totals.counted, totals.duplicates, totals.refused), (counted, duplicates, 0));
    }

    pub fn refused(&self) -> Vec<Value> {
        self.refused_of(1)
    }

    pub fn refused_of(&self, partitions: u32) -> Vec<Value> {
        let list = quotabell(["refused", "list", "--json"]).redis(&self.books.server.url());
        list.env("QUOTABELL__STREAM__PARTITIONS", partitions.to_string()).run().expect_json()
    }
}

/// Expects that so many events were taken, and none refused.
pub fn expect_accepted(answer: &Answer, accepted: u64) {
    assert_eq!((answer.status, answer.json()), (202, json!({"accepted": accepted, "refused": []})), "{}", answer.text);
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// Producers of every kind must be counted, each event once.
#[tokio::test]
async fn events_in_every_form_are_appended_and_counted() {
    let ingesting = Ingesting::start().await;
    // In a day that may have ended: an answer can't know the zone of a subject.
    let ts = ingesting.books.client.server_time().await.expect("Redis answers").plus(-3_600_000).0;
    let one = ingesting.send(JSON, format!(r#" {{"subject":"alice","units":3,"ts":{ts},"id":"a"}} "#));
    expect_accepted(&one.await, 1);
    let list = r#"[{"subject":"alice","units":"4","metric":"tokens.in","id":"b"},{"subject":"bob 🦀","credit":2}]"#;
    expect_accepted(&ingesting.send("Application/JSON; charset=utf-8", list).await, 2);
    // The last one has a traceparent that is none: it is left out.
    let lines =
        "\n{\"subject\":\"alice\",\"id\":\"d\"}\r\n  \n{\"subject\":\"alice\",\"id\":\"e\",\"traceparent\":\"00-1\"}";
    expect_accepted(&ingesting.send(LINES, lines).await, 2);
    expect_accepted(&ingesting.send("application/jsonl", "").await, 0);
    expect_accepted(&ingesting.send(JSON, "[]").await, 0);
    let event = json!({"specversion": "1.0", "id": "1", "source": "/s", "type": "calls", "subject": "carol", "data": {"units": 5}});
    expect_accepted(&ingesting.send(CLOUD_EVENT, event.to_string()).await, 1);
    expect_accepted(&ingesting.send(JSON, json!([event, {"subject": "carol"}]).to_string()).await, 2);
    expect_accepted(&ingesting.send(CLOUD_EVENTS, json!([event]).to_string()).await, 1);
    expect_accepted(&ingesting.send(CLOUD_EVENTS, "[]").await, 0);
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "2"),
        ("ce-source", "/s"),
        ("ce-type", "calls"),
        ("ce-subject", "c%C3%A9"),
    ];
    expect_accepted(&ingesting.api.send("POST", PATH, &headers, r#"{"units":7}"#).await, 1);
    expect_accepted(&ingesting.api.send("POST", PATH, &headers, "null").await, 1);
    // Older producers quote their attributes.
    let quoted = [headers[0], ("ce-id", "\"3 \\\"x\\\"\""), headers[2], headers[3], ("ce-subject", "\"dan %C3%A9\"")];
    expect_accepted(&ingesting.api.send("POST", PATH, &quoted, "").await, 1);
    let compressed = [("content-type", LINES), ("content-encoding", "gzip")];
    expect_accepted(&ingesting.api.send("POST", PATH, &compressed, gzip(lines.as_bytes())).await, 2);
    let entries = ingesting.entries().await;
    let calls = "id=/s 1 metric=calls subject=carol units=5";
    let with_ts = format!("id=a subject=alice ts={ts} units=3");
    assert_eq!(
        entries,
        [
            with_ts.as_str(),
            "id=b metric=tokens.in subject=alice units=4",
            "credit=2 subject=bob 🦀",
            "id=d subject=alice",
            "id=e subject=alice",
            calls,
            calls,
            "subject=carol",
            calls,
            "id=/s 2 metric=calls subject=cé units=7",
            "id=/s 2 metric=calls subject=cé",
            "id=/s 3 \"x\" metric=calls subject=dan é",
            "id=d subject=alice",
            "id=e subject=alice",
        ]
    );
    eventually("all are judged", || async {
        let totals = ingesting.books.totals().await;
        (totals.counted + totals.duplicates + totals.refused == entries.len() as u64).then_some(())
    })
    .await;
    assert_eq!(ingesting.books.totals().await.duplicates, 5);
    ingesting.daemon.drain().await;
}

/// The receiver of an alert must find the request that used up the quota, in whatever form it was told.
#[tokio::test]
async fn the_trace_of_an_event_is_kept_in_every_form() {
    // A check that is not judged in time records nothing.
    let ingesting = Ingesting::with(|setup| setup.env("QUOTABELL__CHECK__TIMEOUT", "5s")).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let plain = json!({"subject": "alice", "traceparent": trace});
    expect_accepted(&ingesting.send(JSON, plain.to_string()).await, 1);
    expect_accepted(&ingesting.send(LINES, plain.to_string()).await, 1);
    let event = json!({
        "specversion": "1.0", "id": "1", "source": "/s", "type": "calls", "subject": "alice", "traceparent": trace
    });
    expect_accepted(&ingesting.send(CLOUD_EVENT, event.to_string()).await, 1);
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "2"),
        ("ce-source", "/s"),
        ("ce-type", "calls"),
        ("ce-subject", "alice"),
        ("ce-traceparent", trace),
    ];
    expect_accepted(&ingesting.api.send("POST", PATH, &headers, "").await, 1);
    let headers = [("content-type", JSON), ("traceparent", trace)];
    let record = json!({"subject": "alice", "record": true}).to_string();
    for path in ["/v1/check", "/v1/authorize?subject=alice&record=true"] {
        assert_eq!(ingesting.api.send("POST", path, &headers, record.clone()).await.status, 200, "{path}");
    }
    for event in [json!({"subject": "alice", "traceparent": null}), json!({"subject": "alice", "traceparent": 5})] {
        let untraced = ingesting.send(JSON, event.to_string()).await;
        assert_eq!(untraced.status, 202, "usage counts without a trace: {}", untraced.text);
    }
    let mut entries = ingesting.entries().await;
    assert_eq!(entries.split_off(6), ["subject=alice", "subject=alice"]);
    assert!(entries.len() == 6 && entries.iter().all(|entry| entry.contains(trace)), "{entries:?}");
    ingesting.daemon.drain().await;
}

/// A request that is repeated after a lost answer must not count twice.
#[tokio::test]
async fn a_repeated_request_counts_once_by_its_ids_or_its_key() {
    let ingesting = Ingesting::start().await;
    let body = r#"[{"subject":"alice"},{"subject":"alice","id":"own"},{"unit":1},{"subject":"alice"}]"#;
    let keyed = [("content-type", JSON), ("idempotency-key", "request-7")];
    for _ in 0..2 {
        let answer = ingesting.api.send("POST", PATH, &keyed, body).await;
        assert_eq!((answer.status, &answer.json()["accepted"]), (202, &json!(3)), "{}", answer.text);
    }
    assert_eq!(
        ingesting.entries().await[..3],
        ["id=request-7/0 subject=alice", "id=own subject=alice", "id=request-7/3 subject=alice"]
    );
    ingesting.counts(3, 3).await;
    for wrong in ["", &"k".repeat(121)] {
        let keyed = [("content-type", JSON), ("idempotency-key", wrong)];
        ingesting.api.send("POST", PATH, &keyed, body).await.expect_problem(400, "Idempotency-Key must be 1 to 120");
    }
    let twice = [("content-type", JSON), ("idempotency-key", "a"), ("idempotency-key", "b")];
    ingesting.api.send("POST", PATH, &twice, body).await.expect_problem(400, "Idempotency-Key is there twice");
    ingesting.daemon.drain().await;
}

/// An event of a type with a rule must be counted in all of its metrics, or in none.
#[tokio::test]
async fn a_rule_makes_several_events_of_one() {
    let ingesting = Ingesting::start().await;
    let event = |data: Value| json!({"specversion": "1.0", "id": "1", "source": "/s", "type": "Litellm.Tokens", "subject": "alice", "data": data});
    let body = json!([event(json!({"prompt_tokens": 5, "usage": {"out": "0"}, "model": "m"}))]).to_string();
    expect_accepted(&ingesting.send(CLOUD_EVENTS, body).await, 1);
    let partial = ingesting.send(CLOUD_EVENT, event(json!({"prompt_tokens": 5})).to_string()).await;
    partial.expect_problem(400, "reads data.usage.out, which is absent");
    assert_eq!(partial.json()["refused"][0]["id"], "/s 1");
    let expected = ["id=/s 1 metric=requests subject=alice units=1", "id=/s 1 metric=tokens.in subject=alice units=5"];
    assert_eq!(ingesting.entries().await, expected);
    ingesting.counts(2, 0).await;
    ingesting.daemon.drain().await;
}

/// Shippers don't read answers, and one bad event must not cost the others.
#[tokio::test]
async fn one_bad_event_is_refused_alone_and_kept() {
    let ingesting = Ingesting::start().await;
    let lines = concat!(
        "{\"subject\":\"alice\",\"id\":\"a\"}\n",
        "{\"subject\":\"alice\",\"units\":1e3,\"id\":\"b\"}\n",
        "\n",
        "{\"subject\":\"alice\",\"uni",
    );
    let answer = ingesting.send(LINES, lines).await;
    let body = answer.json();
    assert_eq!((answer.status, &body["accepted"]), (202, &json!(1)), "{body}");
    assert_eq!(
        body["refused"],
        json!([
            {"index": 1, "id": "b", "reason": "bad_units", "detail": "units must be decimal digits, 1 to 9007199254740991, line 2"},
            {"index": 2, "reason": "bad_json", "detail": "EOF while parsing a string (byte 23), line 4"},
        ])
    );
    let kept = ingesting.refused();
    assert_eq!(
        (&kept[0]["entry"], &kept[0]["reason"], &kept[0]["fields"]),
        (&json!("http:http.token"), &json!("bad_units"), &json!({"subject": "alice", "units": "1e3", "id": "b"}))
    );
    assert_eq!(kept[1]["fields"], json!({"event": "{\"subject\":\"alice\",\"uni"}));
    assert_eq!(ingesting.entries().await, ["id=a subject=alice"]);
    let metrics = ingesting.api.without_token().get("/metrics").await.text;
    for line in [
        "quotabell_http_events_accepted_total 1",
        "quotabell_events_refused_total{reason=\"bad_units\"} 1",
        "quotabell_events_refused_total{reason=\"bad_json\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    // An erasure of the subject also removes what is kept of its refused events.
    let erased = ingesting.api.delete("/v1/subjects/alice").await.json();
    assert_eq!(erased["removed"]["refused"], 1, "{erased}");
    ingesting.daemon.drain().await;
}

/// Producers for another product need fields that quotabell does not know.
#[tokio::test]
async fn unknown_fields_are_refused_or_ignored() {
    let ingesting = Ingesting::start().await;
    // The daemon's own.
    ingesting
        .send(JSON, r#"{"subject":"alice","judge":"1"}"#)
        .await
        .expect_problem(400, "the field \"judge\" is not known");
    let body = r#"{"subject":"alice","unit":5,"judge":"1","id":"a"}"#;
    ingesting.send(JSON, body).await.expect_problem(400, "unknown_field: the field \"unit\" is not known");
    // With what the producer meant, so that it can be sent again by hand.
    assert_eq!(ingesting.refused()[1]["fields"], json!({"subject": "alice", "id": "a", "unit": "5"}));
    let ignoring = format!("{PATH}?unknown=ignore");
    let json = [("content-type", JSON)];
    expect_accepted(&ingesting.api.send("POST", &ignoring, &json, body).await, 1);
    for bad in ["unknown=drop", "unknwon=ignore"] {
        ingesting.api.send("POST", &format!("{PATH}?{bad}"), &json, body).await.expect_problem(400, "the query: ");
    }
    assert_eq!(ingesting.entries().await, ["id=a subject=alice"]);
    ingesting.daemon.drain().await;
}

/// A platform that speaks OpenMeter's format must be counted at its path.
#[tokio::test]
async fn the_path_of_openmeter_takes_the_same() {
    let ingesting = Ingesting::start().await;
    let event =
        json!({"specversion": "1.0", "id": "1", "source": "/s", "type": "calls", "subject": "alice"}).to_string();
    let headers = [("content-type", CLOUD_EVENT), ("user-agent", "app python-openmeter/0.0.0 Python/3.11.2 (Linux)")];
    expect_accepted(&ingesting.api.send("POST", "/api/v1/events", &headers[..1], event.clone()).await, 1);
    let of_sdk = ingesting.api.send("POST", "/api/v1/events", &headers, event.clone()).await;
    assert_eq!((of_sdk.status, of_sdk.text.as_str()), (204, ""));
    expect_accepted(&ingesting.api.send("POST", PATH, &headers, event).await, 1);
    ingesting.counts(1, 2).await;
    ingesting.daemon.drain().await;
}

/// An event in the wrong stream would be refused by its reader.
#[tokio::test]
async fn the_first_part_of_a_subject_chooses_its_partition() {
    let ingesting = Ingesting::with(|setup| {
        setup.env("QUOTABELL__STREAM__PARTITIONS", "4").env("QUOTABELL__SUBJECTS__SEPARATOR", "/")
    })
    .await;
    let body = r#"[{"subject":"acme/search"},{"subject":"alice"},{"subject":"acme/search/k"},{"subject":"acme//k"},{"subject":"a/b/c/d/e"}]"#;
    let answer = ingesting.send(JSON, body).await.json();
    let reasons: Vec<&Value> = answer["refused"].as_array().expect("a list").iter().map(|one| &one["reason"]).collect();
    assert_eq!((&answer["accepted"], reasons), (&json!(3), vec![&json!("bad_subject"), &json!("bad_subject")]));
    for (stream, length) in [("usage:0", 0), ("usage:1", 0), ("usage:2", 2), ("usage:3", 1)] {
        assert_eq!(ingesting.books.run::<u64>("XLEN", stream).await, length, "{stream}");
    }
    assert_eq!(ingesting.refused_of(4).len(), 2);
    ingesting.daemon.drain().await;
}
