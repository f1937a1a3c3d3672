//! What events over HTTP cost others: the response times of checks beside them.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Size;
use crate::daemon::Daemon;
use crate::figures::{Series, millis, thousands};
use crate::http_answer::read_answer;
use crate::ingestion::{self, TOKEN, Way};
use crate::redis_server::RedisServer;

/// Connections of checks, and checks per second of all of them.
const NODES: usize = 8;
const CHECKS_S: usize = 1_000;
/// Events per request of the producer.
const BATCH: usize = 1_000;

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    let server = RedisServer::start_with(&["--save", "", "--appendonly", "no"]);
    let daemon = Daemon::start(server.port(), &[("QUOTABELL__HTTP__TOKEN", TOKEN.to_owned())])?;
    let steady = Duration::from_secs(size.pick(10, 1));
    println!("\n## Checks while events arrive over HTTP\n");
    println!(
        "{NODES} kept connections, {CHECKS_S} requests a second for {} s, timed from the due time of each; one producer \
         that sends {BATCH} events a request, each after the answer to the one before.\n",
        steady.as_secs()
    );
    println!("| request | alone p50 | alone p99 | beside events p50 | beside events p99 | events/s |");
    println!("|---|---|---|---|---|---|");
    for (name, line) in [("check", "POST /v1/check"), ("authorize", "GET /v1/authorize")] {
        let alone = all_nodes(daemon.address, line, steady)?;
        let producer = Producer::start(daemon.address)?;
        let beside = all_nodes(daemon.address, line, steady);
        let events_s = producer.stop()? as f64 / steady.as_secs_f64();
        let [p50, p99] = [0.5, 0.99].map(|share| millis(alone.quantile(share)));
        let beside = beside?;
        let [beside_p50, beside_p99] = [0.5, 0.99].map(|share| millis(beside.quantile(share)));
        println!("| {name} | {p50} | {p99} | {beside_p50} | {beside_p99} | {} |", thousands(events_s));
    }
    Ok(())
}

/// Sends the requests of all nodes; returns the milliseconds that each took.
pub fn all_nodes(address: SocketAddr, line: &'static str, steady: Duration) -> anyhow::Result<Series> {
    let began = Instant::now();
    let node = |node| std::thread::spawn(move || one_node(address, line, node, began, steady));
    let nodes: Vec<_> = (0..NODES).map(node).collect();
    let mut all = Series::default();
    for node in nodes {
        let took_ms = node.join().map_err(|_| anyhow::anyhow!("a node panicked"))??;
        took_ms.into_iter().for_each(|took_ms| all.push(took_ms));
    }
    Ok(all)
}

fn one_node(
    address: SocketAddr,
    line: &str,
    node: usize,
    began: Instant,
    steady: Duration,
) -> anyhow::Result<Vec<f64>> {
    let mut requests = TcpStream::connect(address)?;
    requests.set_nodelay(true)?;
    let mut answers = BufReader::new(requests.try_clone()?);
    let mut took_ms = Vec::new();
    for number in 0..CHECKS_S * steady.as_secs() as usize / NODES {
        let due = began + Duration::from_secs_f64((number * NODES + node) as f64 / CHECKS_S as f64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let body = if line.starts_with("POST") { r#"{"subject":"node"}"# } else { "" };
        write!(
            requests,
            "{line} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\nX-Quota-Subject: node\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let (head, body) = read_answer(&mut answers)?;
        anyhow::ensure!(head.starts_with("HTTP/1.1 200") && !body.contains("judged"), "not admitted: {head}{body}");
        took_ms.push(due.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(took_ms)
}

/// Sends events until it is stopped.
struct Producer {
    is_stopped: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<anyhow::Result<()>>,
}

impl Producer {
    fn start(address: SocketAddr) -> anyhow::Result<Self> {
        let request = ingestion::request(Way::Http, address, (0, BATCH), None);
        let (is_stopped, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counter) = (Arc::clone(&is_stopped), Arc::clone(&sent));
        let mut requests = TcpStream::connect(address)?;
        requests.set_nodelay(true)?;
        let mut answers = BufReader::new(requests.try_clone()?);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                requests.write_all(&request)?;
                ingestion::read_accepted(&mut answers, BATCH)?;
                counter.fetch_add(BATCH as u64, Ordering::Relaxed);
            }
            Ok(())
        });
        Ok(Self { is_stopped, sent, thread })
    }

    /// Number of events that were sent.
    fn stop(self) -> anyhow::Result<u64> {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the producer panicked"))??;
        Ok(self.sent.load(Ordering::Relaxed))
    }
}
