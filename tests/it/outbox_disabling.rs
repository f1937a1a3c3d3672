//! Disabled contacts and the notices to others: real channels, real receivers, a real server.

use std::sync::Arc;
use std::time::Duration;

use crate::support::receivers::{Answer, HttpCatcher, Phase, Reply, SmtpCatcher, SmtpSetup, Times};
use quotabell::channels::ChannelSettings;
use quotabell::channels::email::EmailConfig;
use quotabell::channels::webhook::WebhookConfig;
use quotabell::config::Config;
use quotabell::contacts::resolver::ContactResolver;
use quotabell::contacts::{Contact, OperatorContact};
use quotabell::outbox::forget::forget_deliveries;
use quotabell::outbox::{
    DispatcherConfig, FanOutLoop, LEASE_MARGIN, MultiplePolicy, OutboxContext, RetryConfig, Slots, wake_subject,
};
use quotabell::redis_client::RedisClient;
use quotabell::types::{Alert, DeliveryId, Metric, Secret, Subject, Threshold};
use quotabell::views::deliveries::show;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::eventually::WAIT_MAX;
use crate::support::mail_server::ParsedMail;
use crate::support::notifier::{NoConsentRequests, Sending};
use crate::support::outbox::{
    GIVE_UP_AFTER, Outbox, alert, delivery, delivery_config, json, subject, until, waiting_delivery,
};
use crate::support::proxy::{Fault, Proxy};
use crate::support::webhook_receiver::{secret, verify};

/// Receivers for the contacts of one subject, and one for the operator.
struct ContactReceivers {
    outbox: Outbox,
    alice: Subject,
    hook: HttpCatcher,
    mailbox: SmtpCatcher,
    operator: HttpCatcher,
}

/// The configured contacts.
#[derive(Default)]
struct Configured {
    fallback: Vec<Contact>,
    operator: Vec<OperatorContact>,
    on_multiple: Option<MultiplePolicy>,
}

impl ContactReceivers {
    async fn found(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self {
            outbox: Outbox::start(),
            alice: subject("alice"),
            hook: HttpCatcher::start(answers).await.expect("a receiver"),
            mailbox: SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server"),
            operator: HttpCatcher::start([]).await.expect("a receiver"),
        }
    }

    fn hook(&self) -> Contact {
        Contact::webhook(&self.hook.url("/hook"), Secret::new(secret(7)))
    }

    fn operator(&self) -> OperatorContact {
        let contact = Contact::webhook(&self.operator.url("/ops"), Secret::new(secret(8)));
        OperatorContact { contact, plans: Vec::new(), notices: true }
    }

    async fn set(&self, contacts: &[Contact]) {
        self.outbox.set_contacts(&self.alice, &json(contacts)).await;
    }

    async fn raise(&self, percent: u16) -> Alert {
        let alert = alert(&self.alice, percent);
        self.outbox.raise(&alert).await;
        alert
    }

    /// The loops of a daemon, directly on the server.
    fn start(&self, configured: Configured) -> Running {
        self.start_on(Arc::clone(&self.outbox.client), configured)
    }

    fn start_on(
        &self,
        client: Arc<RedisClient>,
        Configured { fallback, operator, on_multiple }: Configured,
    ) -> Running {
        let (keys, on_multiple) = (self.outbox.keys.clone(), on_multiple.unwrap_or(MultiplePolicy::Each));
        let defaults = Config::defaults().expect("valid");
        let email = EmailConfig { smtp_url: self.mailbox.url().into(), ..defaults.email };
        let webhook = WebhookConfig { allow_http: true, allow_private_networks: true, ..defaults.webhook };
        let settings = ChannelSettings { email: &email, webhook: &webhook, dns: &defaults.dns };
        let retry = RetryConfig { first: Duration::from_millis(1), factor: 1.0, ..defaults.retry };
        let sending = Sending::new(Arc::clone(&client), settings, retry).expect("legal settings");
        let contacts = Arc::new(ContactResolver::new(keys.clone(), fallback).with_operator(&operator));
        let context = OutboxContext { client, keys, contacts, on_multiple, new_deliveries: Arc::default() };
        let fan_out = FanOutLoop::new(context.clone(), Arc::default());
        let dispatcher = DispatcherConfig {
            outbox: context,
            notifier: Arc::new(sending.notifier),
            consents: Arc::new(NoConsentRequests),
            slots: Slots::new(&delivery_config(16)),
            config: delivery_config(16),
            give_up_after: GIVE_UP_AFTER,
            lease_margin: LEASE_MARGIN,
        };
        let stop = CancellationToken::new();
        let (for_fan_out, for_dispatcher) = (stop.clone(), stop.clone());
        let fan_out = tokio::spawn(async move { drop(fan_out.run(for_fan_out).await) });
        let dispatcher = tokio::spawn(async move { drop(dispatcher.run(for_dispatcher).await) });
        Running { tasks: vec![fan_out, dispatcher], stop }
    }

    /// The field `disabled` of the contact with this address.
    async fn disabled(&self, contact: &Contact) -> Option<Value> {
        let key = self.outbox.keys.subject(&self.alice);
        let stored: String = self.outbox.run("HGET", &[key.as_str(), "contacts"]).await;
        let stored: Vec<Value> = serde_json::from_str(&stored).expect("contacts");
        stored.into_iter().find(|one| one["id"] == contact.id.as_str())?.get("disabled").cloned()
    }

    async fn until_ended(&self, made: u64) {
        until("all deliveries ended", || async {
            let totals = self.outbox.totals().await;
            totals.made == made && totals.pending == 0 && totals.outbox == 0
        })
        .await;
        self.outbox.assert_balanced().await;
    }

    /// Status and outcome of each attempt, and the state of the delivery.
    async fn log(&self, id: &DeliveryId) -> (String, Vec<(Option<u16>, String)>) {
        let detail = show(&self.outbox.partition(), &[], id).await.expect("readable").expect("there");
        let attempts = detail.attempt_log.into_iter().map(|attempt| (attempt.status, attempt.outcome)).collect();
        (detail.delivery.state.to_string(), attempts)
    }

    /// Subject lines of the emails so far, in order.
    fn mails(&mut self) -> Vec<String> {
        let mails = std::iter::from_fn(|| self.mailbox.try_next());
        let mut lines: Vec<String> =
            mails.map(|mail| ParsedMail::parse(&mail.text()).header("Subject").to_owned()).collect();
        lines.sort();
        lines
    }

    /// Types of the operator's notifications so far, in order.
    fn operator_got(&mut self) -> Vec<Value> {
        let requests = std::iter::from_fn(|| self.operator.try_next());
        let mut bodies: Vec<Value> = requests.map(|request| verify(&request, &secret(8)).body).collect();
        bodies.sort_by_key(|body| body["type"].to_string());
        bodies
    }
}

struct Running {
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Running {
    /// Stops the loops and waits for the drain.
    async fn drained(mut self) {
        self.stop.cancel();
        for task in std::mem::take(&mut self.tasks) {
            tokio::time::timeout(WAIT_MAX, task).await.expect("the drain ends").expect("no panic");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn mail() -> Contact {
    Contact::email("alice@b.test")
}

/// A receiver that is gone must get nothing more, and its alerts must reach others, who are told once.
#[tokio::test]
async fn a_receiver_that_is_gone_is_disabled_and_the_others_are_told_once() {
    let mut receivers = ContactReceivers::found([Answer::status(410)]).await;
    receivers.set(&[receivers.hook(), mail()]).await;
    let (first, second) = (receivers.raise(80).await, receivers.raise(100).await);
    // Both deliveries are created before the first attempt; a third alert comes after the contact is disabled.
    let running = receivers.start(Configured { operator: vec![receivers.operator()], ..Configured::default() });
    receivers.until_ended(2 * 3 + 2).await;
    let third = Alert { metric: Metric::parse(b"tokens").expect("legal"), ..alert(&receivers.alice, 90) };
    receivers.outbox.raise(&third).await;
    receivers.until_ended(2 * 3 + 2 + 2).await;
    drop(running);

    let disabled = receivers.disabled(&receivers.hook()).await.expect("a mark");
    assert_eq!((&disabled["reason"], &disabled["detail"]), (&"gone".into(), &"HTTP 410".into()));
    assert!(disabled["at"].as_str().expect("text").ends_with('Z'), "{disabled}");
    assert_eq!(receivers.disabled(&mail()).await, None);
    let mut logs = Vec::new();
    for alert in [&first, &second] {
        logs.push(receivers.log(&delivery(alert, &receivers.hook())).await);
    }
    assert!(logs.iter().all(|(state, _)| state == "cancelled"), "{logs:?}");
    let attempts: Vec<_> = logs.into_iter().flat_map(|(_, attempts)| attempts).collect();
    assert_eq!(attempts, [(Some(410), "permanent".to_owned())]);
    assert!(receivers.outbox.field(&delivery(&third, &receivers.hook()), "state").await.is_none(), "none was made");

    let mails = receivers.mails();
    assert_eq!(mails.iter().filter(|line| line.contains("no more quota alerts to http://")).count(), 1, "{mails:?}");
    // The first two alerts are of one commit.
    assert_eq!(mails.len(), 2 + 1, "{mails:?}");
    let got = receivers.operator_got();
    let types: Vec<&Value> = got.iter().map(|body| &body["type"]).collect();
    assert_eq!(types[..2], ["contact.disabled", "quota.threshold_reached"]);
    assert_eq!((&got[0]["data"]["subject"], &got[0]["data"]["reason"]), (&"alice".into(), &"gone".into()));
    assert!(got[1..].iter().all(|body| body["data"]["copy"] == true), "{got:?}");
    assert_eq!(got.len(), 1 + 3);
}

/// The only contact of a subject: its alert must not be lost, and must arrive after it is enabled again.
#[tokio::test]
async fn the_alert_of_the_only_contact_goes_to_the_operator_and_waits_until_it_is_enabled() {
    let mut receivers = ContactReceivers::found([Answer::status(410)]).await;
    receivers.set(&[receivers.hook()]).await;
    // It filters this threshold out, but gets notices.
    let mut operator = receivers.operator();
    operator.contact.filter.thresholds = vec!["50".parse().expect("legal")];
    let running = receivers.start(Configured { operator: vec![operator], ..Configured::default() });
    let alert = receivers.raise(80).await;
    let (waiting, own) = (waiting_delivery(&alert), delivery(&alert, &receivers.hook()));
    until("the alert waits", || async {
        receivers.outbox.field(&waiting, "state").await.as_deref() == Some("pending")
    })
    .await;
    until("its delivery ended", || async { receivers.outbox.state(&own).await == "cancelled" }).await;
    until("the operator is told", || async { receivers.outbox.totals().await.delivered == 2 }).await;
    let got = receivers.operator_got();
    assert_eq!(
        got.iter().map(|body| &body["type"]).collect::<Vec<_>>(),
        ["contact.disabled", "quota.threshold_reached"]
    );

    receivers.set(&[receivers.hook()]).await;
    wake_subject(&receivers.outbox.client, &receivers.outbox.keys, &receivers.alice).await.expect("redis answers");
    until("it is delivered", || async { receivers.outbox.state(&own).await == "delivered" }).await;
    drop(running);
    assert_eq!(receivers.log(&own).await.1.len(), 2);
    receivers.outbox.assert_balanced().await;
}

/// A receiver may accept its last webhook and request no more.
#[tokio::test]
async fn a_receiver_that_asks_for_no_more_is_disabled_by_its_last_delivery() {
    let mut receivers = ContactReceivers::found([Answer::status(200).header("webhook-delivery", "disable")]).await;
    receivers.set(&[receivers.hook(), mail()]).await;
    let _running = receivers.start(Configured::default());
    let alert = receivers.raise(80).await;
    receivers.until_ended(3).await;
    assert_eq!(receivers.log(&delivery(&alert, &receivers.hook())).await.0, "delivered");
    assert_eq!(receivers.disabled(&receivers.hook()).await.expect("a mark")["reason"], "asked");
    assert_eq!(receivers.mails().len(), 2);
}

/// The stored note about a contact whose mailbox is unknown to its server.
async fn noted_unknown(receivers: &ContactReceivers) -> Option<String> {
    let key = format!("{}alice", receivers.outbox.keys.failing_prefix());
    receivers.outbox.run("HGET", &[key.as_str(), &format!("{} unknown", mail().id)]).await
}

/// A large provider answered "no such user" for every address for hours, and used to disable each contact that had an
/// alert.
#[tokio::test]
async fn a_mailbox_that_was_called_unknown_once_still_gets_the_alert() {
    let mut receivers = ContactReceivers::found([]).await;
    receivers.mailbox.program(Phase::Rcpt, Reply::Say("550 5.1.1 no such user"), Times::Once);
    receivers.set(&[mail()]).await;
    let running = receivers.start(Configured::default());
    let alert = receivers.raise(80).await;
    let own = delivery(&alert, &mail());
    until("the answer is noted", || async { noted_unknown(&receivers).await.is_some() }).await;
    drop(running);
    assert_eq!(receivers.log(&own).await, ("pending".to_owned(), vec![(Some(550), "rejected".to_owned())]));
    assert_eq!(receivers.disabled(&mail()).await, None);

    receivers.outbox.let_time_pass(&own).await;
    let _running = receivers.start(Configured::default());
    receivers.until_ended(1).await;
    assert_eq!(receivers.outbox.state(&own).await, "delivered");
    assert_eq!(receivers.mails().len(), 1);
    assert_eq!(noted_unknown(&receivers).await, None, "a mail that arrives proves the mailbox");
}

/// An alert that is given up because of an unknown mailbox before its contact is disabled would reach nobody.
#[tokio::test]
async fn an_alert_to_an_unknown_mailbox_goes_to_others_before_it_is_given_up() {
    let mut receivers = ContactReceivers::found([]).await;
    receivers.mailbox.program(Phase::Rcpt, Reply::Say("550 5.1.1 no such user"), Times::Always);
    receivers.set(&[mail()]).await;
    let alert = receivers.raise(80).await;
    let own = delivery(&alert, &mail());
    let running = receivers.start(Configured { fallback: vec![receivers.hook()], ..Configured::default() });
    until("the answer is noted", || async { noted_unknown(&receivers).await.is_some() }).await;
    drop(running);
    let now = receivers.outbox.client.server_time().await.expect("redis answers").0;
    // A day has passed since its first attempt, but an hour less since the note.
    let first = (now - 86_400_000).to_string();
    let () =
        receivers.outbox.run("HSET", &[&receivers.outbox.keys.delivery(&own), "first_attempt_at_ms", &first]).await;
    let key = format!("{}alice", receivers.outbox.keys.failing_prefix());
    let field = format!("{} unknown", mail().id);
    for (age_ms, attempts, state) in [(82_800_000, 2, "pending"), (86_400_000, 3, "cancelled")] {
        let noted = format!("{} {}", now - age_ms, now - 3_600_000);
        let () = receivers.outbox.run("HSET", &[key.as_str(), &field, &noted]).await;
        receivers.outbox.let_time_pass(&own).await;
        let _running = receivers.start(Configured { fallback: vec![receivers.hook()], ..Configured::default() });
        until("it was attempted", || async { receivers.log(&own).await.1.len() == attempts }).await;
        until("it stands", || async { receivers.outbox.state(&own).await == state }).await;
        if state == "cancelled" {
            until("the alert went to the fallback", || async { receivers.outbox.totals().await.delivered == 2 }).await;
        }
    }
    let told = std::iter::from_fn(|| receivers.hook.try_next()).map(|request| verify(&request, &secret(7)).body);
    assert!(told.into_iter().any(|body| body["type"] == "quota.threshold_reached"));
}

/// Each email to a missing mailbox costs the sender's reputation.
#[tokio::test]
async fn a_mailbox_that_the_server_does_not_know_is_disabled() {
    let mut receivers = ContactReceivers::found([]).await;
    receivers.mailbox.program(Phase::Rcpt, Reply::Say("550 5.1.1 no such user"), Times::Once);
    receivers.set(&[receivers.hook(), mail()]).await;
    let now = receivers.outbox.client.server_time().await.expect("redis answers").0;
    let (key, field) = (format!("{}alice", receivers.outbox.keys.failing_prefix()), format!("{} unknown", mail().id));
    let noted = format!("{} {}", now - 86_400_000, now - 3_600_000);
    let () = receivers.outbox.run("HSET", &[key.as_str(), &field, &noted]).await;
    let _running = receivers.start(Configured::default());
    receivers.raise(80).await;
    receivers.until_ended(3).await;
    let disabled = receivers.disabled(&mail()).await.expect("a mark");
    assert_eq!((&disabled["reason"], &disabled["detail"]), (&"no_mailbox".into(), &"SMTP 550 5.1.1 to RCPT".into()));
    let mut told = Vec::new();
    while told.len() < 2 {
        let request = tokio::time::timeout(WAIT_MAX, receivers.hook.next()).await.expect("a request in time");
        told.push(verify(&request, &secret(7)).body["type"].as_str().expect("text").to_owned());
    }
    told.sort();
    assert_eq!(told, ["contact.disabled", "quota.threshold_reached"]);
}

/// Days of failures disable a contact; a success in between, or old failures, do not count.
#[tokio::test]
async fn days_of_failures_without_a_success_disable_a_contact() {
    const DAY_MS: i64 = 86_400_000;
    let receivers = ContactReceivers::found([503, 503, 204, 503].map(Answer::status)).await;
    receivers.set(&[receivers.hook(), mail()]).await;
    let key = format!("{}alice", receivers.outbox.keys.failing_prefix());
    let id = receivers.hook().id.to_string();
    let noted = || async { receivers.outbox.run::<Option<String>>("HGET", &[key.as_str(), &id]).await };
    let now = receivers.outbox.client.server_time().await.expect("redis answers").0;
    // An old failure: the time starts again.
    let old = format!("{} {}", now - 60 * DAY_MS, now - 6 * DAY_MS);
    let () = receivers.outbox.run("HSET", &[key.as_str(), &id, &old]).await;
    let running = receivers.start(Configured::default());
    receivers.raise(80).await;
    receivers.until_ended(2).await;
    drop(running);
    assert_eq!(noted().await, None, "a success removes what was noted");
    assert_eq!(receivers.disabled(&receivers.hook()).await, None);

    let recent = format!("{} {}", now - 5 * DAY_MS, now - DAY_MS);
    let () = receivers.outbox.run("HSET", &[key.as_str(), &id, &recent]).await;
    let running = receivers.start(Configured::default());
    let alert = receivers.raise(100).await;
    receivers.until_ended(5).await;
    drop(running);
    assert_eq!(receivers.log(&delivery(&alert, &receivers.hook())).await.0, "cancelled");
    assert_eq!(receivers.disabled(&receivers.hook()).await.expect("a mark")["reason"], "failing");
    assert_eq!(noted().await, None, "who is enabled again begins anew");
}

/// The first failure is recorded, and only while failures continue.
#[tokio::test]
async fn the_first_failure_is_noted_and_expires() {
    let receivers = ContactReceivers::found([Answer::status(503), Answer::status(503)]).await;
    let gate = CancellationToken::new();
    receivers.hook.then(Answer::status(204).held_by(&gate));
    receivers.set(&[receivers.hook()]).await;
    let key = format!("{}alice", receivers.outbox.keys.failing_prefix());
    let _running = receivers.start(Configured::default());
    receivers.raise(80).await;
    let id = receivers.hook().id.to_string();
    until("two failures are noted", || async {
        let noted: Option<String> = receivers.outbox.run("HGET", &[key.as_str(), &id]).await;
        noted.is_some_and(|noted| noted.split_once(' ').is_some_and(|(first, newest)| first < newest))
    })
    .await;
    let left: i64 = receivers.outbox.run("TTL", &key).await;
    assert!((1..=14 * 86_400).contains(&left), "{left}");
    gate.cancel();
    until("it is removed", || async { !receivers.outbox.run::<bool>("EXISTS", &key).await }).await;
}

/// Only the operator may remove a configured contact.
#[tokio::test]
async fn contacts_of_the_configuration_are_never_disabled() {
    let receivers = ContactReceivers::found([Answer::status(410), Answer::status(410)]).await;
    let (fallback, mut operator) = (vec![receivers.hook()], receivers.operator());
    operator.contact = Contact::webhook(&receivers.hook.url("/ops"), Secret::new(secret(8)));
    let _running = receivers.start(Configured { fallback, operator: vec![operator], ..Configured::default() });
    receivers.raise(80).await;
    receivers.until_ended(2).await;
    assert_eq!(receivers.outbox.totals().await.dead, 2);
    assert!(!receivers.outbox.run::<bool>("EXISTS", &receivers.outbox.keys.subject(&receivers.alice)).await);
}

/// Receivers, their dispatcher, and an alert whose email is settled while the webhook holds back its response, a 410.
async fn attempt_held_by(gate: &CancellationToken) -> (ContactReceivers, Running, Alert) {
    let mut receivers = ContactReceivers::found([Answer::status(410).held_by(gate)]).await;
    receivers.set(&[receivers.hook(), mail()]).await;
    let running = receivers.start(Configured::default());
    let alert = receivers.raise(80).await;
    tokio::time::timeout(WAIT_MAX, receivers.hook.next()).await.expect("a request in time");
    until("the mail is settled", || async { receivers.outbox.totals().await.delivered == 1 }).await;
    (receivers, running, alert)
}

/// A daemon that dies after the mark has told nobody yet; the next one must do it, and must not send to the contact
/// again.
#[tokio::test]
async fn killed_after_the_mark_the_next_daemon_tells_the_others() {
    let gate = CancellationToken::new();
    let (mut receivers, running, alert) = attempt_held_by(&gate).await;
    // The mark can be written, but nothing of the deliveries.
    let circuits = receivers.outbox.keys.circuits();
    let () = receivers.outbox.run("SET", &[circuits.as_str(), "broken"]).await;
    gate.cancel();
    until("the contact is marked", || async { receivers.disabled(&receivers.hook()).await.is_some() }).await;
    drop(running);
    let () = receivers.outbox.run("DEL", &circuits).await;
    let own = delivery(&alert, &receivers.hook());
    assert_eq!(receivers.outbox.state(&own).await, "pending");
    assert_eq!(receivers.mails().len(), 1);

    receivers.outbox.let_time_pass(&own).await;
    let _running = receivers.start(Configured::default());
    receivers.until_ended(3).await;
    assert_eq!(receivers.outbox.state(&own).await, "cancelled");
    let mails = receivers.mails();
    assert!(mails.len() == 1 && mails[0].contains("no more quota alerts"), "{mails:?}");
    assert!(receivers.hook.try_next().is_none(), "nothing more is sent there");
}

/// A delivery that was settled before the others could be told used to end dead, and nobody else got its alert.
#[tokio::test]
async fn a_delivery_is_not_settled_before_the_others_are_told() {
    let gate = CancellationToken::new();
    let (receivers, running, alert) = attempt_held_by(&gate).await;
    // The mark can be written, but nothing may be sent.
    let checkpoint = receivers.outbox.keys.checkpoint();
    let () = receivers.outbox.run("HSET", &[checkpoint.as_str(), "moved_to", "elsewhere"]).await;
    gate.cancel();
    until("the contact is marked", || async { receivers.disabled(&receivers.hook()).await.is_some() }).await;
    running.drained().await;
    let own = delivery(&alert, &receivers.hook());
    assert_eq!(receivers.outbox.state(&own).await, "pending");

    let () = receivers.outbox.run("HDEL", &[checkpoint.as_str(), "moved_to"]).await;
    receivers.outbox.let_time_pass(&own).await;
    let _running = receivers.start(Configured::default());
    receivers.until_ended(3).await;
    assert_eq!(receivers.outbox.state(&own).await, "cancelled");
}

/// A delivery created after its subject was erased would name the subject for two weeks and report it to the operator.
#[tokio::test]
async fn a_subject_that_is_erased_while_its_contact_is_disabled_gets_no_deliveries() {
    let gate = CancellationToken::new();
    let mut receivers = ContactReceivers::found([Answer::status(410).held_by(&gate)]).await;
    receivers.set(&[receivers.hook()]).await;
    let () = receivers.outbox.run("ACL", &["SETUSER", "daemon", "on", ">right", "~*", "&*", "+@all"]).await;
    let configured = Configured { operator: vec![receivers.operator()], ..Configured::default() };
    let running = receivers.start_on(receivers.outbox.client_of("daemon:right"), configured);
    receivers.raise(80).await;
    tokio::time::timeout(WAIT_MAX, receivers.hook.next()).await.expect("a request in time");
    until("the operator's copy is settled", || async { receivers.outbox.totals().await.delivered == 1 }).await;
    // The mark can be written, but nothing of the deliveries.
    let marks = format!("~{}*", receivers.outbox.keys.subject_prefix());
    let () = receivers.outbox.run("ACL", &["SETUSER", "daemon", "resetkeys", &marks]).await;
    gate.cancel();
    until("the contact is marked", || async { receivers.disabled(&receivers.hook()).await.is_some() }).await;
    let () = receivers.outbox.run("DEL", &receivers.outbox.keys.subject(&receivers.alice)).await;
    let prefix = receivers.outbox.keys.delivery_prefix();
    let stored = async || -> Vec<String> { receivers.outbox.run("KEYS", format!("{prefix}*")).await };
    let ids: Vec<DeliveryId> =
        stored().await.iter().map(|key| DeliveryId::from_stored(key.trim_start_matches(&prefix))).collect();
    forget_deliveries(&receivers.outbox.partition(), &receivers.alice, &ids).await.expect("redis answers");
    let () = receivers.outbox.run("ACL", &["SETUSER", "daemon", "~*"]).await;
    running.drained().await;
    assert_eq!((stored().await, receivers.outbox.totals().await.made), (Vec::new(), 2));
}

/// Lost replies make each step run twice: one mark, one notice, one delivery.
#[tokio::test]
async fn a_lost_answer_doubles_nothing() {
    for lost in 1..=4 {
        let gate = CancellationToken::new();
        let mut receivers = ContactReceivers::found([Answer::status(410).held_by(&gate)]).await;
        receivers.set(&[receivers.hook(), mail()]).await;
        let proxy = Proxy::to(receivers.outbox.server.port()).await;
        let client = RedisClient::new(redis::Client::open(proxy.url()).expect("a URL"));
        let _running = receivers.start_on(Arc::new(client), Configured::default());
        receivers.raise(80).await;
        tokio::time::timeout(WAIT_MAX, receivers.hook.next()).await.expect("a request in time");
        until("the mail is settled", || async { receivers.outbox.totals().await.delivered == 1 }).await;
        proxy.set(Fault::LoseReply);
        gate.cancel();
        // The next replies too, one after another.
        for _ in 1..lost {
            proxy.done().await;
            proxy.set(Fault::LoseReply);
        }
        receivers.until_ended(3).await;
        assert_eq!(receivers.disabled(&receivers.hook()).await.expect("a mark")["reason"], "gone");
        assert_eq!(receivers.outbox.totals().await.cancelled, 1);
        assert_eq!(receivers.mails().iter().filter(|line| line.contains("no more quota alerts")).count(), 1);
    }
}

/// Each contact gets what its filter accepts, the operator gets the requested copies, and other alerts are only
/// recorded.
#[tokio::test]
async fn contacts_hear_what_they_name_and_the_operator_gets_copies() {
    let mut receivers = ContactReceivers::found([]).await;
    let mut late = mail();
    late.filter.thresholds = vec!["100".parse().expect("legal")];
    receivers.set(&[late.clone()]).await;
    let mut operator = receivers.operator();
    operator.contact.filter.thresholds = ["80", "90"].map(|text| text.parse().expect("legal")).to_vec();
    let configured =
        Configured { operator: vec![operator], on_multiple: Some(MultiplePolicy::Highest), ..Configured::default() };
    let _running = receivers.start(configured);
    // One commit moved the count above all of them.
    let thresholds = |list: &[u16]| {
        let read = |percent: &u16| percent.to_string().parse().expect("legal");
        list.iter().map(read).collect::<Vec<Threshold>>()
    };
    for (percent, higher) in [(50, &[80, 90, 100][..]), (80, &[90, 100]), (90, &[100]), (100, &[])] {
        let alert = Alert { higher_thresholds: thresholds(higher), ..alert(&receivers.alice, percent) };
        receivers.outbox.raise(&alert).await;
    }
    receivers.until_ended(2).await;
    assert_eq!(receivers.outbox.state(&delivery(&alert(&receivers.alice, 100), &late)).await, "delivered");
    let got = receivers.operator_got();
    assert_eq!(got.len(), 1);
    assert_eq!((&got[0]["data"]["threshold_percent"], &got[0]["data"]["copy"]), (&90.into(), &true.into()));
    assert_eq!(receivers.outbox.totals().await.waiting, 0);
}

/// Teams share the contact of their organization. What failed for one team must end with a success for another, and a
/// contact that fails for all of them must be disabled in time.
#[tokio::test]
async fn an_inherited_contact_is_judged_by_the_attempts_of_all_levels() {
    let mut receivers = ContactReceivers::found([Answer::status(500)]).await;
    let gate = CancellationToken::new();
    receivers.hook.then(Answer::status(204).held_by(&gate));
    receivers.outbox.keys = receivers.outbox.keys.clone().with_separator("/".parse().expect("a separator"));
    receivers.alice = subject("acme");
    receivers.set(&[receivers.hook()]).await;
    let _running = receivers.start(Configured::default());
    let noted = async |level: &str| -> Vec<String> {
        let key = format!("{}{level}", receivers.outbox.keys.failing_prefix());
        receivers.outbox.run("HKEYS", &[key.as_str()]).await
    };
    receivers.outbox.raise(&alert(&subject("acme/a"), 80)).await;
    until("the failure is noted", || async { noted("acme").await == [receivers.hook().id.to_string()] }).await;
    receivers.outbox.raise(&alert(&subject("acme/b"), 80)).await;
    gate.cancel();
    receivers.until_ended(2).await;
    for level in ["acme", "acme/a", "acme/b"] {
        assert_eq!(noted(level).await, [""; 0], "{level}");
    }
}
