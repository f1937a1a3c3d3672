//! Commands that read the ledger, run on a filled server.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use quotabell::outbox::Settlement;
use quotabell::redis_client::RedisClient;
use quotabell::types::{Alert, Day, DeliveryId, Keys, Metric, OutcomeClass, UnixMs, keys};
use serde_json::Value;

use super::binary::{Finished, quotabell};
use super::outbox::{LONG, Outbox, alert, in_period, outcome, settle, subject, webhook};
use super::redis_server::RedisServer;

/// Runs a command: its words, separated by spaces.
pub fn run(server: &RedisServer, line: &str) -> Finished {
    quotabell(line.split_whitespace()).redis(&server.url()).run()
}

/// The ids in a list.
pub fn ids(listed: &[Value]) -> Vec<&str> {
    listed.iter().map(|thing| thing["id"].as_str().expect("an id")).collect()
}

pub async fn server_time(client: &RedisClient) -> UnixMs {
    client.server_time().await.expect("TIME works")
}

/// Stores an alert as a commit does.
pub async fn record(client: &RedisClient, alert: &Alert) {
    let keys = Keys::new("usage");
    let raised = keys.raised(&alert.metric, alert.period, keys::bucket(alert.subject.as_str()));
    let field = Keys::raised_field(alert.threshold, &alert.subject);
    let mut pipeline = redis::pipe();
    pipeline.cmd("SADD").arg(keys.metrics(alert.period)).arg(alert.metric.as_str()).ignore();
    pipeline.cmd("HSET").arg(raised).arg(field).arg(serde_json::to_string(alert).expect("JSON")).ignore();
    let () = client.pipe(&pipeline).await.expect("written");
}

/// An alert of today with its count, limit and record.
pub async fn raise(client: &RedisClient, name: &str, percent: u16, used: u64, age_ms: i64) -> Alert {
    let now = server_time(client).await;
    let today = Day::in_utc(now).expect("a day");
    let raised_at_ms = UnixMs(now.0 - age_ms);
    let raised = in_period(Alert { used, raised_at_ms, ..alert(&subject(name), percent) }, today);
    record(client, &raised).await;
    let keys = Keys::new("usage");
    let counter = keys.usage(&Metric::default(), today, keys::bucket(name));
    let mut pipeline = redis::pipe();
    pipeline.cmd("HSET").arg(counter).arg(name).arg(used).ignore();
    pipeline.cmd("HSET").arg(keys.subject(&subject(name))).arg("limit:requests").arg(5000).ignore();
    let () = client.pipe(&pipeline).await.expect("written");
    raised
}

/// Alerts of today at 80 % for the subjects `s0`, `s1` and so on, with these counts of 5,000.
pub async fn raise_many(outbox: &Outbox, subjects: usize, used: impl Fn(usize) -> u64) {
    let Outbox { client, keys, .. } = outbox;
    let sample = raise(client, "s0", 80, used(0), 1000).await;
    for numbers in (1..subjects).collect::<Vec<_>>().chunks(2000) {
        let mut pipeline = redis::pipe();
        for number in numbers {
            let name = format!("s{number}");
            let raised = in_period(Alert { subject: subject(&name), ..sample.clone() }, sample.period);
            let bucket = keys::bucket(&name);
            let field = Keys::raised_field(raised.threshold, &raised.subject);
            let text = serde_json::to_string(&raised).expect("JSON");
            pipeline.cmd("HSET").arg(keys.raised(&raised.metric, raised.period, bucket)).arg(field).arg(text).ignore();
            pipeline.cmd("HSET").arg(keys.usage(&raised.metric, raised.period, bucket));
            pipeline.arg(&name).arg(used(*number)).ignore();
            pipeline.cmd("HSET").arg(keys.subject(&raised.subject)).arg("limit:requests").arg(5000).ignore();
        }
        let () = client.pipe(&pipeline).await.expect("written");
    }
}

/// An outbox with a dead delivery for each of these subjects.
pub async fn with_dead(names: &[&str]) -> (Outbox, Vec<DeliveryId>) {
    let outbox = Outbox::start();
    let mut dead = Vec::new();
    for name in names {
        outbox.fan_out_new(&alert(&subject(name), 80), &[webhook("a")]).await;
        let leased = outbox.lease_one("t", LONG).await;
        let end = Settlement::Dead(outcome(OutcomeClass::Permanent));
        settle(&outbox.client, &outbox.keys, &leased.id, &leased.token, &end).await.expect("settles");
        dead.push(leased.id);
    }
    (outbox, dead)
}

/// Hides varying parts in snapshots: ids (they contain the day), times, durations.
pub fn hide_what_varies() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"alert_[0-9a-f]{32}", "alert_ID");
    settings.add_filter(r"delivery_[0-9a-f]{32}", "delivery_ID");
    settings.add_filter(r#""\d{13}-\d+""#, "\"ENTRY\"");
    settings.add_filter(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME");
    settings.add_filter(r"\d{4}-\d\d-\d\d", "DAY");
    settings.add_filter(r#""duration_ms":\d+"#, r#""duration_ms":N"#);
    settings.add_filter(r"\b\d+ ms *", "N ms  ");
    settings.add_filter(r"\d\d-\d\d \d\d:\d\d", "MINUTE");
    settings.add_filter(r"(?m)^[0-9a-f]{8}  \d+[sm] +", "SHORT     AGE  ");
    settings.add_filter(r"(?m)  [0-9a-f]{8}$", "  SHORT");
    settings.add_filter(r"in \d+[smhd] *", "in N  ");
    settings.add_filter(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT");
    settings.add_filter(r"c_[0-9a-f]{16}", "c_ID");
    settings
}
