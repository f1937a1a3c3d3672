//! Three real daemons that share eight partitions, repeatedly killed with SIGKILL under traffic. Each is restarted at
//! its address, so that partitions change their reader constantly. Subjects are trees of three levels. Afterwards all
//! numbers of all levels must match a plain map.
//! `QUOTABELL_TEST_SEED` repeats a run's events and choices.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::seed::seed_of_run;
use crate::support::daemon::{Daemon, DaemonSetup, READY, own_address};
use crate::support::redis_server::RedisServer;
use crate::support::streams::Streams;

/// Number of kills.
const KILLS: u32 = 40;
/// Enough subjects that each partition has some.
const SUBJECTS: u64 = 60;

/// When a partition changes its reader, two daemons might count the same events, or none might.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_that_share_partitions_and_are_killed_count_everything_once() {
    let mut random = StdRng::seed_from_u64(seed_of_run());
    let server = RedisServer::start();
    let mut streams = Streams::of_trees(&server.url(), 8).await;
    let at = |()| streams.daemon().at(own_address());
    let setups: [DaemonSetup; 3] = [(); 3].map(at);
    let mut daemons: Vec<Daemon> = setups.iter().map(DaemonSetup::spawn).collect();
    for _ in 0..KILLS {
        let events = random.random_range(1..400);
        let subject = |number: u64| format!("org-{}/team-{}/key-{number}", number % 20, number % 3);
        let subjects: Vec<String> = (0..events).map(|_| subject(random.random_range(0..SUBJECTS))).collect();
        streams.send(subjects.into_iter()).await;
        // From the middle of a start to a few heartbeats later.
        for _ in 0..random.random_range(0..2500) {
            let _: String = streams.partitions.first().client.query(&redis::cmd("PING")).await.expect("redis answers");
        }
        let which = random.random_range(0..daemons.len());
        daemons.remove(which).kill().await;
        daemons.insert(which, setups[which].spawn());
    }
    streams.agree().await;
    for daemon in &mut daemons {
        daemon.says(READY).await;
    }
    streams.are_shared_by(3, &BTreeSet::new()).await;
    for daemon in daemons {
        daemon.drain().await;
    }
}
