//! One server with one load, which the contenders work off in turn.

use std::collections::BTreeSet;

use anyhow::Context as _;
use redis::Connection;

use crate::Size;
use crate::contenders::{self, Contender, Done, Order};
use crate::figures::Series;
use crate::load::{self, Load, STREAM, Shape};
use crate::machine::{self, Placement};
use crate::redis_server::RedisServer;

/// Overrides the daemon's batch size, for experiments.
const BATCH: &str = "QUOTABELL_BENCH_BATCH";
/// Scripts and reads of at least this duration are recorded, microseconds.
const SLOW_US: u32 = 50;

/// The figures of one contender in one placement.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Events per second.
    pub events_s: Series,
    /// The server's CPU time per event, microseconds.
    pub server_us: Series,
    /// The worker's CPU time per event, microseconds.
    pub worker_us: Series,
    /// How long each commit blocked the server, milliseconds.
    pub commit_ms: Series,
    /// How long each read blocked the server, milliseconds.
    pub read_ms: Series,
}

/// State that all rounds share.
pub struct BenchServer {
    server: RedisServer,
    pub connection: Connection,
    pub load: Load,
    size: Size,
    batch_entries: Option<u32>,
    /// Cost of appending for the server, microseconds per event.
    pub append_us: f64,
}

impl BenchServer {
    /// Starts a server with these options, and appends the events.
    pub fn open(size: Size, shape: Shape, options: &[&str]) -> anyhow::Result<Self> {
        let load = Load::new(size.pick(1_000_000, 30_000), shape)?;
        let server = RedisServer::start_with(&[&["--save", "", "--appendonly", "no"], options].concat());
        let mut connection = contenders::connect(server.port())?;
        load.write_limits(&mut connection)?;
        let before = server_cpu_us(&mut connection)?;
        load.append(&mut connection)?;
        let append_us = (server_cpu_us(&mut connection)? - before) / load.len() as f64;
        let batch_entries = std::env::var(BATCH).ok().map(|text| text.parse()).transpose().context(BATCH)?;
        Ok(Self { server, connection, load, size, batch_entries, append_us })
    }

    /// Number of entries that a contender works off in a round.
    pub fn entries_of(&self, contender: Contender) -> usize {
        match contender {
            Contender::ConsumerGroup => self.size.pick(20_000, 1_000),
            Contender::Pipelined => self.size.pick(200_000, 5_000),
            Contender::Quotabell | Contender::Ceiling => self.load.len(),
        }
    }

    /// Lets a contender work the stream off, and checks its result.
    pub fn round(&mut self, placement: Placement, contender: Contender, figures: &mut Measured) -> anyhow::Result<()> {
        load::reset(&mut self.connection)?;
        machine::pin(self.server.pid(), placement.server)?;
        let (entries, batch_entries) = (self.entries_of(contender), self.batch_entries);
        let separator = self.load.separator();
        let order = Order { contender, port: self.server.port(), entries, batch_entries, separator };
        self.watch_slow()?;
        let before = server_cpu_us(&mut self.connection)?;
        let Done { seconds, cpu_us } = contenders::run(&order, placement.worker)?;
        let events = entries as f64;
        figures.server_us.push((server_cpu_us(&mut self.connection)? - before) / events);
        figures.worker_us.push(cpu_us / events);
        figures.events_s.push(events / seconds);
        self.see_slow(figures)?;
        self.check(contender, entries).with_context(|| format!("{} counted wrong", contender.name()))
    }

    fn watch_slow(&mut self) -> anyhow::Result<()> {
        let mut pipeline = redis::pipe();
        pipeline
            .cmd("CONFIG")
            .arg("SET")
            .arg("slowlog-log-slower-than")
            .arg(SLOW_US)
            .arg("slowlog-max-len")
            .arg(10_000);
        pipeline.ignore().cmd("SLOWLOG").arg("RESET").ignore();
        Ok(pipeline.query(&mut self.connection)?)
    }

    fn see_slow(&mut self, figures: &mut Measured) -> anyhow::Result<()> {
        let slow: Vec<Vec<redis::Value>> = redis::cmd("SLOWLOG").arg("GET").arg(-1).query(&mut self.connection)?;
        for entry in slow {
            let [_, _, took_us, words, ..] = entry.as_slice() else { continue };
            let took_ms = redis::from_redis_value_ref::<f64>(took_us)? / 1000.0;
            let words: Vec<Vec<u8>> = redis::from_redis_value_ref(words)?;
            match words.first().map(Vec::as_slice) {
                Some(b"EVALSHA") => figures.commit_ms.push(took_ms),
                Some(b"XREAD") => figures.read_ms.push(took_ms),
                _ => {}
            }
        }
        Ok(())
    }

    fn check(&mut self, contender: Contender, entries: usize) -> anyhow::Result<()> {
        let expected = self.load.expected(entries);
        match contender {
            Contender::ConsumerGroup | Contender::Pipelined => {
                let keys = self.load.subjects.iter().map(|subject| format!("{}{subject}", contenders::GROUP_COUNT));
                let keys: Vec<String> = keys.collect();
                let counts: Vec<Option<u64>> = redis::cmd("MGET").arg(keys).query(&mut self.connection)?;
                let counts: Vec<u64> = counts.into_iter().map(Option::unwrap_or_default).collect();
                let pattern = format!("{}*", contenders::GROUP_FLAG);
                let flags: Vec<String> = redis::cmd("KEYS").arg(pattern).query(&mut self.connection)?;
                let flags = flags.iter().filter_map(|key| key.strip_prefix(contenders::GROUP_FLAG));
                let flags: BTreeSet<String> = flags.map(str::to_owned).collect();
                load::compare(&counts, &flags, &expected)
            }
            Contender::Quotabell => load::audit(&mut self.connection, &self.load, &expected),
            Contender::Ceiling => {
                let length: usize = redis::cmd("XLEN").arg(STREAM).query(&mut self.connection)?;
                anyhow::ensure!(length == self.load.len(), "the stream has {length} entries");
                Ok(())
            }
        }
    }
}

/// The server's CPU time so far, microseconds.
pub fn server_cpu_us(connection: &mut Connection) -> anyhow::Result<f64> {
    let info: redis::InfoDict = redis::cmd("INFO").arg("cpu").query(connection)?;
    let seconds = |name| info.get::<f64>(name).with_context(|| format!("INFO has no {name}"));
    Ok((seconds("used_cpu_user")? + seconds("used_cpu_sys")?) * 1e6)
}
