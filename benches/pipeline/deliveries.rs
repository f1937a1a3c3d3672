//! The cost of sending: alerts through the daemon to receivers on this machine, compared with a loop that makes only
//! the same requests; and a storm of alerts to many receivers at once.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use quotabell::types::keys::SUBJECT_PREFIX_DEFAULT;
use redis::Connection;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::Size;
use crate::bench_server::server_cpu_us;
use crate::contenders::{self, Done};
use crate::daemon::Daemon;
use crate::figures::{Series, mebibytes};
use crate::load::STREAM;
use crate::machine;
use crate::receiver::{Protocol, Receiver};
use crate::redis_server::RedisServer;

/// Marks the bench's binary as a plain sender; its order follows as JSON.
pub const FLAG: &str = "--poster";
/// The secret of the webhooks.
const SECRET: &str = "whsec_YmVuY2hiZW5jaGJlbmNoYmVuY2hiZW5jaGJlbmNo";
/// Daily limit of every subject; 4 of 5 units are 80 %.
const LIMIT: &str = r#"{"requests":5}"#;
/// Concurrent requests of the plain loop: the daemon's maximum per receiver.
const AT_ONCE: usize = 16;
/// Length of a body, similar to that of an alert.
const BODY_BYTES: usize = 400;
/// Number of subjects that reach a threshold behind a storm, each with its own receiver.
const BEHIND: u32 = 20;
/// Commands per pipeline.
const PIPELINE: u32 = 1000;
/// Interval between two reads of progress and memory.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Maximum time of a run.
const WAIT_MAX: Duration = Duration::from_secs(900);

/// The messages and receivers of a run.
#[derive(Debug, Clone, Copy)]
struct Task {
    protocol: Protocol,
    messages: u32,
    destinations: u32,
}

/// The result of a run through the daemon.
#[derive(Debug)]
struct Sent {
    seconds: f64,
    daemon_us: f64,
    /// The server's time for the alerts: without the time for the same events if they reach no threshold.
    redis_us: f64,
    memory: Vec<f64>,
    server_bytes: f64,
    /// When all events were counted, seconds after the first event.
    counted_s: f64,
}

/// The subjects behind a storm, and when their alerts arrived.
#[derive(Debug)]
struct Behind {
    receiver: Receiver,
    told_s: Option<f64>,
}

/// The order of the plain loop.
#[derive(Debug, Serialize, Deserialize)]
struct PlainOrder {
    port: u16,
    requests: u32,
    keeps_connections: bool,
}

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    let messages = size.pick(6_000, 200);
    let rounds = size.pick(3, 1);
    println!("\n## Deliveries: {messages} messages at once, {rounds} rounds\n");
    println!("The daemon's rows begin with the first XADD: counting and committing are in them.\n");
    println!("| | messages/s | a CPU second of the sender | Redis, ms a message |");
    println!("|---|---|---|---|");
    let mut ceiling = f64::NAN;
    for (name, keeps_connections) in [("plain loop, connections kept", true), ("plain loop, a connection each", false)]
    {
        let mut rates = (Series::default(), Series::default());
        for _ in 0..rounds {
            let receiver = Receiver::start(Protocol::Http)?;
            let done = plain(&PlainOrder { port: receiver.port, requests: messages, keeps_connections })?;
            rates.0.push(f64::from(messages) / done.seconds);
            rates.1.push(f64::from(messages) / done.cpu_us * 1e6);
        }
        println!("| {name} | {:.0} | {:.0} | |", rates.0.median(), rates.1.median());
        ceiling = rates.0.median();
    }
    let mut of_one = f64::NAN;
    for (name, protocol, destinations) in [
        ("quotabell, webhooks to 1 receiver", Protocol::Http, 1),
        ("quotabell, webhooks to 400 receivers", Protocol::Http, 400),
        ("quotabell, mails to 1 server", Protocol::Smtp, 1),
    ] {
        let (mut rate, mut per_cpu, mut redis_ms) = (Series::default(), Series::default(), Series::default());
        for _ in 0..rounds {
            let sent = send(Task { protocol, messages, destinations }, None)?;
            rate.push(f64::from(messages) / sent.seconds);
            per_cpu.push(f64::from(messages) / sent.daemon_us * 1e6);
            redis_ms.push(sent.redis_us / f64::from(messages) / 1000.0);
        }
        println!("| {name} | {:.0} | {:.0} | {:.3} |", rate.median(), per_cpu.median(), redis_ms.median());
        if destinations == 1 && protocol == Protocol::Http {
            of_one = rate.median();
        }
    }
    println!("\nof the plain loop with a connection each: {:.2} (aim: at least 0.5)", of_one / ceiling);
    storm(size)
}

fn storm(size: Size) -> anyhow::Result<()> {
    let task =
        Task { protocol: Protocol::Http, messages: size.pick(200_000, 2_000), destinations: size.pick(50_000, 500) };
    println!("\n## A storm: {} alerts at once to {} receivers\n", task.messages, task.destinations);
    let mut behind = Behind { receiver: Receiver::start(task.protocol)?, told_s: None };
    let sent = send(task, Some(&mut behind))?;
    let told_s = behind.told_s.context("those behind the storm were told")?;
    println!(
        "{BEHIND} subjects behind it were told after {told_s:.1} s, all was counted after {:.1} s",
        sent.counted_s
    );
    let tenths = sent.memory.len().div_ceil(10).max(1);
    let memory: Vec<String> = sent.memory.chunks(tenths).map(|some| mebibytes(some[0])).collect();
    println!("all arrived after {:.1} s, {:.0}/s", sent.seconds, f64::from(task.messages) / sent.seconds);
    println!("the daemon's memory over time: {}", memory.join(", "));
    println!("Redis at the end: {}", mebibytes(sent.server_bytes));
    Ok(())
}

/// Sends through the daemon, from the event to the received message.
fn send(task: Task, mut behind: Option<&mut Behind>) -> anyhow::Result<Sent> {
    let Task { protocol, messages, destinations } = task;
    let mut receiver = Receiver::start(protocol)?;
    let server = RedisServer::start();
    let mut connection = contenders::connect(server.port())?;
    let port = receiver.port;
    let daemon = Daemon::start(
        server.port(),
        &[
            ("QUOTABELL__PLANS__FREE__LIMITS", LIMIT.to_owned()),
            ("QUOTABELL__WEBHOOK__ALLOW_HTTP", "true".to_owned()),
            ("QUOTABELL__WEBHOOK__ALLOW_PRIVATE_NETWORKS", "true".to_owned()),
            ("QUOTABELL__EMAIL__SMTP_URL", format!("smtp://127.0.0.1:{port}")),
        ],
    )?;
    pipelined(&mut connection, messages, |pipeline, n| {
        let contact = match protocol {
            Protocol::Http => webhook(n % destinations, port),
            Protocol::Smtp => serde_json::json!([{"channel": "email", "address": format!("s-{n}@example.test")}]),
        };
        set_contact(pipeline, &format!("s-{n}"), &contact);
    })?;
    let mut expected = 2 * messages;
    if let Some(Behind { receiver, .. }) = &behind {
        pipelined(&mut connection, BEHIND, |pipeline, n| {
            set_contact(pipeline, &format!("behind-{n}"), &webhook(n, receiver.port));
        })?;
        expected += BEHIND;
    }
    // The same events, first with few units, so that they reach no threshold.
    let counted = append(&mut connection, messages, 1)?;
    wait(|| Ok(entries_read(&mut connection)? == u64::from(messages)))?;
    let counting_us = server_cpu_us(&mut connection)? - counted;
    let (daemon_before, mut memory) = (daemon.cpu_us()?, Vec::new());
    let began = Instant::now();
    let redis_before = append(&mut connection, messages, 3)?;
    if behind.is_some() {
        pipelined(&mut connection, BEHIND, |pipeline, n| add_event(pipeline, &format!("behind-{n}"), 4))?;
    }
    let mut counted_s = None;
    wait(|| {
        memory.push(daemon.resident_bytes()?);
        let now_s = began.elapsed().as_secs_f64();
        if counted_s.is_none() && entries_read(&mut connection)? == u64::from(expected) {
            counted_s = Some(now_s);
        }
        if let Some(Behind { receiver, told_s: told_s @ None }) = behind.as_deref_mut()
            && receiver.received()? == u64::from(BEHIND)
        {
            *told_s = Some(now_s);
        }
        let all_told = behind.as_ref().is_none_or(|behind| behind.told_s.is_some());
        Ok(all_told && receiver.received()? >= u64::from(messages))
    })?;
    let seconds = began.elapsed().as_secs_f64();
    // The outcomes of the last messages are recorded after their arrival.
    wait(|| Ok(redis::cmd("ZCARD").arg(keys().pending()).query::<u64>(&mut connection)? == 0))?;
    let received = receiver.received()?;
    anyhow::ensure!(received == u64::from(messages), "{received} messages arrived, {messages} alerts were raised");
    let info: redis::InfoDict = redis::cmd("INFO").arg("memory").query(&mut connection)?;
    Ok(Sent {
        seconds,
        daemon_us: daemon.cpu_us()? - daemon_before,
        redis_us: server_cpu_us(&mut connection)? - redis_before - counting_us,
        memory,
        server_bytes: info.get("used_memory").context("used_memory")?,
        counted_s: counted_s.unwrap_or(seconds),
    })
}

/// The contacts of a subject with the receiver of this number.
fn webhook(number: u32, port: u16) -> serde_json::Value {
    let [_, a, b, c] = (number + (1 << 16)).to_be_bytes();
    serde_json::json!([{"channel": "webhook", "url": format!("http://127.{a}.{b}.{c}:{port}/hook"), "secret": SECRET}])
}

fn set_contact(pipeline: &mut redis::Pipeline, subject: &str, contacts: &serde_json::Value) {
    let key = format!("{SUBJECT_PREFIX_DEFAULT}{subject}");
    pipeline.cmd("HSET").arg(key).arg("contacts").arg(contacts.to_string()).ignore();
}

fn add_event(pipeline: &mut redis::Pipeline, subject: &str, units: u32) {
    pipeline.cmd("XADD").arg(STREAM).arg("*").arg("subject").arg(subject).arg("units").arg(units).ignore();
}

fn keys() -> quotabell::types::Keys {
    quotabell::types::Keys::new(STREAM)
}

/// Appends an event per subject; returns the server's CPU time before.
fn append(connection: &mut Connection, subjects: u32, units: u32) -> anyhow::Result<f64> {
    let before = server_cpu_us(connection)?;
    pipelined(connection, subjects, |pipeline, n| add_event(pipeline, &format!("s-{n}"), units))?;
    Ok(before)
}

fn pipelined(connection: &mut Connection, count: u32, add: impl Fn(&mut redis::Pipeline, u32)) -> anyhow::Result<()> {
    for first in (0..count).step_by(PIPELINE as usize) {
        let mut pipeline = redis::pipe();
        (first..count.min(first + PIPELINE)).for_each(|n| add(&mut pipeline, n));
        let () = pipeline.query(connection)?;
    }
    Ok(())
}

/// Number of entries read.
fn entries_read(connection: &mut Connection) -> redis::RedisResult<u64> {
    let read: Option<u64> = redis::cmd("HGET").arg(keys().checkpoint()).arg("entries_read").query(connection)?;
    Ok(read.unwrap_or(0))
}

fn wait(mut is_done: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_done()? {
        anyhow::ensure!(Instant::now() < deadline, "not done after {WAIT_MAX:?}");
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Runs the plain loop as a separate process.
fn plain(order: &PlainOrder) -> anyhow::Result<Done> {
    let child = Command::new(std::env::current_exe()?)
        .args([FLAG, &serde_json::to_string(order)?])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("run the plain loop")?;
    anyhow::ensure!(child.status.success(), "the plain loop failed");
    serde_json::from_slice(&child.stdout).context("read what the plain loop says")
}

/// The plain loop itself.
pub fn execute(order: &str) -> anyhow::Result<()> {
    let order: PlainOrder = serde_json::from_str(order)?;
    // No request uses TLS, but a client can't be created without it.
    anyhow::ensure!(rustls::crypto::ring::default_provider().install_default().is_ok(), "TLS was set up before");
    let done = tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(post_all(&order))?;
    println!("{}", serde_json::to_string(&done)?);
    Ok(())
}

async fn post_all(order: &PlainOrder) -> anyhow::Result<Done> {
    let kept = if order.keeps_connections { AT_ONCE } else { 0 };
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(kept).build()?;
    let url = format!("http://127.0.0.1:{}/hook", order.port);
    let (began, before) = (Instant::now(), machine::cpu_us()?);
    let mut loops = JoinSet::new();
    for share in 0..AT_ONCE {
        let (client, url, requests) = (client.clone(), url.clone(), order.requests as usize);
        loops.spawn(async move {
            for _ in (share..requests).step_by(AT_ONCE) {
                let request = client.post(&url).header("content-type", "application/json").body("x".repeat(BODY_BYTES));
                request.send().await?.error_for_status()?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = loops.join_next().await {
        ended??;
    }
    Ok(Done { seconds: began.elapsed().as_secs_f64(), cpu_us: machine::cpu_us()? - before })
}
