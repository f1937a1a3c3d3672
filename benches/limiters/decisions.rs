//! Decisions per second, time of a decision, and time for which it blocks the server: all contenders in turn, in
//! several rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Context as _;
use quotabell::redis_client::RedisClient;

use crate::Size;
use crate::contenders::Contender;
use crate::figures::{Series, thousands};
use crate::load::{AT_ONCE, CALLS_A_KEY, LIMIT, Load};
use crate::machine;
use crate::peers::Seen;
use crate::redis_server::RedisServer;

/// The figures of one contender, one per round.
#[derive(Debug, Default)]
struct Measured {
    a_second: Series,
    p50_us: Series,
    p99_us: Series,
    /// Time for which a call blocked the server, according to the server.
    server_us: Series,
    /// Processor time of a call in this process, on all threads. Not for peers.
    caller_us: Series,
}

/// Measures and prints.
pub async fn run(size: Size, server: &RedisServer) -> anyhow::Result<()> {
    let rounds = size.pick(7, 2);
    let client = Arc::new(RedisClient::new(server.sync_client()));
    Contender::prepare(&client).await?;
    let mut measured = Contender::ALL.map(|_| Measured::default());
    for round in 0..rounds {
        for (number, contender) in Contender::ALL.into_iter().enumerate() {
            if matches!(contender, Contender::Peer(peer) if !peer.is_there()) {
                continue;
            }
            let load = Load::new(size, format!("{round}:{number}"));
            let mut reset = redis::cmd("CONFIG");
            let () = client.query(reset.arg("RESETSTAT")).await?;
            let before_us = machine::cpu_us()?;
            let seen = match contender {
                Contender::Peer(peer) => peer.run(server.port(), &load)?,
                ours => call_all(&client, ours, &load).await?,
            };
            let caller_us = (machine::cpu_us()? - before_us) / load.calls() as f64;
            let right = contender.admitted(&load);
            anyhow::ensure!(
                seen.admitted == right && seen.took_us.len() == load.calls(),
                "{} admitted {} of {} calls instead of {right}",
                contender.name(),
                seen.admitted,
                seen.took_us.len(),
            );
            let (measured, took_us) = (&mut measured[number], seen.series());
            measured.a_second.push(load.calls() as f64 / seen.seconds);
            measured.p50_us.push(took_us.quantile(0.5));
            measured.p99_us.push(took_us.quantile(0.99));
            measured.server_us.push(server_us(&client, contender).await?);
            measured.caller_us.push(caller_us);
        }
    }
    print(size, rounds, &measured);
    Ok(())
}

/// Makes all calls of a round through one client, [`AT_ONCE`] at the same time.
async fn call_all(client: &Arc<RedisClient>, contender: Contender, load: &Load) -> anyhow::Result<Seen> {
    let next = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let callers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (client, next, load) = (Arc::clone(client), Arc::clone(&next), load.clone());
            tokio::spawn(async move {
                let mut seen = Seen { seconds: 0.0, admitted: 0, took_us: Vec::new() };
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= load.calls() {
                        return anyhow::Ok(seen);
                    }
                    let called = Instant::now();
                    seen.admitted += usize::from(contender.call(&client, &load, number).await?);
                    seen.took_us.push(called.elapsed().as_secs_f64() * 1e6);
                }
            })
        })
        .collect();
    let mut all = Seen { seconds: 0.0, admitted: 0, took_us: Vec::new() };
    for caller in callers {
        let seen = caller.await??;
        all.admitted += seen.admitted;
        all.took_us.extend(seen.took_us);
    }
    all.seconds = began.elapsed().as_secs_f64();
    Ok(all)
}

/// Microseconds per call of the command that the contender sends, according to the server.
async fn server_us(client: &RedisClient, contender: Contender) -> anyhow::Result<f64> {
    let command = if contender == Contender::Incr { "incr" } else { "evalsha" };
    let said: String = client.query(redis::cmd("INFO").arg("commandstats")).await?;
    let line = said.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
    let line = line.with_context(|| format!("{} sent no {command}", contender.name()))?;
    let figure = line.split(',').find_map(|part| part.strip_prefix("usec_per_call="));
    Ok(figure.context("no usec_per_call")?.parse()?)
}

fn print(size: Size, rounds: usize, measured: &[Measured]) {
    let load = Load::new(size, String::new());
    println!("## Decisions, {AT_ONCE} at once on one connection, medians of {rounds} interleaved rounds\n");
    println!(
        "{} calls per round and contender: {CALLS_A_KEY} for each of {} keys, and a limit of {LIMIT}. The numbers of admitted calls were as expected.\n",
        load.calls(),
        load.keys
    );
    println!("| | decisions/s | spread | of one line | p50 | p99 | server us | caller us |");
    println!("|---|---|---|---|---|---|---|---|");
    let position = Contender::ALL.iter().position(|contender| *contender == Contender::OneLine);
    let plain = position.map_or(f64::NAN, |position| measured[position].a_second.median());
    for (contender, measured) in Contender::ALL.into_iter().zip(measured) {
        if measured.a_second.is_empty() {
            println!("| {} | not fetched: `make peers` | | | | | | |", contender.name());
            continue;
        }
        let a_second = measured.a_second.median();
        let caller_us = match contender {
            Contender::Peer(_) => String::new(),
            _ => format!("{:.1}", measured.caller_us.median()),
        };
        println!(
            "| {} | {} | {} | {:.2} | {:.2} ms | {:.2} ms | {:.1} | {caller_us} |",
            contender.name(),
            thousands(a_second),
            measured.a_second.spread(thousands),
            a_second / plain,
            measured.p50_us.median() / 1000.0,
            measured.p99_us.median() / 1000.0,
            measured.server_us.median(),
        );
    }
}
