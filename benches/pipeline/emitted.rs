//! `quotabell emit` and `quotabell emit --http`: events per second until the daemon has counted all of them.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context as _;

use crate::Size;
use crate::contenders;
use crate::daemon::Daemon;
use crate::figures::{Series, thousands};
use crate::ingestion::{self, TOKEN};
use crate::redis_server::RedisServer;

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    let (rounds, events) = (size.pick(5, 1), size.pick(1_000_000, 20_000));
    let server = RedisServer::start_with(&["--save", "", "--appendonly", "no"]);
    let mut connection = contenders::connect(server.port())?;
    let daemon = Daemon::start(server.port(), &[("QUOTABELL__HTTP__TOKEN", TOKEN.to_owned())])?;
    println!("\n## quotabell emit: one process, {events} events, medians of {rounds} interleaved rounds\n");
    println!("| command | events/s counted |");
    println!("|---|---|");
    let commands =
        [("emit", Vec::new()), ("emit --http", vec!["--http".to_owned(), format!("http://{}", daemon.address)])];
    let mut figures: [Series; 2] = Default::default();
    for _ in 0..rounds {
        for ((name, arguments), series) in commands.iter().zip(&mut figures) {
            let expected = ingestion::counted(&mut connection)? + events as u64;
            let began = Instant::now();
            let status = Command::new(env!("CARGO_BIN_EXE_quotabell"))
                .args(["emit", "--subject", "customer-1", "--count", &events.to_string()])
                .args(arguments)
                .env_clear()
                .env("QUOTABELL__REDIS__URL", format!("redis://127.0.0.1:{}", server.port()))
                .env("QUOTABELL__HTTP__TOKEN", TOKEN)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .status()
                .context("start quotabell emit")?;
            anyhow::ensure!(status.success(), "{name}: {status}");
            ingestion::wait_counted(&mut connection, expected, began)?;
            series.push(events as f64 / began.elapsed().as_secs_f64());
        }
    }
    for ((name, _), series) in commands.iter().zip(&figures) {
        println!("| {name} | {} |", thousands(series.median()));
    }
    Ok(())
}
