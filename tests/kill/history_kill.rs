//! Archiving of past days while the daemon is killed with SIGKILL at random moments: the usage of each day is known
//! afterwards, counted once. `QUOTABELL_TEST_SEED` repeats a run's events and choices.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::seed::seed_of_run;
use crate::support::daemon::{DaemonSetup, READY, own_address};
use crate::support::eventually::eventually;
use crate::support::outbox::{Outbox, subject};
use quotabell::ledger::daily_usage;
use quotabell::types::{Day, Metric, UnixMs};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Number of kills.
const KILLS: i64 = 20;
/// Enough subjects that one call never archives a whole day.
const SUBJECTS: u32 = 300;
/// Number of past days: the ids of entries are on these days, in order.
const DAYS: i64 = 10;
/// Maximum time to wait for slices: a day may have none left.
const SLICES_WITHIN: Duration = Duration::from_secs(5);
const DAY_MS: i64 = 86_400_000;

/// A day is archived in slices. A restarted archiving must neither lose a counter nor count it twice. These days are
/// over by the server's clock, so an entry may change a day that is already archived, which is then archived again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_day_is_archived_as_it_was_counted_whenever_the_daemon_is_killed() {
    let mut random = StdRng::seed_from_u64(seed_of_run());
    let outbox = Outbox::start();
    let setup = DaemonSetup::on(&outbox.server.url())
        .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":9007199254740991}"#)
        // Always the same, so that no daemon waits for the previous one's lease.
        .at(own_address());
    let (seconds, _): (i64, i64) = outbox.run("TIME", &[] as &[&str]).await;
    let first = Day::in_utc(UnixMs(seconds * 1000)).and_then(|today| today.before(13)).expect("in range");
    let begins = first.since_epoch() * DAY_MS;
    let days: Vec<Day> = (0..DAYS).filter_map(|ahead| Day::of_epoch(first.since_epoch() + ahead)).collect();
    let mut used: BTreeMap<(u32, Day), u64> = BTreeMap::new();
    let (mut entries, mut half_way, mut commits) = (0, 0, 0);
    let mut add = async |ms: i64, random: &mut StdRng, count: u32| {
        let mut adds = redis::pipe();
        for seq in 0..count {
            let (who, units) = (random.random_range(0..SUBJECTS), random.random_range(1..100_u64));
            adds.cmd("XADD").arg("usage").arg(format!("{ms}-{}", seq + 1)).arg("subject").arg(format!("s{who}"));
            adds.arg("units").arg(units).ignore();
            *used.entry((who, Day::in_utc(UnixMs(ms)).expect("in range"))).or_default() += units;
        }
        let () = outbox.client.pipe(&adds).await.expect("added");
    };
    for kill in 0..KILLS {
        let (at, count) = (begins + kill * DAYS * DAY_MS / KILLS, random.random_range(150..600));
        entries += u64::from(count);
        let mut daemon;
        if random.random_bool(0.4) {
            // Directly after a commit to archived days.
            daemon = setup.start().await;
            eventually("all days are archived", || async { are_archived(&outbox, &days).await.then_some(()) }).await;
            add(at, &mut random, count).await;
            while read(&outbox).await < entries {}
            commits += 1;
        } else {
            add(at, &mut random, count).await;
            daemon = setup.spawn();
            daemon.says(READY).await;
            // A daemon archives days of an earlier one after it has read the stream to its end: oldest first, about a
            // hundred counters ten times a second.
            let _ = tokio::time::timeout(SLICES_WITHIN, slices(&outbox, &days, random.random_range(1..3))).await;
            for _ in 0..random.random_range(0..200) {
                let _: String = outbox.run("PING", &[] as &[&str]).await;
            }
        }
        daemon.kill().await;
        let reached = progress(&outbox, &days).await;
        half_way += u64::from(reached.iter().flatten().any(|reached| !is_done(reached)));
    }
    // After this entry is counted, all days are over.
    add(seconds * 1000, &mut random, 1).await;
    entries += 1;
    let survivor = setup.start().await;
    eventually("everything is counted, and each day archived", || async {
        (read(&outbox).await == entries && are_archived(&outbox, &days).await).then_some(())
    })
    .await;
    survivor.drain().await;
    for who in 0..SUBJECTS {
        let of = subject(&format!("s{who}"));
        // Without reading the counters themselves.
        let known = daily_usage::read(&outbox.client, &outbox.keys, &of, None, &[]).await.expect("redis answers");
        let known = known.get(&Metric::default()).cloned().unwrap_or_default();
        let expected: BTreeMap<Day, u64> =
            days.iter().filter_map(|day| Some((*day, *used.get(&(who, *day))?))).collect();
        assert_eq!(known, expected, "{of}");
    }
    eprintln!(
        "{KILLS} kills, {half_way} of them with a day half archived, {commits} right behind a commit; {entries} events"
    );
    assert!(half_way > 2, "too little was cut off: {half_way}");
}

/// The progress of each day.
async fn progress(outbox: &Outbox, days: &[Day]) -> Vec<Option<String>> {
    let mut look = redis::pipe();
    for day in days {
        look.cmd("HGET").arg(outbox.keys.history_progress(*day)).arg(Metric::default().as_str());
    }
    outbox.client.pipe(&look).await.expect("redis answers")
}

/// Whether all counters of these days are archived.
async fn are_archived(outbox: &Outbox, days: &[Day]) -> bool {
    let keys: Vec<String> = days.iter().map(|day| outbox.keys.metrics(*day)).collect();
    let mut are_done = true;
    for (reached, metrics) in progress(outbox, days).await.iter().zip(&keys) {
        // A day without counters has nothing to archive.
        let is_counted: bool = outbox.run("EXISTS", metrics).await;
        are_done &= !is_counted || reached.as_deref().is_some_and(is_done);
    }
    are_done
}

/// Number of entries read.
async fn read(outbox: &Outbox) -> u64 {
    let read: Option<u64> = outbox.run("HGET", &[outbox.keys.checkpoint().as_str(), "entries_read"]).await;
    read.unwrap_or(0)
}

/// Whether this is the last step.
fn is_done(reached: &str) -> bool {
    reached.starts_with("512:")
}

/// Waits until this number of slices is archived.
async fn slices(outbox: &Outbox, days: &[Day], count: u32) {
    for _ in 0..count {
        let before = progress(outbox, days).await;
        while progress(outbox, days).await == before {}
    }
}
