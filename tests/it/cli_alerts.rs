//! `alerts` on a real server: all windows, filters, and alerts that a higher limit followed.

use crate::support::binary::{Finished, quotabell};
use crate::support::books::{ids, record, run, server_time};
use crate::support::outbox::{alert, in_period, subject};
use crate::support::recorded_usage::RecordedUsage;
use crate::support::redis_server::RedisServer;
use quotabell::types::{Alert, Day, Period, UnixMs};
use serde_json::Value;

fn alerts(usage: &RecordedUsage, words: &[&str]) -> Finished {
    quotabell(["alerts"].iter().chain(words).copied()).redis(&usage.server.url()).run()
}

fn listed(usage: &RecordedUsage, words: &[&str]) -> Vec<Value> {
    alerts(usage, &[&["--json"], words].concat()).expect_json()
}

fn raised(name: &str, period: Period, limit: u64, raised_at_ms: UnixMs) -> Alert {
    let facts = alert(&subject(name), 80);
    let threshold_units = limit * 80 / 100;
    in_period(Alert { limit, threshold_units, used: threshold_units, raised_at_ms, ..facts }, period)
}

/// In Auckland it is already tomorrow: an operator in UTC must see that alert today.
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
            // The newest alert first: sorted by time, not by day.
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
    // All were raised within the last seconds, on any day: an event may arrive late.
    assert_eq!(ids(&listed("--since 1h --limit 2")), [id(0), id(1)]);
    assert_eq!(listed("--since 2d").len(), 8);
    let between = recorded[4].raised_at_ms;
    assert_eq!(ids(&listed(&format!("--since {between}"))), [id(4), id(5), id(2), id(3), id(0), id(1)]);
    assert_eq!(ids(&listed(&format!("--day {} --since 0s", days[0]))), [""; 0]);
}

/// An event that crosses both thresholds raises both at one moment: 80 % comes before 100 %.
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

/// An operator must not need to know the windows of a customer's limits.
#[tokio::test]
async fn alerts_of_every_window_are_listed() {
    let usage = RecordedUsage::start();
    let now = usage.now().await;
    let periods = usage.periods("Asia/Tokyo", 15).await.map(|span| span.period);
    let mut made = Vec::new();
    for (n, period) in periods.into_iter().enumerate() {
        let alert = raised("alice", period, 100, now.plus(n as i64));
        usage.raise(&alert, &[]).await;
        // Another subject, whose name ends with hers.
        usage.raise(&raised("x:alice", period, 100, now), &[]).await;
        made.push(alert);
    }
    let all: Vec<&str> = made.iter().map(|alert| alert.id.as_str()).collect();
    for words in [&["--subject", "alice"][..], &["--subject", "alice", "--since", "1h"]] {
        let listed = listed(&usage, words);
        assert_eq!(ids(&listed), all, "{words:?}");
        for (listed, alert) in listed.iter().zip(&made) {
            assert_eq!(listed["window"], alert.window.as_str());
            assert_eq!((&listed["period"], &listed["threshold_units"]), (&alert.period.to_string().into(), &80.into()));
        }
    }
    assert_eq!(listed(&usage, &[]).len(), 2 * made.len());
    for alert in &made {
        let period = alert.period.to_string();
        assert_eq!(ids(&listed(&usage, &["--period", &period, "--subject", "alice"])), [alert.id.as_str()], "{period}");
    }
    let table = alerts(&usage, &["--subject", "alice"]).expect_done();
    assert!(made.iter().all(|alert| table.contains(&alert.period.to_string())), "{table}");
    let bad = alerts(&usage, &["--period", "yesterday"]);
    assert!(bad.code == 2 && bad.stderr.contains("2026-W47"), "{}", bad.told());
}

/// After a limit was raised at noon, the alerts of the morning must still be found.
#[tokio::test]
async fn alerts_that_a_higher_limit_followed_are_listed() {
    let usage = RecordedUsage::start();
    let now = usage.now().await;
    let day = usage.periods("UTC", 1).await[1].period;
    let at = |limit, minutes: i64| raised("alice", day, limit, now.plus(-60_000 * minutes));
    let (morning, noon, evening) = (at(5000, 90), at(20_000, 45), at(80_000, 10));
    usage.raise(&evening, &[&morning, &noon]).await;
    for words in [&[][..], &["--subject", "alice"]] {
        let listed = listed(&usage, words);
        let figures: Vec<(&str, u64, u64)> = listed
            .iter()
            .zip(ids(&listed))
            .map(|(alert, id)| (id, alert["limit"].as_u64().expect("units"), alert["used"].as_u64().expect("units")))
            .collect();
        assert_eq!(
            figures,
            [
                (morning.id.as_str(), 5000, 4000),
                (noon.id.as_str(), 20_000, 16_000),
                (evening.id.as_str(), 80_000, 64_000),
            ]
        );
    }
    assert_eq!(ids(&listed(&usage, &["--since", "1h"])), [noon.id.as_str(), evening.id.as_str()]);
    assert_eq!(ids(&listed(&usage, &["--limit", "1"])), [evening.id.as_str()]);
}

/// A name with a meaning in a pattern must find its own alerts only.
#[tokio::test]
async fn a_subject_may_be_called_anything() {
    let usage = RecordedUsage::start();
    let day = usage.periods("UTC", 1).await[1].period;
    // All of them must be in one hash, because otherwise nothing could be mixed up.
    let names = ["*", "[a-z]*", "a?c", "a\\c", "80:*", "a]", "🦀 {x}:^-"];
    for name in names {
        usage.raise(&raised(name, day, 10, UnixMs(1_795_250_000_000)), &[]).await;
        for other in ["alice", "abc", "axc", "80:x", ":"] {
            usage.raise_in_the_hash_of(name, &raised(other, day, 10, UnixMs(1_795_250_000_000))).await;
        }
    }
    for name in names {
        let listed = listed(&usage, &["--subject", name]);
        let subjects: Vec<&str> = listed.iter().map(|alert| alert["subject"].as_str().expect("text")).collect();
        assert_eq!(subjects, [name]);
    }
}
