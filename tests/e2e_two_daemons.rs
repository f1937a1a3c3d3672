//! Two daemons at once on one Redis: counts stay right and sends stay single.

mod support;

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use support::daemon::DaemonSetup;
use support::eventually::eventually;
use support::outbox::Outbox;
use support::redis_server::RedisServer;

/// The largest counter.
const COUNT_MAX: u64 = (1 << 53) - 1;
/// How much fits into each counter when the test begins.
const ROOM: u64 = 2_000;
const SUBJECTS: usize = 12;
const EVENTS: usize = 6_000;

/// After a race for a nearly full counter a daemon must not remember the room that its own failed commit would have used: it would
/// refuse events that fit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_for_full_counters_refuses_only_what_does_not_fit() {
    let seed =
        std::env::var("QUOTABELL_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    eprintln!("QUOTABELL_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let outbox = Outbox::on(RedisServer::start());
    // Small batches, many commits, many races.
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__STREAM__BATCH_ENTRIES", "5");
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut refused = 0_u64;
    let mut pipeline = redis::pipe();
    let mut add = |subject: String, units: u64| {
        pipeline.cmd("XADD").arg("usage").arg("*").arg("subject").arg(&subject).arg("units").arg(units).ignore();
        let count = counts.entry(subject).or_default();
        if *count + units > COUNT_MAX {
            refused += 1;
        } else {
            *count += units;
        }
    };
    for number in 0..SUBJECTS {
        add(format!("s{number}"), COUNT_MAX - ROOM);
    }
    for _ in 0..EVENTS {
        let bits = random.random_range(0..9);
        add(format!("s{}", random.random_range(0..SUBJECTS)), 1 << bits);
    }
    let first = setup.start().await;
    let second = setup.clone().env("QUOTABELL__LOG__LEVEL", "debug").start().await;
    first.drain().await;
    let () = outbox.link.pipe(&pipeline).await.expect("they are added");
    eventually("everything is judged", || async {
        let totals = outbox.totals().await;
        (totals.counted + totals.refused == (SUBJECTS + EVENTS) as u64).then_some(())
    })
    .await;
    let mut stored: BTreeMap<String, u64> = BTreeMap::new();
    let names: Vec<String> = outbox.run("KEYS", "quota_usage:{usage}:*").await;
    for name in names {
        stored.extend(outbox.run::<BTreeMap<String, u64>>("HGETALL", &name).await);
    }
    assert_eq!(stored, counts);
    assert_eq!(outbox.totals().await.refused, refused);

    second.drain().await;
}
