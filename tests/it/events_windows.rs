//! Several windows: each counts, alerts and expires separately.

use std::collections::BTreeSet;

use crate::support::partition::Partition;
use quotabell::actions::grants::{self, NewGrant};
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{BillingDay, BillingMonth, BillingStart, Period, PeriodSpan, Units, UnixMs, Window, keys};

fn period(text: &str) -> Period {
    text.parse().expect("a period")
}

/// Window, period and percentage of each alert.
async fn raised(partition: &Partition) -> BTreeSet<(String, String, u64)> {
    let told = partition.facts().await;
    let set: BTreeSet<_> = told
        .iter()
        .map(|alert| (alert.window.to_string(), alert.period.to_string(), alert.threshold_share()))
        .collect();
    assert_eq!(set.len(), told.len(), "each is raised once");
    set
}

/// I1, I3, I7: an hour of UTC, and the day and longer windows of the subject's zone and billing date count the same
/// events, and each alerts at its own limit; a late event counts in each of its periods while its day still accepts it.
#[tokio::test]
async fn all_windows_count_and_alert_side_by_side() {
    let partition = Partition::without_worker();
    let limits = "10/hour 20/day 40/week 26/month 26/quarter 26/year 41/total";
    let settings = ["timezone", "Asia/Tokyo", "billing_day", "15", "billing_month", "11", "limit:requests", limits];
    partition.run::<u64>(&[&["HSET", "quota_subject:alice"], settings.as_slice()].concat()).await;
    // In Tokyo the day begins at 15:00 UTC, and on 15 November so do month, quarter and year.
    for (time, units) in [
        ("2023-11-14T14:30:00Z", "9"),
        ("2023-11-14T15:10:00Z", "7"),
        ("2023-11-14T16:00:00Z", "9"),
        ("2023-11-14T16:30:00Z", "5"),
    ] {
        partition.add_at(time, &["subject", "alice", "units", units]).await;
    }
    let late = ["subject", "alice", "units", "3", "ts", "2023-11-14T14:59:59Z"];
    partition.add_at("2023-11-14T17:00:00Z", &late).await;
    // The day of the 14th accepts events for 5 h more: until 20:00 UTC.
    partition.add_at("2023-11-14T20:00:01Z", &late).await;
    partition.start_worker().await;
    partition.caught_up().await;
    for (text, units) in [
        ("2023-11-14T14Z", Some(12)),
        ("2023-11-14T15Z", Some(7)),
        ("2023-11-14T16Z", Some(14)),
        ("2023-11-14T20Z", None),
        ("2023-11-14", Some(12)),
        ("2023-11-15", Some(21)),
        ("2023-W46", Some(33)),
        ("2023-10-15M", Some(12)),
        ("2023-11-15M", Some(21)),
        ("2023-08-15Q", Some(12)),
        ("2023-11-15Q", Some(21)),
        ("2022-11-15Y", Some(12)),
        ("2023-11-15Y", Some(21)),
        ("all", Some(33)),
    ] {
        assert_eq!(partition.count("alice", "requests", period(text)).await, units, "{text}");
    }
    let expected = [
        ("hour", "2023-11-14T14Z", 80),
        ("hour", "2023-11-14T14Z", 100),
        ("hour", "2023-11-14T16Z", 80),
        ("hour", "2023-11-14T16Z", 100),
        ("day", "2023-11-15", 80),
        ("day", "2023-11-15", 100),
        ("week", "2023-W46", 80),
        ("month", "2023-11-15M", 80),
        ("quarter", "2023-11-15Q", 80),
        ("year", "2023-11-15Y", 80),
        ("total", "all", 80),
    ];
    let expected: BTreeSet<_> = expected.into_iter().map(|(w, p, n)| (w.to_owned(), p.to_owned(), n)).collect();
    assert_eq!(raised(&partition).await, expected);
    assert_eq!(partition.refused().await.len(), 1, "the second late event");
    let ends: BTreeSet<Option<Rfc3339>> = partition.facts().await.iter().map(|alert| alert.resets_at).collect();
    let at = |text: &str| UnixMs(chrono::DateTime::parse_from_rfc3339(text).expect("RFC 3339").timestamp_millis());
    let resets = [
        "2023-11-14T15:00:00Z",
        "2023-11-14T17:00:00Z",
        "2023-11-15T15:00:00Z",
        "2023-11-19T15:00:00Z",
        "2023-12-14T15:00:00Z",
        "2024-02-14T15:00:00Z",
        "2024-11-14T15:00:00Z",
    ];
    assert_eq!(ends, resets.into_iter().map(|text| Some(Rfc3339(at(text)))).chain([None]).collect());
}

/// A day is counted for every subject, other windows only if there is a limit, because each costs memory and time.
#[tokio::test]
async fn windows_without_a_limit_are_not_counted() {
    let partition = Partition::without_worker();
    partition.run::<u64>(&["HSET", "quota_subject:alice", "limit:requests", "10/month"]).await;
    partition.add_at("2023-11-14T14:30:00Z", &["subject", "alice", "units", "9"]).await;
    partition.add_at("2023-11-14T14:31:00Z", &["subject", "bob", "units", "9"]).await;
    partition.start_worker().await;
    partition.caught_up().await;
    let mut names: Vec<String> = partition.run(&["KEYS", "quota_usage:*"]).await;
    names.sort();
    let of = |subject: &str, text: &str| {
        partition.keys.usage(&"requests".parse().expect("legal"), period(text), keys::bucket(subject))
    };
    let mut expected = [of("alice", "2023-11-14"), of("alice", "2023-11"), of("bob", "2023-11-14")];
    expected.sort();
    assert_eq!(names, expected);
    assert_eq!(raised(&partition).await, [("month".to_owned(), "2023-11".to_owned(), 80)].into());
}

/// One read may contain late events of one subject in many hours, in any order: each counts in its own hour.
#[tokio::test]
async fn late_events_of_many_hours_in_one_reading_are_counted() {
    let partition = Partition::without_worker();
    partition.run::<u64>(&["HSET", "quota_subject:alice", "limit:requests", "1000/hour 1000/week"]).await;
    let mut expected = [0_u64; 24];
    for n in 0..300_u64 {
        // Visits all hours repeatedly.
        let hour = usize::try_from(n * 7 % 24).expect("small");
        let (ts, units) = (format!("2023-11-14T{hour:02}:30:00Z"), (n + 1).to_string());
        expected[hour] += n + 1;
        partition.add_at("2023-11-14T23:45:00Z", &["subject", "alice", "ts", &ts, "units", &units]).await;
    }
    partition.start_worker().await;
    partition.caught_up().await;
    for (hour, units) in expected.iter().enumerate() {
        let text = format!("2023-11-14T{hour:02}Z");
        assert_eq!(partition.count("alice", "requests", period(&text)).await, Some(*units), "{text}");
    }
    assert_eq!(partition.count("alice", "requests", period("2023-11-14")).await, Some(300 * 301 / 2));
    assert_eq!(partition.count("alice", "requests", period("2023-W46")).await, Some(300 * 301 / 2));
}

/// Each event has its own lateness: it must not be counted because another event of its day was in time.
#[tokio::test]
async fn an_event_that_comes_too_late_is_refused_also_where_its_rows_are_held() {
    let partition = Partition::without_worker();
    for arrives in ["2023-11-15T04:59:00Z", "2023-11-15T05:01:00Z"] {
        partition.add_at(arrives, &["subject", "alice", "ts", "2023-11-14T12:00:00Z"]).await;
    }
    partition.start_worker().await;
    partition.caught_up().await;
    assert_eq!(partition.count("alice", "requests", period("2023-11-14")).await, Some(1));
    let refused = partition.refused().await;
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].1[3], b"too_late");
}

/// I1: an event counts in all of its periods or in none. If the month had no room, the hour and the day would claim
/// that the units were used.
#[tokio::test]
async fn an_event_that_does_not_fit_one_of_its_periods_counts_in_none() {
    let partition = Partition::without_worker();
    partition.run::<u64>(&["HSET", "quota_subject:alice", "limit:requests", "10/hour 10/month"]).await;
    let month = partition.keys.usage(&"requests".parse().expect("legal"), period("2023-11"), keys::bucket("alice"));
    partition.run::<u64>(&["HSET", &month, "alice", "9007199254740990"]).await;
    for units in ["2", "1"] {
        partition.add_at("2023-11-14T14:30:00Z", &["subject", "alice", "units", units]).await;
    }
    partition.start_worker().await;
    partition.caught_up().await;
    for (text, units) in [("2023-11-14T14Z", 1), ("2023-11-14", 1), ("2023-11", 9_007_199_254_740_991)] {
        assert_eq!(partition.count("alice", "requests", period(text)).await, Some(units), "{text}");
    }
    let refused = partition.refused().await;
    assert_eq!((refused.len(), refused[0].1[3].as_slice()), (1, b"counter_overflow".as_slice()));
}

/// A billing day that changes in the middle of a month starts another month, which counts from zero; setting it back
/// continues the earlier month.
#[tokio::test]
async fn a_billing_day_that_changes_in_mid_month_counts_each_event_once() {
    let partition = Partition::without_worker();
    partition.run::<u64>(&["HSET", "quota_subject:alice", "limit:requests", "1000/month"]).await;
    partition.start_worker().await;
    let from = partition.now().await;
    for (billing_day, units) in [("10", b"3"), ("20", b"4"), ("10", b"2")] {
        partition.set("alice", &["billing_day", billing_day]).await;
        partition.add(&[(b"subject", b"alice"), (b"units", units)]).await;
        partition.caught_up().await;
    }
    let to = partition.now().await;
    // The date may change during the test.
    let used = async |window, billing_day| {
        let billing_day = BillingDay::new(billing_day).expect("legal");
        let span =
            |at| PeriodSpan::containing(window, quotabell::zones::Zone::UTC, billing_day, at).expect("in range").period;
        let mut sum = 0;
        for period in BTreeSet::from([span(from), span(to)]) {
            sum += partition.count("alice", "requests", period).await.unwrap_or(0);
        }
        sum
    };
    assert_eq!(used(Window::Month, 10).await, 5);
    assert_eq!(used(Window::Month, 20).await, 4);
    assert_eq!(used(Window::Day, 10).await, 9);
}

/// The units of Alice in the period of this window, by the billing month. The date may change during the test.
async fn used_in(partition: &Partition, (from, to): (UnixMs, UnixMs), window: Window, month: u8) -> u64 {
    let billing = BillingStart { month: BillingMonth::new(month).expect("legal"), day: BillingDay::FIRST };
    let span = |at| PeriodSpan::containing(window, quotabell::zones::Zone::UTC, billing, at).expect("in range").period;
    let mut sum = 0;
    for period in BTreeSet::from([span(from), span(to)]) {
        sum += partition.count("alice", "requests", period).await.unwrap_or(0);
    }
    sum
}

/// Window, percentage and units of each alert of Alice, in the order in which they were raised.
async fn raised_by_alice(partition: &Partition) -> Vec<(String, u64, u64)> {
    let told = partition.facts().await;
    let own = told.iter().filter(|alert| alert.subject.as_str() == "alice");
    own.map(|alert| (alert.window.to_string(), alert.threshold_share(), alert.threshold_units)).collect()
}

/// A billing month that changes in mid-year starts another year, and perhaps other quarters: each counts its own events
/// and raises its own alerts once, and setting it back continues the earlier ones.
#[tokio::test]
async fn a_billing_month_that_changes_in_mid_year_counts_each_event_once_and_alerts_once() {
    let partition = Partition::without_worker();
    partition.run::<u64>(&["HSET", "quota_subject:alice", "limit:requests", "10/quarter 20/year"]).await;
    partition.start_worker().await;
    let from = partition.now().await;
    let of = |window: &str, share, units| (window.to_owned(), share, units);
    let (first, second, third) = (of("quarter", 80, 8), of("quarter", 100, 10), of("year", 80, 16));
    // January and April have the same quarters, February has others; each has a year of its own.
    for (month, units, expected) in [
        ("1", "9", vec![first.clone()]),
        ("4", "8", vec![first.clone(), second.clone()]),
        ("2", "3", vec![first.clone(), second.clone()]),
        ("1", "7", vec![first.clone(), second.clone(), third.clone()]),
        ("4", "8", vec![first.clone(), second.clone(), third.clone(), third.clone()]),
        ("2", "4", vec![first, second, third.clone(), third]),
    ] {
        partition.set("alice", &["billing_month", month]).await;
        partition.add(&[(b"subject", b"alice"), (b"units", units.as_bytes())]).await;
        partition.caught_up().await;
        assert_eq!(raised_by_alice(&partition).await, expected, "{month}");
    }
    let times = (from, partition.now().await);
    let expected = [
        (Window::Quarter, 1, 32),
        (Window::Quarter, 4, 32),
        (Window::Quarter, 2, 7),
        (Window::Year, 1, 16),
        (Window::Year, 4, 16),
        (Window::Year, 2, 7),
        (Window::Day, 1, 39),
    ];
    for (window, month, units) in expected {
        assert_eq!(used_in(&partition, times, window, month).await, units, "{window} from month {month}");
    }
}

/// What is granted for a year belongs to that year: it must neither follow the customer into another one nor be lost
/// when the billing month is set back.
#[tokio::test]
async fn units_granted_for_a_year_stay_in_it_when_the_billing_month_changes() {
    let partition = Partition::with_worker().await;
    partition.set("alice", &["limit:requests", "20/year"]).await;
    let config = quotabell::config::Config::defaults().expect("the defaults");
    let plans = quotabell::subjects::Plans::new(&config.plans, &config.default_plan).expect("there");
    let redis = quotabell::redis_client::Partition { client: partition.client.clone(), keys: partition.keys.clone() };
    let subject = "alice".parse().expect("legal");
    let new = NewGrant {
        metric: "requests".parse().expect("legal"),
        units: Units::new(20).expect("in range"),
        window: Window::Year,
        expires_at: None,
        id: Some("once".parse().expect("legal")),
        note: None,
    };
    assert!(grants::add(&redis, &plans, &subject, &new).await.expect("added").is_new);
    let from = partition.now().await;
    let of = |units| ("year".to_owned(), 80, units);
    for (month, units, expected) in
        [("1", "17", vec![]), ("4", "16", vec![of(16)]), ("1", "14", vec![of(16)]), ("1", "1", vec![of(16), of(32)])]
    {
        partition.set("alice", &["billing_month", month]).await;
        partition.add(&[(b"subject", b"alice"), (b"units", units.as_bytes())]).await;
        partition.caught_up().await;
        assert_eq!(raised_by_alice(&partition).await, expected, "{month}");
    }
    let times = (from, partition.now().await);
    assert_eq!(used_in(&partition, times, Window::Year, 1).await, 32);
    assert_eq!(used_in(&partition, times, Window::Year, 4).await, 16);
    // Sent again in another year, it is the same grant, which is given once.
    partition.set("alice", &["billing_month", "4"]).await;
    assert!(!grants::add(&redis, &plans, &subject, &new).await.expect("there").is_new);
}

/// A customer who moves to another zone during a day must not be counted twice, and the alert must state the end of the
/// day in the new zone.
#[tokio::test]
async fn a_zone_that_changes_in_mid_period_counts_each_event_once() {
    let partition = Partition::without_worker();
    let far = |zone: &'static str| ["timezone", zone];
    partition.run::<u64>(&[&["HSET", "quota_subject:alice"], far("Asia/Tokyo").as_slice()].concat()).await;
    partition.start_worker().await;
    partition.add_at("2023-11-15T10:00:00Z", &["subject", "alice", "units", "3990"]).await;
    partition.caught_up().await;
    // The test waits for the change with current events: entries can't be added before them, so the rest has ts.
    let today = partition.today().await;
    partition.set("alice", &far("Pacific/Kiritimati")).await;
    partition.add(&[(b"subject", b"alice"), (b"units", b"3")]).await;
    partition.set("alice", &far("Pacific/Pago_Pago")).await;
    partition.add(&[(b"subject", b"alice"), (b"units", b"4")]).await;
    partition.caught_up().await;
    // Their dates always differ: 25 hours are between them.
    let mut counts = Vec::new();
    let days = [today.before(1).expect("a day"), today, today.next().expect("a day")];
    for day in days {
        counts.extend(partition.count("alice", "requests", day).await);
    }
    counts.sort_unstable();
    assert_eq!(counts, [3, 4]);
    assert_eq!(partition.count("alice", "requests", period("2023-11-15")).await, Some(3990));
}

/// The same date ends at another time in another zone: the alert must not state the old end.
#[tokio::test]
async fn an_alert_says_when_the_period_ends_in_the_zone_of_now() {
    let partition = Partition::with_worker().await;
    let now = partition.now().await;
    let span = |zone: &str, at: UnixMs| {
        quotabell::types::DaySpan::containing(zone.parse().expect("a zone"), at).expect("a day")
    };
    // Neighboring zones with the same date in 23 of 24 hours, and in one of the pairs always.
    let pairs = [["Europe/Lisbon", "Europe/Berlin"], ["Asia/Bangkok", "Asia/Tokyo"]];
    let [from, to] = pairs.into_iter().find(|[a, b]| span(a, now).day == span(b, now).day).expect("one of them");
    partition.set("alice", &["timezone", from]).await;
    partition.add(&[(b"subject", b"alice"), (b"units", b"3990")]).await;
    partition.caught_up().await;
    partition.set("alice", &["timezone", to]).await;
    partition.add(&[(b"subject", b"alice"), (b"units", b"10")]).await;
    partition.caught_up().await;
    let told = partition.facts().await;
    let alert = told.iter().find(|alert| alert.subject.as_str() == "alice").expect("80 % of 5000");
    assert_eq!((alert.resets_at, alert.timezone.as_str()), (Some(Rfc3339(span(to, now).end)), to));
}

/// Counters that expire too early would lose the start of a month; permanent keys would fill the server.
#[tokio::test]
async fn keys_live_as_long_as_their_window_needs() {
    const DAY_S: i64 = 86_400;
    let partition = Partition::without_worker();
    partition
        .run::<u64>(&[
            "HSET",
            "quota_subject:alice",
            "limit:requests",
            "5/hour 5/day 5/week 5/month 5/quarter 5/year 5/total",
        ])
        .await;
    partition.start_worker().await;
    // Before the commit, so that no time to live is longer than expected from here.
    let now = partition.now().await;
    partition.add(&[(b"subject", b"alice"), (b"units", b"5"), (b"id", b"1")]).await;
    partition.caught_up().await;
    let within = |name: &str, ttl_s: i64, expected: i64| {
        assert!((expected - 60..=expected).contains(&ttl_s), "{name} lives {ttl_s} s, not {expected}");
    };
    let told = partition.facts().await;
    assert_eq!(told.len(), 2 * Window::ALL.len());
    let (bucket, metric) = (keys::bucket("alice"), "requests".parse().expect("legal"));
    for alert in &told {
        let of_period = [
            partition.keys.usage(&metric, alert.period, bucket),
            partition.keys.raised(&metric, alert.period, bucket),
            partition.keys.metrics(alert.period),
            partition.keys.flag(&alert.key()),
        ];
        if alert.window == Window::Total {
            for key in of_period {
                assert_eq!(partition.run::<i64>(&["TTL", &key]).await, -1, "{key} lives as long as its subject");
            }
            continue;
        }
        // Until 48 h after the period has ended everywhere, or 14 days.
        let ends_in = i64::try_from(alert.period.ends_everywhere().since(now).as_secs()).expect("small");
        let counter_s = (14 * DAY_S).max(ends_in + 2 * DAY_S);
        let [usage, raised, metrics, flag] = of_period;
        for key in [usage, raised] {
            within(&key, partition.run(&["TTL", &key]).await, counter_s + 10 * i64::from(bucket));
        }
        within(&metrics, partition.run(&["TTL", &metrics]).await, counter_s + 2_560);
        let flag_s = match alert.window.as_str() {
            "hour" => 7 * 3_600,
            "day" => 30 * 3_600,
            "week" => 7 * DAY_S + 6 * 3_600,
            "quarter" => 92 * DAY_S + 6 * 3_600,
            "year" => 366 * DAY_S + 6 * 3_600,
            _ => 31 * DAY_S + 6 * 3_600,
        };
        within(&flag, partition.run(&["TTL", &flag]).await, flag_s);
    }
    let ids: Vec<String> = partition.run(&["KEYS", "quota_seen:*"]).await;
    assert_eq!(ids.len(), 1);
    within(&ids[0], partition.run(&["TTL", &ids[0]]).await, 14 * DAY_S);
}
