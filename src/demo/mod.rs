//! `demo`: the whole job on one machine, in under a minute.
//!
//! Starts a Redis, receivers for mail and webhooks and the real daemon as a child process, sends traffic, kills the daemon in the
//! middle of it, and compares what is expected with what is seen. Whatever it starts it stops by its process id, however it ends.
//! Reads no configuration. Read next: `cast`, who uses what, and `compare`, which can say no.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use tokio::sync::watch;

use crate::ledger::query;
use crate::terminal::hint;
use crate::terminal::output::{Format, FormatArgs};
use crate::types::Keys;
use crate::types::keys::SUBJECT_PREFIX;
use crate::wire::{RedisClient, RedisEndpoint};

mod books;
mod cast;
mod compare;
mod daemon;
mod folder;
mod follow;
mod gauges;
mod inbox;
pub mod mail;
pub mod receivers;
mod screen;
mod stage;
mod summary;
mod traffic;
mod words;

use books::Books;
use cast::{Actor, Receivers};
use compare::{Check, Expected, Seen, compare};
use daemon::{Daemon, Wiring};
use folder::Fate;
use follow::Follower;
use gauges::Gauges;
use inbox::Inbox;
use screen::{About, Colour, Screen};
use stage::{Interrupts, Stage};
use traffic::{Destination, Traffic};
use words::grouped;

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

    let fate = if args.keep { Fate::Kept } else { Fate::Removed };
    // Not given up half-way by a signal: a server that is being started has nobody yet who would stop it.
    let mut stage = Stage::set(fate).await?;
    let duration = if args.fast { TRAFFIC_FAST } else { TRAFFIC };
    let played = tokio::select! {
        played = play(&mut stage, &screen, duration) => played,
        () = interrupts.next() => Err(hint::failed("interrupted", "everything that was started is stopped")),
    };
    let kept = (stage.folder.fate() == Fate::Kept).then(|| stage.folder.path().to_owned());
    let cleared = stage.clear().await;
    if let Some(path) = kept {
        screen.line(format_args!("\nkept: {} (demo.toml, daemon-1.log, daemon-2.log, redis/)", path.display()))?;
    }
    let checks = played?;
    cleared?;
    summary::show(&screen, format, &checks)?;
    if format == Format::Table { summary::show_next(&screen) } else { Ok(()) }
}

/// Plays everything, and judges it.
async fn play(stage: &mut Stage, screen: &Screen, duration: Duration) -> anyhow::Result<Vec<Check>> {
    let mut inbox = Inbox::start().await.context("start the receivers of mail and webhooks")?;
    let port = stage.redis.port();
    let target = RedisEndpoint::local(port);
    let keys = Keys::new(STREAM);
    // Two connections, as in life: one is the producers', the other looks at the books.
    let producer = RedisClient::new(target.client()?);
    let mut books = Books::new(RedisClient::new(target.client()?), keys.clone());
    let now = books.now().await?;
    let (steady, flaky) = (inbox.steady.url(""), inbox.flaky.url(""));
    let cast = cast::cast(now, Receivers { steady: &steady, flaky: &flaky })?;
    let traffic = Traffic::plan(&cast);
    books.write_subjects(&cast).await?;
    set_the_scene(screen, stage, &inbox, &cast)?;

    let smtp_url = inbox.mail.url();
    let configuration = daemon::configure(stage.folder.path(), &Wiring { redis_port: port, smtp_url: &smtp_url })?;
    let daemon = stage.daemon.insert(Daemon::start(&configuration, stage.folder.path().join("daemon-1.log"), None)?);
    let address = daemon.ready().await?;
    let pid = daemon.pid();
    screen.say(About::Scene("daemon"), format_args!("quotabell run (pid {pid}), http://{address}/metrics"))?;
    let seconds = duration.as_secs();
    let events = grouped(traffic.len());
    screen.say(
        About::Scene("traffic"),
        format_args!("{events} usage events in {seconds} s: XADD usage * subject alice ..."),
    )?;
    screen.line("")?;

    let (sent, sent_so_far) = watch::channel(0);
    let taken_over = Cell::new(None);
    let mut follower = Follower {
        screen,
        gauges: Gauges::new(screen, &cast, traffic.len()),
        cast: &cast,
        inbox: &mut inbox,
        books: &mut books,
        sent: sent_so_far.clone(),
        events: traffic.len(),
        taken_over: &taken_over,
        arrivals: Vec::new(),
    };
    let destination = Destination { client: &producer, stream: keys.stream(), cast: &cast, now, sent: &sent };
    let act = Act {
        screen,
        configuration: &configuration,
        address,
        log: stage.folder.path().join("daemon-2.log"),
        client: &producer,
        keys: &keys,
        kill_after: traffic.len() * KILL_AT_PERCENT / 100,
        taken_over: &taken_over,
    };
    let performance = async {
        tokio::select! {
            failed = act.kill_and_replace(daemon, sent_so_far) => failed.map(|never| match never {}),
            done = async { tokio::try_join!(traffic.send(&destination, duration), follower.follow()) } => done.map(|_| ()),
        }
    };
    match tokio::time::timeout(WITHIN.saturating_sub(screen.elapsed()), performance).await {
        Ok(performed) => performed?,
        // What is missing shows in the summary.
        Err(_) => screen.say(About::Failed, format_args!("not everything was done within {} s", WITHIN.as_secs()))?,
    }

    let ended = compare::ended(daemon.drain().await?);
    follower.take_the_rest()?;
    follower.gauges.clear();
    screen.say(About::Daemon, format_args!("drained after SIGTERM, {ended}"))?;
    let arrivals = std::mem::take(&mut follower.arrivals);
    drop(follower);
    let seen = Seen { books: books.last_page(&cast).await?, arrivals, taken_over: taken_over.get(), ended };
    Ok(compare(&Expected { cast: &cast, traffic: &traffic }, &seen))
}

fn set_the_scene(screen: &Screen, stage: &Stage, inbox: &Inbox, cast: &[Actor]) -> anyhow::Result<()> {
    let (info, port, pid) = (stage.redis.info(), stage.redis.port(), stage.redis.pid());
    let folder = stage.folder.path().display();
    screen.say(About::Scene("folder"), folder)?;
    screen.say(About::Scene("redis"), format_args!("{} on 127.0.0.1:{port} (pid {pid})", info.version))?;
    screen.say(About::Scene("mail"), format_args!("{} takes mail", inbox.mail.url()))?;
    screen.say(About::Scene("webhooks"), format_args!("{} checks signatures", inbox.steady.url("")))?;
    let failures = inbox::FAILURES;
    screen.say(About::Scene(""), format_args!("{} fails {failures} times first", inbox.flaky.url("/frank")))?;
    let written = cast.iter().filter(|actor| !actor.fields.is_empty()).count();
    screen.say(
        About::Scene("subjects"),
        format_args!("{written} by HSET {SUBJECT_PREFIX}alice plan free ..., one without contacts"),
    )
}

/// The daemon's part.
struct Act<'a> {
    screen: &'a Screen,
    configuration: &'a std::path::Path,
    /// Where the daemon listens.
    address: std::net::SocketAddr,
    log: std::path::PathBuf,
    client: &'a RedisClient,
    keys: &'a Keys,
    /// After how many events.
    kill_after: u64,
    taken_over: &'a Cell<Option<Instant>>,
}

impl Act<'_> {
    /// Kills the daemon in the middle of the traffic and starts another; ends only when one of them ends by itself.
    async fn kill_and_replace(self, daemon: &mut Daemon, mut sent: watch::Receiver<u64>) -> anyhow::Result<Infallible> {
        tokio::select! {
            failed = daemon.failed() => return Err(failed),
            reached = sent.wait_for(|sent| *sent >= self.kill_after) => reached.context("wait for the traffic")?,
        };
        let pid = daemon.pid();
        daemon.kill().await?;
        let after = grouped(*sent.borrow());
        self.screen.say(About::Kill, format_args!("the daemon (pid {pid}) is dead after {after} events"))?;
        *daemon = Daemon::start(self.configuration, self.log.clone(), Some(self.address))?;
        let unread = query::lag(self.client, self.keys).await.context("read the lag")?;
        daemon.ready().await?;
        self.taken_over.set(Some(Instant::now()));
        let (pid, unread) = (daemon.pid(), grouped(unread));
        self.screen
            .say(About::Daemon, format_args!("another (pid {pid}) adopts what lies in Redis, {unread} unread"))?;
        Err(daemon.failed().await)
    }
}
