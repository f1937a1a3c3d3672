//! `demo`: the whole job on one machine, in under a minute.
//!
//! Starts a Redis, receivers for mail and webhooks and the real daemon as a child process, sends traffic, kills the daemon in the
//! middle of it, and compares what is expected with what is seen. Whatever it starts it stops by its process id, however it ends.
//! Reads no configuration. Read next: `scenario`, the subjects and what they use; `compare`, which finds what is wrong.

use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use tokio::sync::watch;

use crate::ledger::query;
use crate::terminal::hint;
use crate::terminal::output::{Format, FormatArgs};
use crate::types::keys::SUBJECT_PREFIX_DEFAULT;
use crate::types::{Keys, UnixMs};
use crate::wire::{RedisClient, RedisEndpoint};

mod compare;
mod daemon;
mod environment;
pub mod mail;
mod monitor;
mod number_format;
mod progress;
mod received;
pub mod receivers;
mod redis_state;
mod scenario;
mod screen;
mod summary;
mod temp_folder;
mod traffic;

use compare::{Comparison, ExpectedRun, ObservedRun, compare};
use daemon::{Daemon, DaemonEndpoints};
use environment::{DemoEnvironment, Interrupts};
use monitor::Monitor;
use number_format::grouped;
use progress::ProgressDisplay;
use received::LocalReceivers;
use redis_state::StateReader;
use scenario::{ReceiverUrls, SimulatedSubject};
use screen::{Colour, LineKind, Screen};
use temp_folder::FolderCleanup;
use traffic::{Traffic, TrafficTarget};

/// The stream's name, as in the defaults.
const STREAM: &str = "usage";
/// How long the traffic lasts.
const TRAFFIC: Duration = Duration::from_secs(12);
/// The same with `--fast`.
const TRAFFIC_FAST: Duration = Duration::from_secs(4);
/// How long everything may take until the summary; the daemon needs some seconds more when it does not drain.
const WITHIN: Duration = Duration::from_secs(50);
/// The share of the traffic after which the daemon is killed, in percent.
const KILL_AT_PERCENT: u64 = 45;

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(
    after_help = "Needs no configuration and reads none. Starts a Redis, a catcher for mail and webhooks and the daemon, all on \
    free ports and in a temporary folder; sends some 35,000 usage events for eight subjects, kills the daemon in the middle of \
    them, shows the alerts as they arrive, and ends with a table of what was expected and what was seen. Exit 1 when a count, an \
    alert, a delivery or a refusal is missing, doubled or wrong.

Examples:
  quotabell demo
  quotabell demo --keep
  quotabell demo --fast --json | jq .ok"
)]
pub struct DemoArgs {
    /// Send the same traffic in a third of the time
    #[arg(long)]
    pub fast: bool,
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
/// When a part can't be started, when it is interrupted, or when a number is not as expected. Nothing is left running.
pub async fn run(args: DemoArgs) -> anyhow::Result<()> {
    let mut interrupts = Interrupts::listen()?;
    let format = args.format.format();
    let screen = Screen::new(format);
    screen.line(screen.paint(Colour::Bold, "quotabell demo: the whole job on one machine, in under a minute"))?;
    screen.line("")?;

    let cleanup = if args.keep { FolderCleanup::Keep } else { FolderCleanup::Remove };
    // A signal does not cancel this: a server that is still starting has no owner yet that would stop it.
    let mut environment = DemoEnvironment::start(cleanup).await?;
    let duration = if args.fast { TRAFFIC_FAST } else { TRAFFIC };
    let outcome = tokio::select! {
        outcome = run_scenario(&mut environment, &screen, duration) => outcome,
        () = interrupts.next() => Err(hint::failed("interrupted", "everything that was started is stopped")),
    };
    let kept = (environment.folder.cleanup() == FolderCleanup::Keep).then(|| environment.folder.path().to_owned());
    let cleared = environment.stop().await;
    if let Some(path) = kept {
        screen.line(format_args!("\nkept: {} (demo.toml, daemon-1.log, daemon-2.log, redis/)", path.display()))?;
    }
    let checks = outcome?;
    cleared?;
    summary::show(&screen, format, &checks)?;
    if format == Format::Table { summary::show_next(&screen) } else { Ok(()) }
}

/// Sends the traffic, kills the daemon in the middle of it, and compares what was expected with what was seen.
async fn run_scenario(
    environment: &mut DemoEnvironment,
    screen: &Screen,
    duration: Duration,
) -> anyhow::Result<Vec<Comparison>> {
    let mut receivers = LocalReceivers::start().await.context("start the receivers of mail and webhooks")?;
    let port = environment.redis.port();
    let target = RedisEndpoint::local(port);
    let keys = Keys::new(STREAM);
    // Two connections: the producers have one, the other reads what the daemon wrote.
    let producer = target.client(keys.stream())?;
    let mut state = StateReader::new(target.client(keys.stream())?, keys.clone());
    let now = state.now().await?;
    let (steady, flaky) = (receivers.steady.url(""), receivers.flaky.url(""));
    let subjects = scenario::subjects(now, ReceiverUrls { steady: &steady, flaky: &flaky })?;
    let traffic = Traffic::plan(&subjects);
    state.write_subjects(&subjects).await?;
    print_setup(screen, environment, &receivers, &subjects)?;

    let folder = environment.folder.path().to_owned();
    let endpoints = DaemonEndpoints { redis_port: port, smtp_url: &receivers.mail.url() };
    let configuration = daemon::configure(&folder, &endpoints)?;
    let daemon = environment.daemon.insert(Daemon::start(&configuration, folder.join("daemon-1.log"), None)?);
    let address = daemon.ready().await?;
    let pid = daemon.pid();
    screen.say(LineKind::Setup("daemon"), format_args!("quotabell run (pid {pid}), http://{address}/metrics"))?;
    let seconds = duration.as_secs();
    let events = grouped(traffic.len());
    screen.say(
        LineKind::Setup("traffic"),
        format_args!("{events} usage events in {seconds} s: XADD usage * subject alice ..."),
    )?;
    screen.line("")?;

    let run = Run { screen, subjects: &subjects, traffic: &traffic, keys: &keys, producer: &producer, now, duration };
    let replacement = Replacement { configuration: &configuration, address, log: folder.join("daemon-2.log") };
    let seen = run.observe(daemon, &replacement, &mut receivers, &mut state).await?;
    Ok(compare(&ExpectedRun { subjects: &subjects, traffic: &traffic }, &seen))
}
fn print_setup(
    screen: &Screen,
    environment: &DemoEnvironment,
    receivers: &LocalReceivers,
    subjects: &[SimulatedSubject],
) -> anyhow::Result<()> {
    let (info, port, pid) = (environment.redis.info(), environment.redis.port(), environment.redis.pid());
    let folder = environment.folder.path().display();
    screen.say(LineKind::Setup("folder"), folder)?;
    screen.say(LineKind::Setup("redis"), format_args!("{} on 127.0.0.1:{port} (pid {pid})", info.version))?;
    screen.say(LineKind::Setup("mail"), format_args!("{} takes mail", receivers.mail.url()))?;
    screen.say(LineKind::Setup("webhooks"), format_args!("{} checks signatures", receivers.steady.url("")))?;
    let failures = received::FAILURES;
    screen.say(LineKind::Setup(""), format_args!("{} fails {failures} times first", receivers.flaky.url("/frank")))?;
    let written = subjects.iter().filter(|simulated| !simulated.fields.is_empty()).count();
    screen.say(
        LineKind::Setup("subjects"),
        format_args!("{written} by HSET {SUBJECT_PREFIX_DEFAULT}alice plan free ..., one without contacts"),
    )
}

/// The traffic of one demonstration, and who sends it.
struct Run<'a> {
    screen: &'a Screen,
    subjects: &'a [SimulatedSubject],
    traffic: &'a Traffic,
    keys: &'a Keys,
    producer: &'a RedisClient,
    /// The time that all events bear.
    now: UnixMs,
    duration: Duration,
}

/// How the second daemon is started after the first was killed.
struct Replacement<'a> {
    configuration: &'a Path,
    /// Where the first daemon listened.
    address: SocketAddr,
    log: PathBuf,
}

impl Run<'_> {
    /// Sends the traffic, replaces the daemon in the middle of it, follows what arrives, and drains the daemon.
    async fn observe(
        &self,
        daemon: &mut Daemon,
        replacement: &Replacement<'_>,
        receivers: &mut LocalReceivers,
        state: &mut StateReader,
    ) -> anyhow::Result<ObservedRun> {
        let Self { screen, subjects, traffic, producer, now, .. } = *self;
        let (sent, sent_so_far) = watch::channel(0);
        let taken_over = Cell::new(None);
        let mut monitor = Monitor {
            screen,
            progress: ProgressDisplay::new(screen, subjects, traffic.len()),
            subjects,
            receivers,
            state,
            sent: sent_so_far.clone(),
            events: traffic.len(),
            taken_over: &taken_over,
            arrivals: Vec::new(),
        };
        let target = TrafficTarget { client: producer, stream: self.keys.stream(), subjects, now, sent: &sent };
        let all = async {
            tokio::select! {
                failed = self.kill_and_replace(daemon, replacement, sent_so_far, &taken_over) => failed.map(|never| match never {}),
                done = async { tokio::try_join!(traffic.send(&target, self.duration), monitor.run()) } => done.map(|_| ()),
            }
        };
        match tokio::time::timeout(WITHIN.saturating_sub(screen.elapsed()), all).await {
            Ok(done) => done?,
            // What is missing shows in the summary.
            Err(_) => {
                screen.say(LineKind::Failed, format_args!("not everything was done within {} s", WITHIN.as_secs()))?;
            }
        }
        let ended = compare::ended(daemon.drain().await?);
        monitor.take_remaining()?;
        monitor.progress.clear();
        screen.say(LineKind::Daemon, format_args!("drained after SIGTERM, {ended}"))?;
        let arrivals = std::mem::take(&mut monitor.arrivals);
        let state = monitor.state.final_state(subjects).await?;
        Ok(ObservedRun { state, arrivals, taken_over: taken_over.get(), ended })
    }

    /// Kills the daemon in the middle of the traffic and starts another. Ends only when one of them ends by itself.
    async fn kill_and_replace(
        &self,
        daemon: &mut Daemon,
        Replacement { configuration, address, log }: &Replacement<'_>,
        mut sent: watch::Receiver<u64>,
        taken_over: &Cell<Option<Instant>>,
    ) -> anyhow::Result<Infallible> {
        let kill_after = self.traffic.len() * KILL_AT_PERCENT / 100;
        tokio::select! {
            failed = daemon.failed() => return Err(failed),
            reached = sent.wait_for(|sent| *sent >= kill_after) => reached.context("wait for the traffic")?,
        };
        let pid = daemon.pid();
        daemon.kill().await?;
        let after = grouped(*sent.borrow());
        self.screen.say(LineKind::Kill, format_args!("the daemon (pid {pid}) is dead after {after} events"))?;
        *daemon = Daemon::start(configuration, log.clone(), Some(*address))?;
        let unread = query::lag(self.producer, self.keys).await.context("read the lag")?;
        daemon.ready().await?;
        taken_over.set(Some(Instant::now()));
        let (pid, unread) = (daemon.pid(), grouped(unread));
        self.screen.say(
            LineKind::Daemon,
            format_args!("another (pid {pid}) continues with what is in Redis, {unread} unread"),
        )?;
        Err(daemon.failed().await)
    }
}
