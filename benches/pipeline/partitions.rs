//! Partitions: one daemon on one server, and three daemons on a cluster of three primaries, with 1 to 8 partitions; and
//! how long the partitions of a killed daemon wait for another one.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use quotabell::redis_client::RedisClient;
use quotabell::redis_client::RedisEndpoint;
use quotabell::redis_client::config::RedisConfig;
use quotabell::types::{Keys, PartitionNumber, Separator};

use crate::Size;
use crate::bench_server::server_cpu_us;
use crate::contenders;
use crate::daemon::Daemon;
use crate::figures::{Series, micros, millis, thousands};
use crate::load::{Load, STREAM, Shape};
use crate::machine;
use crate::redis_cluster::RedisCluster;
use crate::redis_server::RedisServer;

const PARTITIONS: [u32; 4] = [1, 2, 4, 8];
/// Number of daemons on the cluster.
const DAEMONS: usize = 3;
/// Interval between two reads of the progress.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Maximum time of a drain or a take-over.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// Number of kills.
const DEATHS: usize = 3;
/// Time of normal operation before a kill.
const SETTLES_IN: Duration = Duration::from_secs(4);

/// The deployment of the streams.
struct Deployment<'a> {
    url: String,
    servers: Vec<&'a RedisServer>,
    partitions: Vec<(Keys, RedisClient)>,
}

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(measure(size))
}

async fn measure(size: Size) -> anyhow::Result<()> {
    let load = Load::new(size.pick(1_000_000, 20_000), Shape::of_subjects(size.pick(10_000, 1_000)))?;
    println!("\n## Partitions: {} entries over {} subjects\n", load.len(), load.subjects.len());
    println!("| deployment | partitions | events/s | Redis CPU us/event | daemons' CPU us/event |");
    println!("|---|---|---|---|---|");
    for count in PARTITIONS {
        let server = RedisServer::start();
        let deployment = Deployment::of(server.url(), vec![&server], count)?;
        deployment.drain("one server, one daemon", &load, 1).await?;
    }
    for count in PARTITIONS {
        let cluster = RedisCluster::start().await;
        let deployment = Deployment::of(cluster.url(""), cluster.nodes.iter().collect(), count)?;
        deployment.drain("three primaries, three daemons", &load, DAEMONS).await?;
    }
    let cluster = RedisCluster::start().await;
    let deployment = Deployment::of(cluster.url(""), cluster.nodes.iter().collect(), 8)?;
    let mut waited = Series::default();
    for _ in 0..size.pick(DEATHS, 1) {
        waited.push(deployment.death().await?.as_secs_f64() * 1000.0);
    }
    println!(
        "\nOf three daemons with 8 partitions one is killed: all of its partitions are read again after {} (median), {} (longest of {DEATHS})",
        millis(waited.median()),
        millis(waited.quantile(1.0)),
    );
    Ok(())
}

impl<'a> Deployment<'a> {
    fn of(url: String, servers: Vec<&'a RedisServer>, count: u32) -> anyhow::Result<Self> {
        let partitions = PartitionNumber::all(count).map(|number| {
            let keys = Keys::of_partition(STREAM, number);
            let config = RedisConfig {
                url: url.as_str().into(),
                url_file: None,
                data_dir: "unused".into(),
                embedded_port: 1,
                ca_file: None,
            };
            let client = RedisEndpoint::from_config(&config)?.client(keys.stream())?;
            anyhow::Ok((keys, client))
        });
        Ok(Self { partitions: partitions.collect::<Result<_, _>>()?, url, servers })
    }

    fn settings(&self) -> [(&'static str, String); 2] {
        [
            ("QUOTABELL__REDIS__URL", self.url.clone()),
            ("QUOTABELL__STREAM__PARTITIONS", self.partitions.len().to_string()),
        ]
    }

    /// Appends the load, starts daemons, and prints how fast they worked it off.
    async fn drain(&self, name: &str, load: &Load, daemons: usize) -> anyhow::Result<()> {
        for (partition, pipeline) in load.partitioned(self.partitions.len())? {
            let () = self.partitions[partition].1.pipe(&pipeline).await.context("append events")?;
        }
        let before_us = self.server_us()?;
        let children_us = machine::children_cpu_us()?;
        // They read before they are ready, so the first commit is detected meanwhile.
        let (started, (read_before, begun)) = tokio::try_join!(self.start(daemons), self.read_at_least(1))?;
        let (read, done) = self.read_at_least(load.len() as u64).await?;
        let server_us = self.server_us()? - before_us;
        drop(started);
        let daemons_us = machine::children_cpu_us()? - children_us;
        let events = load.len() as f64;
        println!(
            "| {name} | {} | {} | {} | {} |",
            self.partitions.len(),
            thousands((read - read_before) as f64 / done.duration_since(begun).as_secs_f64()),
            micros(server_us / events),
            micros(daemons_us / events),
        );
        Ok(())
    }

    /// Starts daemons concurrently, as separate machines would.
    async fn start(&self, daemons: usize) -> anyhow::Result<Vec<Daemon>> {
        let port = self.servers[0].port();
        let starting: Vec<_> = (0..daemons)
            .map(|_| {
                let settings = self.settings();
                tokio::task::spawn_blocking(move || Daemon::start(port, &settings))
            })
            .collect();
        let mut started = Vec::new();
        for daemon in starting {
            started.push(daemon.await??);
        }
        Ok(started)
    }

    fn server_us(&self) -> anyhow::Result<f64> {
        self.servers.iter().map(|server| server_cpu_us(&mut contenders::connect(server.port())?)).sum()
    }

    /// Number of entries read in each partition.
    async fn read(&self) -> anyhow::Result<Vec<u64>> {
        let mut read = Vec::new();
        for (keys, client) in &self.partitions {
            let entries: Option<u64> =
                client.query(redis::cmd("HGET").arg(keys.checkpoint()).arg("entries_read")).await?;
            read.push(entries.unwrap_or(0));
        }
        Ok(read)
    }

    /// Waits until this number of entries was read; returns the number read then, and the time.
    async fn read_at_least(&self, entries: u64) -> anyhow::Result<(u64, Instant)> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let read: u64 = self.read().await?.iter().sum();
            let now = Instant::now();
            if read >= entries {
                return Ok((read, now));
            }
            anyhow::ensure!(now < deadline, "{read} of {entries} entries were read after {WAIT_MAX:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Starts three daemons under steady traffic, kills one, and returns the time until every partition was read again.
    async fn death(&self) -> anyhow::Result<Duration> {
        let mut daemons = self.start(DAEMONS).await?;
        let settled = Instant::now() + SETTLES_IN;
        while Instant::now() < settled {
            self.append_to_each().await?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let died = Instant::now();
        drop(daemons.pop());
        let at_death = self.read().await?;
        loop {
            self.append_to_each().await?;
            let read = self.read().await?;
            // A commit in flight may still arrive.
            let is_read_again = read.iter().zip(&at_death).all(|(now, then)| now > &(then + 1));
            if is_read_again {
                return Ok(died.elapsed());
            }
            anyhow::ensure!(died.elapsed() < WAIT_MAX, "a partition is not read {WAIT_MAX:?} after its daemon died");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn append_to_each(&self) -> anyhow::Result<()> {
        for (at, (keys, client)) in self.partitions.iter().enumerate() {
            let count = u32::try_from(self.partitions.len())?;
            let is_here = |name: &String| {
                PartitionNumber::of_subject(name.as_bytes(), Separator::NONE, count).get() as usize == at
            };
            let subject = (0..).map(|n| format!("steady-{n}")).find(is_here).context("a subject of each partition")?;
            let mut append = redis::cmd("XADD");
            append.arg(keys.stream()).arg("*").arg("subject").arg(subject);
            let _: String = client.query(&append).await?;
        }
        Ok(())
    }
}
