//! One delivery: recheck the contact's mute, ask for room under the caps, render, send, classify, decide what comes next. Knows no
//! queue.
//!
//! Owns the order of these steps and the verdict. What is due comes in as [`Due`], what is to be recorded goes out as [`Verdict`];
//! only [`throttle`], which asks the limiters, talks to Redis. Read next: [`mod@next_due`] for the retries, [`render`] and
//! [`payload`] for what is sent, and [`crate::transport`] for how.

use std::time::Duration;

use tokio::time::Instant;

use crate::contacts::{Contact, Endpoint};
use crate::transport::{EmailConfig, Mail, Mailer, TransportError, Webhook, WebhookConfig, WebhookRequest};
use crate::types::{Alert, AlertId, Channel, DeliveryId, Outcome, Percent, UnixMs};

pub mod config;
pub mod next_due;
pub mod payload;
pub mod render;
pub mod sample;
pub mod throttle;
mod turns;
mod verification;

pub use config::RetryConfig;
pub use sample::{Sample, sample_alert};
pub use throttle::{Room, Throttle};
pub use verification::{ChallengePost, PasswordMail};

use next_due::{Ended, Next, next_due};
use render::{Rendered, SAMPLE_VERIFICATION, TemplateError, Templates, VerifyVariables};

/// An alert whose day ended longer ago than this before its first attempt is recorded, not sent: an old stream that is read for
/// the first time must not mail anybody about last month.
const EXPIRES_AFTER_MS: i64 = 48 * 3_600_000;
/// The threshold of a test message.
const TEST_PERCENT: u16 = 80;

/// What the sender needs to know about a delivery that is due.
#[derive(Debug)]
pub struct Due<'a> {
    /// The delivery; e-mail derives its Message-ID from it.
    pub delivery: &'a DeliveryId,
    /// The frozen facts.
    pub alert: &'a Alert,
    /// The contact as it stands now.
    pub contact: &'a Contact,
    /// Which attempt this is, 1 for the first ever. Only the first can find its alert too old.
    pub attempts: u32,
    /// Which attempt this is since the last replay, 1 for the first: the delays start over with a replay.
    pub attempt: u32,
    /// When the first attempt since the last replay began, server time; this attempt's own start if it is the first.
    pub first_attempt: UnixMs,
    /// Server time at which this attempt starts.
    pub now: UnixMs,
    /// The latest moment at which the message may leave, so that its deadline lies within the lease.
    pub start_by: Instant,
}

/// What the queue is to record.
#[derive(Debug)]
pub enum Verdict {
    /// The other side took it.
    Delivered(Outcome),
    /// Try again after this long, jitter and Retry-After included.
    Retry(Outcome, Duration),
    /// Given up: a permanent outcome, or `give_up_after` is over.
    Dead(Outcome),
    /// A cap has no room: nothing was sent, no attempt took place. Due again after this long, jitter included.
    Throttled(Duration),
    /// It could not be found out in time whether a cap has room: nothing was sent, no attempt took place. Due again after this long.
    Postponed(Duration),
    /// The contact is muted: nothing was sent.
    Muted,
    /// The day ended more than 48 h before the first attempt: nothing was sent.
    Expired,
}

/// Why a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A threshold was reached.
    Alert,
    /// An operator tries a contact out.
    Test,
}

/// Why the sender cannot be set up. All of it is configuration.
#[derive(Debug, thiserror::Error)]
pub enum SenderError {
    /// A setting of `[webhook]` or `[email]`.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A template.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl SenderError {
    /// The setting that is wrong; `None` where the machine is at fault.
    #[must_use]
    pub const fn setting(&self) -> Option<&'static str> {
        match self {
            Self::Transport(error) => error.setting(),
            Self::Template(_) => Some("email.templates"),
        }
    }

    /// Whether a template itself is wrong, and not where it lies.
    #[must_use]
    pub const fn is_of_a_template(&self) -> bool {
        matches!(self, Self::Template(TemplateError::Template { .. }))
    }
}

/// What `preview` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The mail.
    pub mail: Rendered,
    /// The body of the webhook.
    pub webhook_json: String,
    /// The mail that asks to confirm an address.
    pub verification: Rendered,
}

/// Makes attempts.
#[derive(Debug)]
pub struct Sender {
    webhook: Webhook,
    mailer: Mailer,
    templates: Templates,
    /// Used where the operator's fail on an alert that no sample resembled: a plain mail beats none.
    embedded: Templates,
    retry: RetryConfig,
    /// `None`: nothing is capped, as for verbs.
    throttle: Option<Throttle>,
    webhook_timeout: Duration,
    email_timeout: Duration,
}

impl Sender {
    /// Loads and checks templates, reads the settings of both transports. Connects nowhere.
    ///
    /// # Errors
    ///
    /// [`SenderError`]: exit 78.
    pub fn new(webhook: &WebhookConfig, email: &EmailConfig, retry: RetryConfig) -> Result<Self, SenderError> {
        Ok(Self {
            webhook: Webhook::new(webhook)?,
            mailer: Mailer::new(email)?,
            templates: Templates::load(email.templates.as_deref())?,
            embedded: Templates::embedded(),
            retry,
            throttle: None,
            webhook_timeout: webhook.timeout,
            email_timeout: email.timeout,
        })
    }

    /// The same sender, which has this throttle asked for room. Test messages do not ask.
    #[must_use]
    pub fn throttled_by(self, throttle: Throttle) -> Self {
        Self { throttle: Some(throttle), ..self }
    }

    /// What an operator should know about settings that are allowed but unwise, for the log.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        self.mailer.warnings()
    }

    /// The deadline of one attempt: what a lease has to cover. Without a contact nothing is sent, so there is nothing to cover.
    #[must_use]
    pub const fn timeout(&self, channel: Channel) -> Duration {
        match channel {
            Channel::Email => self.email_timeout,
            Channel::Webhook => self.webhook_timeout,
            Channel::None => Duration::ZERO,
        }
    }

    /// Makes one attempt and says what to record. Leaves the machine unless the verdict is [`Verdict::Muted`], [`Verdict::Expired`],
    /// [`Verdict::Throttled`] or [`Verdict::Postponed`]; ends within [`Self::timeout`] of `start_by`. Repeating it sends again, with
    /// the same id.
    pub async fn send(&self, due: Due<'_>) -> Verdict {
        if due.contact.muted {
            return Verdict::Muted;
        }
        // Only the very first: a delivery that was tried before, or is replayed later, has been found worth sending.
        if due.attempts <= 1 && due.first_attempt > due.alert.resets_at_ms.plus(EXPIRES_AFTER_MS) {
            return Verdict::Expired;
        }
        // Last, so that only what is about to leave takes room.
        if let Some(put_off) = self.without_room(&due).await {
            return put_off;
        }
        let Due { delivery, alert, contact, attempt, first_attempt, now, .. } = due;
        let outcome = self.attempt(Message { delivery, alert, contact, now, purpose: Purpose::Alert }).await;
        match next_due(Ended { outcome: &outcome, attempt, first_attempt, now }, &self.retry) {
            Next::Delivered => Verdict::Delivered(outcome),
            Next::RetryAfter(delay) => Verdict::Retry(outcome, delay),
            Next::Dead => Verdict::Dead(outcome),
        }
    }

    /// Why the delivery can't leave now, if it can't.
    async fn without_room(&self, due: &Due<'_>) -> Option<Verdict> {
        match self.room_for(due.contact).await {
            // Redis was slow: an attempt that started now could outlive its lease and meet another worker's.
            Room::Given if Instant::now() > due.start_by => Some(Verdict::Postponed(Duration::ZERO)),
            Room::Given => None,
            Room::Full { again } => Some(Verdict::Throttled(again)),
            Room::Unknown { again } => Some(Verdict::Postponed(again)),
        }
    }

    /// Takes a place for one message to this contact under its cap, if it has one. Who sends something else than deliveries asks
    /// here first: what the receiver and the mail provider take is one number for all that we send.
    pub async fn room_for(&self, contact: &Contact) -> Room {
        match &self.throttle {
            Some(throttle) => throttle.room_for(contact).await,
            None => Room::Given,
        }
    }

    /// Sends a test message about `sample` to one contact, muted or not, and says how it ended. It is not recorded and not repeated,
    /// and no cap holds it back or counts it.
    ///
    /// A mail is marked as a test in its subject line and text, a webhook has the type `quota.test`. Each test has an id of its
    /// own, `test_` and the time in milliseconds: a receiver that drops what it has seen would otherwise take only the first.
    pub async fn send_test(&self, contact: &Contact, sample: &Sample, now: UnixMs) -> Outcome {
        let percent = Percent::new(TEST_PERCENT).expect("a legal percentage");
        let alert = Alert { id: AlertId::from_stored(&format!("test_{}", now.0)), ..sample.alert(percent, now) };
        let delivery = &DeliveryId::of(&alert.id, &contact.id);
        self.attempt(Message { delivery, alert: &alert, contact, now, purpose: Purpose::Test }).await
    }

    /// Connects to the mail server and authenticates, sends nothing, and says how it ended; for `check-config`.
    pub async fn check_mail_server(&self) -> Outcome {
        self.mailer.check().await
    }

    /// Parts from idle connections; for the end of the process.
    pub async fn close(&self) {
        self.mailer.close().await;
    }

    async fn attempt(&self, message: Message<'_>) -> Outcome {
        let Message { delivery, alert, contact, now, purpose } = message;
        let now_s = now.0.div_euclid(1000);
        match &contact.endpoint {
            Endpoint::Webhook { url, secret } => {
                let body = payload::json(alert, purpose);
                let request = WebhookRequest { id: alert.id.as_str(), now_s, url, secret, body: &body };
                self.webhook.send(request).await
            }
            Endpoint::Email { address } => {
                let Rendered { subject_line, text, html } = self.render(alert, purpose);
                let mail = Mail {
                    to: address,
                    delivery_id: delivery.as_str(),
                    alert_id: Some(alert.id.as_str()),
                    subject_line: &subject_line,
                    text: &text,
                    html: &html,
                    now_s,
                };
                self.mailer.send(mail).await
            }
        }
    }

    fn render(&self, alert: &Alert, purpose: Purpose) -> Rendered {
        self.templates.render(alert, purpose).unwrap_or_else(|error| {
            tracing::error!(alert = %alert.id, error = %error, "template failed, the embedded one is used instead");
            self.embedded.render(alert, purpose).expect("the embedded templates render every alert")
        })
    }
}

struct Message<'a> {
    delivery: &'a DeliveryId,
    alert: &'a Alert,
    contact: &'a Contact,
    now: UnixMs,
    purpose: Purpose,
}

/// What would be sent about an alert, without sending it. Reads `email.templates`, contacts nobody.
///
/// # Errors
///
/// [`TemplateError`].
pub fn preview(email: &EmailConfig, alert: &Alert) -> Result<Preview, TemplateError> {
    let templates = Templates::load(email.templates.as_deref())?;
    let asking = VerifyVariables { subject: alert.subject.as_str(), ..SAMPLE_VERIFICATION };
    Ok(Preview {
        mail: templates.render(alert, Purpose::Alert)?,
        webhook_json: payload::json(alert, Purpose::Alert),
        verification: templates.render_verification(asking)?,
    })
}
