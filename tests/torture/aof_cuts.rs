//! An append-only file that is cut anywhere, as after a crash of the machine: the daemon must count the rest correctly.

use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::daemon::own_address;
use crate::support::redis_server::RedisServer;

use crate::load::LoadKind;
use crate::trial::{Deployment, Told, Trial};

/// Number of entries before the cut.
const ENTRIES: u64 = 3_000;
/// The server's folder for the parts of its file.
const FOLDER: &str = "appendonlydir";

/// Runs the scenario; a round is a cut.
pub async fn run(trial: Trial) -> Told {
    let mut random = StdRng::seed_from_u64(trial.seed ^ 4);
    let address = own_address();
    let mut whole = start();
    let deployment = Deployment::open(&whole.url(), trial).await;
    // A daemon on the address of the killed one need not wait for its lease to end.
    let daemon = deployment.daemon(&whole.url()).at(address).start().await;
    let load = deployment.produce(LoadKind::Traffic);
    deployment.reads_on(ENTRIES, std::time::Duration::from_secs(60)).await;
    let mut told = deployment.compare(load).await;
    daemon.kill().await;
    whole.kill();

    let file = newest(&whole.directory().join(FOLDER));
    let length = std::fs::metadata(&file).expect("the file is there").len();
    let mut cuts = 0;
    while trial.goes_on(cuts) {
        let mut server = start();
        server.kill();
        copy(&whole.directory().join(FOLDER), &server.directory().join(FOLDER));
        let at = random.random_range(0..length);
        let cut = server.directory().join(FOLDER).join(file.file_name().expect("a name"));
        std::fs::OpenOptions::new().write(true).open(cut).expect("a file").set_len(at).expect("it is cut");
        server.restart();
        let left = Deployment::open(&server.url(), trial).await;
        let daemon = left.daemon(&server.url()).at(address).start().await;
        let mut of_cut = left.compare(left.produce(LoadKind::Fuzzed(0))).await;
        if !of_cut.findings.is_clean() {
            of_cut.findings.other.push(format!("the file was cut at byte {at} of {length}"));
        }
        told.extend(of_cut);
        daemon.kill().await;
        cuts += 1;
    }
    Told { tried: format!("{cuts} cuts of an append-only file"), ..told }
}

fn start() -> RedisServer {
    RedisServer::start_with(&["--save", "", "--appendonly", "yes", "--appendfsync", "no"])
}

/// The part that the server appends to.
fn newest(folder: &Path) -> PathBuf {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).max().expect("a part that grows")
}

fn copy(from: &Path, to: &Path) {
    std::fs::remove_dir_all(to).expect("the new server's own files go");
    std::fs::create_dir(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        std::fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copied");
    }
}
