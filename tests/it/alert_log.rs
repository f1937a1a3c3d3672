//! The log of alerts and notices: what was raised and how each delivery ended, long after both have expired.

use quotabell::outbox::Settlement;
use quotabell::types::{DeliveryId, Month, OutcomeClass, UnixMs, keys::Keys};
use serde_json::{Value, json};

use crate::support::api::Caller;
use crate::support::binary::quotabell;
use crate::support::books::{run, with_dead};
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::grant_notices::grant_notice;
use crate::support::outbox::{LONG, Outbox, RESETS_AT, alert, outcome, settle, subject, webhook};
use crate::support::redis_server::RedisServer;

const TOKEN: &str = "a-token-for-one-test-0123456789";
const EXPORT: &str = "alerts export --since 2020-01-01T00:00:00Z";

fn exported(server: &RedisServer, more: &str) -> Vec<Value> {
    run(server, &format!("{EXPORT} {more}")).expect_json()
}

/// State, attempts and error of each delivery of an exported alert.
fn ends(logged: &Value) -> Vec<Value> {
    let deliveries = logged["deliveries"].as_array().expect("a list");
    deliveries.iter().map(|end| json!([end["state"], end["attempts"], end["last_error"]])).collect()
}

async fn succeeds(outbox: &Outbox) {
    let leased = outbox.lease_one("again", LONG).await;
    let end = Settlement::Delivered(outcome(OutcomeClass::Delivered));
    settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &end).await.expect("settles");
}

/// A customer who disputes an invoice must be shown what was sent, whatever happened to the deliveries since.
#[tokio::test]
async fn an_alert_is_logged_with_the_last_end_of_each_delivery() {
    let (outbox, dead) = with_dead(&["alice", "bob"]).await;
    let server = &outbox.server;
    let raised = alert(&subject("alice"), 80);
    let logged = exported(server, "");
    assert_eq!((logged.len(), &logged[0]["alert"]["subject"]), (2, &json!("bob")), "the newest first");
    assert_eq!(logged[1]["alert"], serde_json::to_value(&raised).expect("JSON"));
    assert_eq!(ends(&logged[1]), [json!(["dead", 1, "receiver answered 503"])]);
    assert_eq!(logged[1]["deliveries"][0]["id"], json!(dead[0]));

    run(server, &format!("deliveries replay {}", dead[0])).expect_done();
    succeeds(&outbox).await;
    let logged = exported(server, "--subject alice");
    assert_eq!(logged.len(), 1);
    assert_eq!(ends(&logged[0])[0][0], "delivered");

    // Nobody has heard of this one yet; one of its deliveries is cancelled.
    outbox.fan_out_new(&alert(&subject("alice"), 100), &[webhook("a"), webhook("b"), webhook("c")]).await;
    let pending: Vec<DeliveryId> = outbox
        .run::<Vec<String>>("ZRANGE", &[outbox.keys.pending().as_str(), "0", "-1"])
        .await
        .iter()
        .map(|id| DeliveryId::from_stored(id))
        .collect();
    assert_eq!(ends(&exported(server, "--subject alice")[0]), Vec::<Value>::new());
    run(server, &format!("deliveries cancel {}", pending[0])).expect_done();
    assert_eq!(ends(&exported(server, "--subject alice")[0]), [json!(["cancelled", 0, null])]);

    // The alerts of the sample were raised at 2026-11-21T08:33:20.123Z.
    assert_eq!(exported(server, "--until 2026-11-21T08:33:20.123Z"), Vec::<Value>::new());
    assert_eq!(exported(server, "--until 2026-11-21T08:33:20.124Z").len(), 3);
    let swapped = run(server, &format!("{EXPORT} --until 2019-01-01T00:00:00Z"));
    assert!(swapped.code == 2 && swapped.stderr.contains("is not after --since"), "{}", swapped.stderr);
}

/// An erased customer must not stay in the log, and a moved deployment must not forget the others.
#[tokio::test]
async fn the_log_is_erased_with_its_subject_and_moves_with_a_migration() {
    let (outbox, _) = with_dead(&["alice", "bob", "carol"]).await;
    outbox.fan_out_notice(&grant_notice(&subject("alice"), RESETS_AT), &[webhook("a")]).await;
    let told = run(&outbox.server, "subject remove --everything alice").told();
    assert!(told.contains("3 log entries"), "{told}");
    let left = exported(&outbox.server, "");
    let subjects: Vec<&Value> = left.iter().map(|logged| &logged["alert"]["subject"]).collect();
    assert_eq!(subjects, ["carol", "bob"]);
    let ids: Vec<Value> = left.iter().map(|logged| logged["alert"]["id"].clone()).collect();

    // The daemon writes the checkpoint, without which there is nothing to move.
    let daemon = DaemonSetup::on(&outbox.server.url()).start().await;
    run(&outbox.server, "emit --subject dan").expect_done();
    eventually("it is counted", || async { (outbox.totals().await.counted == 1).then_some(()) }).await;
    daemon.drain().await;
    let new = RedisServer::start();
    let arguments = ["migrate", "--from", &outbox.server.url(), "--to", &new.url(), "--partitions", "3"];
    quotabell(arguments).run().expect_done();
    let moved = quotabell(EXPORT.split(' ')).redis(&new.url()).env("QUOTABELL__STREAM__PARTITIONS", "3").run();
    let mut moved = moved.expect_json();
    moved.sort_by_key(|logged| ids.iter().position(|id| *id == logged["alert"]["id"]));
    assert_eq!(moved, left);
}

/// After 14 days nothing else proves that a customer was warned before units expired.
#[tokio::test]
async fn a_notice_is_logged_like_an_alert_if_somebody_is_told() {
    let outbox = Outbox::start();
    let (told, untold) = (grant_notice(&subject("alice"), RESETS_AT), grant_notice(&subject("bob"), RESETS_AT));
    outbox.fan_out_notice(&told, &[webhook("a")]).await;
    outbox.fan_out_notice(&untold, &[]).await;
    succeeds(&outbox).await;
    let logged = exported(&outbox.server, "");
    let shown: Vec<(&Value, &Value)> = logged.iter().map(|one| (&one["type"], &one["notice"]["id"])).collect();
    assert_eq!(shown, [(&json!("grant_expires"), &json!(told.id))]);
    assert_eq!((ends(&logged[0]), logged[0].get("alert")), (vec![json!(["delivered", 1, null])], None));
}

/// A platform gets over HTTP what an operator gets by the command line.
#[tokio::test]
async fn the_log_is_read_over_http() {
    let (outbox, _) = with_dead(&["alice", "bob"]).await;
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__HTTP__TOKEN", TOKEN).argument("--no-send");
    let mut daemon = setup.start().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    let lines = async |query: &str| -> Vec<Value> {
        let answer = api.get(&format!("/v1/alerts{query}")).await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some("application/x-ndjson")),
            "{}",
            answer.text
        );
        answer.text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let all = exported(&outbox.server, "");
    assert_eq!((lines("").await, all.len()), (all, 2));
    assert_eq!(lines("?subject=alice").await, exported(&outbox.server, "--subject alice"));
    assert_eq!(lines("?since=2026-11-21T08:33:20.124Z").await, [] as [Value; 0]);
    assert_eq!(lines("?since=2026-11-21T00:00:00Z&until=2026-11-21T08:33:20.124Z").await.len(), 2);
    let swapped = api.get("/v1/alerts?since=2026-11-21T00:00:00Z&until=2026-11-20T00:00:00Z").await;
    swapped.expect_problem(400, "until: must be after since");
    // Three reads of this month and of the one before, with the end of each delivery in the later one.
    let now = outbox.client.server_time().await.expect("redis answers");
    let month = Month::containing(now).expect("a month");
    let mut entries = redis::pipe();
    for (of, what) in [(month.before(1).expect("a month"), "alert"), (month, "delivery")] {
        for number in 0..2_500 {
            let at = UnixMs(month.end().0 - 31 * 86_400_000 - 86_400_000 + number);
            let json = json!({"id": format!("many_{number}"), "metric": "requests", "raised_at": at.to_string()});
            let command = entries.cmd("XADD").arg(outbox.keys.alert_log(of)).arg("*").arg("at_ms").arg(at.0).ignore();
            command.arg("alert_id").arg(format!("many_{number}")).arg("subject").arg("many");
            command.arg(what).arg(if what == "alert" { json.to_string() } else { format!("delivery_{number}") });
            for (field, value) in [("state", "delivered"), ("channel", "email"), ("contact_id", "c"), ("attempts", "1")]
            {
                command.arg(field).arg(value);
            }
            command.arg("destination").arg("email");
        }
    }
    let () = outbox.client.pipe(&entries).await.expect("added");
    let many = lines("?subject=many").await;
    let of_id = |one: &Value| json!(one["alert"]["id"].as_str().map(|id| id.replace("many", "delivery")));
    assert!(many.iter().all(|one| one["deliveries"][0]["id"] == of_id(one)), "each with its end");
    assert_eq!((many.len(), &many[0]["alert"]["id"]), (2_500, &json!("many_2499")));
    assert_eq!((lines("").await.len(), exported(&outbox.server, "--subject many")), (2_502, many));
    daemon.drain().await;
}

/// Without an end of its own the log would fill Redis.
#[tokio::test]
async fn a_month_of_the_log_is_kept_as_long_as_configured() {
    let (outbox, _) = with_dead(&["alice"]).await;
    let month = Month::containing(outbox.client.server_time().await.expect("redis answers")).expect("a month");
    let key = Keys::new("usage").alert_log(month);
    let expires = async || outbox.run::<i64>("PEXPIRETIME", &[key.as_str()]).await;
    assert!(expires().await > month.end().0, "kept for longer than a month before a daemon sets it");
    let daemon = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__HISTORY__ALERTS_DAYS", "30").start().await;
    let until = month.end().plus(30 * 86_400_000).0;
    eventually("the retention is set", || async { (expires().await == until).then_some(()) }).await;
    daemon.drain().await;
}
