//! `POST /v1/check` of the real daemon: response time at a steady rate, and maximum number of responses per second.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::Size;
use crate::daemon::Daemon;
use crate::figures::{Series, millis, thousands};
use crate::http_answer::read_answer;
use crate::redis_server::RedisServer;

/// Checks per second in the steady part.
const CHECKS_S: usize = 5_000;
/// Number of API nodes, each with one connection that it keeps.
const NODES: usize = 32;
/// Number of subjects of the checks.
const SUBJECTS: usize = 1_000;
/// What is measured: an algorithm of `[plans.X.rate]`, for flat subjects or for the lowest of three levels, each with a
/// limit and a rate.
const ROWS: [(&str, Levels); 5] = [
    ("fixed", Levels::One),
    ("sliding", Levels::One),
    ("gcra", Levels::One),
    ("fixed", Levels::Three),
    ("gcra", Levels::Three),
];
/// A limit that is never reached, so that each response must be 200.
const RATE: &str = "90000/1h";

/// The levels of each subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Levels {
    One,
    Three,
}

/// Measurements of the nodes.
#[derive(Debug, Default)]
struct Seen {
    /// Time from the due time of a check to its response, milliseconds. Includes the delay of a node that lags.
    took_ms: Series,
    seconds: f64,
    checks: usize,
}

/// Measures and prints.
pub fn run(size: Size, server: &RedisServer) -> anyhow::Result<()> {
    let steady = Duration::from_secs(size.pick(10, 1));
    println!("\n## POST /v1/check\n");
    println!(
        "{NODES} kept connections, {SUBJECTS} subjects, a day limit and a rate; first {CHECKS_S} checks a second for {} s, timed from the due time of each, then as many as the daemon answers.\n",
        steady.as_secs()
    );
    println!("| algorithm | levels | checks/s | p50 | p90 | p99 | longest | at most, checks/s |");
    println!("|---|---|---|---|---|---|---|---|");
    for (algorithm, levels) in ROWS {
        let rate = format!(r#"{{"requests":"{RATE}","algorithm":"{algorithm}"}}"#);
        let (separator, plans, shown) = match levels {
            Levels::One => ("", "[]", 1),
            Levels::Three => ("/", r#"["free","free","free"]"#, 3),
        };
        let settings = [
            ("QUOTABELL__PLANS__FREE__RATE", rate),
            ("QUOTABELL__SUBJECTS__SEPARATOR", separator.to_owned()),
            ("QUOTABELL__SUBJECTS__DEFAULT_PLANS", plans.to_owned()),
        ];
        let daemon = Daemon::start(server.port(), &settings)?;
        // The first checks open connections and fill caches; they are not counted.
        all_nodes(daemon.address, Some(Duration::from_secs(1)))?;
        let seen = all_nodes(daemon.address, Some(steady))?;
        let most = all_nodes(daemon.address, None)?;
        let [p50, p90, p99, longest] = [0.5, 0.9, 0.99, 1.0].map(|share| millis(seen.took_ms.quantile(share)));
        let (rate, most) = (seen.checks as f64 / seen.seconds, most.checks as f64 / most.seconds);
        println!("| {algorithm} | {shown} | {rate:.0} | {p50} | {p90} | {p99} | {longest} | {} |", thousands(most));
    }
    println!("\naim: p99 <= 2 ms at {CHECKS_S} checks/s");
    Ok(())
}

/// Lets every node send its share of the checks for the time `steady`; without a time, a fixed number of checks, each
/// right after the response to the previous one.
fn all_nodes(address: SocketAddr, steady: Option<Duration>) -> anyhow::Result<Seen> {
    let began = Instant::now();
    let nodes: Vec<_> =
        (0..NODES).map(|node| std::thread::spawn(move || one_node(address, node, began, steady))).collect();
    let mut seen = Seen::default();
    for node in nodes {
        let took_ms = node.join().map_err(|_| anyhow::anyhow!("a node panicked"))??;
        seen.checks += took_ms.len();
        took_ms.into_iter().for_each(|took_ms| seen.took_ms.push(took_ms));
    }
    seen.seconds = began.elapsed().as_secs_f64();
    Ok(seen)
}

fn one_node(address: SocketAddr, node: usize, began: Instant, steady: Option<Duration>) -> anyhow::Result<Vec<f64>> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut requests = stream;
    let checks = steady.map_or(SUBJECTS, |steady| CHECKS_S * steady.as_secs() as usize / NODES);
    let mut took_ms = Vec::with_capacity(checks);
    for number in 0..checks {
        let due = match steady {
            // The nodes take turns, so that the checks are evenly spaced.
            Some(_) => began + Duration::from_secs_f64((number * NODES + node) as f64 / CHECKS_S as f64),
            None => Instant::now(),
        };
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let subject = (number * NODES + node) % SUBJECTS;
        let body = format!(r#"{{"subject":"org-{}/team-{}/key-{subject}"}}"#, subject % 10, subject % 100);
        write!(
            requests,
            "POST /v1/check HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        read_admitted(&mut answers)?;
        took_ms.push(due.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(took_ms)
}

/// Reads one response, which must admit the request after a real check.
fn read_admitted(answers: &mut BufReader<TcpStream>) -> anyhow::Result<()> {
    let (head, body) = read_answer(answers)?;
    anyhow::ensure!(head.starts_with("HTTP/1.1 200") && !body.contains("judged"), "not admitted: {head}{body}");
    Ok(())
}
