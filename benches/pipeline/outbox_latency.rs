//! The latency of an alert from XADD to the outbox, where it is durable, while events arrive at half of the maximum
//! rate. Computed from the ids of both entries: from Redis 7.2 on, an entry appended by a script has the start time of
//! the script, so the script's own time is not included.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use quotabell::types::{Keys, Separator, StreamId};
use redis::Connection;
use redis::streams::StreamRangeReply;
use serde::Deserialize;

use crate::Size;
use crate::contenders::{self, Contender, Order};
use crate::figures::{Series, thousands};
use crate::load::STREAM;
use crate::machine;
use crate::redis_server::RedisServer;

/// Number of subjects of the events that reach no threshold.
const SUBJECTS: usize = 10_000;
/// Number of pipelines per event that reaches a threshold.
const PIPELINES_AN_ALERT: usize = 20;
/// 80 % of a subject's default limit.
const UNITS_OF_AN_ALERT: u64 = 4_000;

/// The events of a producer.
#[derive(Clone, Copy)]
struct Traffic {
    /// Prefix of the names of subjects that reach a threshold.
    name: &'static str,
    alerts: usize,
    /// Events per pipeline.
    events_at_once: usize,
    /// Events per second; infinite: as fast as possible.
    events_s: f64,
}

impl Traffic {
    const fn pipelines(&self) -> usize {
        self.alerts * PIPELINES_AN_ALERT
    }

    const fn events(&self) -> usize {
        self.pipelines() * self.events_at_once
    }
}

/// The part of an alert that identifies it.
#[derive(Debug, Deserialize)]
struct Alert {
    subject: String,
}

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    let server = RedisServer::start();
    let placement = *machine::placements()?.first().context("no core is allowed")?;
    machine::pin(server.pid(), placement.server)?;
    let mut connection = contenders::connect(server.port())?;
    let fastest = Traffic { name: "first", alerts: size.pick(50, 1), events_at_once: 1_000, events_s: f64::INFINITY };
    let (_, peak) = count(&mut connection, (server.port(), placement.worker), fastest)?;
    let steady = Traffic { name: "second", alerts: size.pick(2_000, 50), events_at_once: 100, events_s: peak / 2.0 };
    let (due, events_s) = count(&mut connection, (server.port(), placement.worker), steady)?;
    let stored = stored_alerts(&mut connection)?;
    let mut took_ms = Series::default();
    for (subject, entry) in due {
        let stored = stored.get(&subject).with_context(|| format!("the alert of {subject} is missing"))?;
        took_ms.push(stored.ms.saturating_sub(entry.ms) as f64);
    }
    println!("\n## From XADD to the outbox\n");
    println!(
        "{}/s were appended and counted as fast as it went; then {}/s, in pipelines of {}, with {} alerts; by the ids of both entries, whole ms.\n",
        thousands(peak),
        thousands(events_s),
        steady.events_at_once,
        steady.alerts,
    );
    println!("| | p50 | p90 | p99 | longest |");
    println!("|---|---|---|---|---|");
    let [p50, p90, p99, longest] = [0.5, 0.9, 0.99, 1.0].map(|share| format!("{} ms", took_ms.quantile(share)));
    println!("| XADD to outbox | {p50} | {p90} | {p99} | {longest} |");
    println!("\naim: p99 <= 5 ms, here {p99}");
    Ok(())
}

/// Appends this traffic while a worker counts it. Returns the entry that made each subject's alert due, and events per
/// second until the last one was counted.
fn count(
    connection: &mut Connection,
    (port, core): (u16, usize),
    traffic: Traffic,
) -> anyhow::Result<(HashMap<String, StreamId>, f64)> {
    let order = Order {
        contender: Contender::Quotabell,
        port,
        entries: traffic.events(),
        batch_entries: None,
        separator: Separator::NONE,
    };
    let worker = std::thread::spawn(move || contenders::run(&order, core));
    let began = Instant::now();
    let due = produce(connection, traffic)?;
    worker.join().expect("whoever waits for the worker does not panic")?;
    Ok((due, traffic.events() as f64 / began.elapsed().as_secs_f64()))
}

/// Appends the events; returns the entry that made each subject's alert due.
fn produce(connection: &mut Connection, traffic: Traffic) -> anyhow::Result<HashMap<String, StreamId>> {
    let mut due = HashMap::new();
    let mut subjects = (0..SUBJECTS).cycle();
    let began = Instant::now();
    for n in 0..traffic.pipelines() {
        let mut pipeline = redis::pipe();
        let mut add = |subject: String, units: u64| {
            pipeline.cmd("XADD").arg(STREAM).arg("*").arg("subject").arg(subject).arg("units").arg(units);
        };
        for subject in subjects.by_ref().take(traffic.events_at_once - 1) {
            add(format!("user-{subject}"), 1);
        }
        let (subject, is_due) = (format!("{}-{n}", traffic.name), n % PIPELINES_AN_ALERT == 0);
        add(subject.clone(), if is_due { UNITS_OF_AN_ALERT } else { 1 });
        let due_at = began + Duration::from_secs_f64((n * traffic.events_at_once) as f64 / traffic.events_s);
        std::thread::sleep(due_at.saturating_duration_since(Instant::now()));
        let mut entries: Vec<String> = pipeline.query(connection).context("append events")?;
        if is_due {
            let entry = entries.pop().context("XADD answers an id")?;
            due.insert(subject, entry.parse().with_context(|| format!("{entry} is no id"))?);
        }
    }
    Ok(due)
}

/// The entry of each subject's alert in the outbox; nothing fans it out here.
fn stored_alerts(connection: &mut Connection) -> anyhow::Result<HashMap<String, StreamId>> {
    let mut read = redis::cmd("XRANGE");
    let stored: StreamRangeReply = read.arg(Keys::new(STREAM).outbox()).arg("-").arg("+").query(connection)?;
    let alert = |entry: redis::streams::StreamId| {
        let json: String = entry.get("alert").context("an entry of the outbox has no alert")?;
        let Alert { subject } = serde_json::from_str(&json).context("read an alert")?;
        Ok((subject, entry.id.parse().with_context(|| format!("{} is no id", entry.id))?))
    };
    stored.ids.into_iter().map(alert).collect()
}
