//! Caps of the real binary: receivers and mailboxes get no more than their cap, and everything in the end.

use std::collections::BTreeSet;

use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::outbox::{Outbox, subject};
use crate::support::receivers::{HttpCatcher, SmtpCatcher, SmtpSetup};
use crate::support::redis_server::RedisServer;
use crate::support::webhook_receiver::{secret, verify};
use quotabell::types::{Channel, DeliveryId, meters};

/// A Redis, and a daemon to be started on it.
struct DaemonSetting {
    outbox: Outbox,
    setup: DaemonSetup,
}

/// An admitted call in the sliding window.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Admitted {
    at_us: u64,
    member: String,
}

impl DaemonSetting {
    fn found() -> Self {
        let outbox = Outbox::on(RedisServer::start());
        let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":100}"#);
        Self { outbox, setup }
    }

    fn capped(self, setting: &str, value: &str) -> Self {
        Self { setup: self.setup.env(setting, value), ..self }
    }

    /// Brings a subject to its threshold.
    async fn cross(&self, of: &str) {
        let _: String = self.outbox.run("XADD", &["usage", "*", "subject", of, "units", "80"]).await;
    }

    async fn set(&self, of: &str, contacts: serde_json::Value) {
        self.outbox.set_contacts(&subject(of), &contacts.to_string()).await;
    }

    async fn deliveries(&self) -> Vec<DeliveryId> {
        let ids: Vec<String> = self.outbox.run("ZRANGE", &[self.outbox.keys.deliveries().as_str(), "0", "-1"]).await;
        ids.iter().map(|id| DeliveryId::from_stored(id)).collect()
    }

    /// Deliveries without an attempt that are scheduled at or after this server time.
    async fn put_off_until(&self, due_ms: i64) -> Vec<DeliveryId> {
        let mut put_off = Vec::new();
        for id in self.deliveries().await {
            let untried = self.outbox.field(&id, "attempts").await.as_deref() == Some("0");
            let clock = self.outbox.field(&id, "first_attempt_at_ms").await;
            if untried && clock.is_none() && self.outbox.due(&id).await.is_some_and(|due| due >= due_ms) {
                put_off.push(id);
            }
        }
        put_off
    }

    /// Checks that every delivery was delivered by its first attempt.
    async fn expect_one_attempt_each(&self, deliveries: usize) {
        let ids = self.deliveries().await;
        assert_eq!(ids.len(), deliveries);
        for id in ids {
            assert_eq!(self.outbox.state(&id).await, "delivered");
            assert_eq!(self.outbox.field(&id, "attempts").await.as_deref(), Some("1"), "{id}");
            assert!(self.outbox.field(&id, "attempt:1").await.is_some(), "{id}");
        }
        self.outbox.assert_balanced().await;
    }

    async fn server_ms(&self) -> i64 {
        let (seconds, micros): (i64, i64) = self.outbox.client.query(&redis::cmd("TIME")).await.expect("TIME works");
        seconds * 1000 + micros / 1000
    }
}

async fn throttled(daemon: &mut Daemon, channel: &str) -> u64 {
    let series = format!("{}{{channel=\"{channel}\"}} ", meters::DELIVERIES_THROTTLED);
    let page = daemon.get("/metrics").await.body;
    page.lines().find_map(|line| line.strip_prefix(&series)).expect("the metric").parse().expect("a number")
}

fn webhook(id: &str, receiver: &HttpCatcher) -> serde_json::Value {
    serde_json::json!({"id": id, "channel": "webhook", "url": receiver.url(&format!("/{id}")), "secret": secret(7)})
}

/// The origin of a receiver.
fn origin(receiver: &HttpCatcher) -> String {
    format!("http://{}", receiver.address())
}

/// A cap is a promise to the receiver's owner; and alerts to others must not wait for it.
#[tokio::test]
async fn a_destination_gets_no_more_than_its_cap_and_all_of_it_in_the_end() {
    const CAP: usize = 2;
    const WINDOW_US: u64 = 1_000_000;
    const SUBJECTS: usize = 5;
    let setting = DaemonSetting::found().capped("QUOTABELL__WEBHOOK__PER_DESTINATION", "2/1s");
    let mut busy = HttpCatcher::start([]).await.expect("a receiver");
    let mut calm = HttpCatcher::start([]).await.expect("a receiver");
    let mut daemon = setting.setup.start().await;
    for n in 0..SUBJECTS {
        let name = format!("s{n}");
        setting.set(&name, serde_json::json!([webhook("a", &busy), webhook("b", &busy)])).await;
        setting.cross(&name).await;
    }
    setting.set("calm", serde_json::json!([webhook("c", &calm)])).await;
    setting.cross("calm").await;

    // The admitted calls, read repeatedly; each call stays in the window for a second.
    let window = setting.outbox.keys.cap(Channel::Webhook, Some(&origin(&busy)));
    let admitted = std::sync::Mutex::new(BTreeSet::new());
    eventually("everything is delivered", || async {
        let members: Vec<(String, u64)> =
            setting.outbox.run("ZRANGE", &[window.as_str(), "0", "-1", "WITHSCORES"]).await;
        let members = members.into_iter().map(|(member, at_us)| Admitted { at_us, member });
        admitted.lock().expect("not poisoned").extend(members);
        (setting.outbox.totals().await.delivered == 2 * SUBJECTS as u64 + 1).then_some(())
    })
    .await;
    let admitted: Vec<u64> =
        admitted.into_inner().expect("not poisoned").into_iter().map(|admitted| admitted.at_us).collect();
    assert_eq!(admitted.len(), 2 * SUBJECTS);
    for (index, at_us) in admitted.iter().enumerate().skip(CAP) {
        let apart_us = at_us - admitted[index - CAP];
        assert!(apart_us >= WINDOW_US, "{apart_us} us between call {} and call {index}", index - CAP);
    }

    let mut paths = BTreeSet::new();
    let mut last = None;
    for _ in 0..2 * SUBJECTS {
        let request = busy.next().await;
        paths.insert((request.uri.path().to_owned(), verify(&request, &secret(7)).id));
        last = Some(request.arrived);
    }
    assert_eq!(paths.len(), 2 * SUBJECTS, "each contact got each alert once");
    assert!(busy.try_next().is_none());
    assert!(calm.next().await.arrived < last.expect("one"), "the calm receiver was not held up");
    setting.expect_one_attempt_each(2 * SUBJECTS + 1).await;
    // Each is tried a few times, not at every free place.
    let throttled = throttled(&mut daemon, "webhook").await;
    assert!((1..=10 * 2 * SUBJECTS as u64).contains(&throttled), "{throttled}");
    assert!(daemon.has_said("a cap is exhausted"));
    // With its colon, because the digits alone may be in an id or a time.
    let port = format!(":{}", busy.address().port());
    assert!(daemon.lines_after(0).iter().all(|line| !line.contains(&port)), "no address in the log");
    daemon.drain().await;
}

/// The provider's limit: exactly this number of emails per minute, the rest later, and none of them counts as
/// attempted.
#[tokio::test]
async fn mail_beyond_the_cap_waits_for_the_next_minute() {
    let mut mailbox = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    let setting = DaemonSetting::found()
        .capped("QUOTABELL__EMAIL__PER_MINUTE", "2")
        .capped("QUOTABELL__EMAIL__SMTP_URL", &mailbox.url());
    let mut daemon = setting.setup.start().await;
    for n in 0..5 {
        let name = format!("s{n}");
        setting.set(&name, serde_json::json!([{"channel": "email", "address": format!("{name}@b.test")}])).await;
        setting.cross(&name).await;
    }
    let window = setting.outbox.keys.cap(Channel::Email, None);
    let mut mails = BTreeSet::new();
    for expected in [2, 4, 5] {
        let left = 5 - expected;
        let put_off = eventually("so many leave and the rest waits", || async {
            let delivered = setting.outbox.totals().await.delivered as usize;
            assert!(delivered <= expected, "{delivered} have left");
            // In this order the sum is never later than the window's end.
            let now_ms = setting.server_ms().await;
            let left_ms: i64 = setting.outbox.run("PTTL", &window).await;
            let put_off = setting.put_off_until(now_ms + left_ms.max(0) - 2).await;
            (delivered == expected && put_off.len() == left && left_ms > 0).then_some(put_off)
        })
        .await;
        while mails.len() < expected {
            let mail = tokio::time::timeout(WAIT_MAX, mailbox.next()).await.expect("a mail in time");
            assert!(mails.insert(mail.to), "one mail each");
        }
        assert!(mailbox.try_next().is_none());
        // The minute has ended.
        let _: u64 = setting.outbox.run("DEL", &window).await;
        for id in put_off {
            setting.outbox.let_time_pass(&id).await;
        }
    }
    setting.expect_one_attempt_each(5).await;
    // Three were postponed in the first minute, one in the second.
    assert_eq!(throttled(&mut daemon, "email").await, 3 + 1);
    daemon.drain().await;
}

/// If a cap's key is overwritten, the log must say that alerts wait and why; neither the alerts nor the cap may be
/// lost.
#[tokio::test]
async fn a_cap_whose_key_holds_something_else_holds_back_and_loses_nothing() {
    let setting = DaemonSetting::found().capped("QUOTABELL__WEBHOOK__PER_DESTINATION", "9/1s");
    let mut broken = HttpCatcher::start([]).await.expect("a receiver");
    let mut whole = HttpCatcher::start([]).await.expect("a receiver");
    let key = setting.outbox.keys.cap(Channel::Webhook, Some(&origin(&broken)));
    let () = setting.outbox.run("SET", &[key.as_str(), "somebody else's"]).await;
    let mut daemon = setting.setup.start().await;
    for (name, contact) in
        [("alice", webhook("a", &broken)), ("bob", webhook("b", &broken)), ("carol", webhook("c", &whole))]
    {
        setting.set(name, serde_json::json!([contact])).await;
        setting.cross(name).await;
    }
    tokio::time::timeout(WAIT_MAX, whole.next()).await.expect("the other destination is not held up");
    let said = daemon.says("the key of a cap holds something other than a count").await;
    assert!(said.contains("ERROR") && said.contains("quota_cap:{usage}:webhook:*"), "{said}");
    for _ in 0..3 {
        let put_off = eventually("both wait", || async {
            let put_off = setting.put_off_until(setting.server_ms().await + 1).await;
            (put_off.len() == 2).then_some(put_off)
        })
        .await;
        for id in put_off {
            setting.outbox.let_time_pass(&id).await;
        }
    }
    let times = daemon.lines_after(0).iter().filter(|line| line.contains("the key of a cap holds")).count();
    assert_eq!(times, 1, "said once");
    assert!(broken.try_next().is_none());
    let _: u64 = setting.outbox.run("DEL", &key).await;
    for id in setting.put_off_until(0).await {
        setting.outbox.let_time_pass(&id).await;
    }
    for _ in 0..2 {
        let request = tokio::time::timeout(WAIT_MAX, broken.next()).await.expect("it leaves once it is mended");
        verify(&request, &secret(7));
    }
    eventually("all are delivered", || async { (setting.outbox.totals().await.delivered == 3).then_some(()) }).await;
    setting.expect_one_attempt_each(3).await;
    let port = broken.address().port().to_string();
    assert!(daemon.lines_after(0).iter().all(|line| !line.contains(&port)), "no address in the log");
    daemon.drain().await;
}
