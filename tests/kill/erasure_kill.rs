//! `DELETE` of a subject while the daemon is killed with SIGKILL at random moments: a client that repeats the request
//! until it is answered removes all data of the subject, and no data of others. `QUOTABELL_TEST_SEED` repeats a run's
//! choices.

use std::net::SocketAddr;

use crate::seed::seed_of_run;
use crate::support::daemon::{DaemonSetup, own_address};
use crate::support::eventually::eventually;
use crate::support::outbox::{Outbox, subject};
use quotabell::types::alert::digest_of;
use quotabell::types::{Day, Keys, Metric, UnixMs, keys};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis::Value;
use serde_json::json;

const TOKEN: &str = "a-token-for-one-test-0123456789";
/// Number of erasures that a kill interrupts.
const KILLS: u64 = 30;
/// Reaches both thresholds of the hourly and the daily limit.
const UNITS: u64 = 12;

/// Each step of an erasure is a separate command: an interrupted and repeated erasure must leave nothing, and no total
/// in the worker's cache may restore a counter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subject_is_erased_once_it_is_answered_whenever_the_daemon_is_killed() {
    let mut random = StdRng::seed_from_u64(seed_of_run());
    let _ = rustls::crypto::ring::default_provider().install_default();
    let outbox = Outbox::start();
    let address = own_address();
    let setup = DaemonSetup::on(&outbox.server.url()).at(address).env("QUOTABELL__HTTP__TOKEN", TOKEN);
    let mut daemon = setup.start().await;
    let (mut entries, mut cut_off) = (0, 0);
    for round in 0..KILLS {
        let (gone, other) = (format!("gone-{round}-"), format!("other-{round}-"));
        for of in [&gone, &other] {
            let settings = Keys::new("usage").subject(&subject(of));
            let _: u64 = outbox.run("HSET", &[settings.as_str(), "limit:requests", "10/hour 10/day"]).await;
            add(&outbox, of, &UNITS.to_string()).await;
            add(&outbox, of, "many").await;
        }
        entries += 4;
        add_request(&outbox, &gone, round).await;
        is_read(&outbox, entries).await;
        let erasure = tokio::spawn(erase(address, gone.clone()));
        for _ in 0..random.random_range(0..400) {
            let _: String = outbox.run("PING", &[] as &[&str]).await;
        }
        daemon.kill().await;
        daemon = setup.start().await;
        if !erasure.await.expect("it ends well") {
            cut_off += 1;
            assert!(erase(address, gone.clone()).await, "nobody kills this one");
        }
        assert_eq!(naming(&outbox, &gone).await, [] as [String; 0]);
        // The subject is still metered, from zero.
        add(&outbox, &gone, "3").await;
        entries += 1;
        is_read(&outbox, entries).await;
        assert_eq!(counted(&outbox, &gone).await, 3, "{gone}");
    }
    for round in 0..KILLS {
        let other = format!("other-{round}-");
        assert_eq!(counted(&outbox, &other).await, UNITS, "{other}");
    }
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.counted, totals.refused), (3 * KILLS, 2 * KILLS));
    eprintln!("{KILLS} kills, {cut_off} of them before the answer");
    assert!(cut_off > KILLS / 10, "too few erasures were cut off: {cut_off}");
    daemon.drain().await;
}

/// Sends the request once. Returns whether it was answered.
async fn erase(address: SocketAddr, of: String) -> bool {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let request = client.delete(format!("http://{address}/v1/subjects/{of}")).bearer_auth(TOKEN);
    match request.send().await {
        Ok(answer) => {
            assert_eq!(answer.status(), 200, "{of}");
            answer.text().await.is_ok()
        }
        Err(_) => false,
    }
}

async fn add(outbox: &Outbox, of: &str, units: &str) {
    let _: String = outbox.run("XADD", &["usage", "*", "subject", of, "units", units]).await;
}

/// Leaves the stored data of a contact that was asked for its consent and removed before it consented.
async fn add_request(outbox: &Outbox, of: &str, round: u64) {
    let request = json!({
        "id": format!("verification_{round}"), "subject": of, "contact": "c", "consent": "n", "requested_at_ms": 1,
        "expires_at_ms": 2,
    });
    let link = outbox.keys.verify_link(&round.to_string());
    let _: () = outbox.run("SET", &[link.as_str(), request.to_string().as_str()]).await;
    let _: u64 = outbox.run("ZADD", &[outbox.keys.unverified().as_str(), "1e15", &format!("{of}\0n")]).await;
    let sent = outbox.keys.verify_sent(&digest_of(&[of]));
    let _: u64 = outbox.run("ZADD", &[sent.as_str(), "1e15", "request:n", "1e15", &format!("token:{round}")]).await;
}

/// Waits until this number of entries is read, and the raised alerts are fanned out.
async fn is_read(outbox: &Outbox, entries: u64) {
    eventually("everything is counted", || async {
        let read: Option<u64> = outbox.run("HGET", &[outbox.keys.checkpoint().as_str(), "entries_read"]).await;
        (read == Some(entries) && outbox.totals().await.outbox == 0).then_some(())
    })
    .await;
}

/// The keys that name a subject, or whose values do. Usage events and digests of their ids expire by themselves.
async fn naming(outbox: &Outbox, of: &str) -> Vec<String> {
    let keys: Vec<String> = outbox.run("KEYS", "*").await;
    let mut naming = Vec::new();
    for key in keys.into_iter().filter(|key| key != outbox.keys.stream()) {
        let kind: String = outbox.run("TYPE", &key).await;
        let value: Value = match kind.as_str() {
            "hash" => outbox.run("HGETALL", &key).await,
            "zset" => outbox.run("ZRANGE", &[key.as_str(), "0", "-1"]).await,
            "set" => outbox.run("SMEMBERS", &key).await,
            "stream" => outbox.run("XRANGE", &[key.as_str(), "-", "+"]).await,
            "string" => outbox.run("GET", &key).await,
            _ => Value::Nil,
        };
        if key.contains(of) || holds(&value, of) {
            naming.push(key);
        }
    }
    naming
}

fn holds(value: &Value, of: &str) -> bool {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).contains(of),
        Value::Array(parts) => parts.iter().any(|part| holds(part, of)),
        _ => false,
    }
}

/// Units counted for a subject on any day.
async fn counted(outbox: &Outbox, of: &str) -> u64 {
    let (seconds, _): (i64, i64) = outbox.run("TIME", &[] as &[&str]).await;
    let today = Day::in_utc(UnixMs(seconds * 1000)).expect("in range");
    let mut units = 0;
    for day in [today.before(1).expect("in range"), today] {
        let key = outbox.keys.usage(&Metric::default(), day, keys::bucket(of));
        units += outbox.run::<Option<u64>>("HGET", &[key.as_str(), of]).await.unwrap_or(0);
    }
    units
}
