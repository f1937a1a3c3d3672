//! Receivers that flood the real daemon: other receivers must not notice.

use std::time::{Duration, Instant};

use crate::support::api::Caller;
use crate::support::certificates::Certificates;
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::WAIT_MAX;
use crate::support::outbox::{Outbox, subject};
use crate::support::receivers::HttpCatcher;
use crate::support::scripted_server::{FLOODED, REQUEST, ScriptedServer, Step};
use crate::support::tls_flood::TlsFlood;
use crate::support::webhook_receiver::secret;
use serde_json::json;
use tokio::task::JoinSet;

/// Receivers that send informational responses without end.
const FLOODING: usize = 40;
const HEALTHY: usize = 20;
const FLOOD: &str = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n";
/// Far above the normal time, even on a busy machine, and below the former time: beside twelve such receivers 20 alerts
/// took 9 s.
const TIME_MAX: Duration = Duration::from_secs(8);

/// Eight unverified receivers used to occupy the daemon: alerts and checks took seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_that_flood_delay_nobody_else() {
    let outbox = Outbox::start();
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":100}"#);
    // Each is retried during the test. Five retries per second, as in other tests, would be unrealistic.
    let setup = ["RETRY__FIRST", "RETRY__MAX_INTERVAL", "DELIVERY__PROBE_FIRST", "DELIVERY__PROBE_MAX"]
        .iter()
        .fold(setup, |setup, setting| setup.env(&format!("QUOTABELL__{setting}"), "3s"));
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let certificates = Certificates::new();
    let setup = setup.env("QUOTABELL__WEBHOOK__CA_FILE", &certificates.authority_file().to_string_lossy());
    let mut flooding = Vec::new();
    for number in 0..FLOODING {
        let floods = ScriptedServer::start([REQUEST, Step::Flood(FLOOD)]).await;
        contact(&outbox, &format!("hostile-{number}"), &floods.url()).await;
        flooding.push(floods);
    }
    for flood in TlsFlood::ALL {
        let floods = ScriptedServer::start([Step::TlsFlood(certificates.flooding_acceptor(), flood)]).await;
        contact(&outbox, &format!("{flood:?}"), &format!("https://localhost:{}/", floods.port())).await;
        flooding.push(floods);
    }
    for number in 0..HEALTHY {
        contact(&outbox, &format!("healthy-{number}"), &receiver.url("/hook")).await;
    }
    let mut daemon = setup.start().await;
    let api = Caller::of(&mut daemon).await;
    for number in 0..FLOODING {
        cross(&outbox, &format!("hostile-{number}")).await;
    }
    for flood in TlsFlood::ALL {
        cross(&outbox, &format!("{flood:?}")).await;
    }
    for floods in &flooding[..FLOODING] {
        floods.has_heard(1).await;
    }
    let mut checks = JoinSet::new();
    checks.spawn(async move {
        let mut took = Vec::new();
        loop {
            let asked = Instant::now();
            let status = api.post("/v1/check", &json!({"subject": "somebody"})).await.status;
            took.push((asked.elapsed(), status));
            if took.len() == 300 {
                return took;
            }
        }
    });
    let started = Instant::now();
    for number in 0..HEALTHY {
        cross(&outbox, &format!("healthy-{number}")).await;
    }
    for number in 0..HEALTHY {
        let next = tokio::time::timeout(WAIT_MAX, receiver.next()).await;
        next.unwrap_or_else(|_| panic!("{number} healthy alerts arrived"));
    }
    let alerts = started.elapsed();
    let mut took = checks.join_next().await.expect("checks").expect("answered");
    took.sort_unstable();
    let (median, p99) = (took[took.len() / 2].0, took[took.len() * 99 / 100].0);
    println!("{HEALTHY} alerts took {alerts:?}, checks {median:?} at the median and {p99:?} at the 99th percentile");
    daemon.says(FLOODED).await;
    assert!(took.iter().all(|(_, status)| *status == 200));
    assert!(alerts < TIME_MAX, "{HEALTHY} healthy alerts took {alerts:?}");
    assert!(p99 < TIME_MAX, "a check took {p99:?}");
}

async fn contact(outbox: &Outbox, of: &str, url: &str) {
    let contact = json!([{"id": "c", "channel": "webhook", "url": url, "secret": secret(1)}]);
    outbox.set_contacts(&subject(of), &contact.to_string()).await;
}

async fn cross(outbox: &Outbox, of: &str) {
    let _: String = outbox.run("XADD", &["usage", "*", "subject", of, "units", "80"]).await;
}
