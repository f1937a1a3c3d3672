//! `usage`, `alerts` and `deliveries` against a real server, whose books a real daemon or the library's own commits have filled.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::process::{Child, Command, Stdio};

use crate::support::binary::{Finished, quotabell};
use crate::support::eventually::eventually;
use crate::support::outbox::{LONG, Outbox, alert, delivery, email, outcome, subject, webhook};
use crate::support::redis_server::{RedisServer, free_port};
use crate::support::table::Table;
use quotabell::demo::receivers::{Answer, HttpCatcher};
use quotabell::outbox::{Settlement, settle};
use quotabell::types::{Alert, AlertId, Class, Day, DaySpan, DeliveryId, Keys, UnixMs, keys};
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
    settings.add_filter(r"\b\d+ ms *", "N ms  ");
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
    assert_eq!(usage[0]["day"], json!(day));
    assert_eq!(usage[0]["metrics"][0]["alerts"][0]["id"], of_alice["id"]);
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
    let printed = run(&server, "usage nobody --day 2026-11-21 --json").expect_json();
    let requests = json!({"metric": "requests", "used": 0, "limit": 5000, "used_percent": 0.0, "alerts": []});
    let expected =
        json!({"subject": "nobody", "plan": "free", "timezone": "UTC", "day": "2026-11-21", "metrics": [requests]});
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
    snapshot("usage_unreadable", run(&server, "usage alice --day 2026-11-21").told());
    let shown = run(&server, "usage alice --json").expect_json();
    let tokens = json!({"metric": "tokens", "used": 0, "limit": 7, "used_percent": 0.0, "alerts": []});
    assert_eq!((&shown[0]["plan"], &shown[0]["metrics"]), (&json!("gold"), &json!([tokens])));
}

/// Puts an alert into the books as a commit does.
async fn record(client: &RedisClient, alert: &Alert) {
    let keys = Keys::new("usage");
    let raised = keys.raised(&alert.metric, alert.day, keys::bucket(alert.subject.as_str()));
    let field = Keys::raised_field(alert.threshold_percent, &alert.subject);
    let mut pipeline = redis::pipe();
    pipeline.cmd("SADD").arg(keys.metrics(alert.day)).arg(alert.metric.as_str()).ignore();
    pipeline.cmd("HSET").arg(raised).arg(field).arg(serde_json::to_string(alert).expect("JSON")).ignore();
    let () = client.pipe(&pipeline).await.expect("written");
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
            let id = AlertId::of(&facts.subject, &facts.metric, facts.threshold_percent, day);
            // The newest day first: the order is that of time, not that of days.
            let raised_at_ms = now.plus(-1000 * n as i64 - i64::from(name == "alice"));
            recorded.push(Alert { id, day, raised_at_ms, ..facts });
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
}

/// Whoever sees nothing wonders whether it works; a program that reads an empty list knows.
#[test]
fn an_empty_list_is_told_to_a_terminal() {
    let server = RedisServer::start();
    for (line, told) in [
        ("alerts", "no alerts\r\n"),
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
            let id = AlertId::of(&facts.subject, &facts.metric, facts.threshold_percent, day);
            record(&client, &Alert { id, day, raised_at_ms: now, ..facts }).await;
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
