//! One attempt of one delivery, or of a set that leaves in one message: check mute and expiry again, ask the cap, send
//! through the channel, decide what to record.
//!
//! Owns the order of these steps. Knows no schedule and records nothing: its input is an [`AttemptRequest`], its output
//! a [`Settlement`]. Read next: [`mod@super::retry_policy`] for the retries, and [`crate::channels`] for the sending.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::attempt_request::AttemptRequest;
use super::config::RetryConfig;
use super::consent::{ConsentRequestError, ConsentRequests};
use super::lease::DeliverySet;
use super::message_labels::MessageLabels;
use super::notice_judge::{NoticeJudge, Verdict, judge_alert, judge_resolved, judge_usage};
use super::retry_policy::{EndedAttempt, settlement_after};
use super::settle::Settlement;
use crate::channels::{
    AlertPurpose, CapDecision, Caps, Channels, ConsentMethod, ConsentProof, ConsentQuestion, Content, Labels, Message,
    MessageSet, SetItem, definition,
};
use crate::contacts::Contact;
use crate::contacts::resolver::ContactsSource;
use crate::redis_client::backoff::BackoffPolicy;
use crate::signing::PortalUrls;
use crate::subjects::Plans;
use crate::types::{
    AlertId, Channel, Metric, Notification, Outcome, OutcomeClass, QuotaNotification, Secret, Subject,
    VerificationRequest, Window, nonce,
};

/// How long after the end of a quiet time, or of the interval of a digest, an alert that would have expired in it is
/// still sent: two hours, as for the shortest window.
const AFTER_WAIT_MS: i64 = 2 * 3_600_000;

/// Makes attempts: [`ChannelNotifier`] in the daemon, a fake in tests.
pub trait Notifier: Send + Sync + 'static {
    /// The deadline of one attempt on this channel; [`Notifier::attempt`] keeps it.
    fn timeout(&self, channel: Channel) -> Duration;

    /// What to record for those of a message that may not be sent now, of the only one or of a set. For the others the
    /// notification as it is true now, if that has changed. Records nothing.
    fn hold_back(
        &self,
        set: Option<&DeliverySet>,
        requests: &[AttemptRequest<'_>],
    ) -> impl Future<Output = Vec<Verdict>> + Send;

    /// Makes one attempt at what is not held back, and returns what to record. Records nothing.
    fn attempt(&self, request: AttemptRequest<'_>) -> impl Future<Output = Settlement> + Send;

    /// Makes one attempt at one contact for those of a set that may be sent. Returns what to record for each request.
    /// Records nothing.
    fn attempt_set(
        &self,
        set: &DeliverySet,
        requests: &[AttemptRequest<'_>],
    ) -> impl Future<Output = Vec<Settlement>> + Send;
}

/// Makes attempts through the channels.
#[derive(Debug)]
pub struct ChannelNotifier {
    channels: Arc<Channels>,
    caps: Caps,
    retry: RetryConfig,
    consents: Arc<dyn ConsentRequests>,
    labels: MessageLabels,
    judge: Option<Arc<dyn NoticeJudge>>,
}

impl ChannelNotifier {
    /// A notifier that sends through `channels` within `caps`. `consents` generates the content of requests for
    /// consent, `plans` the links and the names of metrics.
    pub fn new(
        channels: Arc<Channels>,
        caps: Caps,
        retry: RetryConfig,
        consents: Arc<dyn ConsentRequests>,
        plans: Plans,
    ) -> Self {
        Self { channels, caps, retry, consents, labels: MessageLabels { plans, portal: None }, judge: None }
    }

    /// The same with a judge of notices. Without one, every notice is sent.
    #[must_use]
    pub fn with_judge(self, judge: Arc<dyn NoticeJudge>) -> Self {
        Self { judge: Some(judge), ..self }
    }

    /// The same with links to the portal.
    pub fn with_portal(self, portal: Option<PortalUrls>) -> Self {
        Self { labels: MessageLabels { portal, ..self.labels }, ..self }
    }

    /// What a notification says now, an end if it leaves together with these alerts.
    async fn judge(&self, request: &AttemptRequest<'_>, sent_together: &[&AlertId]) -> Verdict {
        let Some(judge) = self.judge.as_deref() else { return Ok(None) };
        let judged = match request.notification {
            Notification::Alert(alert) => judge_alert(alert, judge, request).await,
            Notification::Usage(notice) => judge_usage(notice, judge, request).await,
            Notification::Resolved(notice) => judge_resolved(notice, judge, request, sent_together).await,
            _ => Ok(Ok(None)),
        };
        match judged {
            Ok(verdict) => verdict,
            Err(error) => {
                tracing::debug!(delivery = %request.delivery, %error, "a notification could not be judged");
                Err(Settlement::Released(BackoffPolicy::RECONNECT.max_interval))
            }
        }
    }

    /// What to record if the cap does not allow an attempt now. Asked last, so that caps count only messages that are
    /// about to be sent.
    async fn capped(&self, request: &AttemptRequest<'_>) -> Option<Settlement> {
        match self.caps.decide_attempt(&self.channels, request.contact).await {
            // Redis was slow: an attempt that started now could exceed its lease and overlap with another worker's.
            CapDecision::Allowed if Instant::now() > request.start_by => Some(Settlement::Released(Duration::ZERO)),
            CapDecision::Allowed => None,
            CapDecision::Exhausted { retry_after } => Some(Settlement::Throttled(retry_after)),
            CapDecision::Unknown { retry_after } => Some(Settlement::Released(retry_after)),
        }
    }

    async fn send(&self, request: &AttemptRequest<'_>, labels: &Labels) -> Result<Outcome, ConsentRequestError> {
        let content = match request.notification {
            Notification::Verification(asked) => return self.ask(request, asked).await,
            Notification::ContactDisabled(notice) => Content::ContactDisabled(notice),
            Notification::Digest(digest) => Content::Digest(digest),
            Notification::Alert(alert) => content_of(alert, request.contact),
            Notification::GrantExpires(notice) => content_of(notice, request.contact),
            Notification::Usage(notice) => content_of(notice, request.contact),
            Notification::Resolved(notice) => content_of(notice, request.contact),
        };
        Ok(self.send_content(request, content, labels).await)
    }

    /// Sends the content to the contact of the request.
    async fn send_content(&self, request: &AttemptRequest<'_>, content: Content<'_>, labels: &Labels) -> Outcome {
        let AttemptRequest { delivery, contact, more_follows, now, .. } = *request;
        let link = match request.notification.quota() {
            Some(quota) if !contact.id.is_of_operator() && request.source == ContactsSource::Own => {
                self.unsubscribe_url(quota.subject(), contact).await
            }
            _ => None,
        };
        let unsubscribe = link.as_ref().map(Secret::reveal);
        self.channels.send(Message { delivery, contact, content, labels, unsubscribe, more_follows, now }).await
    }

    /// What to record after an attempt.
    fn settlement(&self, request: &AttemptRequest<'_>, outcome: Outcome) -> Settlement {
        let AttemptRequest { attempt_since_replay: attempt, first_attempt, paused, now, .. } = *request;
        settlement_after(EndedAttempt { outcome, attempt, first_attempt, paused, now }, &self.retry)
    }

    /// The link with which a person withdraws consent. If it can't be created, the message is sent without it.
    async fn unsubscribe_url(&self, subject: &Subject, contact: &Contact) -> Option<Secret> {
        let (subject, contact) = &contact.where_it_belongs(subject);
        if definition(contact.channel())?.consent != ConsentMethod::CodeAndLink {
            return None;
        }
        self.consents.unsubscribe_url(subject, contact).await.unwrap_or_else(|error| {
            let source = error.source.to_string();
            tracing::warn!(%subject, contact = %contact.id, %error, source, "the email is sent without an unsubscribe link");
            None
        })
    }

    /// Asks for consent. If the receiver itself answers, its consent is stored before the attempt counts as delivered.
    async fn ask(
        &self,
        request: &AttemptRequest<'_>,
        asked: &VerificationRequest,
    ) -> Result<Outcome, ConsentRequestError> {
        let AttemptRequest { delivery, contact, more_follows, now, .. } = *request;
        let method = definition(contact.channel()).expect("every contact has a channel of the registry").consent;
        let (id, proof) = match method {
            // Each email has another code, and mail software shows only one of several emails with the same id.
            ConsentMethod::CodeAndLink => {
                let proof = ConsentProof::CodeAndLink(self.consents.generate(asked).await?);
                (format!("{}_{}", asked.id, request.attempts), proof)
            }
            ConsentMethod::Challenge => (asked.id.clone(), ConsentProof::Challenge(Secret::new(nonce()))),
        };
        let question = ConsentQuestion { id: &id, subject: &asked.subject, proof: &proof };
        let content = Content::Verification(question);
        let labels = &Labels::default();
        let message = Message { delivery, contact, content, labels, unsubscribe: None, more_follows, now };
        let outcome = self.channels.send(message).await;
        if method == ConsentMethod::Challenge && outcome.class == OutcomeClass::Delivered {
            self.consents.grant(asked).await?;
        }
        Ok(outcome)
    }
}

impl Notifier for ChannelNotifier {
    fn timeout(&self, channel: Channel) -> Duration {
        self.channels.timeout(channel)
    }

    async fn hold_back(&self, set: Option<&DeliverySet>, requests: &[AttemptRequest<'_>]) -> Vec<Verdict> {
        let is_repeated = set.is_some_and(|set| set.attempt > 1);
        let are_all_quiet = requests.iter().all(|request| ended(request).is_some() || quiet(request).is_some());
        let is_end = |request: &AttemptRequest<'_>| matches!(request.notification, Notification::Resolved(_));
        let mut verdicts = Vec::with_capacity(requests.len());
        for request in requests {
            // A repeated message is sent again whole: what need not wait takes the others along.
            let unsent = ended(request).or_else(|| quiet(request).filter(|_| !is_repeated || are_all_quiet));
            verdicts.push(match unsent {
                Some(unsent) => Err(unsent),
                None if is_end(request) => Ok(None),
                None => self.judge(request, &[]).await,
            });
        }
        // An end may follow the alerts that are sent with it, so those are judged first.
        let sent = requests.iter().zip(&verdicts).filter(|(_, verdict)| verdict.is_ok());
        let alerts: Vec<&AlertId> = sent.filter_map(|(request, _)| request.notification.alert_id()).collect();
        let ends = requests.iter().zip(&mut verdicts).filter(|(request, verdict)| is_end(request) && verdict.is_ok());
        for (request, verdict) in ends {
            *verdict = self.judge(request, &alerts).await;
        }
        verdicts
    }

    /// Sends the message within the cap; ends within [`Self::timeout`] of `start_by`. A repetition sends again, with
    /// the same id.
    async fn attempt(&self, request: AttemptRequest<'_>) -> Settlement {
        let labels = match self.labels.labels_of(&[&request], request.notification.id()).await {
            Ok(mut labels) => labels.remove(0),
            Err(unsent) => return unsent,
        };
        if let Some(capped) = self.capped(&request).await {
            return capped;
        }
        let outcome = match self.send(&request, &labels).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let source = error.source.to_string();
                tracing::warn!(delivery = %request.delivery, %error, source, "the attempt could not be completed; trying again");
                let outcome = Outcome::failed(OutcomeClass::Transient, error.to_string());
                return Settlement::Retry(outcome, BackoffPolicy::RECONNECT.max_interval);
            }
        };
        not_after_expiry(self.settlement(&request, outcome), &request)
    }

    async fn attempt_set(&self, set: &DeliverySet, requests: &[AttemptRequest<'_>]) -> Vec<Settlement> {
        let Some(first) = requests.first() else { return Vec::new() };
        let mut sent: Vec<&AttemptRequest<'_>> = requests.iter().collect();
        sent.sort_by_key(|request| (request.notification.happened_at(), severity(request), request.delivery));
        let labels = match self.labels.labels_of(&sent, &set.message_id).await {
            Ok(labels) => labels,
            Err(unsent) => return vec![unsent; requests.len()],
        };
        let mut items = Vec::with_capacity(sent.len());
        for (request, labels) in sent.iter().zip(labels) {
            let content = request.notification.quota().map(|quota| content_of(quota, request.contact));
            items.extend(content.map(|content| SetItem { content, labels }));
        }
        if let Some(capped) = self.capped(first).await {
            return vec![capped; requests.len()];
        }
        let message = MessageSet { id: &set.message_id, items };
        let outcome = self.send_content(sent[0], Content::Set(&message), &Labels::default()).await;
        let settlement = self.settlement(sent[0], outcome);
        requests.iter().map(|request| not_after_expiry(settlement.clone(), request)).collect()
    }
}

/// A notification about a quota as this contact gets it.
fn content_of<'a>(notification: impl Into<QuotaNotification<'a>>, contact: &Contact) -> Content<'a> {
    let purpose = if contact.id.is_of_operator() { AlertPurpose::Copy } else { AlertPurpose::Alert };
    match notification.into() {
        QuotaNotification::Alert(alert) => Content::Alert(alert, purpose),
        QuotaNotification::GrantExpires(notice) => Content::GrantExpires(notice, purpose),
        QuotaNotification::Usage(notice) => Content::Usage(notice, purpose),
        QuotaNotification::Resolved(notice) => Content::Resolved(notice, purpose),
    }
}

/// The order of notifications that happened at one time: by metric, window and threshold, and ends after alerts.
fn severity<'a>(request: &AttemptRequest<'a>) -> (Option<(&'a Metric, Window)>, u64) {
    let threshold = match request.notification {
        Notification::Alert(alert) => alert.threshold_units,
        Notification::Resolved(_) => u64::MAX,
        _ => 0,
    };
    (request.notification.quota().map(|quota| (quota.metric(), quota.window())), threshold)
}

/// Why it waits for the end of a quiet time, if so.
fn quiet(request: &AttemptRequest<'_>) -> Option<Settlement> {
    let quota = request.notification.quota();
    let end = quota.and_then(|quota| request.contact.filter.quiet_until(quota, request.zone, request.now))?;
    Some(Settlement::Quiet(end.since(request.now)))
}

/// Why nothing is sent at all, if so.
fn ended(request: &AttemptRequest<'_>) -> Option<Settlement> {
    if let Some(mute) = request.contact.muted_at(request.now).filter(|_| request.notification.can_be_muted()) {
        return Some(Settlement::Muted(format!("the contact is {mute}")));
    }
    match request.notification {
        // Only the first attempt: a delivery that was attempted before, or is replayed later, was found worth sending.
        Notification::Alert(alert) if request.attempts <= 1 => {
            let expires = super::expires_at(alert.into());
            // An alert that waited for a digest, or for the end of a quiet time, was to be sent then. Not one of a
            // period that was long over when it was raised.
            let waited = request.waited_until.filter(|_| alert.raised_at_ms <= expires);
            let expires = waited.map_or(expires, |until| expires.max(until.plus(AFTER_WAIT_MS)));
            let quiet_end = request.contact.filter.quiet_until(alert, request.zone, expires);
            let expires = quiet_end.map_or(expires, |end| end.plus(AFTER_WAIT_MS));
            (request.first_attempt > expires).then_some(Settlement::Expired)
        }
        lasting => lasting.valid_until().filter(|until| request.now > *until).map(|_| Settlement::Expired),
    }
}

/// If the retry would come after the notification lost its meaning, the delivery ends `expired` now, with the error of
/// the attempt. It does not end dead, because a replay could not help.
fn not_after_expiry(settlement: Settlement, request: &AttemptRequest<'_>) -> Settlement {
    let Some(until) = request.notification.valid_until() else { return settlement };
    match settlement {
        Settlement::Retry(outcome, wait) if request.now.after(wait) > until => Settlement::ExpiredAfter(outcome),
        other => other,
    }
}
