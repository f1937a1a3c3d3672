//! Two real daemons that share eight partitions, repeatedly killed with SIGKILL while limits are raised and lowered and
//! units are given back. Afterwards each end was raised once, its contact got it once and after its alert, and no alert
//! that is open is told as ended. `QUOTABELL_TEST_SEED` repeats a run's events and choices.

use std::collections::{BTreeMap, BTreeSet};

use quotabell::ledger::alert_ends;
use quotabell::ledger::batch::MetricPeriod;
use quotabell::outbox::totals;
use quotabell::redis_client::{Partition, Partitions};
use quotabell::types::{Alert, AlertId, ContactId, DeliveryId, Metric, ResolvedNotice, Subject, Threshold, keys};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::seed::seed_of_run;
use crate::support::daemon::{Daemon, DaemonSetup, own_address};
use crate::support::eventually::eventually;
use crate::support::raised_notices::raised_once;
use crate::support::receivers::HttpCatcher;
use crate::support::redis_server::RedisServer;
use crate::support::streams::{LIMIT, Streams};
use crate::support::webhook_receiver::{secret, verify};

/// Number of kills.
const KILLS: u32 = 30;
const SUBJECTS: usize = 40;
const CONTACT: &str = "asks";

/// What the receiver got, in the order of arrival.
#[derive(Debug, Default)]
struct Received {
    /// The ids of alerts.
    alerts: BTreeSet<String>,
    /// Subjects with an alert that was received, with its thresholds.
    reached: BTreeMap<String, BTreeSet<Threshold>>,
    /// The ids of ends.
    ends: BTreeSet<String>,
}

/// A customer would hear of an end that never comes, comes twice, or comes before its alert.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_end_is_told_once_and_after_its_alert() {
    let mut random = StdRng::seed_from_u64(seed_of_run());
    let server = RedisServer::start();
    let streams = Streams::on(&server.url(), 8).await;
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let partitions = &streams.partitions;
    for number in 0..SUBJECTS {
        let contacts = serde_json::json!([{
            "id": CONTACT, "channel": "webhook", "url": receiver.url("/"), "secret": secret(1), "resolved": true,
        }]);
        set(partitions, number, "contacts", &contacts.to_string()).await;
    }
    let setups: [DaemonSetup; 2] = [(); 2].map(|()| streams.daemon().at(own_address()));
    let mut daemons: Vec<Daemon> = setups.iter().map(DaemonSetup::spawn).collect();
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
    let raised: Vec<ResolvedNotice> =
        raised_once(partitions, "resolved").await.into_iter().map(|raised| raised.notice).collect();
    let received = received(&mut receiver, &raised);
    compare(partitions, &groups, &raised, &received).await;
    eprintln!("{} ends of {} alerts", raised.len(), received.alerts.len());
    assert!(raised.len() >= SUBJECTS && received.alerts.len() > SUBJECTS, "too little happened");
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
    match random.random_range(0..10) {
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

/// What arrived, checked in its order: no end before one of its alerts.
fn received(receiver: &mut HttpCatcher, raised: &[ResolvedNotice]) -> Received {
    let alerts_of: BTreeMap<&str, &ResolvedNotice> = raised.iter().map(|notice| (notice.id.as_str(), notice)).collect();
    let mut received = Received::default();
    while let Some(request) = receiver.try_next() {
        let message = verify(&request, &secret(1));
        let data = &message.body["data"];
        match message.body["type"].as_str().expect("a type") {
            "quota.threshold_reached" => {
                let of = received.reached.entry(data["subject"].as_str().expect("a subject").to_owned()).or_default();
                of.insert(serde_json::from_value(data["threshold_percent"].clone()).expect("a threshold"));
                received.alerts.insert(message.id);
            }
            "quota.resolved" => {
                let notice = alerts_of[message.id.as_str()];
                let is_known = |alert: &AlertId| received.alerts.contains(alert.as_str());
                assert!(notice.alerts.iter().any(is_known), "{} came before its alerts", message.id);
                // An attempt whose answer was lost is repeated.
                received.ends.insert(message.id);
            }
            other => panic!("{other}"),
        }
    }
    received
}

/// Each alert is covered by one end; each end was delivered, or a later one told the contact of it.
async fn compare(
    partitions: &Partitions,
    groups: &[alert_ends::AlertGroup],
    raised: &[ResolvedNotice],
    received: &Received,
) {
    let mut covered: Vec<&AlertId> = raised.iter().flat_map(|notice| &notice.alerts).collect();
    covered.sort_unstable();
    let mut expected: Vec<&AlertId> = groups.iter().flat_map(alerts).map(|alert| &alert.id).collect();
    expected.sort_unstable();
    assert_eq!(covered, expected, "each alert has one end");
    let contact = ContactId::from_stored(CONTACT);
    for notice in raised {
        let Partition { client, keys } = partitions.partition_of(&notice.subject);
        let key = keys.delivery(&DeliveryId::of_notification(&notice.id, &contact));
        let state: String = client.query(redis::cmd("HGET").arg(key).arg("state")).await.expect("answered");
        assert_eq!(state == "delivered", received.ends.contains(&notice.id), "{} is {state}", notice.id);
        let is_last = groups.iter().any(|group| {
            group.subject == notice.subject
                && alerts(group)
                    .max_by_key(|alert| alert.raised_at_ms)
                    .is_some_and(|last| notice.alerts.contains(&last.id))
        });
        assert!(state == "delivered" || state == "expired" && !is_last, "{} is {state}", notice.id);
        let bucket = keys::bucket(notice.subject.as_str());
        let ttl: i64 = client
            .query(redis::cmd("TTL").arg(keys.raised(&notice.metric, notice.period, bucket)))
            .await
            .expect("answered");
        assert!(ttl > 0, "the ends expire with the records");
    }
}
