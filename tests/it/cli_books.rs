//! `usage`, `alerts` and `deliveries` against a real server, whose books a real daemon or the library's own commits have filled.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::process::{Child, Command, Stdio};

use crate::support::binary::{Finished, quotabell};
use crate::support::eventually::eventually;
use crate::support::outbox::{LONG, Outbox, alert, delivery, email, in_period, outcome, subject, webhook};
use crate::support::redis_server::{RedisServer, free_port};
use crate::support::table::Table;
use quotabell::contacts::{Contact, Endpoint};
use quotabell::demo::receivers::{Answer, HttpCatcher};
use quotabell::outbox::{Settlement, settle};
use quotabell::types::{Alert, Class, Day, DaySpan, DeliveryId, Keys, Outcome, UnixMs, keys};
use quotabell::wire::RedisClient;
use serde_json::{Value, json};

/// 24 bytes, the fewest that a secret may have.
const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz";

/// `quotabell run` on a server, killed when dropped.
struct Daemon(Child);

impl Daemon {
    fn start(server: &RedisServer) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_quotabell"))
            .arg("run")
            .env_clear()
            .env("QUOTABELL__REDIS__URL", server.url())
            .env("QUOTABELL__HTTP__LISTEN", "127.0.0.1:0")
            .env("QUOTABELL__WEBHOOK__ALLOW_HTTP", "true")
            .env("QUOTABELL__WEBHOOK__ALLOW_PRIVATE_NETWORKS", "true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        Self(child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(server: &RedisServer, line: &str) -> Finished {
    quotabell(line.split_whitespace()).redis(&server.url()).run()
}

fn ids(listed: &[Value]) -> Vec<&str> {
    listed.iter().map(|thing| thing["id"].as_str().expect("an id")).collect()
}

async fn server_time(client: &RedisClient) -> UnixMs {
    let (seconds, micros): (i64, i64) = client.query(&redis::cmd("TIME")).await.expect("TIME works");
    UnixMs(seconds * 1000 + micros / 1000)
}

/// What differs from run to run: ids (they hold the day), times, durations.
fn snapshot(name: &str, text: impl Display) {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"alert_[0-9a-f]{32}", "alert_ID");
    settings.add_filter(r"delivery_[0-9a-f]{32}", "delivery_ID");
    settings.add_filter(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME");
    settings.add_filter(r"\d{4}-\d\d-\d\d", "DAY");
    settings.add_filter(r#""duration_ms":\d+"#, r#""duration_ms":N"#);
    settings.add_filter(r#"_ms":\d{13}"#, r#"_ms":MS"#);
    settings.add_filter(r"\b\d+ ms *", "N ms  ");
    settings.add_filter(r"\d\d-\d\d \d\d:\d\d", "MINUTE");
    settings.add_filter(r"(?m)^[0-9a-f]{8}  \d+[sm] +", "SHORT     AGE  ");
    settings.add_filter(r"(?m)  [0-9a-f]{8}$", "  SHORT");
    settings.add_filter(r"in \d+[sm] *", "in N  ");
    settings.add_filter(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT");
    settings.add_filter(r"c_[0-9a-f]{16}", "c_ID");
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// The whole path, as an operator sees it: fields and columns are what scripts and eyes rely on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_daemon_did_is_shown() {
    let server = RedisServer::start();
    let outbox = Outbox::on(server);
    let server = &outbox.server;
    let takes = HttpCatcher::start([]).await.expect("a receiver");
    let gone = HttpCatcher::start([Answer::status(410)]).await.expect("a receiver");
    let set = |line: String| run(server, &line).expect_done();
    set(format!("subject set alice --limit requests=10 --webhook {} --webhook-secret {SECRET}", takes.url("/hook")));
    set(format!("subject set bob --threshold 90 --webhook {} --webhook-secret {SECRET}", gone.url("/hook")));
    let _daemon = Daemon::start(server);
    // One after the other, so that the order of time is theirs.
    let alerts = ["alice --units 8", "bob --units 4500", "carol --units 4000"];
    for (before, arguments) in alerts.into_iter().enumerate() {
        run(server, &format!("emit --subject {arguments}")).expect_done();
        let enough = move |done: u64| (done > before as u64).then_some(());
        eventually("one alert more has its delivery", || async { enough(outbox.totals().await.made) }).await;
    }
    run(server, "emit --subject alice --metric tokens --units 5").expect_done();
    eventually("every attempt has ended and everything is counted", || async {
        let totals = outbox.totals().await;
        (totals.delivered == 1 && totals.dead == 1 && totals.pending == 1 && totals.counted == 4).then_some(())
    })
    .await;

    let day = Day::in_utc(server_time(&outbox.client).await).expect("a day");
    let mut shown = Table::default();
    for line in ["usage alice", "usage bob", "alerts", "deliveries list"] {
        for line in [line.to_owned(), format!("{line} --json")] {
            shown.add(&line, run(server, &line).told());
        }
    }
    let usage = run(server, "usage alice --json").expect_json();
    let of_alice = &run(server, "alerts --subject alice --json").expect_json()[0];
    let requests = &usage[0]["metrics"][0]["windows"][0];
    assert_eq!((&requests["window"], &requests["period"]), (&json!("day"), &json!(day)));
    assert_eq!(requests["alerts"][0]["id"], of_alice["id"]);
    for state in ["delivered", "dead", "pending"] {
        let listed = run(server, &format!("deliveries list --json --state {state}")).expect_json();
        let id = ids(&listed)[0];
        for line in [format!("deliveries show {id}"), format!("deliveries show --json {id}")] {
            shown.add(format!("{line} ({state})"), run(server, &line).told());
        }
    }
    snapshot("what_the_daemon_did", shown);
}

/// Nobody set it, nobody used anything: it still has a plan, and 0 is an answer.
#[tokio::test]
async fn an_unknown_subject_has_the_default_plan_and_0() {
    let server = RedisServer::start();
    snapshot("usage_of_nobody", run(&server, "usage nobody").told());
    let today = Day::in_utc(server_time(&server.client()).await).expect("a day");
    let printed = run(&server, &format!("usage nobody --day {today} --json")).expect_json();
    let requests = json!({
        "window": "day", "period": today, "over": false, "used": 0, "limit": 5000, "limit_from": "settings", "used_percent": 0.0,
        "starts_at": format!("{today}T00:00:00.000Z"),
        "resets_at": format!("{}T00:00:00.000Z", today.next().expect("a day")), "alerts": [],
    });
    let expected = json!({
        "subject": "nobody", "plan": "free", "timezone": "UTC", "kept": true,
        "metrics": [{"metric": "requests", "windows": [requests]}],
    });
    assert_eq!(printed, [expected]);
    for line in [
        "alerts",
        "alerts --json",
        "alerts --day 2026-11-21",
        "alerts --period 2026-11-21T14Z",
        "deliveries list",
        "deliveries list --json",
    ] {
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
        let day = &shown[0]["metrics"][0]["windows"][0]["period"];
        assert!([json!(before), json!(after)].contains(day), "{zone}: {day}");
    }
}

/// Whoever is stopped by the limit of an hour must not be shown that of the day alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_window_that_has_a_limit_is_shown() {
    let outbox = Outbox::on(RedisServer::start());
    let _daemon = Daemon::start(&outbox.server);
    let mut tries = ["alice", "bob"].into_iter().enumerate();
    // The hour may end between the event and the look at it; it does not do so twice.
    let (name, shown) = loop {
        let (before, name) = tries.next().expect("two ends of an hour in a row");
        let limits = "requests=20/day --limit requests=10/hour --limit requests=1000/month --limit tokens=5/week";
        run(&outbox.server, &format!("subject set {name} --billing-day 31 --limit {limits}")).expect_done();
        run(&outbox.server, &format!("emit --subject {name} --units 17")).expect_done();
        eventually("it is counted", || async { (outbox.totals().await.counted > before as u64).then_some(()) }).await;
        let shown = run(&outbox.server, &format!("usage {name} --json")).expect_json().remove(0);
        if shown["metrics"][0]["windows"][0]["used"] == 17 {
            break (name, shown);
        }
    };
    let rows = |metric: usize| -> Vec<Value> {
        let windows = shown["metrics"][metric]["windows"].as_array().expect("a list");
        let raised = |usage: &Value| usage["alerts"].as_array().map(Vec::len);
        windows.iter().map(|usage| json!([usage["window"], usage["used"], usage["limit"], raised(usage)])).collect()
    };
    assert_eq!(
        rows(0),
        [json!(["hour", 17, 10, 2]), json!(["day", 17, 20, 1]), json!(["month", 17, 1000, 0])],
        "no week: it has no limit"
    );
    assert_eq!(rows(1), [json!(["day", 0, null, 0]), json!(["week", 0, 5, 0])]);
    let month = shown["metrics"][0]["windows"][2]["period"].as_str().expect("text");
    assert!(month.ends_with('M'), "{month} begins on the last day of a month");

    let listed = run(&outbox.server, &format!("alerts --json --subject {name}")).expect_json();
    let raised: Vec<Value> = listed.iter().map(|alert| json!([alert["window"], alert["threshold_percent"]])).collect();
    assert_eq!(raised.len(), 3);
    for expected in [json!(["hour", 80]), json!(["hour", 100]), json!(["day", 80])] {
        assert!(raised.contains(&expected), "{raised:?}");
    }
    let hour = &shown["metrics"][0]["windows"][0]["period"];
    let of_hour =
        run(&outbox.server, &format!("alerts --json --period {}", hour.as_str().expect("text"))).expect_json();
    assert!(of_hour.iter().filter(|alert| alert["subject"] == name).all(|alert| alert["period"] == *hour));
    assert_eq!(of_hour.iter().filter(|alert| alert["subject"] == name).count(), 2);
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
    snapshot("usage_unreadable", run(&server, "usage alice").told());
    let shown = run(&server, "usage alice --json").expect_json();
    let metrics = shown[0]["metrics"].as_array().expect("a list");
    assert_eq!((&shown[0]["plan"], metrics.len(), &metrics[0]["metric"]), (&json!("gold"), 1, &json!("tokens")));
    let tokens = &metrics[0]["windows"][0];
    assert_eq!((&tokens["used"], &tokens["limit"]), (&json!(0), &json!(7)));
}

/// Puts an alert into the books as a commit does.
async fn record(client: &RedisClient, alert: &Alert) {
    let keys = Keys::new("usage");
    let raised = keys.raised(&alert.metric, alert.period, keys::bucket(alert.subject.as_str()));
    let field = Keys::raised_field(alert.threshold_percent, &alert.subject);
    let mut pipeline = redis::pipe();
    pipeline.cmd("SADD").arg(keys.metrics(alert.period)).arg(alert.metric.as_str()).ignore();
    pipeline.cmd("HSET").arg(raised).arg(field).arg(serde_json::to_string(alert).expect("JSON")).ignore();
    let () = client.pipe(&pipeline).await.expect("written");
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
    let usage = &shown[0]["metrics"][0]["windows"][0];
    assert_eq!((&usage["over"], &shown[0]["kept"]), (&json!(true), &json!(false)));
    assert_eq!((&usage["used"], &usage["used_percent"]), (&Value::Null, &Value::Null));
    snapshot("usage_gone", run(&server, &format!("usage alice --day {gone}")).told());
    // The day before yesterday may still be closing: nothing was used, and that is known.
    let kept = today.before(2).expect("a day");
    let shown = run(&server, &format!("usage alice --json --day {kept}")).expect_json();
    assert_eq!((&shown[0]["kept"], &shown[0]["metrics"][0]["windows"][0]["used"]), (&json!(true), &json!(0)));
    // Where the daemon was away the counters live on.
    let keys = Keys::new("usage");
    let counter = keys.usage(&"requests".parse().expect("legal"), gone, keys::bucket("alice"));
    let () = client.query(redis::cmd("HSET").arg(counter).arg("alice").arg(7)).await.expect("set");
    let shown = run(&server, &format!("usage alice --json --day {gone}")).expect_json();
    assert_eq!((&shown[0]["kept"], &shown[0]["metrics"][0]["windows"][0]["used"]), (&json!(true), &json!(7)));
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
            let raised_at_ms = facts.raised_at_ms.plus(n as i64);
            record(&client, &in_period(Alert { limit, raised_at_ms, ..facts }, day)).await;
        }
        let counter = keys.usage(&"requests".parse().expect("legal"), day, keys::bucket("alice"));
        let () = client.query(redis::cmd("HSET").arg(counter).arg("alice").arg(5000)).await.expect("set");
    }
    let yesterday = today.before(1).expect("a day");
    let shown = run(&server, &format!("usage alice --json --day {yesterday}")).expect_json();
    let requests = &shown[0]["metrics"][0]["windows"][0];
    assert_eq!((&requests["limit"], &requests["limit_from"]), (&json!(5000), &json!("alert")), "the newest alert's");
    assert_eq!(requests["used_percent"], json!(100.0));
    assert_eq!(shown[0]["metrics"][1]["windows"][0]["limit_from"], json!("settings"));
    snapshot("usage_yesterday", run(&server, &format!("usage alice --day {yesterday}")).told());
    let shown = run(&server, "usage alice --json").expect_json();
    let requests = &shown[0]["metrics"][0]["windows"][0];
    assert_eq!(
        (&requests["limit"], &requests["limit_from"]),
        (&json!(20_000), &json!("settings")),
        "today's limit holds"
    );
}

/// In Auckland it is tomorrow already: an operator in UTC must see that alert today.
#[tokio::test]
async fn alerts_are_yesterdays_todays_and_those_of_zones_ahead() {
    let server = RedisServer::start();
    let client = server.client();
    let now = server_time(&client).await;
    let today = Day::in_utc(now).expect("a day");
    let days = [today.before(2), today.before(1), Some(today), today.next()].map(|day| day.expect("a day"));
    let mut recorded = Vec::new();
    for (n, day) in days.into_iter().enumerate() {
        for name in ["alice", "bob"] {
            let facts = alert(&subject(name), 80);
            // The newest day first: the order is that of time, not that of days.
            let raised_at_ms = now.plus(-1000 * n as i64 - i64::from(name == "alice"));
            recorded.push(in_period(Alert { raised_at_ms, ..facts }, day));
            record(&client, recorded.last().expect("just added")).await;
        }
    }
    let id = |n: usize| recorded[n].id.as_str();
    let listed = |line: &str| run(&server, &format!("alerts --json {line}")).expect_json();
    let all = listed("");
    assert_eq!(ids(&all), [id(6), id(7), id(4), id(5), id(2), id(3)], "oldest first, without the day before yesterday");
    assert_eq!(ids(&listed("--limit 2")), [id(2), id(3)], "the newest");
    assert_eq!(ids(&listed("--limit 100")), ids(&all));
    assert_eq!(ids(&listed("--subject bob --limit 2")), [id(5), id(3)]);
    assert_eq!(ids(&listed(&format!("--day {}", days[0]))), [id(0), id(1)]);
    assert_eq!(run(&server, "alerts --subject nobody --json").told(), "exit 0");
    // All were raised within the last seconds, whatever their day: an event may come late.
    assert_eq!(ids(&listed("--since 1h --limit 2")), [id(0), id(1)]);
    assert_eq!(listed("--since 2d").len(), 8);
    let between = recorded[4].raised_at_ms;
    assert_eq!(ids(&listed(&format!("--since {between}"))), [id(4), id(5), id(2), id(3), id(0), id(1)]);
    assert_eq!(ids(&listed(&format!("--day {} --since 0s", days[0]))), [""; 0]);
}

/// Whoever sees nothing wonders whether it works; a program that reads an empty list knows.
#[test]
fn an_empty_list_is_told_to_a_terminal() {
    let server = RedisServer::start();
    for (line, told) in [
        ("alerts", "no alerts\r\n"),
        ("alerts --day 2026-01-01", "the alerts of that period are no longer kept\r\n"),
        ("alerts --period 2026-W01", "the alerts of that period are no longer kept\r\n"),
        ("deliveries list", "no deliveries\r\n"),
        ("refused list", "no refused events\r\n"),
        ("refused list --limit 3", "no refused events\r\n"),
        ("subject list", "no subjects\r\n"),
        ("alerts --json", ""),
        ("deliveries list --json", ""),
        ("refused list --json", ""),
        ("subject list --json", ""),
    ] {
        let arguments = || quotabell(line.split_whitespace()).redis(&server.url());
        assert_eq!(arguments().run_on_terminal(), told, "{line}");
        assert_eq!(arguments().run().told(), "exit 0", "{line}");
    }
}

/// One event that crosses both thresholds raises both in one moment: 80 % comes before 100 %.
#[tokio::test]
async fn alerts_of_one_moment_are_in_the_order_of_their_thresholds() {
    let server = RedisServer::start();
    let client = server.client();
    let now = server_time(&client).await;
    let day = Day::in_utc(now).expect("a day");
    for name in ["alice", "bob"] {
        for percent in [100, 80, 90, 50] {
            let facts = alert(&subject(name), percent);
            record(&client, &in_period(Alert { raised_at_ms: now, ..facts }, day)).await;
        }
    }
    let listed = run(&server, "alerts --json").expect_json();
    let thresholds: Vec<u64> = listed.iter().filter_map(|alert| alert["threshold_percent"].as_u64()).collect();
    assert_eq!(thresholds, [50, 80, 90, 100, 50, 80, 90, 100]);
    assert!(listed[..4].iter().all(|alert| alert["subject"] == "alice"), "{listed:?}");
}

/// A list that ends at a page's end would hide the rest; --limit takes the newest.
#[tokio::test]
async fn the_list_of_deliveries_is_complete_and_in_order() {
    let outbox = Outbox::start();
    let mut made = Vec::new();
    for n in 0..1001 {
        let alert = alert(&subject(&format!("s{}", n % 10)), 1 + n / 10);
        outbox.fan_out_new(&alert, &[email("a")]).await;
        made.push(delivery(&alert, &email("a")));
    }
    // Many are made in one millisecond; here each in its own.
    let mut pipeline = redis::pipe();
    for (n, id) in made.iter().enumerate() {
        pipeline.cmd("ZADD").arg(outbox.keys.deliveries()).arg(n).arg(id.as_str()).ignore();
    }
    let () = outbox.client.pipe(&pipeline).await.expect("written");
    let listed = |line: &str| -> Vec<String> {
        let printed = run(&outbox.server, &format!("deliveries list --json {line}")).expect_json();
        ids(&printed).into_iter().map(str::to_owned).collect()
    };
    let all: Vec<&str> = made.iter().map(DeliveryId::as_str).collect();
    assert_eq!(listed(""), all);
    assert_eq!(listed("--limit 2"), all[999..]);
    assert_eq!(listed("--limit 700"), all[301..]);
    assert_eq!(listed("--subject s3 --limit 2"), [all[983], all[993]]);
    let pending: BTreeSet<String> = listed("--state pending").into_iter().collect();
    assert_eq!(pending.len(), 1001);
    assert_eq!(listed("--state dead"), [""; 0]);
}

/// An outbox with a dead delivery for each of these subjects.
async fn with_dead(names: &[&str]) -> (Outbox, Vec<DeliveryId>) {
    let outbox = Outbox::start();
    let mut dead = Vec::new();
    for name in names {
        outbox.fan_out_new(&alert(&subject(name), 80), &[webhook("a")]).await;
        let leased = outbox.lease_one("t", LONG).await;
        let end = Settlement::Dead(outcome(Class::Permanent));
        settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &end).await.expect("settles");
        dead.push(leased.id);
    }
    (outbox, dead)
}

/// Whoever replays ten ids must learn which two did not go, from the output and from the exit code.
#[tokio::test]
async fn a_replay_says_what_became_of_each_id() {
    let (outbox, dead) = with_dead(&["alice", "bob"]).await;
    let waiting = alert(&subject("carol"), 80);
    outbox.fan_out_new(&waiting, &[webhook("a")]).await;
    let carol = delivery(&waiting, &webhook("a"));
    let unknown = "delivery_00000000000000000000000000000000";
    // Twice the same id is one id.
    let line = format!("deliveries replay {} {carol} {unknown} {}", dead[0], dead[0]);
    // These ids are the same on every day, so they are shown.
    let mut told = Table::default();
    told.add(&line, run(&outbox.server, &line).told());
    assert_eq!(outbox.state(&dead[0]).await, "pending");
    assert_eq!(outbox.state(&dead[1]).await, "dead");
    let again = format!("deliveries replay --json {} {} {unknown}", dead[0], dead[1]);
    told.add(&again, run(&outbox.server, &again).told());
    insta::assert_snapshot!("replay", told);
    assert_eq!(run(&outbox.server, "deliveries list --state dead").told(), "exit 0");
}

/// After an outage of a receiver everything is to go again; doing it twice is no mistake.
#[tokio::test]
async fn everything_dead_is_replayed_and_nothing_dead_is_no_failure() {
    let (outbox, dead) = with_dead(&["alice", "bob", "carol"]).await;
    let printed = run(&outbox.server, "deliveries replay --all --json").expect_json();
    let told: BTreeSet<&str> = ids(&printed).into_iter().collect();
    assert_eq!(told, dead.iter().map(DeliveryId::as_str).collect());
    assert!(printed.iter().all(|told| told["result"] == "replayed" && told["state"] == "pending"), "{printed:?}");
    for id in &dead {
        assert_eq!(outbox.state(id).await, "pending");
    }
    let told = run(&outbox.server, "deliveries replay --all").told();
    insta::assert_snapshot!(told, @"
    no delivery is dead; `quotabell deliveries list` shows where they stand
    exit 0
    ");
}

/// Where they went and about what is what an operator looks for; a list is cut down by the same.
#[tokio::test]
async fn lists_are_filtered_by_subject_channel_alert_and_time() {
    let outbox = Outbox::start();
    let (of_alice, of_bob) = (alert(&subject("alice"), 80), alert(&subject("bob"), 100));
    outbox.fan_out_new(&of_alice, &[email("a"), webhook("a")]).await;
    outbox.fan_out_new(&of_bob, &[email("b")]).await;
    outbox.fan_out_new(&alert(&subject("carol"), 80), &[]).await;
    let listed = |line: &str| -> Vec<String> {
        let printed = run(&outbox.server, &format!("deliveries list --json {line}")).expect_json();
        ids(&printed).into_iter().map(str::to_owned).collect()
    };
    let id = |alert: &Alert, contact| delivery(alert, &contact).to_string();
    let bobs = [id(&of_bob, email("b"))];
    assert_eq!(listed("--channel webhook"), [id(&of_alice, webhook("a"))]);
    assert_eq!(listed("--channel none").len(), 1);
    assert_eq!(listed("--channel email --subject bob"), bobs);
    assert_eq!(listed(&format!("--alert {}", of_bob.id)), bobs);
    assert_eq!(listed(&format!("--alert {}", &of_bob.id.as_str()[6..14])), bobs);
    assert_eq!(listed("--since 1h").len(), 4);
    // Made an hour before the others.
    let () = outbox
        .run("HINCRBY", &[&outbox.keys.delivery(&delivery(&of_bob, &email("b"))), "created_at_ms", "-3600000"])
        .await;
    let () = outbox.run("ZINCRBY", &[outbox.keys.deliveries().as_str(), "-3600000", &bobs[0]]).await;
    assert_eq!(listed("--since 30m").len(), 3);
    assert_eq!(listed("--since 30m --state pending").len(), 3);
    assert_eq!(listed("--since 2h --limit 9")[0], bobs[0]);
    let told = run(&outbox.server, "deliveries list --channel sms");
    assert!(told.code == 2 && told.stderr.contains("a channel must be"), "{}", told.told());
    let told = run(&outbox.server, "deliveries list --since 90");
    assert!(told.code == 2 && told.stderr.contains("neither a duration"), "{}", told.told());
}

/// What the list shows of an id must be enough for the verbs that take one; where it is not, guessing would replay another's.
#[tokio::test]
async fn an_id_is_named_by_its_first_digits() {
    let (outbox, dead) = with_dead(&["alice", "bob"]).await;
    let digits = |id: &DeliveryId| id.as_str()["delivery_".len()..].to_owned();
    let list = run(&outbox.server, "deliveries list").expect_done();
    let short: Vec<&str> = list.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(short, [&digits(&dead[0])[..8], &digits(&dead[1])[..8]]);
    let shown = run(&outbox.server, &format!("deliveries show --json {}", short[1])).expect_json();
    assert_eq!(shown[0]["id"], json!(dead[1]));
    let told =
        run(&outbox.server, &format!("deliveries replay --json delivery_{} {}", short[0], dead[0])).expect_json();
    assert_eq!((told.len(), &told[0]["id"], &told[0]["result"]), (1, &json!(dead[0]), &json!("replayed")));

    // Two ids that begin alike.
    let twin = format!("delivery_{}{}", short[1], "0".repeat(24));
    let () = outbox.run("ZADD", &[outbox.keys.deliveries().as_str(), "1", &twin]).await;
    for verb in ["show", "replay"] {
        let told = run(&outbox.server, &format!("deliveries {verb} {}", short[1]));
        assert!(told.code == 2 && told.stdout.is_empty(), "{}", told.told());
        assert!(told.stderr.contains(&twin) && told.stderr.contains(dead[1].as_str()), "{}", told.stderr);
    }
    assert_eq!(outbox.state(&dead[1]).await, "dead");
    let unknown = run(&outbox.server, "deliveries show ffffffff");
    assert!(
        unknown.code == 1 && unknown.stderr.contains("there is no delivery delivery_ffffffff"),
        "{}",
        unknown.told()
    );
}

/// A list that is wider than the terminal can't be read; one in a pipe must lose nothing.
#[tokio::test]
async fn lists_fit_a_terminal_of_80_columns() {
    let long = "x".repeat(200);
    let (outbox, dead) = with_dead(&[&long, "bob"]).await;
    outbox.fan_out_new(&alert(&subject("carol"), 80), &[webhook("a")]).await;
    let day = Day::in_utc(server_time(&outbox.client).await).expect("a day");
    let facts = alert(&subject(&long), 80);
    record(&outbox.client, &in_period(Alert { used: 1_234_567, limit: 1_234_567, ..facts }, day)).await;
    for verb in ["deliveries list", "alerts"] {
        let on_terminal = || quotabell(verb.split(' ')).redis(&outbox.server.url());
        let shown = on_terminal().env("NO_COLOR", "1").print_on_terminal();
        assert!(shown.lines().count() > 1, "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        assert!(shown.contains('…') && !shown.contains('\x1b'), "{shown:?}");
        assert!(run(&outbox.server, verb).expect_done().contains(&long), "{verb}");
    }
    let shown = quotabell(["deliveries", "list"]).redis(&outbox.server.url()).print_on_terminal();
    assert!(shown.contains("\x1b[31mdead\x1b[0m") && shown.contains("\x1b[33mpending\x1b[0m"), "{shown:?}");
    assert_eq!(outbox.state(&dead[0]).await, "dead");
}

/// To whom it went must be told, also where the contact has changed since.
#[tokio::test]
async fn a_delivery_shows_its_contact_as_it_is_now() {
    let outbox = Outbox::start();
    let alice = subject("alice");
    let facts = alert(&alice, 80);
    let mut contact = webhook("a");
    if let Endpoint::Webhook { url, .. } = &mut contact.endpoint {
        *url = "https://user:pw@a.test/hook".to_owned();
    }
    outbox.fan_out_new(&facts, std::slice::from_ref(&contact)).await;
    let id = delivery(&facts, &contact);
    let shown = || run(&outbox.server, &format!("deliveries show --json {id}")).expect_json()[0]["contact"].clone();
    let expected = |address: Value, status: &str| json!({"id": contact.id, "address": address, "status": status});
    assert_eq!(shown(), expected(Value::Null, "removed"));
    for (muted, status) in [(false, "current"), (true, "muted")] {
        let stored = json!([Contact { muted, ..contact.clone() }]).to_string();
        outbox.set_contacts(&alice, &stored).await;
        assert_eq!(shown(), expected(json!("https://user:***@a.test/hook"), status));
    }
    outbox.set_contacts(&alice, &json!([Contact { verified: false, ..contact.clone() }]).to_string()).await;
    assert_eq!(shown()["status"], "unverified");
    outbox.set_contacts(&alice, "[[]").await;
    assert_eq!(shown(), expected(Value::Null, "unreadable"));
    let waiting = alert(&subject("bob"), 100);
    outbox.fan_out_new(&waiting, &[]).await;
    let listed = run(&outbox.server, "deliveries list --channel none --json").expect_json();
    let detail = run(&outbox.server, &format!("deliveries show --json {}", ids(&listed)[0])).expect_json();
    assert_eq!((&detail[0]["contact"], &detail[0]["alert"]["threshold_percent"]), (&Value::Null, &json!(100)));
}

/// "HTTP 550" alone sends the operator to the mail server's log; what was said there is enough.
#[tokio::test]
async fn what_the_other_side_said_is_shown_with_the_attempt() {
    let outbox = Outbox::start();
    outbox.fan_out_new(&alert(&subject("alice"), 80), &[email("a")]).await;
    let leased = outbox.lease_one("t", LONG).await;
    let refused = Outcome {
        reply: Some("5.1.1 no such user".to_owned()),
        peer: Some("mail.test:25".to_owned()),
        ..outcome(Class::Permanent)
    };
    settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &Settlement::Dead(refused)).await.expect("settles");
    let shown = run(&outbox.server, &format!("deliveries show {}", leased.id)).expect_done();
    assert!(shown.contains("\npeer   mail.test:25\nreply  5.1.1 no such user\n"), "{shown}");
    let shown = run(&outbox.server, &format!("deliveries show --json {}", leased.id)).expect_json();
    let attempt = &shown[0]["attempt_log"][0];
    assert_eq!((&attempt["peer"], &attempt["reply"]), (&json!("mail.test:25"), &json!("5.1.1 no such user")));
}

/// A delivery without an alert must be listed too, and say what it carries.
#[tokio::test]
async fn a_request_for_consent_is_shown_as_what_it_is() {
    let outbox = Outbox::start();
    let id = format!("delivery_{}", "ab".repeat(16));
    let request = json!({
        "id": "verification_1", "subject": "alice", "contact": "c_1", "consent": "x", "requested_at_ms": 1_000,
        "expires_at_ms": 2_000,
    });
    let hash = outbox.keys.delivery(&DeliveryId::from_stored(&id));
    let request = request.to_string();
    let fields = ["type", "verification", "verification", &request, "subject", "alice", "channel", "email"];
    let () = outbox.run("HSET", [hash.as_str()].into_iter().chain(fields).collect::<Vec<_>>()).await;
    let fields = ["contact_id", "c_1", "state", "pending", "attempts", "0", "created_at_ms", "1000"];
    let () = outbox.run("HSET", [hash.as_str()].into_iter().chain(fields).collect::<Vec<_>>()).await;
    let () = outbox.run("ZADD", &[outbox.keys.deliveries().as_str(), "1000", &id]).await;
    let listed = run(&outbox.server, "deliveries list --json").expect_json();
    assert_eq!((&listed[0]["type"], &listed[0]["alert_id"]), (&json!("verification"), &Value::Null));
    let shown = run(&outbox.server, "deliveries show --json abab").expect_json();
    assert_eq!(shown[0]["verification"]["expires_at"], json!("1970-01-01T00:00:02.000Z"));
    assert_eq!((&shown[0]["alert"], &shown[0]["contact"]["id"]), (&Value::Null, &json!("c_1")));
    assert!(run(&outbox.server, "deliveries show abab").expect_done().contains("\nverification  verification_1\n"));
}

/// A mistyped id must not look like a delivery without attempts.
#[tokio::test]
async fn a_delivery_that_is_not_there_is_said() {
    let server = RedisServer::start();
    let unknown = run(&server, "deliveries show delivery_00000000000000000000000000000000");
    insta::assert_snapshot!(unknown.told(), @"
    error: there is no delivery delivery_00000000000000000000000000000000
    hint: `quotabell deliveries list` lists them; they stay readable for 14 days after their end
    exit 1
    ");
}

/// Each of these verbs tells its own failures apart.
#[tokio::test]
async fn failures_have_their_codes_and_hints() {
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let folder = tempfile::tempdir().expect("a folder");
    let broken = folder.path().join("broken.toml");
    std::fs::write(&broken, "default_plan = \"gold\"\n").expect("written");
    let verbs = ["usage alice", "alerts", "deliveries list", "deliveries show delivery_1", "deliveries replay --all"];
    for verb in verbs {
        let away = quotabell(verb.split(' ')).redis(&nobody).run();
        assert!(away.code == 1 && away.stdout.is_empty(), "{verb}: {}", away.told());
        assert!(away.stderr.contains(&nobody) && away.stderr.contains("\nhint: is Redis running"), "{}", away.stderr);
        let bad = quotabell(verb.split(' ')).env("QUOTABELL_CONFIG", &broken).run();
        assert!(bad.code == 78 && bad.stderr.contains("\nhint: "), "{verb}: {}", bad.told());
    }
    for line in ["usage", "usage alice --day today", "alerts --limit 0", "deliveries replay", "deliveries show x"] {
        assert_eq!(quotabell(line.split(' ')).run().code, 2, "{line}");
    }
    let server = RedisServer::start();
    let () = server.client().query(redis::cmd("SET").arg("quota_subject:alice").arg("x")).await.expect("set");
    let wrong = run(&server, "usage alice");
    assert!(wrong.code == 1 && wrong.stderr.contains("hint: a key of quotabell's"), "{}", wrong.stderr);
}
