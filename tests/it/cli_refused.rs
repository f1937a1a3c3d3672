//! `refused list` on a real server.

use crate::support::binary::quotabell;
use crate::support::redis_server::RedisServer;
use quotabell::types::UnixMs;
use serde_json::json;

/// Adds an event with these fields (names and values in turn) to the refused events.
fn refuse(server: &RedisServer, detail: &str, fields: &[&[u8]]) {
    refuse_at(server, "*", detail, fields);
}

fn refuse_at(server: &RedisServer, id: &str, detail: &str, fields: &[&[u8]]) {
    let mut connection = server.sync_client().get_connection().expect("it runs");
    let mut command = redis::cmd("XADD");
    command.arg("quota_refused:{usage}").arg(id).arg(&["entry", "1-1", "reason", "bad_subject", "detail", detail]);
    command.arg(fields);
    let _: String = command.query(&mut connection).expect("appended");
}

/// Every refused event must be shown: with bytes that are no text, names like ours, repeated names.
#[test]
fn every_field_is_shown_as_it_was_sent() {
    let server = RedisServer::start();
    let fields: [&[u8]; 8] = [b"subject", b"a\xff\xfe", b"reason", b"mine", b"x\xc3", b"1", b"subject", b"second"];
    refuse(&server, "subject is not UTF-8", &fields);
    let printed = quotabell(["refused", "list", "--json"]).redis(&server.url()).run().expect_json();
    let fields = json!({"subject": "a\\xff\\xfe", "reason": "mine", "x\\xc3": "1"});
    let at = &printed[0]["refused_at"];
    at.as_str().expect("text").parse::<UnixMs>().expect("a time");
    let expected = json!({
        "entry": "1-1", "stream": "usage", "reason": "bad_subject", "detail": "subject is not UTF-8", "fields": fields,
        "refused_at": at,
    });
    assert_eq!(printed, [expected]);
}

/// A stranger's bytes must not control the operator's terminal.
#[test]
fn the_table_shows_control_characters_and_does_not_obey_them() {
    let server = RedisServer::start();
    refuse_at(&server, "1795250000000-0", "subject holds a control character", &[b"subject", b"a\x1b[2J\nb"]);
    let printed = quotabell(["refused", "list"]).redis(&server.url()).run().expect_done();
    insta::assert_snapshot!(printed, @r"
    TIME UTC                  ENTRY  REASON       DETAIL                             FIELDS
    2026-11-21T08:33:20.000Z  1-1    bad_subject  subject holds a control character  subject=a\u{1b}[2J\nb
    ");
}

/// A list that ends after one page would hide the rest.
#[test]
fn the_list_is_complete_and_the_limit_takes_the_newest() {
    let server = RedisServer::start();
    let mut connection = server.sync_client().get_connection().expect("it runs");
    let mut pipeline = redis::pipe();
    for number in 1..=1001 {
        let entry = format!("{number}-0");
        pipeline.cmd("XADD").arg("quota_refused:{usage}").arg("*").arg("entry").arg(entry);
        pipeline.arg("reason").arg("bad_units").arg("detail").arg("x").ignore();
    }
    let () = pipeline.query(&mut connection).expect("appended");
    let entries = |arguments: &[&str]| -> Vec<String> {
        let run = quotabell(["refused", "list", "--json"].iter().chain(arguments).copied()).redis(&server.url());
        run.run().expect_json().iter().map(|refused| refused["entry"].as_str().expect("text").to_owned()).collect()
    };
    let all: Vec<String> = (1..=1001).map(|number| format!("{number}-0")).collect();
    assert_eq!(entries(&[]), all);
    assert_eq!(entries(&["--limit", "2"]), all[999..]);
    assert_eq!(entries(&["--limit", "750"]), all[251..]);
    assert_eq!(entries(&["--limit", "5000"]), all);
}

/// The refused events of one customer must be findable among 100,000.
#[test]
fn the_refused_events_of_one_subject_are_found() {
    let server = RedisServer::start();
    for (subject, detail) in [("alice", "first"), ("bob", "second"), ("alice", "third"), ("bob", "fourth")] {
        refuse(&server, detail, &[b"subject", subject.as_bytes()]);
    }
    let details = |arguments: &[&str]| -> Vec<String> {
        let run = quotabell(["refused", "--subject", "alice", "--json"].iter().chain(arguments).copied());
        let listed = run.redis(&server.url()).run().expect_json();
        listed.iter().map(|refused| refused["detail"].as_str().expect("text").to_owned()).collect()
    };
    assert_eq!(details(&[]), ["first", "third"]);
    assert_eq!(details(&["--limit", "1"]), ["third"]);
    let told = quotabell(["explain", "alice"]).redis(&server.url()).run().expect_done();
    assert!(told.contains("2 events of it are among the newest that could not be counted"), "{told}");
}

/// An empty list is no error.
#[test]
fn an_empty_list_is_empty() {
    let server = RedisServer::start();
    for arguments in [&["refused", "list"][..], &["refused", "list", "--limit", "3"], &["refused", "list", "--json"]] {
        assert_eq!(quotabell(arguments.iter().copied()).redis(&server.url()).run().expect_done(), "");
    }
}
