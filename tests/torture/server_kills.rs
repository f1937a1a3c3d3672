//! A server with an append-only file that is repeatedly killed under load, with `appendfsync` everysec and always.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::redis_server::RedisServer;

use crate::load::LoadKind;
use crate::trial::{Deployment, Told, Trial};

/// Runs the scenario; a round is a kill, half of the rounds with each setting.
pub async fn run(trial: Trial) -> Told {
    let always = play(Trial { rounds: trial.rounds.div_ceil(2), deadline: trial.half_time(), ..trial }, "always").await;
    let mut told = play(Trial { rounds: trial.rounds / 2, ..trial }, "everysec").await;
    if always.absent > 0 {
        told.findings.lost.push(format!("{} entries that were synced before they were acknowledged", always.absent));
    }
    let tried = format!("{} and {}", always.tried, told.tried);
    told.extend(always);
    Told { tried, ..told }
}

async fn play(trial: Trial, sync: &str) -> Told {
    let mut server = RedisServer::start_with(&["--save", "", "--appendonly", "yes", "--appendfsync", sync]);
    let deployment = Deployment::open(&server.url(), trial).await;
    let mut random = StdRng::seed_from_u64(trial.seed ^ 3);
    let daemon = deployment.daemon(&server.url()).start().await;
    let load = deployment.produce(LoadKind::Traffic);
    let mut kills = 0;
    while trial.goes_on(kills) {
        deployment.reads_on(random.random_range(1..400), std::time::Duration::from_secs(30)).await;
        deployment.round_trips(random.random_range(0..100)).await;
        server.kill();
        server.restart();
        kills += 1;
    }
    let told = deployment.compare(load).await;
    daemon.drain().await;
    Told { tried: format!("{kills} kills of a server that syncs {sync}"), ..told }
}
