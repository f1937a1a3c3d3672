//! Three daemons that are killed or paused one after another at random moments: in starts, reads, commits and fan-outs.

use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::daemon::{Daemon, DaemonSetup, READY, own_address};
use crate::support::redis_server::RedisServer;

use crate::load::LoadKind;
use crate::trial::{Deployment, Told, Trial};

const DAEMONS: usize = 3;
/// Maximum time to wait for a daemon to read before the kill: another one may be the reader.
const READS_WITHIN: Duration = Duration::from_millis(200);

/// Runs the scenario; a round is a kill.
pub async fn run(trial: Trial) -> Told {
    let server = RedisServer::start();
    let deployment = Deployment::open(&server.url(), trial).await;
    let mut random = StdRng::seed_from_u64(trial.seed ^ 2);
    let addresses: Vec<SocketAddr> = (0..DAEMONS).map(|_| own_address()).collect();
    let setup: Vec<DaemonSetup> =
        addresses.iter().map(|address| deployment.daemon(&server.url()).at(*address)).collect();
    let mut daemons: Vec<Daemon> = setup.iter().map(DaemonSetup::spawn).collect();
    let load = deployment.produce(LoadKind::Traffic);
    let (notices, messages) = (deployment.raise_notices().await, deployment.tell().await);
    let (mut kills, mut pauses) = (0, 0);
    while trial.goes_on(kills) {
        let victim = match random.random_bool(0.5) {
            true => random.random_range(0..DAEMONS),
            false => reader(&deployment, &addresses).await.unwrap_or(0),
        };
        match random.random_range(0..10) {
            0 => deployment.round_trips(random.random_range(0..200)).await,
            1..6 => {
                daemons[victim].says(READY).await;
                deployment.round_trips(random.random_range(0..300)).await;
            }
            _ => {
                daemons[victim].says(READY).await;
                deployment.reads_on(1, READS_WITHIN).await;
                deployment.round_trips(random.random_range(0..20)).await;
            }
        }
        if random.random_range(0..60) == 0 {
            // Its lease may end meanwhile, and its batch become old.
            daemons[victim].signal(Signal::SIGSTOP);
            let pause = Duration::from_millis(random.random_range(100..7_000));
            let _ = tokio::time::timeout(pause, std::future::pending::<()>()).await;
            daemons[victim].signal(Signal::SIGCONT);
            pauses += 1;
            continue;
        }
        // Its successor listens on the same address, so this one must be gone first.
        daemons.remove(victim).kill().await;
        daemons.insert(victim, setup[victim].spawn());
        kills += 1;
    }
    let (notices, messages) = (notices.end().await, messages.end().await);
    let mut told = deployment.compare(load).await;
    // It waits until the ends of alerts are fanned out, which are among the entries that notices count.
    let messages = messages.compare(0, &mut told.findings).await;
    let notices = notices.compare(&mut told.findings).await;
    for mut daemon in daemons {
        daemon.says(READY).await;
        daemon.drain().await;
    }
    let tried = format!("{kills} kills and {pauses} pauses of {DAEMONS} daemons, {notices} notices, {messages}");
    Told { tried, ..told }
}

/// The daemon that reads a partition.
async fn reader(deployment: &Deployment, addresses: &[SocketAddr]) -> Option<usize> {
    let holders = deployment.holders().await;
    addresses.iter().position(|address| holders.iter().any(|holder| holder.contains(&format!("/{address}/"))))
}
