//! Alerts that wait for a contact: the cost of changes of subjects, and that none is missed.

use std::collections::BTreeSet;
use std::sync::Arc;

use quotabell::contacts::resolver::ContactResolver;
use quotabell::outbox::{FanOutLoop, MultiplePolicy, OutboxContext, wake_subject, wake_subjects};
use quotabell::redis_client::RedisClient;
use quotabell::types::{Destination, Subject};
use tokio_util::sync::CancellationToken;

use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::outbox::{Outbox, alert, email, json, subject, waiting_delivery};
use crate::support::proxy::{Fault, Proxy};

/// Number of times that the server has run a command.
async fn calls(outbox: &Outbox, command: &str) -> u64 {
    let info: String = outbox.run("INFO", "commandstats").await;
    let of_command = format!("cmdstat_{command}:calls=");
    let line = info.lines().find_map(|line| line.strip_prefix(of_command.as_str()));
    line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().expect("a number"))
}

async fn due_now(outbox: &Outbox) -> BTreeSet<String> {
    let now = outbox.totals().await.now.0;
    let due: Vec<String> =
        outbox.run("ZRANGEBYSCORE", &[&outbox.keys.due(&Destination::none()), "-inf", &now.to_string()]).await;
    due.into_iter().collect()
}

/// An import of a million subjects must not run a million scripts: subjects without waiting alerts cost a part of a
/// pipeline, and without any waiting alert one call.
#[tokio::test]
async fn only_subjects_with_alerts_that_wait_cost_a_script() {
    let outbox = Outbox::start();
    let imported: Vec<Subject> = (0..1200).map(|n| subject(&format!("s{n:04}"))).collect();
    let woken = wake_subjects(&outbox.client, &outbox.keys, &imported).await.expect("redis answers");
    assert_eq!((woken, calls(&outbox, "evalsha").await, calls(&outbox, "zrangebylex").await), (0, 0, 0));

    let names = ["s0007", "s0700", "s07", "s1199", "s11999", "t"];
    for name in names {
        outbox.fan_out_new(&alert(&subject(name), 80), &[]).await;
    }
    outbox.fan_out_new(&alert(&subject("s0700"), 100), &[]).await;
    // The server already has the script.
    wake_subject(&outbox.client, &outbox.keys, &subject("nobody")).await.expect("redis answers");
    let scripts = calls(&outbox, "evalsha").await;
    let woken = wake_subjects(&outbox.client, &outbox.keys, &imported).await.expect("redis answers");
    assert_eq!(woken, 4);
    assert_eq!(calls(&outbox, "evalsha").await - scripts, 3, "one for each of them");
    let mut expected: BTreeSet<String> = ["s0007", "s0700", "s1199"]
        .iter()
        .map(|name| waiting_delivery(&alert(&subject(name), 80)).to_string())
        .collect();
    expected.insert(waiting_delivery(&alert(&subject("s0700"), 100)).to_string());
    assert_eq!(due_now(&outbox).await, expected);
}

/// A contact that is added between the read of the contacts and the write of the delivery is noticed before anything
/// waits: the alert would otherwise wait until it expires.
#[tokio::test]
async fn a_contact_that_comes_while_an_alert_is_fanned_out_wakes_it() {
    let outbox = Outbox::start();
    let alice = subject("alice");
    let raised = alert(&alice, 80);
    outbox.raise(&raised).await;
    let proxy = Proxy::to(outbox.server.port()).await;
    // The reply without a contact passes, and the script that creates the delivery waits.
    proxy.set(Fault::HoldScripts);
    let stop = CancellationToken::new();
    let context = OutboxContext {
        client: Arc::new(RedisClient::new(redis::Client::open(proxy.url()).expect("a URL"))),
        keys: outbox.keys.clone(),
        contacts: Arc::new(ContactResolver::new(outbox.keys.clone(), Vec::new())),
        on_multiple: MultiplePolicy::Each,
        new_deliveries: Arc::default(),
    };
    let running = tokio::spawn(FanOutLoop::new(context, Arc::default()).run(stop.clone()));
    eventually("contacts are read", || async { (calls(&outbox, "hmget").await > 0).then_some(()) }).await;
    outbox.set_contacts(&alice, &json(&[email("new")])).await;
    // The listener looks now.
    let woken = wake_subject(&outbox.client, &outbox.keys, &alice).await.expect("redis answers");
    assert_eq!(woken, 0, "it does not wait yet");
    proxy.set(Fault::None);
    let id = waiting_delivery(&raised).to_string();
    eventually("it is due", || async { due_now(&outbox).await.contains(&id).then_some(()) }).await;
    stop.cancel();
    running.await.expect("it ends well").expect("redis answers");
}

/// Thousands of alerts that waited for one contact must not cost a script each, nor be lost in a shared call.
#[tokio::test]
async fn alerts_that_waited_for_one_contact_are_fanned_out_together() {
    const ALERTS: u16 = 600;
    let outbox = Outbox::start();
    let alice = subject("alice");
    for percent in 1..=ALERTS {
        outbox.fan_out_new(&alert(&alice, percent), &[]).await;
    }
    let daemon = DaemonSetup::on(&outbox.server.url()).start().await;
    let scripts = calls(&outbox, "evalsha").await;
    // Its filter accepts none of them: the test counts alerts, not messages.
    let contact = r#"[{"channel":"email","address":"a@b.test","thresholds":[999]}]"#;
    outbox.set_contacts(&alice, contact).await;
    let nothing_waits = || async { (outbox.run::<u64>("ZCARD", outbox.keys.waiting()).await == 0).then_some(()) };
    eventually("nothing waits", nothing_waits).await;
    let scripts = calls(&outbox, "evalsha").await - scripts;
    assert!(scripts < u64::from(ALERTS) / 2, "{scripts} scripts");
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.cancelled, totals.pending, totals.made), (u64::from(ALERTS), 0, u64::from(ALERTS)));
    daemon.drain().await;
}
