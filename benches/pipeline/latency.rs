//! The latency of an alert: from just before its XADD is sent to the arrival of its webhook, under a steady rate of
//! events.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::receivers::HttpCatcher;
use anyhow::Context as _;
use redis::Connection;
use serde::Deserialize;

use crate::Size;
use crate::contenders;
use crate::daemon::Daemon;
use crate::figures::{Series, millis};
use crate::load::STREAM;
use crate::redis_server::RedisServer;

/// Events per second.
const EVENTS_S: u32 = 1_000;
/// Number of events per alert.
const EVENTS_AN_ALERT: u32 = 20;
/// Number of subjects of all other events.
const BACKGROUND_SUBJECTS: u32 = 1_000;
/// Maximum time until the last webhook.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Daily limit of every alerted subject; 4 of 5 units are 80 %.
const LIMIT: &str = r#"{"requests":5}"#;

/// The identity of an alert: subject and threshold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Due {
    subject: String,
    percent: u16,
}

/// The part of a webhook's body that identifies the alert.
#[derive(Debug, Deserialize)]
struct Body {
    data: Data,
}

#[derive(Debug, Deserialize)]
struct Data {
    subject: String,
    threshold_percent: u16,
}

/// The measurements of the producer.
#[derive(Debug, Default)]
struct Sent {
    /// When the sending of each event that makes an alert due began.
    due: HashMap<Due, Instant>,
    /// Duration of each XADD, milliseconds: the noise of the machine.
    round_trips_ms: Series,
    took: Duration,
}

/// Measures and prints.
pub fn run(size: Size) -> anyhow::Result<()> {
    let events = EVENTS_S * size.pick(20, 2);
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(measure(events))
}

async fn measure(events: u32) -> anyhow::Result<()> {
    let server = RedisServer::start();
    let mut catcher = HttpCatcher::start([]).await.context("start the receiver of webhooks")?;
    let mut connection = contenders::connect(server.port())?;
    for n in 0..BACKGROUND_SUBJECTS {
        let key = format!("{}busy-{n}", quotabell::types::keys::SUBJECT_PREFIX_DEFAULT);
        let () = redis::cmd("HSET").arg(key).arg("limit:requests").arg(1_000_000_000).query(&mut connection)?;
    }
    let contact = serde_json::json!([{
        "channel": "webhook", "url": catcher.url("/hook"), "secret": "whsec_YmVuY2hiZW5jaGJlbmNoYmVuY2hiZW5jaGJlbmNo",
    }]);
    let _daemon = Daemon::start(
        server.port(),
        &[
            ("QUOTABELL__FALLBACK__CONTACTS", contact.to_string()),
            ("QUOTABELL__PLANS__FREE__LIMITS", LIMIT.to_owned()),
            ("QUOTABELL__WEBHOOK__ALLOW_HTTP", "true".to_owned()),
            ("QUOTABELL__WEBHOOK__ALLOW_PRIVATE_NETWORKS", "true".to_owned()),
        ],
    )?;
    // Not counted: the first alert opens connections and fills caches.
    produce(&mut connection, 0, EVENTS_AN_ALERT)?;
    catcher.next().await;

    let producer = tokio::task::spawn_blocking(move || produce(&mut connection, EVENTS_AN_ALERT, events));
    let mut arrived: Vec<(Due, Instant)> = Vec::new();
    let alerts = (events / EVENTS_AN_ALERT) as usize;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(u64::from(events / EVENTS_S)) + WAIT_MAX;
    while arrived.len() < alerts {
        let caught = tokio::time::timeout_at(deadline, catcher.next()).await;
        let caught = caught.with_context(|| format!("{} of {alerts} webhooks arrived", arrived.len()))?;
        let Body { data } = serde_json::from_slice(&caught.body).context("read a webhook")?;
        arrived.push((Due { subject: data.subject, percent: data.threshold_percent }, caught.arrived));
    }
    let mut sent = producer.await??;
    let mut took_ms = Series::default();
    for (due, at) in arrived {
        let began = sent.due.remove(&due).with_context(|| format!("{due:?} arrived twice or was not due"))?;
        took_ms.push(at.duration_since(began).as_secs_f64() * 1000.0);
    }
    anyhow::ensure!(sent.due.is_empty() && catcher.try_next().is_none(), "an alert is missing or doubled");
    print(events, alerts, &sent, &took_ms);
    Ok(())
}

/// Sends `events` events, the first with the number `first`, at [`EVENTS_S`].
fn produce(connection: &mut Connection, first: u32, events: u32) -> anyhow::Result<Sent> {
    let mut sent = Sent::default();
    let began = Instant::now();
    for n in 0..events {
        let number = first + n;
        let due_at = began + Duration::from_secs(1) * n / EVENTS_S;
        std::thread::sleep(due_at.saturating_duration_since(Instant::now()));
        // The first such event of a subject reaches 80 %, the second 100 %.
        let ring = number / EVENTS_AN_ALERT;
        let (subject, units, percent) = match (number % EVENTS_AN_ALERT, ring % 2) {
            (0, 0) => (format!("ring-{}", ring / 2), 4, Some(80)),
            (0, _) => (format!("ring-{}", ring / 2), 1, Some(100)),
            _ => (format!("busy-{}", number % BACKGROUND_SUBJECTS), 1, None),
        };
        let now = Instant::now();
        let mut command = redis::cmd("XADD");
        command.arg(STREAM).arg("*").arg("subject").arg(&subject).arg("units").arg(units);
        let _: String = command.query(connection)?;
        sent.round_trips_ms.push(now.elapsed().as_secs_f64() * 1000.0);
        if let Some(percent) = percent {
            sent.due.insert(Due { subject, percent }, now);
        }
    }
    sent.took = began.elapsed();
    Ok(sent)
}

fn print(events: u32, alerts: usize, sent: &Sent, took_ms: &Series) {
    let rate = f64::from(events) / sent.took.as_secs_f64();
    println!("\n## From XADD to the webhook received\n");
    println!(
        "{events} events at {rate:.0}/s from one producer, {alerts} of them reach a threshold; the daemon with its defaults, nothing pinned.\n"
    );
    println!("| | p50 | p90 | p99 | longest |");
    println!("|---|---|---|---|---|");
    for (name, series) in [("XADD to webhook", took_ms), ("XADD alone, the machine's noise", &sent.round_trips_ms)] {
        let [p50, p90, p99, longest] = [0.5, 0.9, 0.99, 1.0].map(|share| format!("{:.2} ms", series.quantile(share)));
        println!("| {name} | {p50} | {p90} | {p99} | {longest} |");
    }
    println!("\naim: p99 <= 3 ms, here {}", millis(took_ms.quantile(0.99)));
}
