//! Daemons whose clocks are wrong by a day, and one with a correct clock: only the server's clock may matter.

use std::path::Path;
use std::time::Duration;

use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::redis_server::RedisServer;

use crate::load::LoadKind;
use crate::trial::{Deployment, Told, Trial};

/// Debian's package libfaketime installs it with the machine's other libraries.
const LIBRARIES: [&str; 2] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
/// Offsets of the daemons' clocks.
const OFF: [&str; 3] = ["+1d", "-1d", "+0"];
/// Number of entries that each daemon reads before another one takes over.
const ENTRIES: u64 = 300;

fn library() -> Option<String> {
    let files = LIBRARIES.iter().map(|folder| format!("{folder}/faketime/libfaketime.so.1"));
    files.into_iter().find(|file| Path::new(file).exists())
}

/// Runs the scenario; a round is a daemon that takes over.
pub async fn run(trial: Trial) -> Told {
    let Some(library) = library() else {
        let mut told = Told { tried: "0 daemons".to_owned(), ..Told::default() };
        told.findings.other.push("libfaketime is not installed: apt-get install libfaketime".to_owned());
        return told;
    };
    let server = RedisServer::start();
    let deployment = Deployment::open(&server.url(), trial).await;
    let setups = OFF.map(|off| {
        deployment
            .daemon(&server.url())
            .env("LD_PRELOAD", &library)
            .env("FAKETIME", off)
            // The monotonic clock stays correct.
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    });
    let load = deployment.produce(LoadKind::Traffic);
    let mut daemon: Daemon = setups[0].start().await;
    let mut rounds = 0;
    while trial.goes_on(rounds) {
        deployment.reads_on(ENTRIES, Duration::from_secs(30)).await;
        let setup: &DaemonSetup = &setups[usize::try_from(rounds + 1).expect("few rounds") % OFF.len()];
        let next = setup.start().await;
        // A draining daemon hands over at once.
        std::mem::replace(&mut daemon, next).drain().await;
        rounds += 1;
    }
    deployment.reads_on(ENTRIES, Duration::from_secs(30)).await;
    let told = deployment.compare(load).await;
    daemon.drain().await;
    Told { tried: format!("{} daemons with clocks a day off", rounds + 1), ..told }
}
