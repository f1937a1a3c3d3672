//! The four contenders that work off a stream. Each runs as a separate process, so that it can be pinned to a core and
//! its CPU time can be measured separately.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use quotabell::config::Config;
use quotabell::events::CountingStatus;
use quotabell::events::worker::{EventWorker, EventWorkerParts};
use quotabell::ledger::Committer;
use quotabell::ledger::commit_settings::{CommitSettings, TrimPolicy};
use quotabell::redis_client::{RedisEndpoint, StreamReader};
use quotabell::subjects::Plans;
use quotabell::subjects::watch::{ChangeFeed, ChangeListener};
use quotabell::types::{Keys, Separator, StreamId};
use redis::streams::StreamReadReply;
use redis::{Connection, IntoConnectionInfo as _, Script};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::counted::CountedEvents;
use crate::load::{self, STREAM};
use crate::machine;

/// Marks the bench's binary as a contender; its order follows as JSON.
pub const FLAG: &str = "--contender";
/// Prefix of a subject's count, for the contenders with a consumer group.
pub const GROUP_COUNT: &str = "baseline:usage:";
/// Prefix of their flags; `<percent>:<subject>` follows.
pub const GROUP_FLAG: &str = "baseline:alert:";
/// Their consumer group.
const GROUP: &str = "baseline";
/// Their number of entries per read.
const GROUP_COUNT_MAX: usize = 100;
/// Counts, and sets the TTL of the key.
const GROUP_SCRIPT: &str =
    "local v = redis.call('INCRBY', KEYS[1], ARGV[1]) redis.call('EXPIRE', KEYS[1], ARGV[2]) return v";
const GROUP_COUNT_TTL_S: u32 = 172_800;
const GROUP_FLAG_TTL_S: u32 = 108_000;

/// A contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contender {
    /// A consumer group, one command at a time.
    ConsumerGroup,
    /// The same commands, with one write per batch.
    Pipelined,
    /// `events::EventWorker` with `commit.lua`.
    Quotabell,
    /// Reads and skips: nothing that reads the stream can be faster.
    Ceiling,
}

impl Contender {
    /// All contenders, in the order of the table.
    pub const ALL: [Self; 4] = [Self::ConsumerGroup, Self::Pipelined, Self::Quotabell, Self::Ceiling];

    /// The first letter of its name.
    pub const fn letter(self) -> char {
        match self {
            Self::ConsumerGroup => 'a',
            Self::Pipelined => 'b',
            Self::Quotabell => 'c',
            Self::Ceiling => 'd',
        }
    }

    /// Its name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConsumerGroup => "a  a consumer group, one command at a time",
            Self::Pipelined => "b  the same, pipelined per batch of 100",
            Self::Quotabell => "c  quotabell",
            Self::Ceiling => "d  ceiling: read and skip",
        }
    }
}

/// The order of a contender.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// The contender.
    pub contender: Contender,
    /// The server's port.
    pub port: u16,
    /// Number of events.
    pub entries: usize,
    /// Maximum number of entries per batch, unless it is the default.
    pub batch_entries: Option<u32>,
    /// The separator of subjects.
    pub separator: Separator,
}

/// The result of a contender.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Done {
    /// Wall-clock time, seconds.
    pub seconds: f64,
    /// Its own CPU time, microseconds.
    pub cpu_us: f64,
}

/// Runs a contender on a core and waits for it.
pub fn run(order: &Order, core: usize) -> anyhow::Result<Done> {
    let child = Command::new("taskset")
        .args(["-c", &core.to_string()])
        .arg(std::env::current_exe()?)
        .args([FLAG, &serde_json::to_string(order)?])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("run a contender (taskset is of the package util-linux)")?;
    anyhow::ensure!(child.status.success(), "{:?} failed", order.contender);
    serde_json::from_slice(&child.stdout).context("read what the contender says")
}

/// The contender's side of [`run`].
pub fn execute(order: &str) -> anyhow::Result<()> {
    let order: Order = serde_json::from_str(order)?;
    let done = match order.contender {
        Contender::ConsumerGroup | Contender::Pipelined => consumer_group(&order)?,
        Contender::Quotabell => runtime()?.block_on(quotabell(&order))?,
        Contender::Ceiling => runtime()?.block_on(ceiling(&order))?,
    };
    println!("{}", serde_json::to_string(&done)?);
    Ok(())
}

/// The same runtime as the daemon's.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")
}

/// Measures wall-clock and CPU time from now on.
struct Clock {
    began: Instant,
    cpu_us: f64,
}

impl Clock {
    fn start() -> anyhow::Result<Self> {
        Ok(Self { cpu_us: machine::cpu_us()?, began: Instant::now() })
    }

    fn stop(&self) -> anyhow::Result<Done> {
        Ok(Done { seconds: self.began.elapsed().as_secs_f64(), cpu_us: machine::cpu_us()? - self.cpu_us })
    }
}

/// A plain blocking connection, the fastest one of the redis crate for single commands.
pub fn connect(port: u16) -> anyhow::Result<Connection> {
    let info = format!("redis://127.0.0.1:{port}").into_connection_info()?;
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Ok(redis::Client::open(info.set_tcp_settings(tcp))?.get_connection()?)
}

/// An event in the form of these contenders.
struct GroupEvent {
    id: String,
    subject: String,
    units: u64,
}

fn consumer_group(order: &Order) -> anyhow::Result<Done> {
    let mut connection = connect(order.port)?;
    let script = Script::new(GROUP_SCRIPT);
    let () = script.prepare_invoke().load(&mut connection).map(|_: String| ())?;
    let () = redis::cmd("XGROUP").arg("CREATE").arg(STREAM).arg(GROUP).arg("0").query(&mut connection)?;
    let clock = Clock::start()?;
    let mut left = order.entries;
    while left > 0 {
        let events = group_read(&mut connection, left.min(GROUP_COUNT_MAX))?;
        anyhow::ensure!(!events.is_empty(), "the stream is too short");
        left -= events.len();
        match order.contender {
            Contender::ConsumerGroup => {
                events.iter().try_for_each(|event| group_one(&mut connection, &script, event))?;
            }
            _ => group_batch(&mut connection, &script, &events)?,
        }
    }
    clock.stop()
}

fn group_read(connection: &mut Connection, count: usize) -> anyhow::Result<Vec<GroupEvent>> {
    let mut command = redis::cmd("XREADGROUP");
    command.arg("GROUP").arg(GROUP).arg("worker").arg("COUNT").arg(count).arg("STREAMS").arg(STREAM).arg(">");
    let reply: StreamReadReply = command.query(connection)?;
    let entries = reply.keys.into_iter().flat_map(|stream| stream.ids);
    entries
        .map(|entry| {
            let subject = entry.get("subject").context("an event without subject")?;
            let units = entry.get("units").context("an event without units")?;
            Ok(GroupEvent { id: entry.id, subject, units })
        })
        .collect()
}

/// Counts, reads the limit, claims the flags of reached thresholds, acknowledges; each command waits for the previous
/// one.
fn group_one(connection: &mut Connection, script: &Script, event: &GroupEvent) -> anyhow::Result<()> {
    let GroupEvent { id, subject, units } = event;
    let key = format!("{GROUP_COUNT}{subject}");
    let count: u64 = script.key(key).arg(units).arg(GROUP_COUNT_TTL_S).invoke(connection)?;
    let limit: u64 = limit_look_up(subject).query(connection)?;
    for percent in load::reached(count, limit) {
        let _: Option<String> = claim(subject, percent.get(), id).query(connection)?;
    }
    let () = redis::cmd("XACK").arg(STREAM).arg(GROUP).arg(id).query(connection)?;
    Ok(())
}

/// The same with two writes per batch: counts and limits, then flags and acknowledgments.
fn group_batch(connection: &mut Connection, script: &Script, events: &[GroupEvent]) -> anyhow::Result<()> {
    let mut first = redis::pipe();
    for GroupEvent { subject, units, .. } in events {
        let key = format!("{GROUP_COUNT}{subject}");
        first.cmd("EVALSHA").arg(script.get_hash()).arg(1).arg(key).arg(units).arg(GROUP_COUNT_TTL_S);
        first.add_command(limit_look_up(subject));
    }
    let answers: Vec<u64> = first.query(connection)?;
    let mut second = redis::pipe();
    for (GroupEvent { id, subject, .. }, answer) in events.iter().zip(answers.chunks_exact(2)) {
        for percent in load::reached(answer[0], answer[1]) {
            second.add_command(claim(subject, percent.get(), id)).ignore();
        }
        second.cmd("XACK").arg(STREAM).arg(GROUP).arg(id).ignore();
    }
    let () = second.query(connection)?;
    Ok(())
}

fn limit_look_up(subject: &str) -> redis::Cmd {
    let mut command = redis::cmd("HGET");
    command.arg(format!("{}{subject}", quotabell::types::keys::SUBJECT_PREFIX_DEFAULT)).arg(load::limit_field());
    command
}

fn claim(subject: &str, percent: u16, id: &str) -> redis::Cmd {
    let mut command = redis::cmd("SET");
    command.arg(format!("{GROUP_FLAG}{percent}:{subject}")).arg(id).arg("NX").arg("EX").arg(GROUP_FLAG_TTL_S);
    command
}

/// The worker as in `app.rs`, without fan-out and sending, which have their own bench.
async fn quotabell(order: &Order) -> anyhow::Result<Done> {
    let config = Config::defaults()?;
    let endpoint = RedisEndpoint::local(order.port);
    let keys = Keys::new(STREAM).with_separator(order.separator);
    let plans = Plans::new(&config.plans, &config.default_plan)?.by_level(order.separator, &[])?;
    let settings =
        CommitSettings { trim: TrimPolicy::Consumed, partitions: 1, plans: plans.clone(), children_days: 35 };
    let stop = CancellationToken::new();
    let counted = CountedEvents::default();
    metrics::set_global_recorder(counted.clone()).context("install the recorder")?;
    let changes = ChangeFeed::default();
    let watch = tokio::spawn(ChangeListener::new(endpoint.clone(), &keys, vec![changes.clone()]).run(stop.clone()));
    while !changes.is_live() {
        changes.arrived().await;
    }
    let mut stream = config.stream.clone();
    stream.batch_entries = order.batch_entries.unwrap_or(stream.batch_entries);
    let worker = EventWorker::new(EventWorkerParts {
        client: Arc::new(endpoint.client(STREAM)?),
        endpoint,
        lease: None,
        keys: keys.clone(),
        config: stream,
        history: config.history,
        committer: Arc::new(Committer::new(keys, settings)),
        plans,
        cache_entries: config.subjects.cache_entries,
        changes,
        judged: Default::default(),
        new_alerts: Arc::default(),
        status: CountingStatus::default(),
    });
    let clock = Clock::start()?;
    let worker = tokio::spawn(worker.run(stop.clone()));
    counted.reach(order.entries as u64).await;
    let done = clock.stop()?;
    stop.cancel();
    worker.await?;
    watch.await?;
    Ok(done)
}

/// Reads every entry; the next reply is on its way while the current one is read.
async fn ceiling(order: &Order) -> anyhow::Result<Done> {
    let count = order.batch_entries.unwrap_or(Config::defaults()?.stream.batch_entries);
    let mut reader = StreamReader::connect(&RedisEndpoint::local(order.port), STREAM).await?;
    let clock = Clock::start()?;
    let mut left = order.entries;
    reader.request("0-0", count, None).await?;
    loop {
        let reply = reader.receive().await?;
        let StreamId { ms, seq } = reply.last().context("the stream is too short")?;
        left = left.saturating_sub(reply.entries().len());
        if left == 0 {
            return clock.stop();
        }
        reader.request(&format!("{ms}-{seq}"), count, None).await?;
    }
}
