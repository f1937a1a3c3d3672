//! `alerts` against a real server.

use crate::support::books::{ids, record, run, server_time};
use crate::support::outbox::{alert, in_period, subject};
use crate::support::redis_server::RedisServer;
use quotabell::types::{Alert, Day};

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
