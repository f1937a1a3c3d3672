//! History and rankings, on the command line and in the API.

use crate::support::api::Caller;
use crate::support::binary::quotabell;
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::recorded_usage::RecordedUsage;
use quotabell::ledger::history::{HistoryArchiver, HistoryConfig};
use quotabell::types::{Day, keys};
use serde_json::{Value, json};

const TOKEN: &str = "a-token-for-one-test-0123456789";

async fn with_token(usage: &RecordedUsage) -> (Daemon, Caller) {
    let mut daemon = DaemonSetup::on(&usage.server.url()).env("QUOTABELL__HTTP__TOKEN", TOKEN).start().await;
    let api = Caller::of(&mut daemon).await.with_token(TOKEN);
    (daemon, api)
}

/// The JSON output of the command line.
fn printed(usage: &RecordedUsage, words: &[&str]) -> Value {
    let words = words.iter().copied().chain(["--json"]);
    quotabell(words).redis(&usage.server.url()).run().expect_json().swap_remove(0)
}

/// The current day in this zone, and its name this number of days ago.
async fn days_ago(usage: &RecordedUsage, zone: &str) -> impl Fn(u64) -> String {
    let [_, today, ..] = usage.periods(zone, 1).await;
    let today = today.period.day().expect("a day");
    move |back| today.before(back).expect("a day").to_string()
}

/// Archives a day and lets its counters expire.
async fn archive(usage: &RecordedUsage, day: &str, subjects: &[&str]) {
    let day = Day::parse(day).expect("a date");
    let mut archiver = HistoryArchiver::new(usage.keys.clone(), HistoryConfig { days: 90, alerts_days: 400 });
    archiver.after_commit(day);
    while archiver.next().is_some() {
        archiver.archive(&usage.client, usage.now().await).await.expect("redis answers");
    }
    for subject in subjects {
        let counters = usage.keys.usage(&"requests".parse().expect("legal"), day, keys::bucket(subject));
        let () = usage.client.query(redis::cmd("DEL").arg(counters)).await.expect("deleted");
    }
}

/// Days with expired counters and days with counters form one series, on the command line and over HTTP.
#[tokio::test]
async fn history_joins_archived_days_and_counters() {
    let usage = RecordedUsage::start();
    usage.set("a/b", &[("timezone", "Asia/Tokyo")]).await;
    let day = days_ago(&usage, "Asia/Tokyo").await;
    for (back, used) in [(40, 7), (20, 9)] {
        usage.count("a/b", "requests", Day::parse(&day(back)).expect("a date"), used).await;
        archive(&usage, &day(back), &["a/b"]).await;
    }
    // Today's counter, if Tokyo is ahead of UTC, and that of a past day.
    usage.count("a/b", "requests", Day::parse(&day(0)).expect("a date"), 3).await;
    usage.count("a/b", "tokens", Day::parse(&day(5)).expect("a date"), 4).await;
    usage.count("bob", "images", Day::parse(&day(5)).expect("a date"), 1).await;

    let (daemon, api) = with_token(&usage).await;
    let shown = async |query: &str| {
        let answer = api.get(&format!("/v1/subjects/a%2Fb/history{query}")).await;
        assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")), "{}", answer.text);
        answer.json()
    };
    let all = shown("").await;
    let one = |back: u64, used: u64, open: bool| json!({"day": day(back), "used": used, "open": open});
    assert_eq!(
        all["metrics"],
        json!([
            {"metric": "requests", "days": [one(40, 7, false), one(20, 9, false), one(0, 3, true)]},
            {"metric": "tokens", "days": [one(5, 4, false)]},
        ])
    );
    assert_eq!(
        (&all["subject"], &all["timezone"], &all["from"]),
        (&json!("a/b"), &json!("Asia/Tokyo"), &json!(day(90)))
    );
    assert_eq!(all, printed(&usage, &["history", "a/b"]));
    let (from, to) = (day(20), day(1));
    let some = shown(&format!("?metric=requests&from={from}&to={to}")).await;
    assert_eq!(some["metrics"], json!([{"metric": "requests", "days": [one(20, 9, false)]}]));
    assert_eq!(some, printed(&usage, &["history", "a/b", "--metric", "requests", "--from", &from, "--to", &to]));
    assert_eq!(shown("?metric=none").await["metrics"], json!([]));

    for (query, problem) in [
        ("?from=today", "from: a day must be a date".to_owned()),
        ("?metric=a%20b", "metric: ".to_owned()),
        (&format!("?from={to}&to={from}"), format!("from: {to} is after {from}")),
        ("?day=1", "the query: ".to_owned()),
    ] {
        api.get(&format!("/v1/subjects/a%2Fb/history{query}")).await.expect_problem(400, &problem);
    }
    let wrong = quotabell(["history", "a/b", "--from", &to, "--to", &from]).redis(&usage.server.url()).run();
    assert!(wrong.code == 1 && wrong.stderr.contains(&format!("--from: {to} is after {from}")), "{}", wrong.stderr);
    daemon.drain().await;

    let table = quotabell(["history", "a/b"]).redis(&usage.server.url()).run().expect_done();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["METRIC", "DAY", "USED", "STATE"]);
    assert_eq!(rows[3], ["requests", &day(0), "3", "open"]);
}

/// The ranking must show the right customer.
#[tokio::test]
async fn top_ranks_by_units_and_by_percent_of_each_limit() {
    let usage = RecordedUsage::start();
    let [_, today, _, month, ..] = usage.periods("UTC", 1).await.map(|span| span.period);
    usage.set("big", &[("limit:requests", "1000000")]).await;
    usage.set("near", &[("limit:requests", "100/day 500/month")]).await;
    usage.set("broken", &[("limit:requests", "many")]).await;
    let () = usage.client.query(redis::cmd("SET").arg("quota_subject:odd").arg("x")).await.expect("set");
    for (subject, used) in [("big", 9_000), ("near", 99), ("broken", 400), ("odd", 1), ("a b", 50)] {
        usage.count(subject, "requests", today, used).await;
    }
    usage.count("near", "requests", month, 100).await;
    // More than one slice of a hash contains.
    let many = usage.keys.usage(&"requests".parse().expect("legal"), today, 0);
    let mut hset = redis::cmd("HSET");
    hset.arg(many);
    (0..2_000).for_each(|n| {
        hset.arg(format!("small {n:04}")).arg(2);
    });
    let () = usage.client.query(&hset).await.expect("written");

    let (daemon, api) = with_token(&usage).await;
    let names = |shown: &Value| -> Vec<String> {
        let subjects = shown["subjects"].as_array().expect("a list");
        subjects.iter().map(|ranked| ranked["subject"].as_str().expect("a name").to_owned()).collect()
    };
    let used = api.get("/v1/top?limit=5").await.json();
    assert_eq!(names(&used), ["big", "broken", "near", "a b", "small 0000"]);
    let (metric, window, by) = (&used["metric"], &used["window"], &used["by"]);
    assert_eq!((metric, window, by), (&json!("requests"), &json!("day"), &json!("used")));
    let first = json!({"subject": "big", "plan": "free", "used": 9000, "limit": 1_000_000, "used_percent": 0.9,
        "forecast": {"state": "unknown"}});
    assert_eq!(used["subjects"][0], first);
    assert_eq!((&used["subjects"][1]["limit"], &used["subjects"][3]["limit"]), (&Value::Null, &json!(5000)));
    let percent = api.get(&format!("/v1/top?by=percent&limit=3&period={today}")).await.json();
    assert_eq!(names(&percent), ["near", "a b", "big"]);
    let month = api.get("/v1/top?window=month&by=percent").await.json();
    assert_eq!((names(&month), &month["subjects"][0]["used_percent"]), (vec!["near".to_owned()], &json!(20.0)));

    // The ranking is cached for ten seconds.
    usage.count("late", "requests", today, 1_000_000).await;
    assert_eq!(api.get("/v1/top?limit=5").await.json(), used);
    assert_eq!(names(&printed(&usage, &["top", "--limit", "1"])), ["late"]);
    assert_eq!(names(&printed(&usage, &["top", "--by", "percent", "--limit", "2"])), ["late", "near"]);
    assert_eq!(names(&printed(&usage, &["top", "--metric", "nothing"])), [""; 0]);

    for (query, problem) in [
        ("by=name", "by: \"name\" is not an order: use used or percent"),
        ("limit=1001", "limit: must be a whole number, 1 to 1000"),
        ("window=decade", "window: \"decade\" is not a window"),
        ("period=202", "period: \"202\" is not a period"),
        ("period=2026-11&window=day", "period: 2026-11 is a period of the window month, not of day"),
        ("metrics=a", "the query: "),
    ] {
        api.get(&format!("/v1/top?{query}")).await.expect_problem(400, problem);
    }
    api.without_token().get("/v1/top").await.expect_problem(401, "Authorization: Bearer TOKEN");
    daemon.drain().await;
    let wrong = quotabell(["top", "--period", "2026-11", "--window", "day"]).redis(&usage.server.url()).run();
    assert!(wrong.code == 1 && wrong.stderr.contains("--period: 2026-11 is a period"), "{}", wrong.stderr);
}

/// Archived days are replayed as those that still have counters.
#[tokio::test]
async fn whatif_replays_archived_days() {
    let usage = RecordedUsage::start();
    let day = days_ago(&usage, "UTC").await;
    for (back, used) in [(40, 90), (20, 100)] {
        usage.count("alice", "requests", Day::parse(&day(back)).expect("a date"), used).await;
        archive(&usage, &day(back), &["alice"]).await;
    }
    let words = ["whatif", "--limit", "requests=100/day", "--threshold", "80", "--since", "60d"];
    let replayed = printed(&usage, &words);
    let days: Vec<&Value> = replayed["alerts"].as_array().expect("a list").iter().map(|alert| &alert["day"]).collect();
    assert_eq!(days, [&json!(day(40)), &json!(day(20))]);
    assert_eq!(printed(&usage, &["whatif", "--limit", "requests=100/day", "--since", "30d"])["alerts"][0]["used"], 100);
}
