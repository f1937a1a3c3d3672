//! Two daemons, each behind its own network that fails repeatedly in a random way.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::proxy::{Fault, Proxy};
use crate::support::redis_server::RedisServer;

use crate::load::LoadKind;
use crate::trial::{Deployment, Told, Trial};

/// Maximum time to wait for traffic that a fault can affect.
const MET_WITHIN: Duration = Duration::from_secs(1);

/// Runs the scenario; a round is a fault.
pub async fn run(trial: Trial) -> Told {
    let server = RedisServer::start();
    let deployment = Deployment::open(&server.url(), trial).await;
    let mut random = StdRng::seed_from_u64(trial.seed ^ 5);
    let proxies = [Proxy::to(server.port()).await, Proxy::to(server.port()).await];
    let daemons =
        [deployment.daemon(&proxies[0].url()).start().await, deployment.daemon(&proxies[1].url()).start().await];
    let load = deployment.produce(LoadKind::Traffic);
    let mut faults = 0;
    while trial.goes_on(faults) {
        let proxy = &proxies[random.random_range(0..2)];
        deployment.round_trips(random.random_range(0..100)).await;
        match random.random_range(0..9) {
            0 | 1 => once(proxy, Fault::LoseReply).await,
            2 => once(proxy, Fault::CutReply).await,
            3 => once(proxy, Fault::CutRequest).await,
            4 => once(proxy, Fault::HalfOpen).await,
            5 => lasting(proxy, Fault::Split, random.random_range(10..200)).await,
            6 => lasting(proxy, Fault::Delay(Duration::from_millis(random.random_range(1..60))), 300).await,
            // Sometimes longer than a call, than a lease, and than the maximum age of a batch.
            kind => {
                let fault = if kind == 7 { Fault::HoldReplies } else { Fault::BlackHole };
                let longest = if random.random_range(0..8) == 0 { 8_000 } else { 400 };
                lasting(proxy, fault, random.random_range(10..longest)).await;
                // Held bytes arrive late, or never.
                if random.random_bool(0.5) {
                    proxy.cut();
                }
            }
        }
        faults += 1;
    }
    let told = deployment.compare(load).await;
    for daemon in daemons {
        daemon.drain().await;
    }
    Told { tried: format!("{faults} faults of the network"), ..told }
}

/// Sets a fault, and waits until it has affected something; a daemon that stands by sends little.
async fn once(proxy: &Proxy, fault: Fault) {
    proxy.set(fault);
    let _ = tokio::time::timeout(MET_WITHIN, proxy.done()).await;
    proxy.set(Fault::None);
}

async fn lasting(proxy: &Proxy, fault: Fault, ms: u64) {
    proxy.set(fault);
    let _ = tokio::time::timeout(Duration::from_millis(ms), std::future::pending::<()>()).await;
    proxy.set(Fault::None);
}
