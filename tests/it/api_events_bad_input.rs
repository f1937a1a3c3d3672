//! `POST /v1/events` with everything that can be wrong: each answer says what is wrong and where, and nothing is
//! counted that was not meant.

use std::time::Duration;

use crate::api_events::{CLOUD_EVENT, CLOUD_EVENTS, Ingesting, JSON, LINES, PATH, expect_accepted, gzip};
use crate::support::api::Caller;
use crate::support::eventually::eventually;
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis_server::RedisServer;
use crate::support::surviving::run;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quotabell::api::ingestion::body_budget::BODIES_BYTES_MAX;
use quotabell::api::ingestion::decoder::EVENTS_MAX;
use quotabell::api::ingestion::received_body::EVENTS_BODY_BYTES_MAX;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A value that is taken for another one makes a wrong bill.
#[tokio::test]
async fn each_bad_event_is_refused_with_its_reason() {
    let ingesting = Ingesting::start().await;
    for (event, reason, said) in [
        (r#"{"subject":"a","units":1e3}"#, "bad_units", "units must be decimal digits"),
        (r#"{"subject":"a","units":1.0}"#, "bad_units", "units must be decimal digits"),
        (r#"{"subject":"a","units":-0}"#, "bad_units", "units must be decimal digits"),
        (r#"{"subject":"a","units":0}"#, "bad_units", "1 to 9007199254740991"),
        (r#"{"subject":"a","units":9007199254740992}"#, "bad_units", "1 to 9007199254740991"),
        (r#"{"subject":"a","units":"5 "}"#, "bad_units", "units must be decimal digits"),
        (r#"{"subject":"a","units":""}"#, "bad_units", "units must be decimal digits"),
        (r#"{"subject":"a","units":null}"#, "bad_units", "units is null"),
        (r#"{"subject":"a","units":1,"credit":1}"#, "bad_credit", "not both"),
        (r#"{"subject":"a","credit":-1}"#, "bad_credit", "credit must be decimal digits"),
        (r#"{"subject":"a","metric":"Tokens"}"#, "bad_metric", "metric must match"),
        (r#"{"subject":"a","ts":1.5}"#, "bad_ts", "Unix milliseconds or RFC 3339"),
        (r#"{"subject":"a","ts":"2026-11-21"}"#, "bad_ts", "with an offset"),
        (r#"{"subject":"a","ts":1795250000}"#, "bad_ts", "1795250000 is too small for milliseconds"),
        (r#"{"subject":"a","ts":99999999999999}"#, "too_far_ahead", "more than 5 minutes ahead"),
        (r#"{"subject":"a","ts":"2026-11-21T08:37:00Z"}"#, "too_late", "ended more than stream.late_max before now"),
        (r#"{"subject":"a","id":""}"#, "bad_id", "1 to 128 bytes"),
        (r#"{"subject":"a","id":5}"#, "bad_id", "it must be a string"),
        (r#"{"units":1}"#, "missing_subject", "no field \"subject\""),
        (r#"{"subject":""}"#, "bad_subject", "subject is empty"),
        (r#"{"subject":"a\nb"}"#, "bad_subject", "control character"),
        (r#"{"subject":"\ud800"}"#, "bad_subject", "subject is no text: half of a surrogate pair"),
        (r#"{"subject":"a","\ud800":1}"#, "bad_json", "half of a surrogate pair"),
        (r#"{"subject":"a","subject":"b"}"#, "bad_json", "\"subject\" is there twice"),
        (r#"{"subject":"a","unit":1}"#, "unknown_field", "\"unit\" is not known"),
        (r#"{"specversion":"0.3","id":"1","source":"s","type":"t","subject":"a"}"#, "bad_cloudevent", "\"0.3\""),
        (r#"{"specversion":"1.0","source":"s","type":"t","subject":"a"}"#, "bad_cloudevent", "id is missing"),
        (r#"{"specversion":"1.0","id":"1","source":"s","type":"t"}"#, "missing_subject", "no field"),
        (r#"{"specversion":"1.0","id":"1","source":"s","type":"T","subject":"a"}"#, "bad_metric", "metric must match"),
        (
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","subject":"a","data":"x"}"#,
            "bad_data",
            "expected an object",
        ),
        (
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","subject":"a","data":{"tokens":1}}"#,
            "bad_data",
            "no rule for \"t\"",
        ),
        (
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","subject":"a","units":5}"#,
            "unknown_field",
            "the units belong in its data",
        ),
        (
            r#"{"specversion":"1.0","id":"1","source":"s","type":"Litellm.Tokens","data":{"prompt_tokens":1,"usage":{"out":2}}}"#,
            "missing_subject",
            "no field",
        ),
        (
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","subject":"a","data":{"units":1.0}}"#,
            "bad_units",
            "units must be decimal digits",
        ),
        (
            r#"{"specversion":"1.0","id":"1","source":"s","type":"Litellm.Tokens","subject":"a","data":{"prompt_tokens":1e3,"usage":{"out":2}}}"#,
            "bad_units",
            "data.prompt_tokens: units must be decimal digits",
        ),
        (
            r#"{"specversion":"1.0","id":"1","source":"s","type":"Litellm.Tokens","subject":"a","data":{"prompt_tokens":5,"usage":{"out":-3}}}"#,
            "bad_units",
            "data.usage.out: units must be decimal digits",
        ),
        (
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","subject":"a","time":"today"}"#,
            "bad_ts",
            "time must be Unix milliseconds or RFC 3339",
        ),
        (
            r#"{"specversion":"1.0","id":"1","source":"s","type":"t","subject":"a","time":"2999-01-01T00:00:00Z"}"#,
            "too_far_ahead",
            "time 2999",
        ),
        ("5", "bad_json", "expected an event, a JSON object"),
        ("[]", "bad_json", "expected an event, a JSON object"),
        ("null", "bad_json", "expected an event, a JSON object"),
    ] {
        for (content_type, body) in [(JSON, format!("[{event}]")), (LINES, event.to_owned())] {
            let answer = ingesting.send(content_type, body).await;
            answer.expect_problem(400, &format!("no event is valid; event 0: {reason}: "));
            let refused = &answer.json()["refused"][0];
            assert_eq!(refused["reason"], reason, "{event}");
            assert!(refused["detail"].as_str().expect("text").contains(said), "{event}: {refused}");
        }
    }
    let large = json!([{"subject": "a", "id": "x".repeat(64 * 1024)}, {"subject": "a", "id": "y"}]).to_string();
    let answer = ingesting.send(JSON, large).await.json();
    assert_eq!((&answer["accepted"], &answer["refused"][0]["reason"]), (&json!(1), &json!("too_large")));
    let long = format!("2026-11-28T00:00:00.{}Z", "0".repeat(40 * 1024));
    let event = json!({"specversion": "1.0", "id": "1", "source": "s", "type": "Litellm.Tokens", "subject": "a",
        "time": long, "data": {"prompt_tokens": 1, "usage": {"out": 2}}});
    let answer = ingesting.send(CLOUD_EVENT, event.to_string()).await;
    assert_eq!(answer.json()["refused"][0]["reason"], "too_large", "each of its metrics repeats the time");
    let twice = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-id", "2"), ("ce-source", "s"), ("ce-type", "t")];
    let answer = ingesting.api.send("POST", PATH, &twice, "").await;
    assert_eq!(answer.json()["refused"][0]["detail"], "ce-id is there twice");
    let binary = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "s"), ("ce-type", "t")];
    let answer = ingesting.api.send("POST", PATH, &binary, "\u{feff}{\"units\":1}").await;
    assert_eq!(answer.json()["refused"][0]["reason"], "bad_data", "a byte order mark");
    let misplaced =
        [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "s"), ("ce-type", "t"), ("ce-units", "5")];
    let answer = ingesting.api.send("POST", PATH, &misplaced, "").await.json();
    assert_eq!(answer["refused"][0]["reason"], "unknown_field");
    let misplaced = answer["refused"][0]["detail"].as_str().expect("text");
    assert!(misplaced.contains("\"ce-units\" is no attribute"), "{misplaced}");
    let many: Vec<Value> = (0..150).map(|_| json!({})).collect();
    let answer = ingesting.send(JSON, json!(many).to_string()).await;
    assert_eq!(answer.json()["refused"].as_array().map(Vec::len), Some(100), "{}", answer.status);
    assert_eq!(ingesting.entries().await, ["id=y subject=a"]);
    ingesting.daemon.drain().await;
}

/// A producer finds its event by the id that it has sent, and by none that it has not.
#[tokio::test]
async fn a_refused_event_is_named_by_its_own_id() {
    let ingesting = Ingesting::start().await;
    let keyed = [("content-type", JSON), ("idempotency-key", "k")];
    for (event, id) in [
        (r#"{"subject":"a","units":0,"id":"7"}"#, json!("7")),
        (r#"{"subject":"a","unit":1,"id":"\u0037"}"#, json!("7")),
        (r#"{"subject":"a","id":null}"#, Value::Null),
        (r#"{"subject":"a","id":5}"#, Value::Null),
        (r#"{"subject":"a","units":0}"#, json!("k/0")),
        (r#"{"subject":"a","unit":1}"#, json!("k/0")),
        (r#"{"specversion":"0.3","id":"1","source":"/s"}"#, json!("/s 1")),
        (r#"{"specversion":"1.0","id":"1","source":"/s","type":"t"}"#, json!("/s 1")),
        (r#"{"specversion":"1.0","id":"1","source":null,"type":"t"}"#, Value::Null),
        (r#"{"specversion":"1.0","id":1,"source":"/s","type":"t"}"#, Value::Null),
    ] {
        let answer = ingesting.api.send("POST", PATH, &keyed, format!("[{event}]")).await;
        assert_eq!((answer.status, &answer.json()["refused"][0]["id"]), (400, &id), "{event}: {}", answer.text);
    }
    let headers = [("ce-specversion", "0.3"), ("ce-id", "1"), ("ce-source", "%2Fs"), ("ce-id", "2")];
    for (headers, id) in [(&headers[..3], json!("/s 1")), (&headers[..], Value::Null)] {
        let answer = ingesting.api.send("POST", PATH, headers, "").await;
        assert_eq!((answer.status, &answer.json()["refused"][0]["id"]), (400, &id), "{}", answer.text);
    }
    ingesting.daemon.drain().await;
}

/// A broken body must not be counted in part.
#[tokio::test]
async fn a_broken_body_is_refused_as_a_whole() {
    let ingesting = Ingesting::start().await;
    let good = r#"{"subject":"a"}"#;
    for (content_type, body, status, said) in [
        (JSON, String::new(), 400, "the body is not JSON: EOF"),
        (JSON, format!("[{good},"), 400, "the body is not JSON: EOF"),
        (JSON, format!("[{good} {good}]"), 400, "the body is not JSON: expected `,` or `]`"),
        (JSON, format!("[{good}]]"), 400, "the body is not JSON: trailing characters"),
        (JSON, format!("{good}{good}"), 400, "the body is not JSON: trailing characters"),
        (JSON, format!("\u{feff}[{good}]"), 400, "the body begins with a byte order mark"),
        (
            JSON,
            format!("{}1{}", "[".repeat(5000), "]".repeat(5000)),
            400,
            "event 0: bad_json: a list, expected an event",
        ),
        (JSON, format!("{}1{}", r#"{"data":"#.repeat(5000), "}".repeat(5000)), 400, "unknown_field"),
        (CLOUD_EVENT, "[]".to_owned(), 400, "the body must be one CloudEvent"),
        (CLOUD_EVENTS, "{}".to_owned(), 400, "the body must be a list of CloudEvents"),
        (CLOUD_EVENT, good.to_owned(), 400, "bad_cloudevent: specversion is missing"),
        (LINES, format!("\u{feff}{good}"), 400, "bad_json: the event begins with a byte order mark"),
        ("text/plain", good.to_owned(), 415, "the content type is \"text/plain\", it must be one of application/json"),
        ("", good.to_owned(), 415, "the content type is \"\""),
        (LINES, format!("{good}\n").repeat(10_001), 413, "more than 10000 events"),
        (JSON, format!("[{}{good}]", format!("{good},").repeat(10_000)), 413, "more than 10000 events"),
    ] {
        ingesting.send(content_type, body).await.expect_problem(status, said);
    }
    ingesting
        .send(JSON, b"[{\"subject\":\"a\xff\"}]".to_vec())
        .await
        .expect_problem(400, "not UTF-8: byte 15 is wrong");
    let lines = ingesting.send(LINES, b"{\"subject\":\"a\xff\"}\n{\"subject\":\"b\"}".to_vec()).await.json();
    assert_eq!((&lines["accepted"], &lines["refused"][0]["reason"]), (&json!(1), &json!("bad_json")));
    assert!(
        lines["refused"][0]["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("byte 14") && detail.contains("line 1"))
    );
    let encoded = |encoding| [("content-type", LINES), ("content-encoding", encoding)];
    let whole = gzip(good.as_bytes());
    for (encoding, body, status, said) in [
        ("gzip", whole[..whole.len() - 5].to_vec(), 400, "the gzip data of the body is cut"),
        ("gzip", [&whole[..], b"x"].concat(), 400, "or something else follows it"),
        ("gzip", good.as_bytes().to_vec(), 400, "the body is not gzip"),
        (
            "gzip",
            gzip(&vec![b'\n'; EVENTS_BODY_BYTES_MAX + 1]),
            413,
            "at most 10485760 bytes are allowed, also decompressed",
        ),
        ("br", whole.clone(), 415, "the content encoding must be gzip"),
        ("gzip, gzip", whole.clone(), 415, "the content encoding must be gzip"),
    ] {
        ingesting.api.send("POST", PATH, &encoded(encoding), body).await.expect_problem(status, said);
    }
    let (headers, binary) = ([("ce-specversion", "0.3"), ("ce-id", "1")], r#"{"units":1}"#);
    ingesting
        .api
        .send("POST", PATH, &headers, binary)
        .await
        .expect_problem(400, "bad_cloudevent: specversion is \"0.3\"");
    let headers = [("ce-specversion", "1.0"), ("ce-source", "s"), ("ce-type", "t")];
    ingesting.api.send("POST", PATH, &headers, binary).await.expect_problem(400, "bad_cloudevent: ce-id is missing");
    let headers = [headers[0], headers[1], headers[2], ("ce-id", "1"), ("ce-subject", "a")];
    ingesting.api.send("POST", PATH, &headers, "{").await.expect_problem(400, "bad_data: the body, which is the data");
    assert_eq!(ingesting.entries().await, ["subject=b"]);
    ingesting.daemon.drain().await;
}

/// A token of a gateway that only checks must not fill the stream.
#[tokio::test]
async fn events_need_their_scope() {
    let ingesting = Ingesting::start().await;
    let body = json!({"subject": "a"});
    ingesting.api.without_token().post(PATH, &body).await.expect_problem(401, "Authorization: Bearer TOKEN");
    ingesting.api.with_token("another").post(PATH, &body).await.expect_problem(401, "none of those");
    assert!(ingesting.entries().await.is_empty());
    ingesting.daemon.drain().await;
}

/// A producer that drops what is refused as a whole loses usage; the operator sees it in this metric alone.
#[tokio::test]
async fn requests_that_are_refused_as_a_whole_are_counted_by_status() {
    let ingesting = Ingesting::start().await;
    let good = r#"{"subject":"a"}"#;
    let stranger = ingesting.api.without_token();
    for path in [PATH, "/api/v1/events", "/v1/reload"] {
        assert_eq!(stranger.send("POST", path, &[("content-type", JSON)], good).await.status, 401, "{path}");
    }
    for (content_type, body, status) in [
        (JSON, "[", 400),
        (JSON, "[{}]", 400),
        ("text/plain", good, 415),
        (LINES, "{\"subject\":\"a\"}\n5", 202),
        (JSON, "[]", 202),
    ] {
        assert_eq!(ingesting.send(content_type, body).await.status, status, "{body}");
    }
    let metrics = stranger.get("/metrics").await.text;
    let counts = |status: &str| format!("quotabell_http_events_requests_refused_total{{status=\"{status}\"}}");
    for (status, refused) in [("400", 2), ("401", 2), ("403", 0), ("408", 0), ("413", 0), ("415", 1), ("503", 0)] {
        assert!(metrics.contains(&format!("{} {refused}\n", counts(status))), "{status}: {metrics}");
    }
    ingesting.daemon.drain().await;
}

/// The head of a request with a body of this length.
fn head(bytes: usize) -> String {
    format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a-token-for-one-test-0123456789\r\n\
         content-type: {LINES}\r\ncontent-length: {bytes}\r\n\r\n"
    )
}

/// The answer's head, or what came before the connection ended.
async fn answered(stream: &mut TcpStream) -> String {
    let (mut answer, mut piece) = (Vec::new(), [0; 1024]);
    while !answer.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
        }
    }
    String::from_utf8(answer).expect("text")
}

/// A body of 100 MB must not be received, and half a body must not be counted.
#[tokio::test]
async fn a_body_that_is_too_long_or_incomplete_is_not_taken() {
    let mut ingesting = Ingesting::start().await;
    let address = ingesting.daemon.http().await;
    let mut long = TcpStream::connect(address).await.expect("connected");
    let waiting = head(100_000_000).replace("host: x", "host: x\r\nexpect: 100-continue");
    long.write_all(waiting.as_bytes()).await.expect("written");
    assert!(answered(&mut long).await.starts_with("HTTP/1.1 413 "), "before any of it is sent");
    let sent = ingesting.send(LINES, vec![b'\n'; 100_000_000]).await;
    sent.expect_problem(413, "the body is too large, at most 10485760 bytes are allowed");
    let stranger = ingesting.api.without_token();
    let sent = stranger.send("POST", PATH, &[("content-type", LINES)], vec![b'\n'; 100_000_000]).await;
    sent.expect_problem(401, "send the token");
    let mut chunked = TcpStream::connect(address).await.expect("connected");
    let head_of_chunks = head(0).replace("content-length: 0", "transfer-encoding: chunked");
    chunked.write_all(head_of_chunks.as_bytes()).await.expect("written");
    let (mut reading, mut writing) = chunked.into_split();
    let sent = tokio::spawn(async move {
        let chunk = [b"10000\r\n".as_slice(), &vec![b'\n'; 65_536], b"\r\n"].concat();
        // It ends when the daemon closes the connection.
        while writing.write_all(&chunk).await.is_ok() {}
    });
    let mut first = [0; 13];
    reading.read_exact(&mut first).await.expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 413 ");
    drop(reading);
    sent.await.expect("it ends");
    // A client that leaves in the middle.
    let mut half = TcpStream::connect(address).await.expect("connected");
    half.write_all((head(100) + "{\"subject\":\"a\"}\n").as_bytes()).await.expect("written");
    drop(half);
    let mut slow = TcpStream::connect(address).await.expect("connected");
    slow.write_all((head(100) + "{\"subject\":\"a\"}\n").as_bytes()).await.expect("written");
    assert!(answered(&mut slow).await.starts_with("HTTP/1.1 408 "));
    assert!(ingesting.entries().await.is_empty());
    ingesting.daemon.drain().await;
}

/// A client that leaves while its events are appended must lose none of them, nor the reason for a refused one.
#[tokio::test]
async fn a_client_that_leaves_after_its_body_is_served_to_the_end() {
    let mut ingesting = Ingesting::start().await;
    let server = ingesting.books.server.client();
    let body = "{\"subject\":\"a\"}\n{\"units\":1}\n";
    let mut leaving = TcpStream::connect(ingesting.daemon.http().await).await.expect("connected");
    let _: String = run(&server, &["CLIENT", "PAUSE", "60000", "WRITE"]).await;
    leaving.write_all((head(body.len()) + body).as_bytes()).await.expect("written");
    eventually("the append waits", || async {
        let clients: String = run(&server, &["CLIENT", "LIST"]).await;
        clients.contains(" cmd=xadd ").then_some(())
    })
    .await;
    leaving.shutdown().await.expect("it leaves");
    assert_eq!(answered(&mut leaving).await, "", "the daemon closes the connection");
    let _: String = run(&server, &["CLIENT", "UNPAUSE"]).await;
    ingesting.counts(1, 0).await;
    eventually("the refused event is kept", || async { (ingesting.refused().len() == 1).then_some(()) }).await;
    ingesting.daemon.drain().await;
}

/// Bodies that arrive at once must not exhaust the memory; the budget must be free again afterwards.
#[tokio::test]
async fn bodies_in_flight_are_bounded_together() {
    let mut ingesting = Ingesting::start().await;
    let address = ingesting.daemon.http().await;
    // All but the last byte.
    let body = vec![b'\n'; EVENTS_BODY_BYTES_MAX - 1];
    // A body that takes more than 10 seconds is given up, and a busy machine may be that slow.
    let full = eventually("the budget is exhausted", || async {
        let mut open = Vec::new();
        for _ in 0..BODIES_BYTES_MAX / EVENTS_BODY_BYTES_MAX {
            let mut stream = TcpStream::connect(address).await.expect("connected");
            stream.write_all(head(EVENTS_BODY_BYTES_MAX).as_bytes()).await.expect("written");
            stream.write_all(&body).await.expect("written");
            open.push(stream);
        }
        let answer = ingesting.send(LINES, vec![b'\n'; EVENTS_BODY_BYTES_MAX / 2]).await;
        // The text is small, and what is kept of it is not.
        let refused = ingesting.send(LINES, "{}\n".repeat(EVENTS_MAX)).await;
        (answer.status == 503 && refused.status == 503).then_some(answer)
    })
    .await;
    full.expect_problem(503, "bodies of 67108864 bytes are in flight: try again");
    assert_eq!(full.header("retry-after"), Some("1"));
    eventually("the budget is free", || async {
        (ingesting.send(LINES, vec![b'\n'; EVENTS_BODY_BYTES_MAX]).await.status == 202).then_some(())
    })
    .await;
    ingesting.daemon.drain().await;
}

/// An answer of 202 while Redis is away would lose events, and one that hangs would block producers.
#[tokio::test]
async fn without_redis_nothing_is_acknowledged() {
    let ingesting = Ingesting::start().await;
    let lines: String = (0..100).map(|n| format!("{{\"subject\":\"a\",\"id\":\"{n}\"}}\n")).collect();
    let redis = Pid::from_raw(ingesting.books.server.pid().cast_signed());
    kill(redis, Signal::SIGSTOP).expect("paused");
    let answer = ingesting.send(LINES, lines.clone()).await;
    kill(redis, Signal::SIGCONT).expect("continued");
    answer.expect_problem(503, "send the whole request again if its events have ids");
    assert_eq!(answer.header("retry-after"), Some("1"));
    eventually("Redis is back", || async { (ingesting.send(LINES, lines.clone()).await.status == 202).then_some(()) })
        .await;
    eventually("each counts once", || async { (ingesting.books.totals().await.counted == 100).then_some(()) }).await;
    ingesting.daemon.drain().await;
}

/// Redis that is full must not lose events silently, and a part that was appended must not be hidden.
#[tokio::test]
async fn a_part_that_redis_refuses_is_told_and_the_whole_may_be_sent_again() {
    let ingesting = Ingesting::with(|setup| setup.env("QUOTABELL__STREAM__PARTITIONS", "4")).await;
    let lines: String = (0..400).map(|n| format!("{{\"subject\":\"s{}\",\"id\":\"{n}\"}}\n", n % 40)).collect();
    // One partition can't be written.
    let _: String = ingesting.books.run("SET", &["usage:2:away", "x"]).await;
    let _: u64 = ingesting.books.run("DEL", "usage:2").await;
    let _: String = ingesting.books.run("SET", &["usage:2", "no stream"]).await;
    let answer = ingesting.send(LINES, lines.clone()).await;
    answer.expect_problem(503, " of 400 entries are in the stream");
    let _: u64 = ingesting.books.run("DEL", "usage:2").await;
    expect_accepted(&ingesting.send(LINES, lines.clone()).await, 400);
    let _: String = ingesting.books.run("CONFIG", &["SET", "maxmemory", "1"]).await;
    let full = ingesting.send(LINES, lines.clone()).await;
    full.expect_problem(503, "the memory of Redis is full");
    assert_eq!(full.header("retry-after"), Some("1"));
    // What can't be kept either would be lost with any other answer.
    let bad = "{\"subject\":\"never-counted\",\"nope\":1}\n";
    let unkept = ingesting.send(LINES, bad).await;
    unkept.expect_problem(503, "the memory of Redis is full");
    assert_eq!(unkept.header("retry-after"), Some("1"));
    let _: String = ingesting.books.run("CONFIG", &["SET", "maxmemory", "0"]).await;
    ingesting.send(LINES, bad).await.expect_problem(400, "\"nope\" is not known");
    let metrics = ingesting.api.without_token().get("/metrics").await.text;
    let once = "quotabell_events_refused_total{reason=\"unknown_field\"} 1\n";
    assert!(metrics.contains(once), "what is sent again after a 503 counts once: {metrics}");
    expect_accepted(&ingesting.send(LINES, lines).await, 400);
    ingesting.daemon.drain().await;
}

/// The connection to Redis breaks in the middle of a batch: whatever part arrived, the repetition counts each once.
#[tokio::test]
async fn a_batch_that_breaks_in_the_middle_counts_once_when_it_is_repeated() {
    let books = crate::support::outbox::Outbox::start();
    let proxy = Proxy::to(books.server.port()).await;
    let setup = crate::support::daemon::DaemonSetup::on(&proxy.url())
        .env("QUOTABELL__HTTP__TOKEN", "a-token-for-one-test-0123456789")
        .env("QUOTABELL__STREAM__TRIM", "never");
    let mut daemon = setup.start().await;
    daemon.becomes_ready().await;
    let api = Caller::of(&mut daemon).await.with_token("a-token-for-one-test-0123456789");
    let lines: String = (0..5_000).map(|n| format!("{{\"subject\":\"a\",\"id\":\"{n}\"}}\n")).collect();
    let send = || api.send("POST", PATH, &[("content-type", LINES)], lines.clone());
    let cutting = async {
        eventually("the batch has begun", || async { (books.run::<u64>("XLEN", "usage").await > 0).then_some(()) })
            .await;
        proxy.cut();
    };
    let (first, ()) = tokio::join!(send(), cutting);
    assert!(first.status == 503 || first.status == 202, "{}", first.text);
    eventually("it is taken", || async { (send().await.status == 202).then_some(()) }).await;
    eventually("each counts once", || async { (books.totals().await.counted >= 5_000).then_some(()) }).await;
    let total: u64 = tokio::time::timeout(Duration::from_secs(30), books.run("XLEN", "usage")).await.expect("in time");
    eventually("all is judged", || async {
        let totals = books.totals().await;
        (totals.counted + totals.duplicates == total).then_some(())
    })
    .await;
    assert_eq!(books.totals().await.counted, 5_000);
    proxy.set(Fault::None);
    daemon.drain().await;
}

/// Behind one address, a server that was demoted keeps its connections and refuses each write on them.
#[tokio::test]
async fn a_failover_behind_one_address_is_followed() {
    let new = RedisServer::start_to_be_followed();
    let (old, proxy) = (RedisServer::start_to_be_followed(), Proxy::to(0).await);
    proxy.lead_to(old.port());
    let ingesting = Ingesting::with(|setup| setup.env("QUOTABELL__REDIS__URL", &proxy.url())).await;
    expect_accepted(&ingesting.send(JSON, r#"{"subject":"a","id":"1"}"#).await, 1);
    let (old_client, new_client) = (old.client(), new.client());
    let () = run(&new_client, &["REPLICAOF", "127.0.0.1", &old.port().to_string()]).await;
    eventually("the copy is complete", || async {
        let info: String = run(&new_client, &["INFO", "replication"]).await;
        info.contains("master_link_status:up").then_some(())
    })
    .await;
    let () = run(&new_client, &["REPLICAOF", "NO", "ONE"]).await;
    proxy.lead_to(new.port());
    let () = run(&old_client, &["REPLICAOF", "127.0.0.1", &new.port().to_string()]).await;
    eventually("the new server takes events", || async {
        (ingesting.send(JSON, r#"{"subject":"a","id":"2"}"#).await.status == 202).then_some(())
    })
    .await;
    ingesting.daemon.drain().await;
}
