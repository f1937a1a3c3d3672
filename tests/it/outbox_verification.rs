//! A notification for one contact: a request for consent in the outbox, on a real server with real receivers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::echo_receiver::{Echo, EchoReceiver};
use crate::support::eventually::WAIT_MAX;
use crate::support::mail_server::ParsedMail;
use crate::support::notifier::Sending;
use crate::support::outbox::{GIVE_UP_AFTER, LONG, Outbox, delivery_config, outcome, settle, subject, until};
use crate::support::receivers::{Answer, HttpCatcher, Phase, Reply, SmtpCatcher, SmtpSetup, Times};
use crate::support::webhook_receiver::{secret, verify};
use quotabell::channels::email::EmailConfig;
use quotabell::channels::webhook::WebhookConfig;
use quotabell::channels::{BoxFuture, ChannelSettings, CodeAndLink, DnsConfig};
use quotabell::config::Config;
use quotabell::contacts::Contact;
use quotabell::contacts::resolver::ContactResolver;
use quotabell::outbox::{
    ConsentRequestError, ConsentRequests, DispatcherConfig, EnqueueReply, LEASE_MARGIN, MultiplePolicy, NewDelivery,
    OutboxContext, RetryConfig, SettleReply, Settlement, Slots, enqueue,
};
use quotabell::redis_client::ErrorKind;
use quotabell::types::{
    Channel, ConsentId, DeliveryId, DeliveryState, Destination, Notification, NotificationKind, OutcomeClass, Secret,
    UnixMs, VerificationRequest,
};
use quotabell::views::deliveries::show;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Far in the future of every server's clock here.
const NEVER: UnixMs = UnixMs(4_000_000_000_000);

/// Replaces the verification: numbers its codes and records the calls.
#[derive(Debug)]
struct Consents {
    /// The contact, unless the request is void.
    contact: Option<Contact>,
    drawn: AtomicU64,
    granted: AtomicU64,
    settled: Mutex<Vec<DeliveryState>>,
}

impl Consents {
    fn of(contact: Option<Contact>) -> Arc<Self> {
        let (drawn, granted) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { contact, drawn, granted, settled: Mutex::default() })
    }

    fn settled(&self) -> Vec<DeliveryState> {
        self.settled.lock().expect("no test holds it in a panic").clone()
    }
}

impl ConsentRequests for Consents {
    fn contact<'a>(
        &'a self,
        _: &'a VerificationRequest,
    ) -> BoxFuture<'a, Result<Option<Contact>, ConsentRequestError>> {
        Box::pin(std::future::ready(Ok(self.contact.clone())))
    }

    fn generate<'a>(&'a self, _: &'a VerificationRequest) -> BoxFuture<'a, Result<CodeAndLink, ConsentRequestError>> {
        let number = self.drawn.fetch_add(1, Ordering::SeqCst) + 1;
        let code = format!("{number:06}");
        let secrets = CodeAndLink { code: Secret::new(code), link: None, lifetime: Duration::from_secs(600) };
        Box::pin(std::future::ready(Ok(secrets)))
    }

    fn grant<'a>(&'a self, _: &'a VerificationRequest) -> BoxFuture<'a, Result<(), ConsentRequestError>> {
        self.granted.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(())))
    }

    fn settled(&self, _: &VerificationRequest, settlement: &Settlement) {
        self.settled.lock().expect("no test holds it in a panic").push(settlement.state());
    }
}

fn email() -> Contact {
    Contact { verified: false, ..Contact::email("new@b.test") }
}

fn request(contact: &Contact, expires_at_ms: UnixMs) -> Notification {
    Notification::Verification(VerificationRequest {
        id: "verification_1".to_owned(),
        subject: subject("alice"),
        contact: contact.id.clone(),
        consent: ConsentId::from_stored("digest.nonce"),
        requested_at_ms: UnixMs(1),
        expires_at_ms,
    })
}

async fn enqueued(outbox: &Outbox, notification: &Notification, contact: &Contact) -> (DeliveryId, EnqueueReply) {
    let new = NewDelivery { notification, contact };
    let answer = enqueue(&outbox.client, &outbox.keys, new).await.expect("enqueue works");
    (notification.delivery_to(&contact.id), answer)
}

/// A running dispatcher that sends through real channels.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn start(outbox: &Outbox, smtp_url: &str, consents: &Arc<Consents>) -> Self {
        let defaults = Config::defaults().expect("valid");
        let email = EmailConfig { smtp_url: smtp_url.into(), ..defaults.email };
        let webhook = WebhookConfig { allow_http: true, allow_private_networks: true, ..defaults.webhook };
        let dns = DnsConfig::default();
        let settings = ChannelSettings { email: &email, webhook: &webhook, dns: &dns };
        let retry = RetryConfig { first: Duration::from_millis(1), ..defaults.retry };
        let consents: Arc<dyn ConsentRequests> = Arc::clone(consents) as _;
        let sending = Sending::with_consents(Arc::clone(&outbox.client), settings, retry, Arc::clone(&consents));
        let dispatcher = DispatcherConfig {
            outbox: OutboxContext {
                client: Arc::clone(&outbox.client),
                keys: outbox.keys.clone(),
                contacts: Arc::new(ContactResolver::new(outbox.keys.clone(), Vec::new())),
                on_multiple: MultiplePolicy::Each,
                new_deliveries: Arc::default(),
            },
            notifier: Arc::new(sending.expect("legal settings").notifier),
            consents,
            slots: Slots::new(&delivery_config(4)),
            config: delivery_config(4),
            give_up_after: GIVE_UP_AFTER,
            lease_margin: LEASE_MARGIN,
        };
        let stop = CancellationToken::new();
        let token = stop.clone();
        let task = tokio::spawn(async move { dispatcher.run(token).await.expect("no fatal error") });
        Self { stop, task }
    }

    async fn drain(self) {
        self.stop.cancel();
        tokio::time::timeout(WAIT_MAX, self.task).await.expect("the drain ends").expect("no panic");
    }
}

async fn until_ended(outbox: &Outbox, id: &DeliveryId, state: &str) {
    until(state, || async { outbox.state(id).await == state }).await;
}

/// Two requests with one id must cause only one message, even after it has arrived.
#[tokio::test]
async fn a_request_has_one_delivery_however_often_it_is_made() {
    let outbox = Outbox::start();
    let (contact, notification) = (email(), request(&email(), NEVER));
    let (id, answer) = enqueued(&outbox, &notification, &contact).await;
    assert_eq!(answer, EnqueueReply::Made);
    assert_eq!(enqueued(&outbox, &notification, &contact).await.1, EnqueueReply::Exists);
    assert_eq!(outbox.assert_balanced().await.made, 1);

    let leased = outbox.lease_one("t", LONG).await;
    assert_eq!((leased.notification, leased.channel, leased.attempts), (Ok(notification.clone()), Channel::Email, 1));
    let delivered = Settlement::Delivered(outcome(OutcomeClass::Delivered));
    let settled = settle(&outbox.client, &outbox.keys, &id, &leased.token, &delivered).await;
    assert!(matches!(settled, Ok(SettleReply::Done(_))));
    assert_eq!(enqueued(&outbox, &notification, &contact).await.1, EnqueueReply::Exists);
    let totals = outbox.assert_balanced().await;
    assert_eq!((totals.made, totals.delivered, totals.pending), (1, 1, 0));

    let detail = show(&outbox.partition(), &[], &id).await.expect("it can be read").expect("it is there");
    let view = detail.delivery;
    assert_eq!((view.r#type, view.alert_id, view.contact_id), (NotificationKind::Verification, None, contact.id));
    assert!(detail.verification.is_some());
}

/// As for alerts: a foreign value in a key stops the request with an error and changes nothing.
#[tokio::test]
async fn a_key_of_another_type_raises_and_writes_nothing() {
    let outbox = Outbox::start();
    let keys = &outbox.keys;
    let (contact, notification) = (email(), request(&email(), NEVER));
    let delivery = keys.delivery(&notification.delivery_to(&contact.id));
    let queue = keys.due(&Destination::from_stored("email"));
    for name in [queue, keys.destinations(), keys.pending(), keys.deliveries(), keys.totals(), delivery] {
        let () = outbox.run("SET", &[name.as_str(), "x"]).await;
        let before = outbox.dump().await;
        let new = NewDelivery { notification: &notification, contact: &contact };
        let error = enqueue(&outbox.client, keys, new).await.expect_err("a wrong type");
        assert_eq!(error.error_kind(), ErrorKind::WrongType, "{name}");
        assert_eq!(outbox.dump().await, before, "{name}");
        let () = outbox.run("DEL", name).await;
    }
}

/// A mailbox that shows one email per Message-ID must show the valid code.
#[tokio::test]
async fn each_attempt_draws_another_code_and_has_another_message_id() {
    let outbox = Outbox::start();
    let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    // Accepted, but the reply to the final dot is lost.
    server.program(Phase::Message, Reply::Say("451 4.3.0 later"), Times::Once);
    let consents = Consents::of(Some(email()));
    let (id, _) = enqueued(&outbox, &request(&email(), NEVER), &email()).await;
    let running = Running::start(&outbox, &server.url(), &consents);
    let caught = server.next().await;
    until_ended(&outbox, &id, "delivered").await;
    running.drain().await;
    assert_eq!(caught.to, ["new@b.test"]);
    let mail = ParsedMail::parse(&caught.text());
    assert!(mail.parts[0].content.contains("000002"), "{}", mail.parts[0].content);
    assert_eq!(mail.header("Message-ID").split('@').next(), Some("<verification_1_2"));
    assert_eq!(consents.settled(), [DeliveryState::Pending, DeliveryState::Delivered]);
    let hash: String = outbox.run::<Vec<String>>("HGETALL", outbox.keys.delivery(&id)).await.join(" ");
    assert!(!hash.contains("000001") && !hash.contains("000002"), "a code reached Redis: {hash}");
    assert_eq!(consents.granted.load(Ordering::SeqCst), 0, "a mail that arrived is no consent");
}

/// Only the receiver's own response is its consent.
#[tokio::test]
async fn an_echoed_challenge_grants_consent_and_another_answer_does_not() {
    for (echo, state, granted) in [(Echo::Right, "delivered", 1), (Echo::Wrong, "dead", 0)] {
        let outbox = Outbox::start();
        let receiver = EchoReceiver::start(echo).await;
        let webhook = Contact::webhook(&receiver.url("/"), Secret::new(secret(7)));
        let contact = Contact { verified: false, ..webhook };
        let consents = Consents::of(Some(contact.clone()));
        let (id, _) = enqueued(&outbox, &request(&contact, NEVER), &contact).await;
        let running = Running::start(&outbox, "smtp://localhost", &consents);
        until_ended(&outbox, &id, state).await;
        running.drain().await;
        assert_eq!(consents.granted.load(Ordering::SeqCst), granted, "{echo:?}");
        assert_eq!(consents.drawn.load(Ordering::SeqCst), 0, "a receiver reads no code");
        outbox.assert_balanced().await;
    }
}

/// An expired message, or one for a removed contact, must not be sent.
#[tokio::test]
async fn a_request_that_expired_or_became_void_sends_nothing() {
    for (contact, expires, state) in [(Some(email()), UnixMs(2), "expired"), (None, NEVER, "cancelled")] {
        let outbox = Outbox::start();
        let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
        let consents = Consents::of(contact);
        let (id, _) = enqueued(&outbox, &request(&email(), expires), &email()).await;
        let running = Running::start(&outbox, &server.url(), &consents);
        until_ended(&outbox, &id, state).await;
        running.drain().await;
        assert!(server.try_next().is_none(), "{state}");
        assert_eq!(consents.drawn.load(Ordering::SeqCst), 0, "{state}");
        assert_eq!(outbox.field(&id, "attempts").await.as_deref(), Some("0"), "{state}");
        outbox.assert_balanced().await;
    }
}

/// A receiver that stores `webhook-id` would otherwise treat the second attempt as another message.
#[tokio::test]
async fn a_webhook_that_asks_keeps_its_id_over_attempts() {
    let outbox = Outbox::start();
    let mut receiver = HttpCatcher::start([Answer::status(503)]).await.expect("a receiver");
    let webhook = Contact::webhook(&receiver.url("/"), Secret::new(secret(7)));
    let contact = Contact { verified: false, ..webhook };
    let consents = Consents::of(Some(contact.clone()));
    let (id, _) = enqueued(&outbox, &request(&contact, NEVER), &contact).await;
    let running = Running::start(&outbox, "smtp://localhost", &consents);
    until_ended(&outbox, &id, "dead").await;
    running.drain().await;
    let mut asked = Vec::new();
    while let Some(request) = receiver.try_next() {
        let message = verify(&request, &secret(7));
        asked.push((message.id, message.body["data"]["challenge"].clone()));
    }
    let [(first, challenge), (second, other)] = asked.as_slice() else { panic!("two attempts: {asked:?}") };
    assert_eq!((first.as_str(), second.as_str()), ("verification_1", "verification_1"));
    assert_ne!(challenge, other, "each attempt has a challenge of its own");
}
