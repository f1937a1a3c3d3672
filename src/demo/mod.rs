//! `demo`: all functions on one machine in under a minute.
//!
//! Starts a Redis, receivers for email and webhooks, and the real daemon as a child process, sends traffic, kills the
//! daemon meanwhile, and compares expected and observed numbers. It stops everything that it started by process id,
//! even after errors. Reads no configuration. Read next: `scenario.toml`, the subjects and their usage; `run`, the
//! course of events; `compare`, the checks; `console`, how it ends with `--console`.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::terminal::hint;
use crate::terminal::output::{Format, FormatArgs};
use crate::types::PARTITIONS_MAX;

mod compare;
mod console;
mod daemon;
mod environment;
mod expected;
pub(crate) mod mail;
mod received;
pub(crate) mod receivers;
mod run;
mod scenario;
mod screen;

use environment::DemoEnvironment;
use run::DemoTraffic;
use screen::Screen;

/// Duration of the traffic.
const TRAFFIC: Duration = Duration::from_secs(12);
/// Duration of the traffic with `--fast`.
const TRAFFIC_FAST: Duration = Duration::from_secs(4);

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(
    after_help = "Needs no configuration and reads none. Starts a Redis, a catcher for mail and webhooks and the daemon, all on \
    free ports and in a temporary folder; sends some 46,000 usage events for twelve subjects, kills the daemon in the middle of \
    them, shows the alerts as they arrive, among them a forecast that comes true, the end of an alert and a digest, and ends with a table of what was expected and what was seen. Exit 1 when a count, an \
    alert, a delivery or a refusal is missing, doubled or wrong.

Examples:
  quotabell demo
  quotabell demo --console
  quotabell demo --keep
  quotabell demo --partitions 8
  quotabell demo --fast --json | jq .ok"
)]
pub struct DemoArgs {
    /// Send the same traffic in a third of the time
    #[arg(long)]
    pub fast: bool,
    /// Spread the events over N streams, 1 to 256
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(PARTITIONS_MAX)))]
    pub partitions: u32,
    /// End in the console: keep Redis, the receivers and a daemon running until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    pub console: bool,
    /// Keep the temporary folder: configuration, the daemon's logs, Redis' data
    #[arg(long)]
    pub keep: bool,
    /// How to print the summary.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Runs the demonstration.
///
/// # Errors
///
/// If a part can't be started, the demonstration is interrupted, or a number is wrong. Nothing is left running.
pub async fn run(args: DemoArgs) -> anyhow::Result<()> {
    let mut interrupted = pin!(interrupted()?);
    let screen = Screen::new(args.format.format());
    screen.line("quotabell demo: the whole job on one machine, in under a minute\n")?;
    let duration = if args.fast { TRAFFIC_FAST } else { TRAFFIC };
    let traffic = DemoTraffic { duration, partitions: args.partitions };
    // A signal does not cancel this, because a starting server has no owner yet that would stop it.
    let mut environment = DemoEnvironment::start().await?;
    environment.folder.keep = args.keep;
    let outcome = tokio::select! {
        outcome = run::run(&mut environment, &screen, traffic) => outcome,
        () = &mut interrupted => Err(hint::failed("interrupted", "everything that was started is stopped")),
    };
    let shown = outcome.and_then(|(checks, receivers)| screen.show(&checks).map(|()| receivers));
    let ended = match shown {
        Ok(receivers) if args.console => tokio::select! {
            ended = console::stay(&mut environment, receivers, &screen) => ended,
            () = &mut interrupted => Ok(()),
        },
        shown => shown.map(drop),
    };
    let path = environment.folder.path.clone();
    let stopped = environment.stop().await;
    if args.keep {
        screen.line(format_args!("\nkept: {} (demo.toml, daemon-1.log, daemon-2.log, redis/)", path.display()))?;
    }
    ended?;
    stopped?;
    if args.format.format() == Format::Table {
        screen.line("\nNext: the quick start in README.md: an alert of your own in a minute")?;
    }
    Ok(())
}

/// Listens for the signals that end the demonstration early, and completes at the first. Without this they would kill
/// the process at once and leave everything running.
fn interrupted() -> anyhow::Result<impl Future<Output = ()>> {
    let listen = |kind| signal(kind).context("listen to signals");
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}
