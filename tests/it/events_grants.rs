//! Grants and the stream's worker: what is counted before an expiry, and by which limit alerts are raised.

use std::collections::BTreeMap;

use crate::support::eventually::eventually;
use crate::support::grants::{Grant, GrantState, Nothing, give as give_in, prepaid};
use crate::support::partition::Partition;
use quotabell::actions::grants::{self, NewGrant};
use quotabell::ledger::grant_store::{self, GrantChange, GrantReply};
use quotabell::ledger::grants::SubjectGrants;
use quotabell::redis_client::Partition as RedisPartition;
use quotabell::subjects::Plans;
use quotabell::subjects::config::PlanConfig;
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{GrantId, GrantNotice, Metric, Period, StreamId, Subject, Units, UnixMs, Window};

fn total() -> Period {
    Period::parse("all").expect("a period")
}

fn at(time: &str) -> UnixMs {
    time.parse().expect("RFC 3339")
}

/// A plan without limits.
fn plans() -> Plans {
    let limits = BTreeMap::new();
    let thresholds = ["80", "100"].map(|text| text.parse().expect("legal")).to_vec();
    let (refuse_at, rate) = (Default::default(), Default::default());
    let plan = PlanConfig { limits, thresholds, refuse_at, grant_notice: None, rate, ..PlanConfig::default() };
    Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("there")
}

fn redis(partition: &Partition) -> RedisPartition {
    RedisPartition { client: partition.client.clone(), keys: partition.keys.clone() }
}

/// Writes grants as they were added before anything was used, also such as have expired since.
async fn give(partition: &Partition, subject: &str, given: impl IntoIterator<Item = Grant>) {
    give_in(&redis(partition), subject, given).await;
}

async fn read(partition: &Partition, subject: &str) -> SubjectGrants {
    let subject: Subject = subject.parse().expect("legal");
    grant_store::read(&redis(partition), subject, None).await.expect("read").grants
}

/// The units that each grant has paid for, and whether it still adds all of its units.
async fn spent(partition: &Partition, subject: &str) -> BTreeMap<GrantId, (u64, GrantState)> {
    let grants = read(partition, subject).await;
    grants.all().into_iter().map(|grant| (grant.id.clone(), (grant.spent, grant.state))).collect()
}

fn of(grants: &BTreeMap<GrantId, (u64, GrantState)>, id: &str) -> (u64, GrantState) {
    grants[&id.parse::<GrantId>().expect("legal")]
}

/// The daemon may be away at the expiry, or behind: usage before it is paid by the grant, usage after it is not.
#[tokio::test]
async fn an_expiry_is_made_up_at_its_place_in_the_stream() {
    let partition = Partition::without_worker();
    partition.run::<u64>(&["HSET", "quota_subject:acme", "limit:requests", "0/total"]).await;
    let expires = |id, units, time: &str| Grant { expires_at: Some(Rfc3339(at(time))), ..prepaid(id, units) };
    let (first, second) = ("2023-11-21T10:00:00Z", "2023-11-21T11:00:00Z");
    give(&partition, "acme", [expires("one", 100, first), expires("two", 100, second), prepaid("last", 100)]).await;
    give(&partition, "other", [expires("one", 100, first)]).await;
    for (time, units) in [("09:00:00", "30"), ("09:59:59.999", "20"), ("10:00:00", "5"), ("11:30:00", "7")] {
        partition.add_at(&format!("2023-11-21T{time}Z"), &["subject", "acme", "units", units]).await;
    }
    let _worker = partition.start_worker().await;
    partition.caught_up().await;
    let grants = spent(&partition, "acme").await;
    assert_eq!(of(&grants, "one"), (50, GrantState::Expired));
    assert_eq!(of(&grants, "two"), (5, GrantState::Expired));
    assert_eq!(of(&grants, "last"), (0, GrantState::Active), "settled at the next change");
    let added = read(&partition, "acme").await.added();
    assert_eq!(added.units_of(&Metric::default(), total()), 50 + 5 + 100);
    assert_eq!(of(&spent(&partition, "other").await, "one"), (0, GrantState::Expired));
    assert_eq!(partition.count("acme", "requests", total()).await, Some(62));
    // 80 % of 300 was never reached; 80 % of 155 is 124.
    partition.add(&[(b"subject", b"acme"), (b"units", b"61")]).await;
    partition.caught_up().await;
    assert_eq!(partition.raised("acme").await, []);
    partition.add(&[(b"subject", b"acme")]).await;
    partition.caught_up().await;
    assert_eq!(partition.raised("acme").await, [(80, 124)]);
}

/// Without events nothing moves the stream: the clock decides.
#[tokio::test]
async fn an_idle_worker_ends_grants_by_the_clock() {
    let partition = Partition::with_worker().await;
    partition.set("acme", &["limit:requests", "0/total"]).await;
    let expires_at = partition.now().await.plus(300);
    give(&partition, "acme", [Grant { expires_at: Some(Rfc3339(expires_at)), ..prepaid("one", 10) }]).await;
    eventually("the grant expires", || async {
        (of(&spent(&partition, "acme").await, "one").1 == GrantState::Expired).then_some(())
    })
    .await;
    let ended = read(&partition, "acme").await.all()[0].ended_at;
    assert_eq!(ended, Some(Rfc3339(expires_at)));
}

/// A top-up arms the thresholds again; what is granted raises the limit within a second.
#[tokio::test]
async fn a_top_up_lets_alerts_be_raised_again() {
    let partition = Partition::with_worker().await;
    partition.set("acme", &["limit:requests", "0/total"]).await;
    let subject: Subject = "acme".parse().expect("legal");
    let plans = plans();
    let top_up = async |id: &str, units: u64| {
        let units = Units::new(units).expect("in range");
        let id = Some(id.parse().expect("legal"));
        let new =
            NewGrant { metric: Metric::default(), units, window: Window::Total, expires_at: None, id, note: None };
        grants::add(&redis(&partition), &plans, &subject, &new).await.expect("added")
    };
    assert!(top_up("one", 100).await.is_new);
    // A limit of 0 raised nothing; that of 100 is known when the next alert is raised.
    let raised = async |expected: &[(u64, u64)]| {
        eventually("the alert is raised", || async {
            partition.add(&[(b"subject", b"acme")]).await;
            partition.caught_up().await;
            (partition.raised("acme").await == expected).then_some(())
        })
        .await;
    };
    partition.add(&[(b"subject", b"acme"), (b"units", b"78")]).await;
    raised(&[(80, 80)]).await;
    assert!(!top_up("one", 100).await.is_new, "given once");
    let used = partition.count("acme", "requests", total()).await.expect("counted");
    top_up("two", 400).await;
    raised(&[(80, 80)]).await;
    let rest = (399 - used).to_string();
    partition.add(&[(b"subject", b"acme"), (b"units", rest.as_bytes())]).await;
    raised(&[(80, 80), (80, 400)]).await;
    let grants = spent(&partition, "acme").await;
    assert_eq!(of(&grants, "one").0, used, "what was used when the second one was added");
}

/// A crash between the notice and the mark would tell a customer twice, or never.
#[tokio::test]
async fn a_notice_is_raised_once_with_what_is_left() {
    let partition = Partition::without_worker();
    partition
        .run::<u64>(&["HSET", "quota_subject:acme", "limit:requests", "500/total", "timezone", "Asia/Tokyo"])
        .await;
    let expires_at = Some(Rfc3339(partition.now().await.plus(86_400_000)));
    let notice_at = Some(Rfc3339(at("2023-11-21T10:00:00Z")));
    let noted = Grant { expires_at, notice_at, note: Some("a gift".to_owned()), ..prepaid("one", 100) };
    give(&partition, "acme", [noted, Grant { expires_at, notice_at, ..prepaid("two", 10) }]).await;
    partition.add_at("2023-11-21T09:00:00Z", &["subject", "acme", "units", "30"]).await;
    partition.add_at("2023-11-21T10:00:00Z", &["subject", "acme", "units", "1"]).await;
    let workers = [partition.start_worker().await, partition.start_worker().await];
    partition.caught_up().await;
    for worker in workers {
        worker.end().await;
    }
    let entries: Vec<(String, Vec<String>)> = partition.run(&["XRANGE", &partition.keys.outbox(), "-", "+"]).await;
    let notices: Vec<GrantNotice> = entries
        .iter()
        .filter(|(_, fields)| fields[0] == "grant_expires")
        .map(|(_, fields)| serde_json::from_str(&fields[1]).expect("a notice"))
        .collect();
    let facts: Vec<_> = notices.iter().map(|of| (of.grant.to_string(), of.remaining, of.used, of.limit)).collect();
    assert_eq!(facts, [("one".to_owned(), 70, 30, 610), ("two".to_owned(), 10, 30, 610)]);
    assert_eq!((notices[0].note.as_deref(), notices[0].timezone.as_str()), (Some("a gift"), "Asia/Tokyo"));
    assert_eq!(Some(notices[0].expires_at), expires_at);
}

/// One unreadable field must not stop the stream, and money must not be lost with it.
#[tokio::test]
async fn grants_that_cannot_be_read_stop_nobody() {
    let partition = Partition::without_worker();
    let key = partition.keys.grants(&"bad".parse().expect("legal"));
    let expires_at = Some(Rfc3339(at("2023-11-21T10:00:00Z")));
    give(&partition, "bad", [Grant { expires_at, ..prepaid("one", 10) }]).await;
    // Whatever the settings of a subject hold: its units expire.
    for subject in ["good", "odd"] {
        give(&partition, subject, [Grant { expires_at, ..prepaid("one", 10) }]).await;
    }
    partition.run::<()>(&["SET", "quota_subject:odd", "x"]).await;
    partition.run::<u64>(&["ZADD", &partition.keys.grants_due(), "4", "no\nsubject"]).await;
    partition.run::<u64>(&["HSET", &key, "grant:one", "{}"]).await;
    // A subject whose grants were deleted by hand.
    partition.run::<u64>(&["ZADD", &partition.keys.grants_due(), "5", "gone"]).await;
    partition.add_at("2023-11-21T11:00:00Z", &["subject", "good"]).await;
    let _worker = partition.start_worker().await;
    partition.caught_up().await;
    for subject in ["good", "odd"] {
        assert_eq!(of(&spent(&partition, subject).await, "one"), (0, GrantState::Expired), "{subject}");
    }
    let due: Vec<(String, f64)> =
        partition.run(&["ZRANGE", &partition.keys.grants_due(), "0", "-1", "WITHSCORES"]).await;
    let names: Vec<&str> = due.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["bad", "good", "odd"], "that of `bad` comes again in a minute, the others never");
}

/// A provider's grants end at the same midnight.
#[tokio::test]
async fn any_number_of_grants_expires_at_one_moment() {
    let partition = Partition::without_worker();
    let expires_at = Some(Rfc3339(at("2023-11-21T10:00:00Z")));
    partition.run::<u64>(&["HSET", "quota_subject:s7", "limit:requests", "0/total"]).await;
    let names: Vec<String> = (0..1_200).map(|number| format!("s{number}")).collect();
    let given = names.iter().map(|name| give(&partition, name, [Grant { expires_at, ..prepaid("one", 10) }]));
    futures_util::future::join_all(given).await;
    for (time, units) in [("09:00:00", "3"), ("11:00:00", "4")] {
        partition.add_at(&format!("2023-11-21T{time}Z"), &["subject", "s7", "units", units]).await;
    }
    let _worker = partition.start_worker().await;
    partition.caught_up().await;
    for name in &names {
        let expected = if name == "s7" { 3 } else { 0 };
        assert_eq!(of(&spent(&partition, name).await, "one"), (expected, GrantState::Expired), "{name}");
    }
}

/// A worker that has not heard of a grant yet must not count past its expiry.
#[tokio::test]
async fn no_worker_counts_past_an_expiry_that_it_does_not_know() {
    let partition = Partition::with_worker().await;
    for round in 0..5 {
        let subject = format!("acme {round}");
        partition.set(&subject, &["limit:requests", "0/total"]).await;
        let now = partition.now().await;
        give(&partition, &subject, [Grant { expires_at: Some(Rfc3339(now.plus(2))), ..prepaid("one", 10) }]).await;
        eventually("its expiry is over", || async { (partition.now().await > now.plus(2)).then_some(()) }).await;
        partition.add(&[(b"subject", subject.as_bytes()), (b"units", b"4")]).await;
        let spent = eventually("the grant has expired", || async {
            let (spent, state) = of(&spent(&partition, &subject).await, "one");
            (state == GrantState::Expired).then_some(spent)
        })
        .await;
        assert_eq!(spent, 0);
    }
}

/// What was read before an event was counted, or before another worker committed, must not be written.
#[tokio::test]
async fn a_change_is_not_computed_from_an_old_count() {
    let partition = Partition::with_worker().await;
    partition.set("acme", &["limit:requests", "0/total"]).await;
    give(&partition, "acme", [prepaid("one", 10)]).await;
    let redis = redis(&partition);
    let before = grant_store::read(&redis, "acme".parse().expect("legal"), None).await.expect("read");
    let mut after = before.grants.clone();
    after.revoke(&"one".parse().expect("legal"), &Nothing, UnixMs(1)).expect("there");
    let write = async |checkpoint| {
        let change = GrantChange { before: &before, after: &after, checkpoint, notices: &[] };
        grant_store::write(&redis, change).await.expect("answered")
    };
    assert_eq!(write(Some(StreamId::ZERO)).await, GrantReply::Stale);
    partition.add(&[(b"subject", b"acme")]).await;
    partition.caught_up().await;
    assert_eq!(write(None).await, GrantReply::Changed);
    assert_eq!(of(&spent(&partition, "acme").await, "one"), (0, GrantState::Active));
}

/// A gateway that refuses further requests sends no event, so nobody would hear that the units are used up.
#[tokio::test]
async fn a_limit_that_an_ended_grant_lowers_raises_its_alerts_without_an_event() {
    let partition = Partition::with_worker().await;
    let raised = async |subject: &str, expected: &[(u64, u64)]| {
        eventually("the alerts are raised", || async { (partition.raised(subject).await == expected).then_some(()) })
            .await;
    };
    for subject in ["expires", "revoked", "unused"] {
        partition.set(subject, &["limit:requests", "0/total"]).await;
    }
    let expires_at = Some(Rfc3339(partition.now().await.plus(1_500)));
    for subject in ["expires", "unused"] {
        give(&partition, subject, [Grant { expires_at, ..prepaid("one", 10) }]).await;
    }
    give(&partition, "revoked", [prepaid("one", 10), prepaid("two", 15)]).await;
    for (subject, units) in [("expires", "6"), ("revoked", "13")] {
        partition.add(&[(b"subject", subject.as_bytes()), (b"units", units.as_bytes())]).await;
    }
    partition.caught_up().await;
    assert_eq!((partition.raised("expires").await, partition.raised("revoked").await), (vec![], vec![]));
    let (subject, two): (Subject, GrantId) = ("revoked".parse().expect("legal"), "two".parse().expect("legal"));
    grants::revoke(&redis(&partition), &plans(), &subject, &two).await.expect("revoked");
    // It had paid for 3 units, the first one for 10.
    raised("revoked", &[(80, 11), (100, 13)]).await;
    raised("expires", &[(80, 5), (100, 6)]).await;
    let grants = spent(&partition, "unused").await;
    assert_eq!(of(&grants, "one").1, GrantState::Expired);
    let entries: Vec<(String, Vec<String>)> = partition.run(&["XRANGE", partition.keys.stream(), "-", "+"]).await;
    let judged = entries.iter().filter(|(_, fields)| fields.contains(&"judge".to_owned()));
    let subjects: Vec<&str> = judged.map(|(_, fields)| fields[1].as_str()).collect();
    assert_eq!(subjects, ["revoked", "expires"], "nobody used units of the third one");
    assert_eq!(partition.count("expires", "requests", total()).await, Some(6));
}

/// A platform that lowers a limit may not want to wait for the next request of its customer.
#[tokio::test]
async fn an_event_that_counts_nothing_has_a_lowered_limit_judged() {
    let partition = Partition::with_worker().await;
    partition.set("acme", &["limit:requests", "100/day"]).await;
    partition.add(&[(b"subject", b"acme"), (b"units", b"50")]).await;
    partition.caught_up().await;
    // Other than `set`, this does not wait until the worker has heard of it.
    partition.run::<u64>(&["HSET", "quota_subject:acme", "limit:requests", "60/day"]).await;
    partition.add(&[(b"subject", b"acme"), (b"judge", b"1"), (b"units", b"7")]).await;
    partition.add(&[(b"subject", b"nobody"), (b"judge", b"1")]).await;
    partition.caught_up().await;
    assert_eq!(partition.raised("acme").await, [(80, 48)]);
    let today = partition.today().await;
    assert_eq!(partition.count("acme", "requests", today).await, Some(50));
    assert_eq!(partition.count("nobody", "requests", today).await, None);
}

/// Two invoices may end at one midnight: both are settled together, what is used is paid once, and the units that
/// either has left are lost.
#[tokio::test]
async fn two_grants_of_a_subject_expire_at_one_moment() {
    let partition = Partition::without_worker();
    partition.run::<u64>(&["HSET", "quota_subject:acme", "limit:requests", "0/total"]).await;
    let expires_at = Some(Rfc3339(at("2023-11-21T10:00:00Z")));
    let both = ["one", "two"].map(|id| Grant { expires_at, ..prepaid(id, 100) });
    give(&partition, "acme", both).await;
    for (time, units) in [("09:00:00", "110"), ("09:59:59", "5"), ("10:00:00", "3")] {
        partition.add_at(&format!("2023-11-21T{time}Z"), &["subject", "acme", "units", units]).await;
    }
    let _worker = partition.start_worker().await;
    partition.caught_up().await;
    let grants = spent(&partition, "acme").await;
    assert_eq!(of(&grants, "one"), (100, GrantState::Expired));
    assert_eq!(of(&grants, "two"), (15, GrantState::Expired));
    assert_eq!(read(&partition, "acme").await.added().units_of(&Metric::default(), total()), 115);
    let due: u64 = partition.run(&["ZCOUNT", &partition.keys.grants_due(), "-inf", "(inf"]).await;
    assert_eq!(due, 0, "neither comes again");
    // The limit is 115 now, and 118 are used: one alert for each threshold, by the limit after both expiries.
    assert_eq!(partition.raised("acme").await, [(80, 92), (100, 115)]);
}

/// What is granted for a day or a month ends with it: the next one has the plan's limit again, without an expiry.
#[tokio::test]
async fn a_grant_for_a_day_or_a_month_ends_with_it() {
    for (window, periods, [inside, after]) in [
        ("day", "2023-11-21", ["2023-11-21T12:00:00Z", "2023-11-22T01:00:00Z"]),
        ("month", "2023-11", ["2023-11-21T12:00:00Z", "2023-12-01T01:00:00Z"]),
        ("quarter", "2023-Q4", ["2023-12-31T12:00:00Z", "2024-01-01T01:00:00Z"]),
        ("year", "2023", ["2023-12-31T12:00:00Z", "2024-01-01T01:00:00Z"]),
    ] {
        let partition = Partition::without_worker();
        partition.run::<u64>(&["HSET", "quota_subject:acme", "limit:requests", &format!("10/{window}")]).await;
        let period = Period::parse(periods).expect("a period");
        give(&partition, "acme", [Grant { period, ..prepaid("more", 5) }]).await;
        partition.add_at(inside, &["subject", "acme", "units", "11"]).await;
        partition.add_at(inside, &["subject", "acme", "units", "1"]).await;
        partition.add_at(after, &["subject", "acme", "units", "7"]).await;
        let _worker = partition.start_worker().await;
        partition.caught_up().await;
        assert_eq!(partition.raised("acme").await, [(80, 12)], "{window}: 80 % of 15");
        partition.add_at(&after.replace("T01", "T02"), &["subject", "acme"]).await;
        partition.caught_up().await;
        assert_eq!(partition.raised("acme").await, [(80, 12), (80, 8)], "{window}: 80 % of 10");
    }
}
