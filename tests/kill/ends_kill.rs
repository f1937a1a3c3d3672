//! Two real daemons that share eight partitions, repeatedly killed with SIGKILL while limits are raised and lowered and
//! units are given back. Each subject has two contacts, and one of them refuses many ends, so that the other often
//! hears an end that is withdrawn. Afterwards each end was raised once, each contact got the end of an alert once and
//! after the alert, and the end of the last alert. `QUOTABELL_TEST_SEED` repeats a run's events and choices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use quotabell::ledger::alert_ends;
use quotabell::ledger::batch::MetricPeriod;
use quotabell::outbox::totals;
use quotabell::redis_client::{Partition, Partitions};
use quotabell::types::{
    Alert, AlertId, ContactId, DeliveryId, DeliveryState, Metric, ResolvedNotice, Subject, Threshold, keys,
};
use quotabell::views::deliveries;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use crate::seed::seed_of_run;
use crate::support::daemon::{Daemon, DaemonSetup, own_address};
use crate::support::eventually::eventually;
use crate::support::raised_notices::{entries_beside_alerts, raised};
use crate::support::receivers::{Answer, CaughtRequest, HttpCatcher};
use crate::support::redis_server::RedisServer;
use crate::support::streams::{LIMIT, Streams};
use crate::support::webhook_receiver::{secret, verify};

/// Number of kills.
const KILLS: u32 = 30;
/// Few enough that the limits of each change often.
const SUBJECTS: usize = 16;
/// The contacts of each subject: one that accepts everything, and one whose receiver refuses two of three ends.
const CONTACTS: [&str; 2] = ["accepts", "refuses"];

/// What a contact accepted, in the order of arrival.
#[derive(Debug, Default)]
struct Received {
    alerts: BTreeSet<AlertId>,
    /// The ids of ends, with the thresholds that they tell. An attempt whose answer was lost is repeated.
    ends: Vec<(String, BTreeSet<Threshold>)>,
}

/// A customer would hear of an end that never comes, comes twice, or comes without its alert.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_end_is_told_once_and_after_its_alert() {
    let mut random = StdRng::seed_from_u64(seed_of_run());
    let server = RedisServer::start();
    let streams = Streams::on(&server.url(), 8).await;
    let mut receiver = receiver().await;
    let partitions = &streams.partitions;
    for number in 0..SUBJECTS {
        let contacts = CONTACTS.map(|id| {
            let url = receiver.url(&format!("/{id}/{}", subject(number)));
            serde_json::json!({"id": id, "channel": "webhook", "url": url, "secret": secret(1), "resolved": true})
        });
        set(partitions, number, "contacts", &Value::from_iter(contacts).to_string()).await;
    }
    let setup = streams.daemon().env("QUOTABELL__RETRY__FIRST", "200ms").env("QUOTABELL__RETRY__MAX_INTERVAL", "1s");
    let setup = setup.env("QUOTABELL__DELIVERY__PROBE_MAX", "1s");
    let setups: [DaemonSetup; 2] = [(); 2].map(|()| setup.clone().at(own_address()));
    let mut daemons: Vec<Daemon> = setups.iter().map(DaemonSetup::spawn).collect();
    let mut caught: Vec<CaughtRequest> = Vec::new();
    for kill in 0..KILLS {
        for _ in 0..random.random_range(1..8) {
            change(partitions, &mut random).await;
        }
        for _ in 0..random.random_range(0..2_000) {
            let _: String = partitions.first().client.query(&redis::cmd("PING")).await.expect("redis answers");
        }
        let which = random.random_range(0..daemons.len());
        // Daemons that are killed before they are ready would never notice anything.
        if kill % 3 != 0 {
            daemons[which].becomes_ready().await;
        }
        daemons.remove(which).kill().await;
        daemons.insert(which, setups[which].spawn());
        caught.extend(std::iter::from_fn(|| receiver.try_next()));
    }
    // At last every subject has reached its limit, and then has a higher one.
    for number in 0..SUBJECTS {
        set(partitions, number, "limit:requests", &LIMIT.to_string()).await;
        send(partitions, number, "units", LIMIT * 2).await;
    }
    all_open(partitions).await;
    for number in 0..SUBJECTS {
        set(partitions, number, "limit:requests", "1000000").await;
    }
    let groups = all_over(partitions).await;
    all_sent(partitions).await;
    for mut daemon in daemons {
        daemon.becomes_ready().await;
        daemon.drain().await;
    }
    caught.extend(std::iter::from_fn(|| receiver.try_next()));
    let notices = raised::<ResolvedNotice>(partitions, "resolved").await.into_iter().map(|raised| raised.notice);
    let notices: BTreeMap<String, ResolvedNotice> = notices.map(|notice| (notice.id.clone(), notice)).collect();
    assert_eq!(entries_beside_alerts(partitions).await, notices.len() as u64, "each is raised once");
    let withdrawn = compare_notices(partitions, &groups, &notices).await;
    let mut alerts = 0;
    for contact in CONTACTS {
        let received = received(&caught, contact, &groups, &notices);
        alerts += received.alerts.len();
        compare_contact(partitions, contact, &groups, &notices, &received).await;
    }
    eprintln!("{} ends, {withdrawn} of them withdrawn, of {alerts} alerts", notices.len());
    assert!(notices.len() >= SUBJECTS && alerts > 2 * SUBJECTS, "too little happened");
}

/// Refuses two of three ends for one of the contacts.
async fn receiver() -> HttpCatcher {
    let ends = AtomicU64::new(0);
    let respond = move |body: &[u8]| {
        let body: Value = serde_json::from_slice(body).expect("JSON");
        let is_end = body["type"] == "quota.resolved";
        Answer::status(if is_end && !ends.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) { 503 } else { 204 })
    };
    HttpCatcher::start_on((Ipv4Addr::LOCALHOST, 0).into(), respond).await.expect("a receiver")
}

fn subject(number: usize) -> Subject {
    format!("customer-{number}").parse().expect("legal")
}

async fn set(partitions: &Partitions, number: usize, field: &str, value: &str) {
    let Partition { client, keys } = partitions.first();
    let mut command = redis::cmd("HSET");
    let () = client.query(command.arg(keys.subject(&subject(number))).arg(field).arg(value)).await.expect("set");
}

async fn send(partitions: &Partitions, number: usize, kind: &str, units: u64) {
    let of = subject(number);
    let Partition { client, keys } = partitions.partition_of(&of);
    let mut command = redis::cmd("XADD");
    command.arg(keys.stream()).arg("*").arg("subject").arg(of.as_str()).arg(kind).arg(units);
    let _: String = client.query(&command).await.expect("appended");
}

/// Uses units, gives some back, or sets another limit.
async fn change(partitions: &Partitions, random: &mut StdRng) {
    let number = random.random_range(0..SUBJECTS);
    match random.random_range(0..12) {
        0..5 => send(partitions, number, "units", random.random_range(1..LIMIT)).await,
        5..7 => send(partitions, number, "credit", random.random_range(1..LIMIT)).await,
        _ => {
            let limit = LIMIT * random.random_range(1..5);
            set(partitions, number, "limit:requests", &limit.to_string()).await;
        }
    }
}

/// The alerts of each subject with their ends.
async fn groups(partitions: &Partitions) -> Vec<alert_ends::AlertGroup> {
    let mut groups = Vec::new();
    for number in 0..SUBJECTS {
        let of = subject(number);
        let partition = partitions.partition_of(&of);
        let pattern = format!("quota_metrics:{{{}}}:*", partition.keys.stream());
        let names: Vec<String> = partition.client.query(redis::cmd("KEYS").arg(pattern)).await.expect("answered");
        // A midnight may pass.
        for name in names {
            let period = name.rsplit(':').next().and_then(|text| text.parse().ok()).expect("a period");
            let of_period = MetricPeriod { metric: Metric::default(), period };
            let thresholds = ["50", "80", "100"].map(|text| text.parse().expect("legal")).into();
            groups.extend(alert_ends::read_each(partition, &of, &thresholds, &[of_period]).await.expect("read"));
        }
    }
    groups
}

async fn all_open(partitions: &Partitions) {
    eventually("every subject has an open alert", || async {
        let groups = groups(partitions).await;
        let open: BTreeSet<&Subject> = groups.iter().filter(|group| !is_over(group)).map(|of| &of.subject).collect();
        // A daemon that learned of the limit after it had counted the units raises with the next event.
        for number in (0..SUBJECTS).filter(|number| !open.contains(&subject(*number))) {
            send(partitions, number, "units", 1).await;
        }
        (open.len() == SUBJECTS).then_some(())
    })
    .await;
}

async fn all_over(partitions: &Partitions) -> Vec<alert_ends::AlertGroup> {
    eventually("every alert has ended and is told", || async {
        let groups = groups(partitions).await;
        let told = |group: &alert_ends::AlertGroup| {
            let ends = group.ends();
            alerts(group)
                .all(|alert| ends.ends.get(&alert.id).is_some_and(|end| end.end.is_some() && end.told_in.is_some()))
        };
        groups.iter().all(told).then_some(groups)
    })
    .await
}

fn alerts(group: &alert_ends::AlertGroup) -> impl Iterator<Item = &Alert> {
    group.records.iter().flat_map(|record| record.earlier.iter().chain([&record.alert]))
}

fn is_over(group: &alert_ends::AlertGroup) -> bool {
    let ends = group.ends();
    group.records.iter().all(|record| ends.end_of(&record.alert.id).is_some())
}

async fn all_sent(partitions: &Partitions) {
    eventually("nothing is left to send", || async {
        for Partition { client, keys } in partitions.iter() {
            let totals = totals(client, keys).await.expect("answered");
            if totals.outbox > 0 || totals.pending > 0 {
                return None;
            }
        }
        Some(())
    })
    .await;
}

/// What a contact accepted, checked in its order: no end tells a threshold whose alert the contact has not got.
fn received(
    caught: &[CaughtRequest],
    contact: &str,
    groups: &[alert_ends::AlertGroup],
    notices: &BTreeMap<String, ResolvedNotice>,
) -> Received {
    let thresholds = thresholds(groups);
    let mut received = Received::default();
    let accepted = caught.iter().filter(|request| request.status < 300);
    for request in accepted.filter(|request| request.uri.path().starts_with(&format!("/{contact}/"))) {
        let message = verify(request, &secret(1));
        match message.body["type"].as_str().expect("a type") {
            "quota.threshold_reached" => {
                received.alerts.insert(AlertId::from_stored(&message.id));
            }
            "quota.resolved" => {
                let told = serde_json::from_value(message.body["data"]["thresholds"].clone());
                let told: BTreeSet<Threshold> = told.expect("thresholds");
                let got = notices[&message.id].alerts.iter().filter(|alert| received.alerts.contains(alert));
                let got: BTreeSet<Threshold> = got.map(|alert| thresholds[alert]).collect();
                assert!(!told.is_empty() && told.is_subset(&got), "{} tells {told:?} of {got:?}", message.id);
                received.ends.push((message.id, told));
            }
            other => panic!("{other}"),
        }
    }
    received
}

fn thresholds(groups: &[alert_ends::AlertGroup]) -> BTreeMap<AlertId, Threshold> {
    groups.iter().flat_map(alerts).map(|alert| (alert.id.clone(), alert.threshold)).collect()
}

/// Each alert is covered by one end that was not withdrawn. Returns the number of those that were.
async fn compare_notices(
    partitions: &Partitions,
    groups: &[alert_ends::AlertGroup],
    notices: &BTreeMap<String, ResolvedNotice>,
) -> usize {
    let noted = groups.iter().flat_map(|group| group.ends().ends.into_values());
    let withdrawn: BTreeSet<String> = noted.flat_map(|noted| noted.withdrawn_ends).collect();
    let standing = notices.values().filter(|notice| !withdrawn.contains(&notice.id));
    let mut covered: Vec<&AlertId> = standing.flat_map(|notice| &notice.alerts).collect();
    covered.sort_unstable();
    let mut expected: Vec<&AlertId> = groups.iter().flat_map(alerts).map(|alert| &alert.id).collect();
    expected.sort_unstable();
    assert_eq!(covered, expected, "each alert has one end");
    for notice in notices.values() {
        let Partition { client, keys } = partitions.partition_of(&notice.subject);
        let bucket = keys::bucket(notice.subject.as_str());
        let ttl: i64 = client
            .query(redis::cmd("TTL").arg(keys.raised(&notice.metric, notice.period, bucket)))
            .await
            .expect("answered");
        assert!(ttl > 0, "the ends expire with the records");
    }
    withdrawn.len()
}

/// No end that was delivered tells a contact what it has heard before, and the last alert of each quota is told as
/// ended. A contact that has accepted an end which is not recorded as delivered was told by a daemon that was killed
/// then.
async fn compare_contact(
    partitions: &Partitions,
    contact: &str,
    groups: &[alert_ends::AlertGroup],
    notices: &BTreeMap<String, ResolvedNotice>,
    received: &Received,
) {
    let (thresholds, id) = (thresholds(groups), ContactId::from_stored(contact));
    let mut delivered = BTreeSet::new();
    for notice in notices.values() {
        let delivery = DeliveryId::of_notification(&notice.id, &id);
        let partition = partitions.partition_of(&notice.subject);
        let detail = deliveries::show(partition, &[], &delivery).await.expect("redis answers").expect("a delivery");
        let is_received = received.ends.iter().any(|(end, _)| *end == notice.id);
        let is_cut_off = u64::from(detail.delivery.attempts) > detail.attempt_log.len() as u64;
        match detail.delivery.state {
            DeliveryState::Delivered => assert!(is_received, "{} never came", notice.id),
            DeliveryState::Expired => assert!(!is_received || is_cut_off, "{} is not recorded", notice.id),
            other => panic!("{} is {other}", notice.id),
        }
        if detail.delivery.state == DeliveryState::Delivered {
            delivered.insert(&notice.id);
        }
    }
    let mut heard: BTreeSet<&AlertId> = BTreeSet::new();
    for (at, (end, told)) in received.ends.iter().enumerate() {
        let is_repeated = received.ends[at + 1..].iter().any(|(later, _)| later == end);
        if !delivered.contains(end) || is_repeated {
            continue;
        }
        let covered = &notices[end].alerts;
        let fresh = covered.iter().filter(|alert| received.alerts.contains(alert) && !heard.contains(alert));
        let fresh: BTreeSet<Threshold> = fresh.map(|alert| thresholds[alert]).collect();
        assert!(told.is_subset(&fresh), "{end} tells {contact} {told:?} although only {fresh:?} is new");
        heard.extend(covered);
    }
    for group in groups {
        let last = alerts(group).max_by_key(|alert| alert.raised_at_ms).expect("an alert");
        let alert =
            deliveries::show(partitions.partition_of(&group.subject), &[], &DeliveryId::derive(&last.id, &id)).await;
        if alert.expect("redis answers").expect("a delivery").delivery.state == DeliveryState::Expired {
            assert!(!received.alerts.contains(&last.id), "{contact} was told of {} before it ended", last.id);
            continue;
        }
        assert!(heard.contains(&last.id), "{contact} never heard that {} has ended", last.id);
    }
}
