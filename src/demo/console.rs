//! The end of a demonstration with `--console`: a daemon with a console shows what has happened, until Ctrl-C.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::interval;

use super::daemon::{self, CONFIGURATION, Daemon};
use super::environment::DemoEnvironment;
use super::received::LocalReceivers;
use super::screen::Screen;
use crate::terminal::hint;

/// Interval between two checks of the daemon.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Starts the daemon, logs the user in and receives what is sent. Never returns without an error.
pub(super) async fn stay(
    environment: &mut DemoEnvironment,
    mut receivers: LocalReceivers,
    screen: &Screen,
) -> anyhow::Result<()> {
    let folder = environment.folder.path.as_path();
    let daemon = environment.daemon.insert(Daemon::start(folder, "daemon-3.log", None, "127.0.0.1:0")?);
    daemon.ready().await?;
    let address = daemon.address("the console listens")?;
    let path = folder.join(CONFIGURATION);
    // The command below finds the console by it, and so does the user later.
    let added = OpenOptions::new().append(true).open(&path);
    let added = added.and_then(|mut file| writeln!(file, "console.listen = \"{address}\""));
    added.with_context(|| format!("write {}", path.display()))?;
    screen.line("\nThe console shows all of it, until Ctrl-C:")?;
    let printed = daemon::quotabell(folder, "console")?.status().await;
    if !printed.context("run quotabell console")?.success() {
        return Err(hint::failed("the console gave no login", format_args!("http://{address}/ shows it without one")));
    }
    screen.line(format_args!("Later: quotabell console --config {}", path.display()))?;
    let mut looks = interval(LOOK_EVERY);
    loop {
        tokio::select! {
            _ = looks.tick() => daemon.check_running()?,
            _ = receivers.next(&[]) => {}
        }
    }
}
