//! Two environments, separated by a prefix, a database or a Redis each: how long production's events wait until they
//! are counted while staging works off a backlog.

use std::time::{Duration, Instant};

use redis::Connection;

use crate::Size;
use crate::contenders;
use crate::daemon::Daemon;
use crate::figures::{Series, millis, thousands};
use crate::redis_server::RedisServer;

/// Entries per pipeline while the backlog is appended.
const AT_ONCE: usize = 1_000;
const SUBJECTS: usize = 10_000;
/// Events of production that are timed alone.
const ALONE: usize = 2_000;
/// Maximum time of the backlog, and of an event.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// What keeps staging apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Separation {
    Prefix,
    Database,
    Redis,
}

/// A stream and the connection of its producer.
struct Environment {
    stream: &'static str,
    connection: Connection,
    _daemon: Option<Daemon>,
}

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    let backlog = size.pick(4_000_000, 20_000);
    println!("\n## Two environments: production while staging works off {backlog} events\n");
    println!("One event at a time, from XADD until it is counted.\n");
    println!("| separated by | alone p50 | alone p99 | beside p50 | beside p99 | staging events/s |");
    println!("|---|---|---|---|---|---|");
    for separation in [Separation::Prefix, Separation::Database, Separation::Redis] {
        let first = RedisServer::start();
        let second = RedisServer::start();
        let port = if separation == Separation::Redis { second.port() } else { first.port() };
        let mut production = Environment::start("usage", first.port(), Some(&[]))?;
        let mut alone = Series::default();
        for _ in 0..ALONE {
            alone.push(production.counted_in_ms()?);
        }
        let stream = if separation == Separation::Prefix { "staging" } else { "usage" };
        let mut staging = Environment::start(stream, port, None)?;
        let settings = match separation {
            Separation::Prefix => vec![
                ("QUOTABELL__STREAM__KEY", stream.to_owned()),
                ("QUOTABELL__SUBJECTS__PREFIX", "staging:subject:".to_owned()),
            ],
            Separation::Database => {
                let () = redis::cmd("SELECT").arg(1).query(&mut staging.connection)?;
                vec![("QUOTABELL__REDIS__URL", format!("redis://127.0.0.1:{port}/1"))]
            }
            Separation::Redis => Vec::new(),
        };
        staging.append(backlog)?;
        let began = Instant::now();
        let daemon = Daemon::start(port, &settings)?;
        let mut beside = Series::default();
        while staging.counted()? < backlog as u64 {
            beside.push(production.counted_in_ms()?);
            anyhow::ensure!(began.elapsed() < WAIT_MAX, "staging has not counted its backlog after {WAIT_MAX:?}");
        }
        let staging_s = backlog as f64 / began.elapsed().as_secs_f64();
        drop(daemon);
        let [alone_p50, alone_p99, p50, p99] =
            [(&alone, 0.5), (&alone, 0.99), (&beside, 0.5), (&beside, 0.99)].map(|(of, q)| millis(of.quantile(q)));
        let name = format!("{separation:?}").to_lowercase();
        println!("| {name} | {alone_p50} | {alone_p99} | {p50} | {p99} | {} |", thousands(staging_s));
    }
    Ok(())
}

impl Environment {
    /// Starts a daemon too if it has settings.
    fn start(stream: &'static str, port: u16, settings: Option<&[(&str, String)]>) -> anyhow::Result<Self> {
        let daemon = settings.map(|settings| Daemon::start(port, settings)).transpose()?;
        Ok(Self { stream, connection: contenders::connect(port)?, _daemon: daemon })
    }

    fn append(&mut self, events: usize) -> anyhow::Result<()> {
        for first in (0..events).step_by(AT_ONCE) {
            let mut pipeline = redis::pipe();
            for event in first..(first + AT_ONCE).min(events) {
                let subject = format!("customer-{}", event * 7_919 % SUBJECTS);
                pipeline.cmd("XADD").arg(self.stream).arg("*").arg("subject").arg(subject).ignore();
            }
            let () = pipeline.query(&mut self.connection)?;
        }
        Ok(())
    }

    fn counted(&mut self) -> anyhow::Result<u64> {
        let totals = format!("quota_totals:{{{}}}", self.stream);
        let counted: Option<u64> = redis::cmd("HGET").arg(totals).arg("counted").query(&mut self.connection)?;
        Ok(counted.unwrap_or(0))
    }

    /// Appends an event and waits until it is counted.
    fn counted_in_ms(&mut self) -> anyhow::Result<f64> {
        let expected = self.counted()? + 1;
        let began = Instant::now();
        self.append(1)?;
        while self.counted()? < expected {
            anyhow::ensure!(began.elapsed() < WAIT_MAX, "an event was not counted after {WAIT_MAX:?}");
        }
        Ok(began.elapsed().as_secs_f64() * 1000.0)
    }
}
