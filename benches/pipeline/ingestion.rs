//! Events over HTTP beside pipelined XADD: the same number of events in the same batches, until the daemon has counted
//! all of them. Producer, Redis and daemon share the machine, as they would on a small one.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use redis::Connection;

use crate::Size;
use crate::contenders;
use crate::daemon::Daemon;
use crate::figures::{Series, thousands};
use crate::http_answer::read_answer;
use crate::redis_server::RedisServer;

pub(crate) const TOKEN: &str = "a-token-of-the-benchmark-0123456789";
const STREAM: &str = "usage";
const TOTALS: &str = "quota_totals:{usage}";
const SUBJECTS: usize = 10_000;
/// Producers, each with a connection that it keeps.
const PRODUCERS: usize = 2;
/// Events per request or pipeline, events of a round, and whether each has an id.
const LOADS: [(usize, usize, bool); 4] =
    [(1, 20_000, false), (100, 400_000, false), (1_000, 1_000_000, false), (1_000, 1_000_000, true)];
/// How long a round may take.
const ROUND_MAX: Duration = Duration::from_secs(120);

/// How events reach the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Http,
    Xadd,
}

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    let rounds = size.pick(5, 1);
    let server = RedisServer::start_with(&["--save", "", "--appendonly", "no"]);
    let mut connection = contenders::connect(server.port())?;
    let settings = [("QUOTABELL__HTTP__TOKEN", TOKEN.to_owned())];
    let daemon = Daemon::start(server.port(), &settings)?;
    println!(
        "\n## Events over HTTP, beside pipelined XADD: {PRODUCERS} producers, medians of {rounds} interleaved rounds\n"
    );
    println!("Events per second until the last answer, and until all are counted.\n");
    println!(
        "| events per request | HTTP answered | HTTP counted | XADD answered | XADD counted | HTTP/XADD counted | daemon CPU us/event |"
    );
    println!("|---|---|---|---|---|---|---|");
    // Over all rounds, so that no id is sent again.
    let mut sent = 0;
    for (batch, events, has_ids) in LOADS {
        let events = size.pick(events, events.min(20_000));
        let mut figures: [[Series; 2]; 2] = Default::default();
        let mut cpu_us = Series::default();
        for _ in 0..rounds {
            for way in [Way::Http, Way::Xadd] {
                let before = daemon.cpu_us()?;
                let ids_from = has_ids.then_some(sent);
                let took = round(way, &mut connection, &daemon, server.port(), (batch, events, ids_from))?;
                sent += events;
                for (series, seconds) in figures[way as usize].iter_mut().zip(took) {
                    series.push(events as f64 / seconds);
                }
                if way == Way::Http {
                    cpu_us.push((daemon.cpu_us()? - before) / events as f64);
                }
            }
        }
        let [[http, http_counted], [xadd, xadd_counted]] = figures.map(|of| of.map(|series| series.median()));
        println!(
            "| {batch}{} | {} | {} | {} | {} | {:.2} | {:.2} |",
            if has_ids { ", with ids" } else { "" },
            thousands(http),
            thousands(http_counted),
            thousands(xadd),
            thousands(xadd_counted),
            http_counted / xadd_counted,
            cpu_us.median()
        );
    }
    println!("\naim: 300 k events/s in batches of 1,000, and half of XADD");
    Ok(())
}

/// Sends the events. Returns the seconds until the last answer, and until all are counted.
fn round(
    way: Way,
    connection: &mut Connection,
    daemon: &Daemon,
    port: u16,
    (batch, events, ids_from): (usize, usize, Option<usize>),
) -> anyhow::Result<[f64; 2]> {
    let expected = counted(connection)? + events as u64;
    // The requests are made before the clock starts.
    let shares: Vec<Vec<Vec<u8>>> = (0..PRODUCERS)
        .map(|producer| {
            let requests = (producer * events / batch / PRODUCERS)..((producer + 1) * events / batch / PRODUCERS);
            requests.map(|number| request(way, daemon.address, (number, batch), ids_from)).collect()
        })
        .collect();
    let began = Instant::now();
    let producers: Vec<_> = shares
        .into_iter()
        .map(|requests| {
            let address = match way {
                Way::Http => daemon.address,
                Way::Xadd => SocketAddr::from(([127, 0, 0, 1], port)),
            };
            std::thread::spawn(move || produce(way, address, &requests, batch))
        })
        .collect();
    for producer in producers {
        producer.join().map_err(|_| anyhow::anyhow!("a producer panicked"))??;
    }
    let answered = began.elapsed().as_secs_f64();
    wait_counted(connection, expected, began)?;
    Ok([answered, began.elapsed().as_secs_f64()])
}

/// Number of events that the daemon has counted so far.
pub(crate) fn counted(connection: &mut Connection) -> anyhow::Result<u64> {
    let counted: Option<u64> = redis::cmd("HGET").arg(TOTALS).arg("counted").query(connection)?;
    Ok(counted.unwrap_or(0))
}

/// Waits until so many events are counted.
pub(crate) fn wait_counted(connection: &mut Connection, expected: u64, began: Instant) -> anyhow::Result<()> {
    while counted(connection)? < expected {
        anyhow::ensure!(began.elapsed() < ROUND_MAX, "not all events were counted");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// One request or pipeline. The ids of events begin with a number, and are as long as random ones.
pub(crate) fn request(
    way: Way,
    address: SocketAddr,
    (number, batch): (usize, usize),
    ids_from: Option<usize>,
) -> Vec<u8> {
    let events = (number * batch..(number + 1) * batch).map(|event| {
        let id = ids_from.map(|from| format!("{:022x}", from + event));
        (event * 7_919 % SUBJECTS, event % 9 + 1, id)
    });
    match way {
        Way::Http => {
            let line = |(subject, units, id): (usize, usize, Option<String>)| {
                let id = id.map(|id| format!(",\"id\":\"{id}\"")).unwrap_or_default();
                format!("{{\"subject\":\"customer-{subject}\",\"units\":{units}{id}}}\n")
            };
            let lines: String = events.map(line).collect();
            format!(
                "POST /v1/events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n\
                 Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n{lines}",
                lines.len()
            )
            .into_bytes()
        }
        Way::Xadd => {
            let mut pipeline = redis::pipe();
            for (subject, units, id) in events {
                let command = pipeline.cmd("XADD").arg(STREAM).arg("*");
                command.arg("subject").arg(format!("customer-{subject}")).arg("units").arg(units);
                id.into_iter().for_each(|id| _ = command.arg("id").arg(id));
            }
            pipeline.get_packed_pipeline()
        }
    }
}

/// Sends each request after the answer to the one before.
fn produce(way: Way, address: SocketAddr, requests: &[Vec<u8>], batch: usize) -> anyhow::Result<()> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::with_capacity(128 * 1024, stream.try_clone()?);
    let mut sending = stream;
    for request in requests {
        sending.write_all(request)?;
        match way {
            Way::Http => read_accepted(&mut answers, batch)?,
            Way::Xadd => {
                let mut line = String::new();
                // Each reply is a length and an id.
                for _ in 0..2 * batch {
                    line.clear();
                    answers.read_line(&mut line)?;
                    anyhow::ensure!(line.starts_with(['$', '1', '2']), "XADD: {line}");
                }
            }
        }
    }
    Ok(())
}

pub(crate) fn read_accepted(answers: &mut BufReader<TcpStream>, batch: usize) -> anyhow::Result<()> {
    let (head, body) = read_answer(answers)?;
    let expected = format!("{{\"accepted\":{batch},\"refused\":[]}}");
    anyhow::ensure!(head.starts_with("HTTP/1.1 202") && body == expected, "not accepted: {head}{body}");
    Ok(())
}
