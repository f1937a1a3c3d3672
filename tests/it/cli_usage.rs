//! `usage` against a real server.

use crate::support::books::{hide_what_varies, record, run, server_time};
use crate::support::outbox::{alert, subject};
use crate::support::redis_server::RedisServer;
use quotabell::types::{Alert, AlertId, Day, DaySpan, Keys, UnixMs, keys};
use serde_json::{Value, json};

/// Nobody set it, nobody used anything: it still has a plan, and 0 is an answer.
#[tokio::test]
async fn an_unknown_subject_has_the_default_plan_and_0() {
    let server = RedisServer::start();
    hide_what_varies().bind(|| insta::assert_snapshot!("usage_of_nobody", run(&server, "usage nobody").told()));
    let today = Day::in_utc(server_time(&server.client()).await).expect("a day");
    let printed = run(&server, &format!("usage nobody --day {today} --json")).expect_json();
    let requests = json!({
        "metric": "requests", "used": 0, "limit": 5000, "limit_from": "settings", "used_percent": 0.0, "alerts": [],
    });
    let expected = json!({
        "subject": "nobody", "plan": "free", "timezone": "UTC", "day": today, "over": false, "kept": true,
        "metrics": [requests],
    });
    assert_eq!(printed, [expected]);
    for line in ["alerts", "alerts --json", "alerts --day 2026-11-21", "deliveries list", "deliveries list --json"] {
        assert_eq!(run(&server, line).told(), "exit 0", "{line}");
    }
}

/// Tokyo's customer asks in the morning and must not be shown yesterday.
#[tokio::test]
async fn today_is_the_subjects_own() {
    let server = RedisServer::start();
    let client = server.client();
    for zone in ["Pacific/Kiritimati", "Etc/GMT+12"] {
        run(&server, &format!("subject set alice --timezone {zone}")).expect_done();
        let day = |now: UnixMs| DaySpan::containing(zone.parse().expect("a zone"), now).expect("a day").day.to_string();
        let before = day(server_time(&client).await);
        let shown = run(&server, "usage alice --json").expect_json();
        let after = day(server_time(&client).await);
        assert_eq!(shown[0]["timezone"], zone);
        assert!([json!(before), json!(after)].contains(&shown[0]["day"]), "{zone}: {}", shown[0]["day"]);
    }
}

/// What the platform wrote by hand may be unreadable: said, and no other value shown in its place.
#[tokio::test]
async fn unreadable_fields_are_named_and_not_replaced() {
    let server = RedisServer::start();
    let () = server
        .client()
        .query(redis::cmd("HSET").arg("quota_subject:alice").arg(&[
            "plan",
            "gold",
            "timezone",
            "Mars/Olympus",
            "limit:requests",
            "lots",
            "limit:tokens",
            "7",
        ]))
        .await
        .expect("set");
    hide_what_varies().bind(|| insta::assert_snapshot!("usage_unreadable", run(&server, "usage alice").told()));
    let shown = run(&server, "usage alice --json").expect_json();
    let tokens = json!({
        "metric": "tokens", "used": 0, "limit": 7, "limit_from": "settings", "used_percent": 0.0, "alerts": [],
    });
    assert_eq!((&shown[0]["plan"], &shown[0]["metrics"]), (&json!("gold"), &json!([tokens])));
}

/// A day before which nothing is kept must not read as a day without usage.
#[tokio::test]
async fn a_day_that_is_gone_is_not_a_day_without_usage() {
    let server = RedisServer::start();
    let client = server.client();
    let today = Day::in_utc(server_time(&client).await).expect("a day");
    // A day ends everywhere 12 h after it ends in UTC; then come 5 h of lateness and 48 h.
    let gone = today.before(4).expect("a day");
    let shown = run(&server, &format!("usage alice --json --day {gone}")).expect_json();
    assert_eq!((&shown[0]["over"], &shown[0]["kept"]), (&json!(true), &json!(false)));
    assert_eq!(
        (&shown[0]["metrics"][0]["used"], &shown[0]["metrics"][0]["used_percent"]),
        (&Value::Null, &Value::Null)
    );
    hide_what_varies()
        .bind(|| insta::assert_snapshot!("usage_gone", run(&server, &format!("usage alice --day {gone}")).told()));
    // The day before yesterday may still be closing: nothing was used, and that is known.
    let kept = today.before(2).expect("a day");
    let shown = run(&server, &format!("usage alice --json --day {kept}")).expect_json();
    assert_eq!((&shown[0]["kept"], &shown[0]["metrics"][0]["used"]), (&json!(true), &json!(0)));
    // Where the daemon was away the counters live on.
    let keys = Keys::new("usage");
    let counter = keys.usage(&"requests".parse().expect("legal"), gone, keys::bucket("alice"));
    let () = client.query(redis::cmd("HSET").arg(counter).arg("alice").arg(7)).await.expect("set");
    let shown = run(&server, &format!("usage alice --json --day {gone}")).expect_json();
    assert_eq!((&shown[0]["kept"], &shown[0]["metrics"][0]["used"]), (&json!(true), &json!(7)));
}

/// Whoever upgraded today must not read that yesterday's 100 % was 25 %.
#[tokio::test]
async fn a_past_day_is_judged_by_its_own_limit_where_an_alert_recorded_it() {
    let server = RedisServer::start();
    let client = server.client();
    let today = Day::in_utc(server_time(&client).await).expect("a day");
    run(&server, "subject set alice --limit requests=20000 --limit tokens=9").expect_done();
    let keys = Keys::new("usage");
    for day in [today.before(1).expect("a day"), today] {
        for (n, (percent, limit)) in [(80, 4000), (100, 5000)].into_iter().enumerate() {
            let facts = alert(&subject("alice"), percent);
            let id = AlertId::of(&facts.subject, &facts.metric, facts.threshold_percent, day);
            let raised_at_ms = facts.raised_at_ms.plus(n as i64);
            record(&client, &Alert { id, day, limit, raised_at_ms, ..facts }).await;
        }
        let counter = keys.usage(&"requests".parse().expect("legal"), day, keys::bucket("alice"));
        let () = client.query(redis::cmd("HSET").arg(counter).arg("alice").arg(5000)).await.expect("set");
    }
    let yesterday = today.before(1).expect("a day");
    let shown = run(&server, &format!("usage alice --json --day {yesterday}")).expect_json();
    let requests = &shown[0]["metrics"][0];
    assert_eq!((&requests["limit"], &requests["limit_from"]), (&json!(5000), &json!("alert")), "the newest alert's");
    assert_eq!(requests["used_percent"], json!(100.0));
    assert_eq!(shown[0]["metrics"][1]["limit_from"], json!("settings"));
    hide_what_varies().bind(|| {
        insta::assert_snapshot!("usage_yesterday", run(&server, &format!("usage alice --day {yesterday}")).told())
    });
    let shown = run(&server, "usage alice --json").expect_json();
    let requests = &shown[0]["metrics"][0];
    assert_eq!(
        (&requests["limit"], &requests["limit_from"]),
        (&json!(20_000), &json!("settings")),
        "today's limit holds"
    );
}
