//! The console's pages with a million subjects, and counting beside ten people who look at them.

use std::collections::BTreeMap;
use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use quotabell::types::Keys;
use redis::Connection;

use crate::Size;
use crate::appended::{AT_ONCE, append, wait_for, wait_until_counted};
use crate::contenders;
use crate::daemon::Daemon;
use crate::figures::{Series, millis, thousands};
use crate::http_answer::read_answer;
use crate::load::STREAM;
use crate::receiver::{Protocol, REFUSING_PATH, Receiver};
use crate::redis_server::RedisServer;

const TOKEN: &str = "a-token-for-the-bench-0123456789";
/// Daily limit of every subject; 4 of 5 units are 80 %.
const LIMIT: &str = r#"{"requests":5}"#;
/// Each alert goes to these, half of which refuse it.
const CONTACTS: usize = 10;
const VIEWERS: usize = 10;
/// Interval between two pages of a viewer who looks for something.
const VIEW_EVERY: Duration = Duration::from_millis(500);
/// Interval between two pages that refresh themselves.
const REFRESH_EVERY: Duration = Duration::from_secs(3);
/// Subjects without a limit that they reach, for the drains.
const BUSY: usize = 10_000;
const ROUNDS: usize = 3;

/// A server with state, and how a daemon on it is started.
struct Filled {
    server: RedisServer,
    connection: Connection,
    console: SocketAddr,
    settings: Vec<(&'static str, String)>,
    _receiver: Receiver,
}

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    let (subjects, alerts) = (size.pick(1_000_000, 2_000), size.pick(100_000, 200));
    let mut filled = Filled::new()?;
    let daemon = filled.daemon()?;
    let began = Instant::now();
    // The first subjects reach 80 %.
    append(&mut filled.connection, (0..subjects).map(|n| (format!("user-{n:07}"), if n < alerts { 4 } else { 1 })))?;
    let deliveries = alerts * CONTACTS;
    wait_for(&mut filled.connection, |connection| {
        let made: Option<usize> = redis::cmd("HGET").arg(keys().totals()).arg("made").query(connection)?;
        let pending: usize = redis::cmd("ZCARD").arg(keys().pending()).query(connection)?;
        Ok(made == Some(deliveries) && pending == 0)
    })?;
    println!(
        "\n## Pages of the console: {} subjects, {} alerts, {} deliveries (made in {:.0} s)\n",
        thousands(subjects as f64),
        thousands(alerts as f64),
        thousands(deliveries as f64),
        began.elapsed().as_secs_f64()
    );
    println!("{VIEWERS} viewers, each opens a page every {VIEW_EVERY:?}.\n");
    println!("| page | median | p99 | longest |");
    println!("|---|---|---|---|");
    let steady = size.pick(Duration::from_secs(150), Duration::from_secs(8));
    let (stop, console) = (&AtomicBool::new(false), filled.console);
    let took = std::thread::scope(|scope| {
        let viewers: Vec<_> =
            (0..VIEWERS).map(|viewer| scope.spawn(move || view(console, viewer, VIEW_EVERY, stop))).collect();
        std::thread::sleep(steady);
        stop.store(true, Ordering::Relaxed);
        merged(viewers)
    })?;
    let mut all = Series::default();
    for (page, took) in &took {
        let [median, p99, longest] = [0.5, 0.99, 1.0].map(|share| took.quantile(share));
        println!("| `{page}` | {} | {} | {} |", millis(median), millis(p99), millis(longest));
        [median, p99].into_iter().for_each(|ms| all.push(ms));
    }
    println!("\n(aim: median below 300 ms, p99 below 800 ms)");
    drains(&mut filled, &daemon, size)
}

/// Counting without viewers and beside them, in turns, by a daemon that has read the names of all subjects already.
fn drains(filled: &mut Filled, daemon: &Daemon, size: Size) -> anyhow::Result<()> {
    let entries = size.pick(12_000_000, 20_000);
    let (mut alone, mut beside) = (Series::default(), Series::default());
    for round in 0..2 * ROUNDS {
        daemon.pause()?;
        append(&mut filled.connection, (0..entries).map(|n| (format!("busy-{:05}", n % BUSY), 1)))?;
        daemon.resume()?;
        let (is_beside, stop, console) = (round % 2 == 1, &AtomicBool::new(false), filled.console);
        let began = Instant::now();
        let took = std::thread::scope(|scope| {
            let viewers: Vec<_> = (0..if is_beside { VIEWERS } else { 0 })
                .map(|viewer| scope.spawn(move || view(console, viewer, REFRESH_EVERY, stop)))
                .collect();
            let counted = wait_until_counted(&mut filled.connection).map(|()| began.elapsed());
            stop.store(true, Ordering::Relaxed);
            merged(viewers).and(counted)
        })?;
        let rate = entries as f64 / took.as_secs_f64();
        if is_beside { beside.push(rate) } else { alone.push(rate) }
    }
    println!(
        "\nCounting of {} events with {VIEWERS} viewers (a page every {REFRESH_EVERY:?}) beside without: {}",
        thousands(entries as f64),
        beside.compared_with(&alone)
    );
    Ok(())
}

/// Milliseconds by page.
type Took = BTreeMap<&'static str, Series>;
/// A page and milliseconds.
type TookOnce = (&'static str, f64);

fn merged(viewers: Vec<std::thread::ScopedJoinHandle<'_, anyhow::Result<Vec<TookOnce>>>>) -> anyhow::Result<Took> {
    let mut took = Took::new();
    for viewer in viewers {
        for (page, ms) in viewer.join().map_err(|_| anyhow::anyhow!("a viewer panicked"))?? {
            took.entry(page).or_default().push(ms);
        }
    }
    Ok(took)
}

/// Opens one page after the other, until it is stopped.
fn view(console: SocketAddr, viewer: usize, every: Duration, stop: &AtomicBool) -> anyhow::Result<Vec<TookOnce>> {
    const PAGES: [&str; 18] = [
        "/",
        "/near",
        "/near.csv",
        "/top?by=used",
        "/subjects",
        "/subjects?q=user-00012",
        "/subject?id=user-0000001",
        "/subject?id=user-0900001",
        "/settings?id=user-0000001",
        "/alerts",
        "/deliveries",
        "/deliveries?state=dead",
        "/act?do=replay&state=dead",
        "/destinations",
        "/mutes",
        "/refused",
        "/system",
        "/log",
    ];
    let mut requests = TcpStream::connect(console)?;
    requests.set_nodelay(true)?;
    let mut answers = BufReader::new(requests.try_clone()?);
    let body = format!("token={TOKEN}");
    write!(
        requests,
        "POST /login HTTP/1.1\r\nHost: {console}\r\nSec-Fetch-Site: same-origin\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let (head, _) = read_answer(&mut answers)?;
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).context("no cookie")?;
    let cookie = cookie.split(';').next().unwrap_or(cookie).to_owned();
    let mut took = Vec::new();
    let began = Instant::now();
    for number in 0_u32.. {
        let due = began + every.mul_f64(viewer as f64 / VIEWERS as f64) + every * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let page = PAGES[(number as usize + viewer) % PAGES.len()];
        let asked = Instant::now();
        write!(requests, "GET {page} HTTP/1.1\r\nHost: {console}\r\nCookie: {cookie}\r\n\r\n")?;
        let (head, body) = read_answer(&mut answers)?;
        anyhow::ensure!(head.starts_with("HTTP/1.1 200"), "{page}: {head}{body}");
        took.push((page, asked.elapsed().as_secs_f64() * 1000.0));
    }
    Ok(took)
}

fn keys() -> Keys {
    Keys::new(STREAM)
}

impl Filled {
    fn new() -> anyhow::Result<Self> {
        let server = RedisServer::start();
        let mut connection = contenders::connect(server.port())?;
        for first in (0..BUSY).step_by(AT_ONCE) {
            let mut pipeline = redis::pipe();
            for n in first..first + AT_ONCE {
                let key = keys().subject(&format!("busy-{n:05}").parse()?);
                pipeline.hset(key, "limit:requests", 1_000_000_000_u64).ignore();
            }
            let () = pipeline.query(&mut connection)?;
        }
        let receiver = Receiver::start(Protocol::Http)?;
        let path = |n: usize| if n.is_multiple_of(2) { "/hook" } else { REFUSING_PATH };
        let contact = |n: usize| {
            let url = format!("http://127.0.0.{}:{}{}", n + 1, receiver.port, path(n));
            serde_json::json!({"channel": "webhook", "url": url, "secret": SECRET})
        };
        let contacts: Vec<serde_json::Value> = (0..CONTACTS).map(contact).collect();
        // The port is free again when the daemon binds it.
        let console = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let settings = vec![
            ("QUOTABELL__CONSOLE__LISTEN", console.to_string()),
            ("QUOTABELL__HTTP__TOKEN", TOKEN.to_owned()),
            ("QUOTABELL__PLANS__FREE__LIMITS", LIMIT.to_owned()),
            ("QUOTABELL__FALLBACK__CONTACTS", serde_json::to_string(&contacts)?),
            // What is refused is dead after its second attempt.
            ("QUOTABELL__RETRY__FIRST", "1s".to_owned()),
            ("QUOTABELL__RETRY__GIVE_UP_AFTER", "1s".to_owned()),
            ("QUOTABELL__WEBHOOK__ALLOW_HTTP", "true".to_owned()),
            ("QUOTABELL__WEBHOOK__ALLOW_PRIVATE_NETWORKS", "true".to_owned()),
        ];
        Ok(Self { server, connection, console, settings, _receiver: receiver })
    }

    fn daemon(&self) -> anyhow::Result<Daemon> {
        Daemon::start(self.server.port(), &self.settings)
    }
}

const SECRET: &str = "whsec_YmVuY2hiZW5jaGJlbmNoYmVuY2hiZW5jaGJlbmNo";
