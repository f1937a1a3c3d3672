//! How fast a backlog is worked off: four ways, in turn, several rounds, on a core each and on one shared.

use std::collections::BTreeSet;

use anyhow::Context as _;
use redis::Connection;

use crate::Size;
use crate::contenders::{self, Contender, Done, Order};
use crate::figures::{Series, micros, millis, thousands};
use crate::load::{self, Load, STREAM};
use crate::machine::{self, Placement};
use crate::redis_server::RedisServer;

/// Overrides the daemon's batch size, to see what it does.
const BATCH: &str = "QUOTABELL_BENCH_BATCH";
/// The letters of the ways to measure, to look at one while working on it.
const WAYS: &str = "QUOTABELL_BENCH_WAYS";
/// Scripts and readings of this length and longer are looked at, microseconds.
const SLOW_US: u32 = 50;

/// The figures of one contender in one placement.
#[derive(Debug, Clone, Default)]
struct Measured {
    events_s: Series,
    server_us: Series,
    worker_us: Series,
    /// How long each commit held the server, milliseconds.
    commit_ms: Series,
    /// How long each reading held the server, milliseconds.
    read_ms: Series,
}

/// Everything that the rounds share.
struct Arena {
    server: RedisServer,
    connection: Connection,
    load: Load,
    size: Size,
    batch_entries: Option<u32>,
}

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    let rounds = size.pick(7, 2);
    let mut arena = Arena::open(size)?;
    let placements = machine::placements()?;
    let ways = std::env::var(WAYS).unwrap_or_else(|_| "abcd".to_owned());
    let mut measured = vec![[(); 4].map(|()| Measured::default()); placements.len()];
    for _ in 0..rounds {
        for (placement, figures) in placements.iter().zip(&mut measured) {
            for (contender, figures) in Contender::ALL.into_iter().zip(figures.iter_mut()) {
                if ways.contains(contender.letter()) {
                    arena.round(*placement, contender, figures)?;
                }
            }
        }
    }
    println!(
        "## Working off a backlog: {} entries over {} subjects (Zipf), medians of {rounds} interleaved rounds\n",
        arena.load.len(),
        arena.load.subjects.len()
    );
    println!(
        "a is measured on {} of the entries a round and b on {}, since they are slow; every drain's counts and alerts were compared.",
        arena.entries_of(Contender::Seed),
        arena.entries_of(Contender::Pipelined)
    );
    for (placement, figures) in placements.iter().zip(&measured) {
        print(*placement, figures);
    }
    Ok(())
}

impl Arena {
    fn open(size: Size) -> anyhow::Result<Self> {
        let load = Load::new(size.pick(1_000_000, 30_000), size.pick(10_000, 1_000))?;
        let server = RedisServer::start();
        let mut connection = contenders::connect(server.port())?;
        load.write(&mut connection)?;
        let batch_entries = std::env::var(BATCH).ok().map(|text| text.parse()).transpose().context(BATCH)?;
        Ok(Self { server, connection, load, size, batch_entries })
    }

    fn entries_of(&self, contender: Contender) -> usize {
        match contender {
            Contender::Seed => self.size.pick(20_000, 1_000),
            Contender::Pipelined => self.size.pick(200_000, 5_000),
            Contender::Quotabell | Contender::Ceiling => self.load.len(),
        }
    }

    fn round(&mut self, placement: Placement, contender: Contender, figures: &mut Measured) -> anyhow::Result<()> {
        load::reset(&mut self.connection)?;
        machine::pin(self.server.pid(), placement.server)?;
        let (entries, batch_entries) = (self.entries_of(contender), self.batch_entries);
        let order = Order { contender, port: self.server.port(), entries, batch_entries };
        self.watch_slow()?;
        let before = self.server_cpu_us()?;
        let Done { seconds, cpu_us } = contenders::run(&order, placement.worker)?;
        let events = entries as f64;
        figures.server_us.push((self.server_cpu_us()? - before) / events);
        figures.worker_us.push(cpu_us / events);
        figures.events_s.push(events / seconds);
        self.see_slow(figures)?;
        self.check(contender, entries).with_context(|| format!("{} counted wrong", contender.name()))
    }

    /// The server's processor time so far, microseconds.
    fn server_cpu_us(&mut self) -> anyhow::Result<f64> {
        let info: redis::InfoDict = redis::cmd("INFO").arg("cpu").query(&mut self.connection)?;
        let seconds = |name| info.get::<f64>(name).with_context(|| format!("INFO has no {name}"));
        Ok((seconds("used_cpu_user")? + seconds("used_cpu_sys")?) * 1e6)
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
            Contender::Seed | Contender::Pipelined => {
                let keys = self.load.subjects.iter().map(|subject| format!("{}{subject}", contenders::SEED_COUNT));
                let keys: Vec<String> = keys.collect();
                let counts: Vec<Option<u64>> = redis::cmd("MGET").arg(keys).query(&mut self.connection)?;
                let counts: Vec<u64> = counts.into_iter().map(Option::unwrap_or_default).collect();
                let pattern = format!("{}*", contenders::SEED_FLAG);
                let flags: Vec<String> = redis::cmd("KEYS").arg(pattern).query(&mut self.connection)?;
                let flags = flags.iter().filter_map(|key| key.strip_prefix(contenders::SEED_FLAG));
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

fn print(placement: Placement, figures: &[Measured; 4]) {
    println!("\n### Server and worker: {}\n", placement.name());
    println!("| way | events/s | spread | Redis CPU us/event | worker CPU us/event |");
    println!("|---|---|---|---|---|");
    for (contender, Measured { events_s, server_us, worker_us, .. }) in Contender::ALL.into_iter().zip(figures) {
        if events_s.is_empty() {
            continue;
        }
        println!(
            "| {} | {} | {} | {} | {} |",
            contender.name(),
            thousands(events_s.median()),
            events_s.spread(thousands),
            micros(server_us.median()),
            micros(worker_us.median())
        );
    }
    let [seed, pipelined, own, ceiling] = figures;
    let own_events = own.events_s.median();
    println!(
        "\nc/a {:.0}, c/b {:.1}, c/d {:.2}; one commit holds the server {} (median), {} (p99), {} (longest), one reading {} (median), {} (longest)",
        own_events / seed.events_s.median(),
        own_events / pipelined.events_s.median(),
        own_events / ceiling.events_s.median(),
        millis(own.commit_ms.median()),
        millis(own.commit_ms.quantile(0.99)),
        millis(own.commit_ms.quantile(1.0)),
        millis(own.read_ms.median()),
        millis(own.read_ms.quantile(1.0)),
    );
}
