//! Deployments are distinguished: the same subject, limit and day give different ids.

use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::outbox::Outbox;
use quotabell::types::Alert;

/// The ids of the alert and of its delivery.
#[derive(Debug, PartialEq, Eq)]
struct Ids {
    alert: String,
    delivery: String,
}

async fn instance(outbox: &Outbox) -> String {
    outbox.run("HGET", &[&outbox.keys.checkpoint(), "instance"]).await
}

/// Crosses 80 % of this metric, and reads the result.
async fn cross(outbox: &Outbox, metric: &str, before: u64) -> Ids {
    let words = [
        "usage",
        "*",
        "subject",
        "alice",
        "metric",
        metric,
        "units",
        "80",
        "ts",
        &outbox.totals().await.now.0.to_string(),
    ];
    let _: String = outbox.run("XADD", &words).await;
    eventually("the delivery waits for a contact", || async {
        (outbox.totals().await.waiting == before + 1).then_some(())
    })
    .await;
    let records: Vec<String> = outbox.run("KEYS", &format!("quota_raised:{{usage}}:{metric}:*")).await;
    let record: Vec<String> = outbox.run("HVALS", &[&records[0]]).await;
    let alert: Alert = serde_json::from_str(&record[0]).expect("an alert");
    let deliveries: Vec<String> = outbox.run("ZRANGE", &[outbox.keys.deliveries().as_str(), "0", "-1"]).await;
    let delivery = deliveries.into_iter().next_back().expect("one");
    Ids { alert: alert.id.to_string(), delivery }
}

/// A receiver that drops known ids would drop the alert of the second environment. The deployment id is drawn once and
/// kept.
#[tokio::test]
async fn two_deployments_never_share_an_id_and_a_restart_changes_none() {
    let mut all = Vec::new();
    for _ in 0..2 {
        let outbox = Outbox::start();
        let setup = DaemonSetup::on(&outbox.server.url())
            .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":100,"tokens":100}"#);
        let daemon = setup.start().await;
        let ids = cross(&outbox, "requests", 0).await;
        let drawn = instance(&outbox).await;
        assert!(drawn.len() == 32 && drawn.bytes().all(|byte| byte.is_ascii_hexdigit()), "{drawn}");
        daemon.kill().await;
        let daemon = setup.start().await;
        let tokens = cross(&outbox, "tokens", 1).await;
        assert_eq!(instance(&outbox).await, drawn);
        daemon.drain().await;
        all.push((drawn, ids, tokens));
    }
    let [(one, ids, tokens), (other, other_ids, other_tokens)] = &all[..] else { panic!("two deployments") };
    assert_ne!(one, other);
    for (a, b) in [(ids, other_ids), (tokens, other_tokens), (ids, tokens)] {
        assert!(a.alert != b.alert && a.delivery != b.delivery, "{a:?} {b:?}");
    }
}
