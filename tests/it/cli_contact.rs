//! `contact list / add / remove / mute / unmute` on a real server.

use crate::support::binary::{Finished, quotabell};
use crate::support::redis_server::RedisServer;
use serde_json::json;

const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
const MAIN: &str = r#"{"id":"main","channel":"email","address":"a@B.test","note":1e999}"#;
const OWN: &str = r#"{"id":"own","channel":"email","address":"own@b.test","verified":true,"nonce":"n"}"#;
const WAITING: &str = r#"{"id":"owl","channel":"email","address":"new@b.test","verified":false}"#;
const ODD: &str = r#"{"channel":"sms","to":"+1"}"#;

fn contact(server: &RedisServer, arguments: &[&str]) -> Finished {
    quotabell(["contact"].iter().chain(arguments).copied()).redis(&server.url()).run()
}

fn stored(server: &RedisServer) -> Option<String> {
    let mut connection = server.sync_client().get_connection().expect("it runs");
    redis::cmd("HGET").arg("quota_subject:alice").arg("contacts").query(&mut connection).expect("a hash")
}

fn store(server: &RedisServer, contacts: &str) {
    let mut connection = server.sync_client().get_connection().expect("it runs");
    let mut command = redis::cmd("HSET");
    let () = command.arg("quota_subject:alice").arg("contacts").arg(contacts).query(&mut connection).expect("written");
}

/// Adding a contact must not lose another one of any origin or form.
#[test]
fn a_contact_is_added_beside_those_that_are_there() {
    let server = RedisServer::start();
    store(&server, &format!("[{MAIN},{ODD},{OWN},{WAITING}]"));
    let added = contact(&server, &["add", "alice", "--webhook", "https://x.test/", "--id", "hook"]);
    assert_eq!(added.stderr, "added hook https://x.test/\n");
    let secret = added.expect_done().strip_suffix("  https://x.test/\n").expect("a secret").to_owned();
    let hook = format!(r#"{{"id":"hook","channel":"webhook","url":"https://x.test/","secret":"{secret}"}}"#);
    assert_eq!(stored(&server), Some(format!("[{MAIN},{ODD},{OWN},{WAITING},{hook}]")));

    // A second time nothing changes, and the receiver keeps its secret.
    let again = contact(&server, &["add", "alice", "--webhook", "https://x.test/", "--json"]).expect_json();
    let expected = json!({"subject": "alice", "id": "hook", "outcome": "unchanged", "webhook_secrets": []});
    assert_eq!(again, [expected]);
    assert_eq!(stored(&server), Some(format!("[{MAIN},{ODD},{OWN},{WAITING},{hook}]")));
    contact(&server, &["add", "alice", "--webhook", "https://x.test/", "--webhook-secret", SECRET]).expect_done();
    let hook = hook.replace(&secret, SECRET);
    assert_eq!(stored(&server), Some(format!("[{MAIN},{ODD},{OWN},{WAITING},{hook}]")));

    // The operator's addition replaces the pending consent.
    let changed = contact(&server, &["add", "alice", "--email", "new@b.test"]);
    assert_eq!((changed.code, changed.stderr.as_str()), (0, "changed owl new@b.test\n"));
    assert!(stored(&server).expect("contacts").contains(&WAITING.replace("false", "true")));
    let same = contact(&server, &["add", "alice", "--email", "a@b.TEST"]);
    assert_eq!((same.code, same.stderr.as_str()), (0, "a@b.TEST exists already, as contact main\n"));
}

/// Two contacts with one id, or one address under two ids, would mix up alerts.
#[test]
fn an_id_that_is_taken_is_refused() {
    let server = RedisServer::start();
    let before = format!("[{MAIN}]");
    store(&server, &before);
    let taken = contact(&server, &["add", "alice", "--email", "b@b.test", "--id", "main"]);
    assert!(taken.code == 1 && taken.stderr.contains("id main belongs to a@B.test"), "{}", taken.stderr);
    let other = contact(&server, &["add", "alice", "--email", "a@b.test", "--id", "second"]);
    assert!(other.code == 1 && other.stderr.contains("a@b.test exists already, as contact main"), "{}", other.stderr);
    for bad in [
        &["add", "alice", "--email", "b@b.test", "--id", "none"][..],
        &["add", "alice", "--email", "b@b.test", "--id", ""],
        &["add", "alice"],
        &["add", "alice", "--email", "b@b.test", "--webhook", "https://x.test/"],
        &["add", "alice", "--email", "b@b.test", "--email", "c@b.test"],
        &["add", "alice", "--email", "b@b.test", "--webhook-secret", "whsec_AAAA"],
        &["add", "alice", "--email", "nobody"],
        &["add", "alice", "--webhook", "https://x.test/", "--webhook-secret", "whsec_AAAA"],
    ] {
        let refused = contact(&server, bad);
        assert!(refused.code == 2 && !refused.stderr.contains("AAAA"), "{bad:?}: {}", refused.stderr);
    }
    assert_eq!(stored(&server), Some(before));
}

/// People name a contact by its address; only that contact may be changed.
#[test]
fn contacts_are_muted_and_removed_by_id_by_its_beginning_and_by_address() {
    let server = RedisServer::start();
    store(&server, &format!("[{MAIN},{ODD},{OWN},{WAITING}]"));
    let muted = contact(&server, &["mute", "alice", "ma", "--json"]).expect_json().remove(0);
    let mute = json!({"until": null, "reason": null});
    assert_eq!(muted, json!({"subject": "alice", "muted": true, "mute": mute, "contacts": ["main"]}));
    let muted_main = MAIN.replace("1e999", r#"1e999,"muted":true"#);
    assert_eq!(stored(&server), Some(format!("[{muted_main},{ODD},{OWN},{WAITING}]")));
    let unmuted = contact(&server, &["unmute", "alice", "a@b.test"]);
    assert_eq!((unmuted.code, unmuted.stderr.as_str()), (0, "unmuted main\n"));
    let unmuted_main = muted_main.replace("true", "false");

    let several = contact(&server, &["remove", "alice", "ow"]);
    assert!(several.code == 1 && several.stderr.contains("\"ow\": own, owl"), "{}", several.stderr);
    let unknown = contact(&server, &["mute", "alice", "nobody@b.test"]);
    assert!(
        unknown.stderr.ends_with("hint: `quotabell contact list alice` shows its contacts\n"),
        "{}",
        unknown.stderr
    );
    assert_eq!(unknown.code, 1);
    let removed = contact(&server, &["remove", "alice", "own@b.test"]);
    assert_eq!((removed.code, removed.stderr.as_str()), (0, "removed own own@b.test\n"));
    contact(&server, &["remove", "alice", "owl"]).expect_done();
    assert_eq!(stored(&server), Some(format!("[{unmuted_main},{ODD}]")));
}

/// A subject without settings is unknown again, so that the fallback contacts apply.
#[test]
fn the_last_contact_leaves_no_empty_list() {
    let server = RedisServer::start();
    contact(&server, &["add", "alice", "--email", "a@b.test"]).expect_done();
    let removed = contact(&server, &["remove", "alice", "a@b.test", "--json"]).expect_json().remove(0);
    assert_eq!(removed, json!({"subject": "alice", "removed": ["c_ab39b01901a28f91"]}));
    assert_eq!(stored(&server), None);
    assert_eq!(contact(&server, &["list", "alice"]).expect_done(), "");
}

/// Without a configured fallback the output must not suggest that somebody else is told.
#[test]
fn a_subject_without_contacts_is_told_of_a_fallback_only_where_there_is_one() {
    let server = RedisServer::start();
    let told = |fallback: &str| {
        let list = quotabell(["contact", "list", "alice"]).redis(&server.url());
        list.env("QUOTABELL__FALLBACK__CONTACTS", fallback).run_on_terminal().replace("\r\n", "\n")
    };
    let fallback = r#"[{"channel":"email","address":"ops@b.test"}]"#;
    assert_eq!(told("[]"), "no contacts of its own\n");
    let with = told(fallback).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(with, "no contacts of its own: the fallback contacts of the configuration get the alerts");
    store(&server, &format!("[{ODD}]"));
    assert!(told(fallback).ends_with("no contacts that can be read\n"), "{}", told(fallback));
}

/// The output must show why a contact gets nothing, but never a secret.
#[test]
fn the_list_shows_state_and_origin_and_no_secret() {
    let server = RedisServer::start();
    let hook =
        format!(r#"{{"id":"hook","channel":"webhook","url":"https://x.test/","secret":"{SECRET}","muted":true}}"#);
    store(&server, &format!("[{MAIN},{ODD},{OWN},{WAITING},{hook}]"));
    let listed = contact(&server, &["list", "alice"]);
    insta::assert_snapshot!(listed.told(), @r#"
    ID    CHANNEL  ADDRESS          STATE          ALERTS  ADDED BY
    main  email    a@B.test         -              all     operator
    own   email    own@b.test       -              all     subject
    owl   email    new@b.test       not confirmed  all     subject
    hook  webhook  https://x.test/  muted          all     operator
    warning: contact can't be read and gets nothing: contact has channel "sms", allowed are "email" and "webhook"
    exit 0
    "#);
    let json = contact(&server, &["list", "alice", "--json"]).expect_json().pop();
    let expected = json!({
        "id": "hook", "channel": "webhook", "url": "https://x.test/", "secret": "***", "muted": true, "verified": true,
        "added_by": "operator",
    });
    assert_eq!(json, Some(expected));
}

/// A repaired mailbox must get its alerts again, and the output must show why there were none.
#[test]
fn a_disabled_contact_is_shown_with_its_reason_and_enabled_again() {
    let server = RedisServer::start();
    let disabled = MAIN.replace(
        "1e999",
        r#"1e999,"disabled":{"reason":"no_mailbox","detail":"SMTP 550 5.1.1 to RCPT","at":"2026-11-21T08:37:00.123Z"}"#,
    );
    store(&server, &format!("[{disabled},{ODD},{OWN}]"));
    let state = "disabled: no_mailbox (SMTP 550 5.1.1 to RCPT)";
    let listed = contact(&server, &["list", "alice"]);
    assert!(listed.stdout.contains(state), "{}", listed.stdout);
    let shown = quotabell(["subject", "show", "alice"]).redis(&server.url()).run();
    let since = "main email a@B.test (disabled since 2026-11-21T08:37:00.123Z: no_mailbox (SMTP 550 5.1.1 to RCPT))";
    assert!(shown.stdout.contains(since), "{}", shown.stdout);
    let enabled = contact(&server, &["enable", "alice", "ma", "--json"]).expect_json().remove(0);
    assert_eq!(enabled, json!({"subject": "alice", "enabled": ["main"]}));
    assert_eq!(stored(&server), Some(format!("[{MAIN},{ODD},{OWN}]")));
    let again = contact(&server, &["enable", "alice", "main"]);
    assert_eq!((again.code, again.stderr.as_str()), (0, "main is not disabled\n"));
    assert_eq!(contact(&server, &["enable", "alice", "nobody"]).code, 1);

    store(&server, &format!("[{disabled}]"));
    quotabell(["subject", "set", "alice", "--email", "a@b.test"]).redis(&server.url()).run().expect_done();
    assert_eq!(stored(&server), Some(format!("[{MAIN}]")), "who names it again vouches for it");
}

/// A manager who wants only the last warning must be able to get only that.
#[test]
fn a_contact_hears_what_it_is_told_to() {
    let server = RedisServer::start();
    let add = ["add", "alice", "--email", "cto@b.test"];
    let with = |more: &[&str]| contact(&server, &[&add[..], more].concat());
    with(&["--threshold", "100,80", "--metric", "requests"]).expect_done();
    let hears = r#""thresholds":[80,100],"metrics":["requests"]"#;
    assert!(stored(&server).expect("contacts").contains(hears));
    assert!(contact(&server, &["list", "alice"]).stdout.contains("80,100 of requests"));
    with(&["--threshold", "all"]).expect_done();
    let left = stored(&server).expect("contacts");
    assert!(left.contains(r#""metrics":["requests"]"#) && !left.contains("thresholds"), "{left}");
    for (bad, told) in [
        (&["--threshold", "all,80"][..], "threshold all can't be combined with others"),
        (&["--threshold", "80,80"], "thresholds names 80 twice"),
        (&["--threshold", "0"], "1 to 1000"),
        (&["--metric", "A"], "metric must match"),
    ] {
        let refused = with(bad);
        assert!(refused.code == 2 && refused.stderr.contains(told), "{bad:?}: {}", refused.stderr);
    }
    assert_eq!(stored(&server), Some(left));
}

/// A field that is not an array must not be overwritten, and a key of another type is not a subject.
#[test]
fn what_can_not_be_edited_is_told_and_left_alone() {
    let server = RedisServer::start();
    store(&server, "[{]");
    for command in [&["list", "alice"][..], &["add", "alice", "--email", "a@b.test"], &["remove", "alice", "x"]] {
        let refused = contact(&server, command);
        assert_eq!(refused.code, 1, "{command:?}");
        assert!(
            refused
                .stderr
                .contains("subject alice: its field contacts is not a JSON array: syntax error at line 1 column 3")
        );
    }
    assert_eq!(stored(&server).as_deref(), Some("[{]"));
    let mut connection = server.sync_client().get_connection().expect("it runs");
    let () = redis::cmd("SET").arg("quota_subject:bob").arg("x").query(&mut connection).expect("set");
    let wrong = contact(&server, &["mute", "bob", "x"]);
    assert!(wrong.code == 1 && wrong.stderr.contains("hint: "), "{}", wrong.stderr);
}

/// A chat contact needs only three settings; the stored form is the one that an attempt reads, and the output shows no
/// secret.
#[test]
fn a_contact_has_a_format_and_headers() {
    let server = RedisServer::start();
    let url = "https://hooks.slack.test/services/T0/B0/topsecret";
    let added = contact(&server, &["add", "alice", "--webhook", url, "--format", "slack", "--id", "chat"]);
    assert_eq!((added.stdout.as_str(), added.stderr.as_str()), ("", "added chat https://hooks.slack.test/***\n"));
    let chat = format!(r#"{{"id":"chat","channel":"webhook","url":"{url}","format":"slack"}}"#);
    assert_eq!(stored(&server), Some(format!("[{chat}]")));

    let header = ["--header", "Authorization: Bearer topsecret", "--header", "X-Team: ops"];
    let changed = contact(&server, &[&["add", "alice", "--webhook", url], header.as_slice()].concat());
    assert_eq!(changed.stderr, "changed chat https://hooks.slack.test/***\n");
    let headers = r#","headers":{"Authorization":"Bearer topsecret","X-Team":"ops"}}"#;
    let chat = chat.replace('}', headers);
    assert_eq!(stored(&server), Some(format!("[{chat}]")), "the format stays");
    let shown = [contact(&server, &["list", "alice", "--json"]), contact(&server, &["list", "alice"])];
    for shown in shown.map(|run| run.told()) {
        assert!(shown.contains("https://hooks.slack.test/***") && !shown.contains("topsecret"), "{shown}");
    }

    // Another format may need another kind of secret than the stored one.
    let standard = contact(&server, &["add", "alice", "--webhook", url, "--format", "standard", "--json"]);
    let secrets = standard.expect_json()[0]["webhook_secrets"].clone();
    assert_eq!(secrets.as_array().map(Vec::len), Some(1), "{secrets}");
    let now: serde_json::Value = serde_json::from_str(&stored(&server).expect("contacts")).expect("JSON");
    assert_eq!((&now[0]["secret"], now[0].get("format")), (&secrets[0]["secret"], None));
    contact(&server, &["remove", "alice", "chat"]).expect_done();
    assert_eq!(stored(&server), None);
}

/// A contact that could never be sent to is refused while it can still be corrected.
#[test]
fn options_that_do_not_fit_are_refused() {
    let server = RedisServer::start();
    let url = ["add", "alice", "--webhook", "https://x.test/"];
    let refused = |more: &[&str], said: &str| {
        let run = contact(&server, &[url.as_slice(), more].concat());
        assert!(run.code == 2 && run.stderr.contains(said), "{}", run.told());
    };
    refused(&["--format", "slakc"], "format is \"slakc\", allowed are standard, cloudevents, slack");
    refused(&["--format", "pagerduty"], "the secret of a pagerduty contact must be its routing key");
    refused(&["--format", "pagerduty", "--webhook-secret", SECRET], "must be its routing key");
    refused(&["--format", "slack", "--webhook-secret", "short"], "webhook secret must be whsec_");
    refused(&["--header", "Host: x"], "header \"Host\" is set by quotabell or by the connection");
    refused(&["--header", "no colon"], "a header is written as");
    refused(&["--format", "template:ops"], "there is no template \"ops\": webhook.templates names no folder");
    refused(&["--format", "slack", "--format", "teams"], "webhook format 2 has no webhook 2");
    let twice = ["--webhook", "https://y.test/", "--header", "X-A: 1"];
    refused(&twice, "--header belongs to one webhook, 2 are named");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("ops.json"), r#"{"text": {{ subject }}}"#).expect("written");
    let add = |template: &str| {
        let run = quotabell(["contact", "add", "alice", "--webhook", "https://x.test/", "--format", template]);
        run.redis(&server.url()).env("QUOTABELL__WEBHOOK__TEMPLATES", folder.path()).run()
    };
    assert!(add("template:pos").stderr.contains("only ops"));
    add("template:ops").expect_done();
    std::fs::write(folder.path().join("ops.json"), r#"{"text": {{ subject }}"#).expect("written");
    let broken = add("template:ops");
    assert!(broken.code == 78 && broken.stderr.contains("ops.json, gives no JSON"), "{}", broken.told());
}

/// Without levels nobody is below: a contact that waits for alerts of its branch would wait for ever.
#[test]
fn a_contact_that_hears_its_branch_needs_levels() {
    let server = RedisServer::start();
    let add = |separator: &str, subject: &str| {
        let words = ["contact", "add", subject, "--email", "a@b.test", "--subtree"];
        quotabell(words).redis(&server.url()).env("QUOTABELL__SUBJECTS__SEPARATOR", separator).run()
    };
    for (separator, subject, why) in [
        ("", "alice", "error: subtree has no meaning: without subjects.separator, subjects have no levels"),
        ("/", "a/b/c/d", "error: subtree has no meaning: a subject of 4 levels has none below it"),
        ("/", "alice/", "error: subject has an empty part"),
    ] {
        let refused = add(separator, subject);
        assert!(refused.code == 1 && refused.stderr.starts_with(why), "{}", refused.told());
        assert!(refused.stderr.contains("hint: subjects.separator decides how ids are divided"), "{}", refused.told());
    }
    assert_eq!(stored(&server), None);
    add("/", "alice").expect_done();
    assert!(stored(&server).is_some_and(|stored| stored.contains(r#""subtree":true"#)));
}
