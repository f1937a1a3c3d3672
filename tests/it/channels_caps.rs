//! Attempts under caps, on a real Redis with real receivers: what counts, what waits, and how long.

use std::sync::Arc;
use std::time::Duration;

use crate::support::notifier::Sending;
use crate::support::receivers::{HttpCatcher, SmtpCatcher, SmtpSetup};
use crate::support::redis_server::{RedisServer, free_port};
use crate::support::webhook_receiver::secret;
use quotabell::channels::email::EmailConfig;
use quotabell::channels::webhook::WebhookConfig;
use quotabell::channels::{ChannelSettings, DnsConfig, Labels, Sample, TestKind};
use quotabell::config::Config;
use quotabell::contacts::Contact;
use quotabell::contacts::resolver::ContactsSource;
use quotabell::outbox::{AttemptRequest, Settlement};
use quotabell::redis_client::RedisClient;
use quotabell::types::{Channel, DeliveryId, Keys, Mute, Notification, OutcomeClass, Percent, Secret, UnixMs};
use tokio::time::Instant;

/// 2026-11-21T08:37:00.123Z.
const RAISED: UnixMs = UnixMs(1_795_250_220_123);
const DAY_MS: i64 = 86_400_000;

/// A notifier with its own Redis.
struct Capped {
    redis: RedisServer,
    sender: Sending,
    keys: Keys,
}

/// The settings of both sections with caps.
#[derive(Debug, Clone)]
struct Caps {
    per_destination: Option<&'static str>,
    per_minute: Option<u64>,
    smtp_url: String,
}

impl Default for Caps {
    fn default() -> Self {
        Self { per_destination: None, per_minute: None, smtp_url: "smtp://localhost:25".to_owned() }
    }
}

fn sender(client: Arc<RedisClient>, caps: Caps) -> Sending {
    let defaults = Config::defaults().expect("valid");
    let webhook = WebhookConfig {
        allow_http: true,
        allow_private_networks: true,
        per_destination: caps.per_destination.map(|rate| rate.parse().expect("a rate")),
        ..defaults.webhook
    };
    let per_minute = caps.per_minute.map(|mails| mails.try_into().expect("in range"));
    let email = EmailConfig { smtp_url: caps.smtp_url.into(), per_minute, ..defaults.email };
    let dns = DnsConfig::default();
    let settings = ChannelSettings { email: &email, webhook: &webhook, dns: &dns };
    Sending::new(client, settings, defaults.retry).expect("legal settings")
}

impl Capped {
    fn start(caps: Caps) -> Self {
        let redis = RedisServer::start();
        let sender = sender(Arc::new(redis.client()), caps);
        Self { redis, sender, keys: Keys::new("usage") }
    }

    async fn send(&self, contact: &Contact) -> Settlement {
        send(&self.sender, contact, Attempt::default()).await
    }

    /// Every key of the server.
    async fn stored(&self) -> Vec<String> {
        self.redis.client().query(redis::cmd("KEYS").arg("*")).await.expect("KEYS works")
    }
}

/// The differences from a first attempt in time.
struct Attempt {
    late_ms: i64,
    start_by: Instant,
}

impl Default for Attempt {
    fn default() -> Self {
        Self { late_ms: 0, start_by: Instant::now() + Duration::from_secs(60) }
    }
}

async fn send(sender: &Sending, contact: &Contact, attempt: Attempt) -> Settlement {
    let alert = Sample::example().alert(Percent::new(80).expect("legal"), RAISED);
    let delivery = DeliveryId::derive(&alert.id, &contact.id);
    let notification = Notification::Alert(alert);
    let now = RAISED.plus(attempt.late_ms);
    let request = AttemptRequest {
        subject_name: None,
        zone: None,
        delivery: &delivery,
        notification: &notification,
        contact,
        source: ContactsSource::Own,
        more_follows: false,
        attempts: 1,
        attempt_since_replay: 1,
        first_attempt: now,
        paused: std::time::Duration::ZERO,
        may_have_arrived: false,
        is_told: false,
        waited_until: None,
        now,
        start_by: attempt.start_by,
    };
    sender.attempt(request).await
}

fn webhook(url: &str) -> Contact {
    Contact::webhook(url, Secret::new(secret(7)))
}

/// A receiver with two contacts must not get more than its cap, and must not delay another receiver.
#[tokio::test]
async fn contacts_of_one_origin_share_its_cap_and_no_other() {
    let capped = Capped::start(Caps { per_destination: Some("2/1h"), ..Caps::default() });
    let receiver = HttpCatcher::start([]).await.expect("a receiver");
    let other = HttpCatcher::start([]).await.expect("a receiver");
    for path in ["/a", "/b?c"] {
        assert!(matches!(capped.send(&webhook(&receiver.url(path))).await, Settlement::Delivered(_)));
    }
    match capped.send(&webhook(&receiver.url("/a"))).await {
        // An hour is beyond the longest wait, because a cap may be raised meanwhile.
        Settlement::Throttled(again) => assert!((300..=601).contains(&again.as_secs()), "{again:?}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(capped.send(&webhook(&other.url("/a"))).await, Settlement::Delivered(_)));
    let expected = [&receiver, &other]
        .map(|receiver| capped.keys.cap(Channel::Webhook, Some(receiver.url("").trim_end_matches('/'))));
    let mut stored = capped.stored().await;
    stored.sort();
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(stored, expected);
    for key in &stored {
        let ttl_ms: i64 = capped.redis.client().query(redis::cmd("PTTL").arg(key)).await.expect("PTTL works");
        assert!((1..=3_600_000).contains(&ttl_ms), "{ttl_ms}");
    }
}

/// Email has one cap for all addresses, the provider's, and webhooks do not count in it.
#[tokio::test]
async fn mail_is_capped_as_a_whole() {
    let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    let receiver = HttpCatcher::start([]).await.expect("a receiver");
    let capped = Capped::start(Caps { per_minute: Some(1), smtp_url: server.url(), ..Caps::default() });
    assert!(matches!(capped.send(&Contact::email("a@b.test")).await, Settlement::Delivered(_)));
    assert_eq!(server.next().await.to, ["a@b.test"]);
    match capped.send(&Contact::email("c@d.test")).await {
        Settlement::Throttled(again) => assert!((1..=62).contains(&again.as_secs()), "{again:?}"),
        other => panic!("{other:?}"),
    }
    for _ in 0..3 {
        assert!(matches!(capped.send(&webhook(&receiver.url("/"))).await, Settlement::Delivered(_)));
    }
    assert!(server.try_next().is_none());
    assert_eq!(capped.stored().await, [capped.keys.cap(Channel::Email, None)]);
}

/// A cap counts sent messages: a muted contact, an expired alert and an invalid URL must not use it up.
#[tokio::test]
async fn what_does_not_leave_is_not_counted() {
    let capped = Capped::start(Caps { per_destination: Some("1/1h"), ..Caps::default() });
    let receiver = HttpCatcher::start([]).await.expect("a receiver");
    let contact = webhook(&receiver.url("/"));
    let muted = Contact { mute: Some(Mute::default()), ..contact.clone() };
    assert!(matches!(capped.send(&muted).await, Settlement::Muted(_)));
    let late = Attempt { late_ms: 4 * DAY_MS, ..Attempt::default() };
    assert!(matches!(send(&capped.sender, &contact, late).await, Settlement::Expired));
    for malformed in ["b.test/hook", "mailto:a@b.test", "https://"] {
        assert!(matches!(capped.send(&webhook(malformed)).await, Settlement::Dead(_)), "{malformed}");
    }
    assert!(capped.stored().await.is_empty());
    assert!(matches!(capped.send(&contact).await, Settlement::Delivered(_)));
}

/// A test message must neither wait for alerts nor delay them.
#[tokio::test]
async fn a_test_message_is_neither_capped_nor_counted() {
    let capped = Capped::start(Caps { per_destination: Some("1/1h"), ..Caps::default() });
    let receiver = HttpCatcher::start([]).await.expect("a receiver");
    let contact = webhook(&receiver.url("/"));
    let test = async || {
        capped
            .sender
            .channels
            .send_test(&contact, TestKind::Alert, (&Sample::example(), &Labels::default()), RAISED)
            .await
            .class
    };
    assert_eq!(test().await, OutcomeClass::Delivered);
    assert!(capped.stored().await.is_empty());
    assert!(matches!(capped.send(&contact).await, Settlement::Delivered(_)));
    assert!(matches!(capped.send(&contact).await, Settlement::Throttled(_)));
    assert_eq!(test().await, OutcomeClass::Delivered);
}

/// A cap is a promise: while its state is unknown, nothing is sent. Channels without a cap still send.
#[tokio::test]
async fn nothing_leaves_under_a_cap_that_cannot_be_asked() {
    let nobody = redis::Client::open(format!("redis://127.0.0.1:{}", free_port())).expect("a URL");
    let sender = sender(Arc::new(RedisClient::new(nobody)), Caps { per_minute: Some(1000), ..Caps::default() });
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    match send(&sender, &Contact::email("a@b.test"), Attempt::default()).await {
        Settlement::Released(again) => assert_eq!(again, Duration::from_secs(5)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(send(&sender, &webhook(&receiver.url("/")), Attempt::default()).await, Settlement::Delivered(_)));
    receiver.next().await;
}

/// A foreign value under the key of a cap says nothing about the cap.
#[tokio::test]
async fn nothing_leaves_under_a_cap_whose_key_holds_something_else() {
    let caps = Caps { per_destination: Some("9/1s"), per_minute: Some(9), ..Caps::default() };
    let capped = Capped::start(caps);
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let client = capped.redis.client();
    let key = capped.keys.cap(Channel::Webhook, Some(receiver.url("").trim_end_matches('/')));
    let () = client.query(redis::cmd("SET").arg(&key).arg("1")).await.expect("SET works");
    let () =
        client.query(redis::cmd("SADD").arg(capped.keys.cap(Channel::Email, None)).arg("1")).await.expect("SADD works");
    for contact in [webhook(&receiver.url("/")), Contact::email("a@b.test")] {
        assert!(matches!(capped.send(&contact).await, Settlement::Released(_)), "{}", contact.channel().as_str());
    }
    assert!(receiver.try_next().is_none());
    let () = client.query(redis::cmd("DEL").arg(&key)).await.expect("DEL works");
    assert!(matches!(capped.send(&webhook(&receiver.url("/"))).await, Settlement::Delivered(_)));
}

/// Asking takes time. An attempt that its lease no longer covers could overlap with another worker's.
#[tokio::test]
async fn what_was_asked_too_long_does_not_leave() {
    let capped = Capped::start(Caps { per_destination: Some("9/1h"), ..Caps::default() });
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let late = Attempt { start_by: Instant::now() - Duration::from_millis(1), ..Attempt::default() };
    match send(&capped.sender, &webhook(&receiver.url("/")), late).await {
        Settlement::Released(again) => assert_eq!(again, Duration::ZERO),
        other => panic!("{other:?}"),
    }
    assert!(receiver.try_next().is_none());
}
