//! `subject mute` and `contact mute` on a real server.

use crate::support::books::run;
use crate::support::redis_server::RedisServer;
use serde_json::json;

fn redis(server: &RedisServer, line: &str) -> redis::Value {
    let mut connection = server.sync_client().get_connection().expect("it runs");
    let mut words = line.split(' ');
    let mut command = redis::cmd(words.next().expect("a command"));
    words.for_each(|word| {
        command.arg(word);
    });
    command.query(&mut connection).expect("it works")
}

/// Mutes with their end and reason must be shown with the subject, or nobody finds out why it gets nothing.
#[test]
fn mutes_are_shown_with_their_end_and_reason_and_kept_by_other_changes() {
    let server = RedisServer::start();
    run(&server, "subject set alice --email a@b.test").expect_done();
    let told = run(&server, "contact mute alice a@b.test --until 2100-01-01T00:00:00Z --reason office");
    assert_eq!(told.told(), "muted c_ab39b01901a28f91 until 2100-01-01T00:00:00.000Z: office\nexit 0");
    let told = run(&server, "subject mute alice --metric tokens --until 2100-02-01T01:00:00+01:00");
    let muted = "alice: metric tokens of the subject is muted until 2100-02-01T00:00:00.000Z\nexit 0";
    let warning = "warning: no plan and no limit of the subject names the metric tokens";
    assert_eq!(told.told(), format!("{warning}\n{muted}"));
    run(&server, "subject set alice --limit tokens=9").expect_done();
    let told = run(&server, "subject mute alice --metric tokens --until 2100-02-01T00:00:00Z");
    assert_eq!(told.told(), muted);
    redis(&server, "HDEL quota_subject:alice limit:tokens");
    let json = run(&server, "subject mute alice --reason moving --json").expect_json();
    let mute = json!({"until": null, "reason": "moving"});
    assert_eq!(json, [json!({"subject": "alice", "metric": null, "mute": mute})]);
    run(&server, "subject set alice --plan free --email a@b.test").expect_done();
    insta::assert_snapshot!(run(&server, "subject show alice").told(), @"
    subject        alice
    plan           free
    timezone       -
    billing day    -
    billing month  -
    limits         -
    thresholds     -
    locale         -
    name           -
    contact        c_ab39b01901a28f91 email a@b.test (muted until 2100-01-01T00:00:00.000Z: office)
    mute           the subject is muted: moving
    mute           metric tokens of the subject is muted until 2100-02-01T00:00:00.000Z
    exit 0
    ");
    insta::assert_snapshot!(run(&server, "subject list").told(), @"
    SUBJECT  PLAN  TIMEZONE  LIMITS  THRESHOLDS  CONTACTS
    alice    free  -         -       -           a@b.test (muted until 2100-01-01T00:00:00.000Z: office); the subject is muted: moving; metric tokens of the subject is muted until 2100-02-01T00:00:00.000Z
    exit 0
    ");
    insta::assert_snapshot!(run(&server, "contact list alice").told(), @"
    ID                  CHANNEL  ADDRESS   STATE                                         ALERTS  ADDED BY
    c_ab39b01901a28f91  email    a@b.test  muted until 2100-01-01T00:00:00.000Z: office  all     operator
    exit 0
    ");

    run(&server, "subject unmute alice").expect_done();
    run(&server, "contact unmute alice a@b.test").expect_done();
    let shown = run(&server, "subject show alice --json").expect_json().remove(0);
    assert_eq!((shown.get("mute"), &shown["metric_mutes"]["tokens"]["reason"]), (None, &json!(null)));
    assert_eq!(shown["contacts"], json!([{"id": "c_ab39b01901a28f91", "channel": "email", "address": "a@b.test"}]));
    let told = run(&server, "subject unmute alice --metric tokens");
    assert_eq!(told.told(), "alice: metric tokens of the subject is not muted any more\nexit 0");
    let told = run(&server, "subject unmute alice --metric tokens");
    assert_eq!(told.told(), "alice: metric tokens of the subject is not muted\nexit 0");
    let told = run(&server, "subject unmute alice");
    assert_eq!(told.told(), "alice: the subject is not muted\nexit 0");
    assert_eq!(run(&server, "subject show alice --json").expect_json()[0].get("metric_mutes"), None);
}

/// An ended mute is no mute; a mute that would end at once is a mistake.
#[test]
fn a_mute_ends_in_the_future() {
    let server = RedisServer::start();
    redis(&server, "HSET quota_subject:alice muted 2026-01-01T00:00:00Z plan free");
    assert_eq!(run(&server, "subject show alice --json").expect_json()[0].get("mute"), None);
    for (line, said) in [
        ("subject mute alice --until 2020-01-01T00:00:00Z", "a mute must end in the future"),
        ("subject mute alice --until tomorrow", "must be a time in RFC 3339"),
        ("subject mute alice --for 1M", "a duration is a number and a unit"),
        ("subject mute alice --for 2h --until 2100-01-01T00:00:00Z", "cannot be used with"),
        ("contact mute alice x --for 0s", "a mute must end in the future"),
    ] {
        let refused = run(&server, line);
        assert!(refused.code == 2 && refused.stderr.contains(said), "{line}: {}", refused.told());
    }
    redis(&server, "HSET quota_subject:alice muted soon");
    let warned = run(&server, "subject show alice");
    assert!(warned.stderr.contains("field \"muted\": must be true or the time"), "{}", warned.stderr);
}
