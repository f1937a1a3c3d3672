//! A cluster of six nodes whose slots move under load and whose primaries die. Subjects form trees.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::redis_cluster::RedisCluster;

use crate::load::LoadKind;
use crate::trial::{Deployment, Told, Trial};

const ENTRIES: u64 = 100;
const READS_WITHIN: Duration = Duration::from_secs(30);
/// A stream for each number of partitions in use.
const STREAMS: [&str; 2] = ["usage", "usage:0"];

/// Runs the scenario; a round is a move of a stream's slot, followed by the death of the node that serves it.
pub async fn run(trial: Trial) -> Told {
    let mut cluster = RedisCluster::start_of_six().await;
    let url = cluster.url("");
    let deployment = Deployment::of_trees(&url, trial).await;
    let mut random = StdRng::seed_from_u64(trial.seed ^ 7);
    let daemons = [deployment.daemon(&url).start().await, deployment.daemon(&url).start().await];
    let load = deployment.produce(LoadKind::Trees);
    let stream = STREAMS[usize::from(trial.partitions > 1)];
    let (mut moves, mut failovers) = (0, 0);
    while trial.goes_on(moves) {
        deployment.reads_on(random.random_range(1..ENTRIES), READS_WITHIN).await;
        let primaries = cluster.primaries().await;
        let from = cluster.primary_of(stream).await;
        let others: Vec<usize> = primaries.into_iter().filter(|node| *node != from).collect();
        let to = others[random.random_range(0..others.len())];
        let moving = cluster.begin_move(stream, to).await;
        deployment.round_trips(random.random_range(0..50)).await;
        while cluster.move_keys(&moving, random.random_range(1..8)).await {
            deployment.round_trips(random.random_range(0..5)).await;
        }
        cluster.end_move(moving).await;
        cluster.is_replicated(to).await;
        moves += 1;
        deployment.reads_on(random.random_range(1..ENTRIES), READS_WITHIN).await;
        cluster.is_whole().await;
        let owner = cluster.primary_of(stream).await;
        cluster.nodes[owner].kill();
        cluster.is_replaced(owner).await;
        cluster.nodes[owner].restart();
        cluster.is_whole().await;
        failovers += 1;
    }
    let told = deployment.compare(load).await;
    for daemon in daemons {
        daemon.drain().await;
    }
    Told { tried: format!("{moves} moves of a slot and {failovers} failovers in a cluster"), ..told }
}
