//! From a due delivery to the recorded outcome, with real receivers.

use std::sync::Arc;
use std::time::Duration;

use crate::support::grant_notices::grant_notice;
use crate::support::mail_server::ParsedMail;
use crate::support::notifier::Sending;
use crate::support::outbox::Outbox;
use crate::support::receivers::{Answer, CaughtRequest, HttpCatcher, Phase, Reply, SmtpCatcher, SmtpSetup, Times};
use quotabell::channels::email::EmailConfig;
use quotabell::channels::webhook::WebhookConfig;
use quotabell::channels::{BoxFuture, ChannelError, ChannelSettings, DnsConfig, Labels, Sample, TestKind};
use quotabell::contacts::resolver::ContactsSource;
use quotabell::contacts::{Contact, ContactOptions};
use quotabell::outbox::{
    AlertVerdict, AttemptRequest, DeliverySet, NoticeJudge, Notifier, ResolvedVerdict, RetryConfig, Settlement,
};
use quotabell::redis_client::Partitions;
use quotabell::signing::PortalUrls;
use quotabell::signing::portal_gate::open;
use quotabell::types::resolved_notice::QuotaNow;
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{
    Alert, AlertEnd, AlertId, Channel, ContactId, DeliveryId, EndReason, Keys, Locale, Mute, Notification,
    OutcomeClass, Percent, ResolvedNotice, ResolvedScope, Secret, UnixMs, UsageNotice, UsageNoticeKind,
};
use tempfile::TempDir;

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
/// 2026-11-21T08:37:00.123Z.
const RAISED: UnixMs = UnixMs(1_795_250_220_123);
const HOUR_MS: i64 = 3_600_000;

fn webhook_config() -> WebhookConfig {
    WebhookConfig {
        timeout: Duration::from_secs(20),
        allow_http: true,
        allow_private_networks: true,
        allowed_networks: Vec::new(),
        templates: None,
        ca_file: None,
        per_destination: None,
        proxy: None,
    }
}

fn email_config(smtp_url: &str) -> EmailConfig {
    EmailConfig {
        smtp_url: smtp_url.into(),
        smtp_url_file: None,
        from: "quotabell <alerts@example.com>".to_owned(),
        helo_name: None,
        timeout: Duration::from_secs(30),
        unknown_mailbox_after: Duration::ZERO,
        locale: Locale::english(),
        templates: None,
        ca_file: None,
        dkim: None,
        per_minute: None,
    }
}

fn retry_config() -> RetryConfig {
    RetryConfig {
        first: Duration::from_secs(5),
        factor: 4.0,
        max_interval: Duration::from_secs(6 * 3600),
        give_up_after: Duration::from_secs(3 * 86_400),
    }
}

fn sender(smtp_url: &str) -> Sending {
    with(&email_config(smtp_url)).expect("legal settings")
}

fn with(email: &EmailConfig) -> Result<Sending, ChannelError> {
    let webhook = webhook_config();
    Sending::uncapped(ChannelSettings { email, webhook: &webhook, dns: &DnsConfig::default() }, retry_config())
}

fn alert() -> Alert {
    Sample::example().alert(Percent::new(80).expect("legal"), RAISED)
}

fn webhook(url: &str) -> Contact {
    Contact::webhook(url, Secret::new(SECRET.to_owned()))
}

/// A delivery at its first attempt, `late_ms` after the alert was raised.
async fn first_attempt(sender: &Sending, contact: &Contact, late_ms: i64) -> Settlement {
    let now = RAISED.plus(late_ms);
    attempt(sender, contact, Attempt { ever: 1, number: 1, first: now, now }).await
}

/// Later than any attempt of these tests.
fn soon() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(60)
}

struct Attempt {
    ever: u32,
    number: u32,
    first: UnixMs,
    now: UnixMs,
}

async fn attempt(sender: &Sending, contact: &Contact, attempt: Attempt) -> Settlement {
    attempt_after_wait(sender, contact, (alert(), attempt), None).await
}

/// An attempt of a delivery that waited until then for a digest, or for the end of a quiet time.
async fn attempt_after_wait(
    sender: &Sending,
    contact: &Contact,
    (alert, attempt): (Alert, Attempt),
    waited_until: Option<UnixMs>,
) -> Settlement {
    let delivery = DeliveryId::derive(&alert.id, &contact.id);
    let notification = Notification::Alert(alert);
    let Attempt { ever: attempts, number, first, now } = attempt;
    sender
        .attempt(AttemptRequest {
            subject_name: None,
            zone: None,
            delivery: &delivery,
            notification: &notification,
            contact,
            source: ContactsSource::Own,
            more_follows: false,
            attempts,
            attempt_since_replay: number,
            first_attempt: first,
            paused: std::time::Duration::ZERO,
            may_have_arrived: attempts > 1,
            is_told: attempts > 1,
            waited_until,
            now,
            start_by: soon(),
        })
        .await
}

fn header<'a>(caught: &'a CaughtRequest, name: &str) -> &'a str {
    caught.headers[name].to_str().expect("ASCII")
}

/// Receivers deduplicate by webhook-id: it must be the alert's on every attempt. They compare the timestamp with their
/// own clock: it must be this machine's, although the clock of Redis is wrong by a day here.
#[tokio::test]
async fn a_webhook_keeps_its_id_over_attempts() {
    let mut receiver = HttpCatcher::start([Answer::status(503)]).await.expect("a receiver");
    let (sender, contact) = (sender("smtp://localhost"), webhook(&receiver.url("/")));
    assert!(matches!(first_attempt(&sender, &contact, 1000).await, Settlement::Retry(_, _)));
    let again = Attempt { ever: 2, number: 2, first: RAISED.plus(1000), now: RAISED.plus(8000) };
    assert!(matches!(attempt(&sender, &contact, again).await, Settlement::Delivered(_)));
    let (first, second) = (receiver.next().await, receiver.next().await);
    assert_eq!(header(&first, "webhook-id"), alert().id.as_str());
    assert_eq!(header(&second, "webhook-id"), alert().id.as_str());
    let verifier = standardwebhooks::Webhook::new(SECRET).expect("a secret");
    for caught in [&first, &second] {
        verifier.verify(&caught.body, &caught.headers).expect("signed just now");
    }
    assert_eq!(first.body, second.body);
}

/// The Message-ID is the delivery's id, so that an email accepted twice is shown once.
#[tokio::test]
async fn a_mail_bears_the_ids_of_delivery_and_alert() {
    let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a server");
    let contact = Contact::email("bob@example.com");
    assert!(matches!(first_attempt(&sender(&server.url()), &contact, 0).await, Settlement::Delivered(_)));
    let mail = ParsedMail::parse(&server.next().await.text());
    let delivery = DeliveryId::derive(&alert().id, &contact.id);
    assert_eq!(mail.header("Message-ID"), format!("<{delivery}@example.com>"));
    assert_eq!(mail.header("X-Quotabell-Alert"), alert().id.as_str());
    let thread = format!("<{}@example.com>", alert().period_id());
    assert_eq!((mail.header("In-Reply-To"), mail.header("References")), (thread.clone(), thread));
    assert_eq!(
        mail.header("Subject"),
        "example-customer: 80.0% of the requests quota for 2026-11-21 used (4,000 of 5,000)"
    );
}

/// The settlement follows the class: dead at once, or a retry after the schedule's delay and not before the requested
/// time.
#[tokio::test]
async fn settlements_follow_the_outcome() {
    let answers = [Answer::status(410), Answer::status(503), Answer::status(429).header("retry-after", "600")];
    let receiver = HttpCatcher::start(answers).await.expect("a receiver");
    let (sender, contact) = (sender("smtp://localhost"), webhook(&receiver.url("/")));
    match first_attempt(&sender, &contact, 0).await {
        Settlement::Dead(outcome) => assert_eq!(outcome.status, Some(410)),
        other => panic!("{other:?}"),
    }
    match first_attempt(&sender, &contact, 0).await {
        Settlement::Retry(_, delay) => assert!((4.0..=6.0).contains(&delay.as_secs_f64()), "{delay:?}"),
        other => panic!("{other:?}"),
    }
    match first_attempt(&sender, &contact, 0).await {
        Settlement::Retry(_, delay) => assert_eq!(delay, Duration::from_secs(600)),
        other => panic!("{other:?}"),
    }
}

/// Permanent refusals of mail servers end the delivery; doubtful ones do not.
#[tokio::test]
async fn a_refused_mail_is_dead_and_a_deferred_one_is_not() {
    let server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a server");
    let (sender, contact) = (sender(&server.url()), Contact::email("bob@example.com"));
    server.program(Phase::Message, Reply::Say("552 5.3.4 too big"), Times::Once);
    assert!(matches!(first_attempt(&sender, &contact, 0).await, Settlement::Dead(_)));
    server.program(Phase::Rcpt, Reply::Say("554 5.7.1 relay access denied"), Times::Once);
    assert!(matches!(first_attempt(&sender, &contact, 0).await, Settlement::Retry(_, _)));
    // Each email to an unknown mailbox costs reputation: the next one comes after the longest delay.
    server.program(Phase::Rcpt, Reply::Say("550 5.1.1 no such user"), Times::Once);
    let unknown = first_attempt(&sender, &contact, 0).await;
    assert!(matches!(&unknown, Settlement::Retry(_, delay) if *delay == retry_config().max_interval), "{unknown:?}");
    server.program(Phase::Rcpt, Reply::Say("450 4.2.0 later"), Times::Once);
    assert!(matches!(first_attempt(&sender, &contact, 0).await, Settlement::Retry(_, _)));
}

/// After `give_up_after` the next failure is the last one; but that attempt is made.
#[tokio::test]
async fn a_delivery_is_given_up_only_after_one_more_failure() {
    let mut receiver = HttpCatcher::start([Answer::status(503)]).await.expect("a receiver");
    let (sender, contact) = (sender("smtp://localhost"), webhook(&receiver.url("/")));
    let late = || Attempt { ever: 12, number: 12, first: RAISED, now: RAISED.plus(73 * HOUR_MS) };
    assert!(matches!(attempt(&sender, &contact, late()).await, Settlement::Dead(_)));
    assert!(matches!(attempt(&sender, &contact, late()).await, Settlement::Delivered(_)));
    receiver.next().await;
    receiver.next().await;
}

/// Somebody has muted it.
#[tokio::test]
async fn a_muted_contact_gets_nothing() {
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let contact = Contact { mute: Some(Mute::default()), ..webhook(&receiver.url("/")) };
    assert!(matches!(first_attempt(&sender("smtp://localhost"), &contact, 0).await, Settlement::Muted(_)));
    assert!(receiver.try_next().is_none());
}

/// An old stream that is read for the first time must not alert about last month; after an outage of hours nothing may
/// be lost.
#[tokio::test]
async fn alerts_of_days_long_past_expire_at_their_first_attempt_only() {
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let (sender, contact) = (sender("smtp://localhost"), webhook(&receiver.url("/")));
    let until_the_limit_ms = alert().resets_at.expect("an end").0.0 - RAISED.0 + 48 * HOUR_MS;
    assert!(matches!(first_attempt(&sender, &contact, until_the_limit_ms + 1).await, Settlement::Expired));
    assert!(receiver.try_next().is_none());
    assert!(matches!(first_attempt(&sender, &contact, until_the_limit_ms).await, Settlement::Delivered(_)));
    let again = Attempt { ever: 2, number: 2, first: RAISED, now: RAISED.plus(until_the_limit_ms + HOUR_MS) };
    assert!(matches!(attempt(&sender, &contact, again).await, Settlement::Delivered(_)));
}

/// An alert that could have been sent, but had to wait for the morning, must be sent in the morning.
#[tokio::test]
async fn an_alert_that_waited_for_the_end_of_a_quiet_time_does_not_expire() {
    let receiver = HttpCatcher::start([]).await.expect("a receiver");
    let (sender, mut contact) = (sender("smtp://localhost"), webhook(&receiver.url("/")));
    contact.filter.quiet = Some("22:00-07:00".parse().expect("legal"));
    // It would expire at midnight, which is quiet until seven.
    let expires_ms = alert().resets_at.expect("an end").0.0 - RAISED.0 + 48 * HOUR_MS;
    let after = async |ms| first_attempt(&sender, &contact, expires_ms + ms).await;
    assert!(matches!(after(9 * HOUR_MS).await, Settlement::Delivered(_)));
    assert!(matches!(after(9 * HOUR_MS + 1).await, Settlement::Expired));
}

/// A digest or a quiet time that is shortened or removed must not cost the alerts that wait; and an old stream must not
/// alert about last month, whatever the contact is.
#[tokio::test]
async fn what_waited_is_sent_whatever_its_contact_is_now() {
    let receiver = HttpCatcher::start([]).await.expect("a receiver");
    let (sender, contact) = (sender("smtp://localhost"), webhook(&receiver.url("/")));
    let expires = alert().resets_at.expect("an end").0.plus(48 * HOUR_MS);
    let until = expires.plus(24 * HOUR_MS);
    let at = async |now: UnixMs, alert: Alert| {
        let attempt = Attempt { ever: 1, number: 1, first: now, now };
        attempt_after_wait(&sender, &contact, (alert, attempt), Some(until)).await
    };
    assert!(matches!(at(until.plus(2 * HOUR_MS), alert()).await, Settlement::Delivered(_)));
    assert!(matches!(at(until.plus(2 * HOUR_MS + 1), alert()).await, Settlement::Expired));
    let old = Alert { raised_at_ms: expires.plus(1), ..alert() };
    assert!(matches!(at(until, old).await, Settlement::Expired));
}

/// A dead delivery that is replayed days later must be sent, and its time starts again.
#[tokio::test]
async fn a_replayed_delivery_does_not_expire() {
    let receiver = HttpCatcher::start([]).await.expect("a receiver");
    let contact = webhook(&receiver.url("/"));
    let replayed_at = RAISED.plus(240 * HOUR_MS);
    let again = Attempt { ever: 9, number: 1, first: replayed_at, now: replayed_at };
    assert!(matches!(attempt(&sender("smtp://localhost"), &contact, again).await, Settlement::Delivered(_)));
}

/// A lease must cover the deadline of its channel.
#[tokio::test]
async fn each_channel_has_its_own_deadline() {
    let sender = sender("smtp://localhost");
    assert_eq!(sender.notifier.timeout(Channel::Webhook), Duration::from_secs(20));
    assert_eq!(sender.notifier.timeout(Channel::Email), Duration::from_secs(30));
    assert_eq!(sender.notifier.timeout(Channel::None), Duration::ZERO);
}

/// A test message differs from an alert by its type and from another test by its id; muted contacts get it too.
#[tokio::test]
async fn a_test_message_is_marked_and_has_an_id_of_its_own() {
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a server");
    let sender = sender(&server.url());
    let contact = Contact { mute: Some(Mute::default()), ..webhook(&receiver.url("/")) };
    let sample = (&Sample::example(), &Labels::default());
    for now in [RAISED, RAISED.plus(1)] {
        assert_eq!(
            sender.channels.send_test(&contact, TestKind::Alert, sample, now).await.class,
            OutcomeClass::Delivered
        );
    }
    let (first, second) = (receiver.next().await, receiver.next().await);
    assert_eq!(
        (header(&first, "webhook-id"), header(&second, "webhook-id")),
        ("test_1795250220123", "test_1795250220124")
    );
    assert!(first.body.starts_with(br#"{"type":"quota.test","timestamp":"2026-11-21T08:37:00.123Z""#));

    assert_eq!(
        sender.channels.send_test(&Contact::email("bob@example.com"), TestKind::Alert, sample, RAISED).await.class,
        OutcomeClass::Delivered
    );
    let mail = ParsedMail::parse(&server.next().await.text());
    assert!(mail.header("Subject").starts_with("[test] "));
    assert!(mail.parts[0].content.starts_with("This is a test message"));
}

fn templates(text: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a folder");
    std::fs::write(directory.path().join("alert.txt"), text).expect("written");
    directory
}

/// If a template fails for an unusual alert, the alert must be sent in the built-in form.
#[tokio::test]
async fn a_template_that_fails_on_an_alert_falls_back_to_the_embedded_one() {
    let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a server");
    // No sample has this metric, so the check at start can't find the mistake.
    let directory = templates("ours {% if metric == \"tokens\" %}{{ nothing }}{% endif %}");
    let email = EmailConfig { templates: Some(directory.path().to_path_buf()), ..email_config(&server.url()) };
    let sender = with(&email).expect("legal settings");
    let contact = Contact::email("bob@example.com");
    assert!(matches!(first_attempt(&sender, &contact, 0).await, Settlement::Delivered(_)));
    assert!(ParsedMail::parse(&server.next().await.text()).parts[0].content.starts_with("ours"));

    let odd = Alert { metric: "tokens".parse().expect("legal"), ..alert() };
    let delivery = DeliveryId::derive(&odd.id, &contact.id);
    let notification = Notification::Alert(odd);
    let request = AttemptRequest {
        subject_name: None,
        zone: None,
        delivery: &delivery,
        notification: &notification,
        contact: &contact,
        source: ContactsSource::Own,
        more_follows: false,
        attempts: 1,
        attempt_since_replay: 1,
        first_attempt: RAISED,
        paused: std::time::Duration::ZERO,
        may_have_arrived: false,
        is_told: false,
        waited_until: None,
        now: RAISED,
        start_by: soon(),
    };
    assert!(matches!(sender.attempt(request).await, Settlement::Delivered(_)));
    let content = ParsedMail::parse(&server.next().await.text()).parts[0].content.clone();
    assert!(content.contains("80.0% of its tokens quota"), "{content}");
}

/// A mistake in a template stops the start, with its place.
#[tokio::test]
async fn a_broken_template_stops_the_start() {
    let directory = templates("one\ntwo {{ oops }}");
    let email = EmailConfig { templates: Some(directory.path().to_path_buf()), ..email_config("smtp://localhost") };
    let text = with(&email).err().expect("broken").to_string();
    assert!(text.contains("alert.txt, line 2: \"oops\" is not known"), "{text}");
}

/// After the expiry a notice is false: neither a retry nor a replay may send it, and `dead` would invite to one.
#[tokio::test]
async fn a_notice_is_not_attempted_after_its_units_expired() {
    let expires = RAISED.plus(HOUR_MS);
    let notice = grant_notice(&"alice".parse().expect("legal"), expires);
    let mut receiver = HttpCatcher::start([Answer::status(503), Answer::status(503)]).await.expect("a receiver");
    let (sender, contact) = (sender("smtp://localhost"), webhook(&receiver.url("/")));
    let notification = Notification::GrantExpires(notice);
    let delivery = notification.delivery_to(&contact.id);
    let attempt = async |attempts: u32, now: UnixMs| {
        let request = AttemptRequest {
            subject_name: None,
            zone: None,
            delivery: &delivery,
            notification: &notification,
            contact: &contact,
            source: ContactsSource::Own,
            more_follows: false,
            attempts,
            attempt_since_replay: 1,
            first_attempt: now,
            paused: Duration::ZERO,
            may_have_arrived: false,
            is_told: false,
            waited_until: None,
            now,
            start_by: soon(),
        };
        sender.attempt(request).await
    };
    // The next attempt would be due about 5 s later.
    assert!(matches!(attempt(1, expires.plus(-60_000)).await, Settlement::Retry(..)));
    assert!(matches!(attempt(2, expires.plus(-1_000)).await, Settlement::ExpiredAfter(_)));
    for attempts in [1, 3] {
        assert_eq!(attempt(attempts, expires.plus(1)).await, Settlement::Expired);
    }
    assert!(matches!(attempt(3, expires.plus(-1_000)).await, Settlement::Delivered(_)));
    assert_eq!(std::iter::from_fn(|| receiver.try_next()).count(), 3);
}

/// The request of an attempt when the alert is raised.
fn request_at<'a>(
    notification: &'a Notification,
    delivery: &'a DeliveryId,
    contact: &'a Contact,
    attempt: u32,
) -> AttemptRequest<'a> {
    AttemptRequest {
        subject_name: None,
        zone: None,
        delivery,
        notification,
        contact,
        source: ContactsSource::Own,
        more_follows: false,
        attempts: attempt,
        attempt_since_replay: attempt,
        first_attempt: RAISED,
        paused: Duration::ZERO,
        may_have_arrived: attempt > 1,
        is_told: attempt > 1,
        waited_until: None,
        now: RAISED,
        start_by: soon(),
    }
}

/// An attempt of two alerts in one message: one below the limit, and one that is used up.
async fn attempt_both(sender: &Sending, contact: &Contact, attempt: u32) -> Vec<Settlement> {
    let alerts = [80, 100].map(|percent| Sample::example().alert(Percent::new(percent).expect("legal"), RAISED));
    attempt_set(sender, contact, &alerts.map(Notification::Alert), attempt).await
}

/// An attempt of these in one message.
async fn attempt_set(
    sender: &Sending,
    contact: &Contact,
    notifications: &[Notification],
    attempt: u32,
) -> Vec<Settlement> {
    attempt_set_after(sender, contact, notifications, attempt, attempt > 1).await
}

/// The same, and whether the attempts before have fixed what is told: a daemon that was killed has not.
async fn attempt_set_after(
    sender: &Sending,
    contact: &Contact,
    notifications: &[Notification],
    attempt: u32,
    is_told: bool,
) -> Vec<Settlement> {
    let deliveries: Vec<DeliveryId> = notifications.iter().map(|one| one.delivery_to(&contact.id)).collect();
    let request =
        |(notification, delivery)| AttemptRequest { is_told, ..request_at(notification, delivery, contact, attempt) };
    let requests: Vec<AttemptRequest<'_>> = notifications.iter().zip(&deliveries).map(request).collect();
    let set = DeliverySet { message_id: "digest_0123456789abcdef0123456789abcdef".to_owned(), attempt };
    let verdicts = sender.notifier.hold_back(Some(&set), &requests).await;
    let sent = requests.iter().zip(&verdicts).filter_map(|(request, verdict)| {
        let notification = verdict.as_ref().ok()?.as_ref().unwrap_or(request.notification);
        Some(AttemptRequest { notification, ..*request })
    });
    let mut sent = sender.notifier.attempt_set(&set, &sent.collect::<Vec<_>>()).await.into_iter();
    let settled = |verdict| match verdict {
        Ok(_) => sent.next().expect("an outcome for each"),
        Err(held) => held,
    };
    verdicts.into_iter().map(settled).collect()
}

/// A warning that waits for the morning must not go under the id of a message that left without it; and a receiver that
/// may have got both must get both again, or it would drop what it did not get.
#[tokio::test]
async fn what_is_quiet_stays_out_of_a_message_only_before_it_was_sent() {
    let mut receiver = HttpCatcher::start([Answer::status(503)]).await.expect("a receiver");
    let (sender, mut contact) = (sender("smtp://localhost"), webhook(&receiver.url("/")));
    // The alerts are raised at 09:37 of their subject.
    contact.filter.quiet = Some("09:00-10:00".parse().expect("legal"));
    let first = attempt_both(&sender, &contact, 1).await;
    assert!(matches!(first[..], [Settlement::Quiet(_), Settlement::Retry(..)]), "{first:?}");
    let again = attempt_both(&sender, &contact, 2).await;
    assert!(matches!(again[..], [Settlement::Delivered(_), Settlement::Delivered(_)]), "{again:?}");
    let (alone, both) = (receiver.next().await, receiver.next().await);
    let percents = |caught: &CaughtRequest| {
        let body: serde_json::Value = serde_json::from_slice(&caught.body).expect("JSON");
        let items = body["data"]["items"].as_array().expect("a list").clone();
        items.iter().map(|item| item["data"]["threshold_percent"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!((percents(&alone), percents(&both)), (vec![Some(100)], vec![Some(80), Some(100)]));
    assert_eq!(header(&alone, "webhook-id"), "digest_0123456789abcdef0123456789abcdef");

    // If all are quiet, the message waits; and a mute ends them.
    contact.filter.quiet_all = true;
    let quiet = attempt_both(&sender, &contact, 2).await;
    assert!(matches!(quiet[..], [Settlement::Quiet(_), Settlement::Quiet(_)]), "{quiet:?}");
    contact.mute = Some(Mute::default());
    let muted = attempt_both(&sender, &contact, 2).await;
    assert!(matches!(muted[..], [Settlement::Muted(_), Settlement::Muted(_)]), "{muted:?}");
    assert!(receiver.try_next().is_none());
}

/// What is true: all notices but this kind, and alerts of which anything was used.
#[derive(Debug)]
struct AllBut(UsageNoticeKind);

impl NoticeJudge for AllBut {
    fn usage<'a>(
        &'a self,
        notice: &'a UsageNotice,
        _: UnixMs,
    ) -> BoxFuture<'a, redis::RedisResult<Option<UsageNotice>>> {
        let present = (notice.kind != self.0).then(|| UsageNotice { used: 7, ..notice.clone() });
        Box::pin(std::future::ready(Ok(present)))
    }

    fn alert<'a>(
        &'a self,
        alert: &'a Alert,
        _: Option<&'a ContactId>,
        _: UnixMs,
    ) -> BoxFuture<'a, redis::RedisResult<AlertVerdict>> {
        let verdict = if alert.used > 0 { AlertVerdict::True } else { AlertVerdict::Never };
        Box::pin(std::future::ready(Ok(verdict)))
    }

    fn resolved<'a>(
        &'a self,
        notice: &'a ResolvedNotice,
        _: &'a ContactId,
        sent_together: &'a [&'a AlertId],
        _: UnixMs,
    ) -> BoxFuture<'a, redis::RedisResult<ResolvedVerdict>> {
        let verdict = match notice.alerts.iter().all(|alert| sent_together.contains(&alert)) {
            true => ResolvedVerdict::True(Box::new(ResolvedNotice { used: 7, ..notice.clone() })),
            false => ResolvedVerdict::Later,
        };
        Box::pin(std::future::ready(Ok(verdict)))
    }
}

/// The end of an alert, raised so long before the attempt.
fn end_of(alert: &Alert, age_ms: i64) -> Notification {
    let now = Rfc3339(RAISED.plus(-age_ms));
    let quota = QuotaNow { used: 0, limit: Some(9_000), plan: "free", timezone: "UTC", resets_at: None, now };
    let end = AlertEnd { reason: EndReason::LimitRaised, at: now };
    let notice = ResolvedNotice::new(ResolvedScope::Quota, &[alert], end, quota);
    Notification::Resolved(notice.expect("it has an alert"))
}

/// A receiver, its contact, and what sends to it all but spikes.
async fn judged() -> (HttpCatcher, Contact, Sending) {
    let receiver = HttpCatcher::start([]).await.expect("a receiver");
    let contact = webhook(&receiver.url("/"));
    let mut sender = sender("smtp://localhost");
    sender.notifier = sender.notifier.with_judge(Arc::new(AllBut(UsageNoticeKind::Spike)));
    (receiver, contact, sender)
}

/// An end must not leave before its alert, and one that waits for an alert beside it would never leave.
#[tokio::test]
async fn an_end_leaves_with_its_alert_and_waits_for_one_that_is_held_back() {
    let (mut receiver, contact, sender) = judged().await;
    let raised = Alert { raised_at_ms: RAISED.plus(-5_000), ..alert() };
    let both = [end_of(&raised, 3_000), Notification::Alert(raised)];
    let sent = attempt_set(&sender, &contact, &both, 1).await;
    assert!(matches!(sent[..], [Settlement::Delivered(_), Settlement::Delivered(_)]), "{sent:?}");
    let body: serde_json::Value = serde_json::from_slice(&receiver.next().await.body).expect("JSON");
    let items = &body["data"]["items"];
    assert_eq!((&items[0]["type"], &items[1]["type"]), (&"quota.threshold_reached".into(), &"quota.resolved".into()));
    assert_eq!(items[1]["data"]["used"], 7, "as it is true now");
    attempt_set(&sender, &contact, &both, 2).await;
    let again: serde_json::Value = serde_json::from_slice(&receiver.next().await.body).expect("JSON");
    assert_eq!(again["data"]["items"][1]["data"]["used"], 0, "as it was stored for the first attempt");

    let long_over = Alert { resets_at: Some(Rfc3339(RAISED.plus(-72 * HOUR_MS))), ..alert() };
    let held = attempt_set(&sender, &contact, &[end_of(&alert(), 3_000), Notification::Alert(long_over)], 1).await;
    assert!(matches!(held[..], [Settlement::Released(_), Settlement::Expired]), "{held:?}");
    assert!(receiver.try_next().is_none());

    // A limit that is lowered again within three seconds ends nothing.
    let fresh = attempt_set(&sender, &contact, &[end_of(&alert(), 2_000), Notification::Alert(alert())], 1).await;
    assert_eq!(fresh[0], Settlement::Released(Duration::from_secs(1)));
    let body: serde_json::Value = serde_json::from_slice(&receiver.next().await.body).expect("JSON");
    let items = body["data"]["items"].as_array().expect("a list");
    assert!(items.len() == 1 && items[0]["type"] == "quota.threshold_reached", "{items:?}");
}

/// A receiver that was told of an alert must hear the rest of its story, and one that was not must not hear of it.
#[tokio::test]
async fn an_ended_alert_is_sent_only_if_it_may_have_arrived_or_is_fresh() {
    let (mut receiver, contact, sender) = judged().await;
    let ended = Notification::Alert(Alert { used: 0, ..alert() });
    let delivery = ended.delivery_to(&contact.id);
    for (attempt, late_ms, may_have_arrived, is_sent) in [
        (1, 2_999, false, true),
        (1, 3_000, false, false),
        (2, 2_999, false, true),
        (2, 3_000, false, false),
        (2, 60_000, true, true),
    ] {
        let now = RAISED.plus(late_ms);
        let request = AttemptRequest { may_have_arrived, now, ..request_at(&ended, &delivery, &contact, attempt) };
        let settled = sender.attempt(request).await;
        match settled {
            Settlement::Delivered(_) => assert!(is_sent, "attempt {attempt} after {late_ms} ms"),
            other => assert_eq!((other, is_sent), (Settlement::Expired, false), "attempt {attempt}"),
        }
    }
    assert_eq!(std::iter::from_fn(|| receiver.try_next()).count(), 3);
}

fn usage_notice(kind: UsageNoticeKind) -> Notification {
    let Alert { subject, metric, window, period, used, limit, plan, timezone, resets_at, .. } = alert();
    let (raised_at, resets_at) = (Rfc3339(RAISED), resets_at.expect("a day ends"));
    Notification::Usage(UsageNotice {
        id: kind.as_str().to_owned(),
        kind,
        subject,
        metric,
        window,
        period,
        used,
        limit: Some(limit),
        plan,
        timezone,
        resets_at,
        raised_at,
        probability_percent: Some(93),
        expected_at: None,
        earliest_at: None,
        latest_at: None,
        usual_by_now: 2_000,
        silent_since: Some(raised_at),
        usual_per_day: None,
    })
}

/// A digest would tell hours later of a forecast that came to nothing, or of a silence that is over.
#[tokio::test]
async fn what_is_not_true_any_more_is_left_out_of_a_digest() {
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let contact = webhook(&receiver.url("/"));
    for untrue in UsageNoticeKind::ALL {
        let mut sender = sender("smtp://localhost");
        sender.notifier = sender.notifier.with_judge(Arc::new(AllBut(untrue)));
        for attempt in [1, 2] {
            let notices = UsageNoticeKind::ALL.map(usage_notice);
            let all = [&[Notification::Alert(alert())], &notices[..]].concat();
            let settled = attempt_set(&sender, &contact, &all, attempt).await;
            let expected = |(kind, settled): (UsageNoticeKind, &Settlement)| match settled {
                Settlement::Expired => kind == untrue,
                Settlement::Delivered(_) => kind != untrue,
                _ => false,
            };
            assert!(UsageNoticeKind::ALL.into_iter().zip(&settled[1..]).all(expected), "{settled:?}");
            let body: serde_json::Value = serde_json::from_slice(&receiver.next().await.body).expect("JSON");
            let items = body["data"]["items"].as_array().expect("a list");
            let kinds: Vec<&str> = items.iter().filter_map(|item| item["type"].as_str()).collect();
            assert!(kinds.len() == 3 && !kinds.contains(&format!("quota.{untrue}").as_str()), "{kinds:?}");
        }
    }
}

/// A customer would read at noon what was used in the morning, or of a time that is over. A receiver that may have got
/// a message gets the same again.
#[tokio::test]
async fn a_notice_that_waited_is_told_as_it_is_true_now() {
    let (mut receiver, contact, sender) = judged().await;
    for (age_ms, expected_ms, attempt, is_told, used) in [
        (HOUR_MS, HOUR_MS, 1, false, Some(7)),
        (HOUR_MS, -1, 1, false, Some(7)),
        (HOUR_MS, HOUR_MS, 2, false, Some(7)),
        (HOUR_MS, HOUR_MS, 2, true, Some(4_000)),
        (HOUR_MS, -1, 2, true, None),
        (60_000, HOUR_MS, 1, false, Some(4_000)),
        (60_000, HOUR_MS, 2, true, Some(4_000)),
        (60_000, -1, 2, true, None),
    ] {
        let Notification::Usage(notice) = usage_notice(UsageNoticeKind::Forecast) else { panic!("it is one") };
        let (raised_at, expected_at) = (RAISED.plus(-age_ms), RAISED.plus(expected_ms));
        let notice = UsageNotice { raised_at: Rfc3339(raised_at), expected_at: Some(Rfc3339(expected_at)), ..notice };
        let notices = [Notification::Usage(notice)];
        let settled = attempt_set_after(&sender, &contact, &notices, attempt, is_told).await;
        let told = receiver.try_next().map(|caught| {
            let body: serde_json::Value = serde_json::from_slice(&caught.body).expect("JSON");
            body["data"]["items"][0]["data"]["used"].as_u64().expect("units")
        });
        assert_eq!((told, settled[0] == Settlement::Expired), (used, used.is_none()), "{age_ms} {expected_ms}");
    }
}

/// Two alerts in one email: one id for mail programs and one thread, and each alert with its own text.
#[tokio::test]
async fn a_mail_about_two_alerts_has_one_id_and_the_texts_of_both() {
    let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a server");
    let mut contact = Contact::email("bob@example.com");
    contact.locale = Some("vi".parse().expect("a tag"));
    let sent = attempt_both(&sender(&server.url()), &contact, 1).await;
    assert!(matches!(sent[..], [Settlement::Delivered(_), Settlement::Delivered(_)]), "{sent:?}");
    let mail = ParsedMail::parse(&server.next().await.text());
    assert_eq!(mail.header("Message-ID"), "<digest_0123456789abcdef0123456789abcdef@example.com>");
    assert_eq!(mail.header("References"), format!("<{}@example.com>", alert().period_id()));
    assert_eq!(mail.count("X-Quotabell-Alert"), 0);
    assert!(
        mail.header("Subject").ends_with("2 c\u{1ea3}nh b\u{e1}o h\u{1ea1}n m\u{1ee9}c"),
        "{}",
        mail.header("Subject")
    );
    let [text, html] = [0, 1].map(|part: usize| mail.parts[part].content.clone());
    for told in ["80,0%", "100,0%"] {
        assert!(text.contains(told) && html.contains(told), "{told}: {text}");
    }
    assert!(server.try_next().is_none(), "one email");
}

/// Mail programs would show a forecast, or the end of alerts, apart from the alerts about the same day.
#[tokio::test]
async fn emails_about_one_period_are_a_thread() {
    let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a server");
    let (sender, contact) = (sender(&server.url()), Contact::email("bob@example.com"));
    let (forecast, end) = (usage_notice(UsageNoticeKind::Forecast), end_of(&alert(), 3_000));
    let thread = format!("<{}@example.com>", alert().period_id());
    for (told, heading) in [
        (vec![forecast.clone()], "requests a day will probably be reached"),
        (vec![Notification::Alert(alert()), forecast], "2 quota alerts"),
        (vec![end.clone()], "the limit of requests a day was raised"),
        (vec![end.clone(), end], "the alerts of 2 quotas have ended"),
    ] {
        attempt_set(&sender, &contact, &told, 1).await;
        let mail = ParsedMail::parse(&server.next().await.text());
        assert!(mail.header("Subject").ends_with(heading), "{}", mail.header("Subject"));
        assert_eq!((mail.header("In-Reply-To"), mail.header("References")), (thread.clone(), thread.clone()));
    }
}

/// A customer would look for two alerts that nobody raised.
#[tokio::test]
async fn a_message_of_notices_is_not_called_alerts() {
    let mut server = SmtpCatcher::start(SmtpSetup::default()).await.expect("a server");
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let sender = sender(&server.url());
    let notices = [UsageNoticeKind::Forecast, UsageNoticeKind::Silence].map(usage_notice);
    for (locale, heading, first_line) in [
        ("en", "example-customer: 2 quota notices", "2 quota notices about example-customer:"),
        ("vi", "example-customer: 2 thông báo hạn mức", "2 thông báo hạn mức về example-customer:"),
    ] {
        let contact = Contact { locale: Some(locale.parse().expect("a tag")), ..Contact::email("bob@example.com") };
        attempt_set(&sender, &contact, &notices, 1).await;
        let mail = ParsedMail::parse(&server.next().await.text());
        assert_eq!(mail.header("Subject"), heading);
        assert!(mail.parts[0].content.starts_with(first_line), "{}", mail.parts[0].content);
        assert!(mail.parts[1].content.contains(&format!("<title>{heading}</title>")), "{}", mail.parts[1].content);
    }
    let slack = ContactOptions { format: "slack".parse().expect("legal"), ..ContactOptions::default() };
    attempt_set(&sender, &Contact::webhook_with(&receiver.url("/"), slack), &notices, 1).await;
    let body: serde_json::Value = serde_json::from_slice(&receiver.next().await.body).expect("JSON");
    assert!(
        body["text"].as_str().is_some_and(|text| text.starts_with("example-customer: 2 quota notices\n")),
        "{body}"
    );
}

/// A digest leaves long after what it tells: the links in it must not have expired when it arrives.
#[tokio::test]
async fn the_link_in_a_message_that_waited_is_valid_from_then_on() {
    let outbox = Outbox::start();
    let first = Partitions::new(&outbox.client, &Keys::new("usage")).first().clone();
    let mut mailbox = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    let public_url = "https://x.test".parse().expect("a URL");
    let urls = PortalUrls { first: first.clone(), public_url, link_lifetime: Duration::from_secs(60) };
    let Sending { channels, notifier } = sender(&mailbox.url());
    let sending = Sending { channels, notifier: notifier.with_portal(Some(urls)) };
    let now = outbox.client.server_time().await.expect("TIME works");
    let last = Attempt { ever: 1, number: 1, first: now, now };
    let sent = attempt_after_wait(&sending, &Contact::email("a@b.test"), (alert(), last), Some(now)).await;
    assert!(matches!(sent, Settlement::Delivered(_)), "{sent:?}");
    let mail = ParsedMail::parse(&mailbox.next().await.text());
    let link =
        mail.parts[0].content.lines().find_map(|line| line.strip_prefix("See your usage: https://x.test/portal/"));
    let access = open(&first, link.expect("a link").trim().trim_end_matches('/')).await.expect("a token");
    assert_eq!(access.expires_at(), now.plus(60_000));
}
