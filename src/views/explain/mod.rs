//! Why an alert, a delivery or a subject stands as it does, in sentences. Read next: `delivery`, what is said of a
//! delivery.
//!
//! Reads what is stored and decides nothing. The sentences are pure functions of what was read.

mod alert;
mod daemons;
mod delivery;
mod subject;

pub use delivery::Audience;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, RedisResult};
use serde::Serialize;

use self::alert::NoDeliveryReason;
use self::daemons::live_daemons;
use self::delivery::CapState;
use super::deliveries::{self, read_destinations};
use super::refused;
use super::subject::SubjectSettings;
use super::usage::{self, UsageRequest};
use super::{
    AlertFilter, AlertIdPrefix, AlertView, DeliveryDetailView, DeliveryFilter, DeliveryIdMatches, DeliveryIdPrefix,
    DeliveryView, UsageView, alerts,
};
use crate::channels::{Cap, Channels};
use crate::contacts::Contact;
use crate::contacts::resolver::ContactResolver;
use crate::ledger::{daily_usage, query};
use crate::outbox::{MultiplePolicy, Recipients, paused_for, read_pause};
use crate::redis_client::{Partition, Partitions, RedisClient};
use crate::subjects::{Plans, Profile, SubjectMutes};
use crate::types::{Alert, DeliveryId, Keys, Subject, UnixMs};

/// Entries of the outbox that are read at once.
const OUTBOX_READ: usize = 1_000;
/// So many readings of the outbox search for an alert at most: a storm raises as many at once.
const OUTBOX_READS_MAX: usize = 20;

#[derive(Debug)]
pub struct Explainer {
    pub partitions: Partitions,
    pub channels: Arc<Channels>,
    pub contacts: ContactResolver,
    /// The contacts of the configuration, under the ids that deliveries to them bear.
    pub configured: Vec<Contact>,
    /// How long a delivery is tried.
    pub give_up_after: Duration,
    /// What is told where a count jumps over several thresholds.
    pub on_multiple: MultiplePolicy,
    pub plans: Plans,
    /// How long after its day an event may arrive.
    pub late_max: Duration,
}

/// What somebody asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExplainTarget {
    Delivery(DeliveryId),
    Alert(Box<AlertView>),
    Subject(Subject),
    /// A name that looks like an id. It is a subject if something is stored under it; else an id that has expired.
    SubjectLikeId(Subject),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// `delivery`, `alert` or `subject`.
    pub about: &'static str,
    pub id: String,
    /// What is known, in the order of time; what happens next comes last.
    pub explanation: Vec<String>,
    /// The alert, where one was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert: Option<AlertView>,
    /// The deliveries that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deliveries: Vec<DeliveryDetailView>,
    /// What the subject used, where one was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageView>,
}

#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error("there is no {0}")]
    NotFound(String),
    #[error(
        "no delivery or alert that is kept has the id {0}, and no subject of this name has settings, counts, alerts or deliveries"
    )]
    NothingNamed(String),
    #[error("several {what} begin with {text}: {}", .ids.join(", "))]
    Ambiguous { what: &'static str, text: String, ids: Vec<String> },
    #[error("no period holds {0}, which the server's clock shows")]
    NoPeriod(UnixMs),
}

const NAMED_MAX: usize = 10;
/// As many digits as a list shows: fewer would take a word for an id.
const DIGITS_MIN: usize = 8;

impl Explainer {
    /// What is meant: an id of a delivery or an alert with its word, a subject of which something is stored, an id by
    /// at least eight of its digits, or any other subject.
    pub async fn target(&self, text: &str) -> Result<ExplainTarget, ExplainError> {
        let names = |word: &str| text.starts_with(word);
        let has_word = names("delivery_") || names("alert_");
        let may_be_id = has_word || text.len() >= DIGITS_MIN;
        // Looked for first: for the first digits of an id all ids are read.
        if may_be_id
            && !has_word
            && let Ok(subject) = text.parse()
            && self.is_known(&subject).await?
        {
            return Ok(ExplainTarget::Subject(subject));
        }
        if may_be_id
            && !names("alert_")
            && let Ok(prefix) = text.parse::<DeliveryIdPrefix>()
        {
            let found = deliveries::find_ids_in_partitions(&self.partitions, std::slice::from_ref(&prefix)).await?;
            match found.into_iter().next() {
                Some(DeliveryIdMatches::One(id)) if self.has_delivery(&id).await? => {
                    return Ok(ExplainTarget::Delivery(id));
                }
                Some(DeliveryIdMatches::Several(ids)) => {
                    let ids = ids.iter().take(NAMED_MAX).map(ToString::to_string).collect();
                    return Err(ExplainError::Ambiguous { what: "deliveries", text: text.to_owned(), ids });
                }
                _ => {}
            }
        }
        if may_be_id && let Ok(prefix) = text.parse::<AlertIdPrefix>() {
            let mut found = self.alerts(&prefix).await?;
            match found.len() {
                0 => {}
                1 => return Ok(ExplainTarget::Alert(Box::new(found.remove(0)))),
                _ => {
                    let ids = found.iter().take(NAMED_MAX).map(|alert| alert.id.to_string()).collect();
                    return Err(ExplainError::Ambiguous { what: "alerts", text: text.to_owned(), ids });
                }
            }
        }
        let subject = text.parse().map_err(|_| ExplainError::NotFound(format!("subject {text:?}")))?;
        let is_prefix = text.parse::<DeliveryIdPrefix>().is_ok() || text.parse::<AlertIdPrefix>().is_ok();
        Ok(match has_word || (may_be_id && is_prefix) {
            true => ExplainTarget::SubjectLikeId(subject),
            false => ExplainTarget::Subject(subject),
        })
    }

    async fn has_delivery(&self, id: &DeliveryId) -> RedisResult<bool> {
        let Partition { client, keys } = deliveries::partition_of(&self.partitions, id).await?;
        client.query(redis::cmd("EXISTS").arg(keys.delivery(id))).await
    }

    /// The alerts that are kept whose ids begin so.
    async fn alerts(&self, prefix: &AlertIdPrefix) -> RedisResult<Vec<AlertView>> {
        let now = self.partitions.first().client.server_time().await?;
        let periods = alerts::kept_periods(now);
        let mut listed = alerts::of_partitions(&self.partitions, &periods, &AlertFilter::default()).await?;
        listed.retain(|alert| prefix.is_of(&alert.id));
        Ok(listed)
    }

    pub async fn explain(&self, target: ExplainTarget, audience: Audience) -> Result<Explanation, ExplainError> {
        match target {
            ExplainTarget::Delivery(id) => {
                let explained = self.delivery(&id, audience).await?;
                let (explanation, detail) =
                    explained.ok_or_else(|| ExplainError::NotFound(format!("delivery {id}")))?;
                let (about, id) = ("delivery", id.to_string());
                Ok(Explanation { about, id, explanation, alert: None, deliveries: vec![detail], usage: None })
            }
            ExplainTarget::Alert(alert) => self.alert(*alert, audience).await,
            ExplainTarget::Subject(subject) => {
                let is_known = self.is_known(&subject).await?;
                self.subject(subject, is_known).await
            }
            ExplainTarget::SubjectLikeId(subject) => match self.is_known(&subject).await? {
                true => self.subject(subject, true).await,
                false => Err(ExplainError::NothingNamed(subject.to_string())),
            },
        }
    }

    /// What is said of a delivery, with the delivery; `None` if there is no such delivery.
    pub async fn delivery(
        &self,
        id: &DeliveryId,
        audience: Audience,
    ) -> RedisResult<Option<(Vec<String>, DeliveryDetailView)>> {
        let partition = deliveries::partition_of(&self.partitions, id).await?;
        let Some(facts) = self.facts(partition, id).await? else { return Ok(None) };
        let sentences = delivery::sentences(&facts, audience);
        let detail = match audience {
            Audience::Operator => facts.detail,
            Audience::Platform => facts.detail.without_other_side(),
        };
        Ok(Some((sentences, detail)))
    }

    async fn facts(&self, partition: &Partition, id: &DeliveryId) -> RedisResult<Option<delivery::DeliveryFacts>> {
        let Partition { client, keys } = partition;
        let Some(detail) = deliveries::show(partition, &self.configured, id).await? else { return Ok(None) };
        let now = client.server_time().await?;
        let mut command = redis::cmd("HMGET");
        command
            .arg(keys.delivery(id))
            .arg("alert")
            .arg("first_attempt_at_ms")
            .arg("paused_before_ms")
            .arg("cancelled_by");
        type Stored = (Option<String>, Option<i64>, Option<u64>, Option<String>);
        let (alert, first_attempt, paused_before_ms, cancelled_by): Stored = client.query(&command).await?;
        let paused = paused_for(client, keys, now).await?;
        let paused = paused.saturating_sub(Duration::from_millis(paused_before_ms.unwrap_or(u64::MAX)));
        let alert: Option<Alert> = alert.and_then(|json| serde_json::from_str(&json).ok());
        let destination = &detail.delivery.destination;
        let leased = format!("{}{destination}", keys.leased_prefix());
        let lease_end: Option<i64> = client.query(redis::cmd("ZSCORE").arg(leased).arg(id.as_str())).await?;
        let destinations = read_destinations(partition, std::slice::from_ref(destination)).await?;
        let recipients = match &alert {
            Some(alert) => Some(self.contacts.recipients_of(client, alert, now).await.map_err(|error| error.source)?),
            None => None,
        };
        let (contacts, mutes) = recipients.unwrap_or_default();
        // What was sent is counted in the first partition, for all of them.
        let first = self.partitions.first();
        let cap = match Cap::for_destination(&self.channels, &first.keys, detail.delivery.channel, destination) {
            // Whoever may not ask is told of the cap alone.
            Some(cap) => Some((cap.rate(), cap.exhausted_for(&first.client).await.unwrap_or(None))),
            None => None,
        };
        Ok(Some(delivery::DeliveryFacts {
            stream: keys.stream().to_owned(),
            cap: cap.map(|(rate, exhausted_for)| CapState { rate, exhausted_for }),
            alert,
            now,
            mutes,
            contacts,
            pause: read_pause(client, keys).await?,
            destination: destinations.into_iter().next(),
            is_leased: lease_end.is_some_and(|end| end > now.0),
            give_up_after: self.give_up_after,
            first_attempt: first_attempt.map(|first| UnixMs(first).after(paused)),
            is_cancelled_by_operator: cancelled_by.is_some(),
            daemons: live_daemons(self.partitions.first(), now).await?,
            detail,
        }))
    }

    async fn alert(&self, raised: AlertView, audience: Audience) -> Result<Explanation, ExplainError> {
        let partition = self.partitions.partition_of(&raised.subject);
        let Partition { client, keys } = partition;
        let id = raised.id.to_string();
        let prefix = id.parse::<AlertIdPrefix>().ok();
        let filter =
            DeliveryFilter { alert: prefix, subject: Some(raised.subject.clone()), ..DeliveryFilter::default() };
        let listed: Vec<DeliveryView> = deliveries::list_all(partition, &filter, usize::MAX).await?;
        let periods = [raised.period];
        let kept = query::alerts_of(partition, &raised.subject, &periods).await?;
        let whole = kept.into_iter().find(|alert| alert.id == raised.id);
        let mut explanation: Vec<String> =
            whole.iter().flat_map(|alert| delivery::crossing(alert, keys.stream())).collect();
        let mut details = Vec::new();
        for view in listed {
            if let Some((sentences, detail)) = self.delivery(&view.id, audience).await? {
                // The crossing stands once.
                let is_told = !explanation.is_empty() && detail.alert.is_some();
                explanation.extend(sentences.into_iter().skip(if is_told { delivery::CROSSING } else { 0 }));
                details.push(detail);
            }
        }
        if let Some(alert) = &whole {
            explanation.extend(self.not_heard(client, alert, &details).await?);
        }
        if details.is_empty() {
            let waits = waits_in_outbox(client, keys, &id, raised.raised_at_ms).await?;
            let no_delivery_reason = match &whole {
                Some(alert) => self.no_delivery_reason(client, alert).await?,
                None => NoDeliveryReason::Unknown,
            };
            let now = client.server_time().await?;
            let daemons = live_daemons(self.partitions.first(), now).await?;
            explanation.push(alert::without_deliveries(waits, no_delivery_reason, daemons));
        }
        Ok(Explanation { about: "alert", id, explanation, alert: Some(raised), deliveries: details, usage: None })
    }

    /// The contacts that are told of other alerts alone, and so got no delivery of this one.
    async fn not_heard(
        &self,
        client: &RedisClient,
        alert: &Alert,
        details: &[DeliveryDetailView],
    ) -> Result<Option<String>, ExplainError> {
        let contacts = self.contacts.contacts_of(client, &alert.subject).await.map_err(|error| error.source)?;
        let got = |contact: &Contact| details.iter().any(|detail| detail.delivery.contact_id == contact.id);
        let others: Vec<String> = contacts
            .readable
            .iter()
            .filter(|contact| !contact.filter.takes(alert) && !got(contact))
            .map(subject::with_filter)
            .collect();
        Ok((!others.is_empty()).then(|| format!("Not told of it, by what they hear: {}.", others.join(", "))))
    }

    async fn no_delivery_reason(&self, client: &RedisClient, alert: &Alert) -> Result<NoDeliveryReason, ExplainError> {
        if self.on_multiple == MultiplePolicy::Highest && !alert.higher_percents.is_empty() {
            return Ok(NoDeliveryReason::HigherIsTold);
        }
        let contacts = self.contacts.contacts_of(client, &alert.subject).await.map_err(|error| error.source)?;
        let Recipients { contacts, waits } = Recipients::select(alert, &contacts, self.on_multiple);
        Ok(if contacts.is_empty() && !waits { NoDeliveryReason::NoContactHears } else { NoDeliveryReason::Unknown })
    }

    /// Whether anything is stored of a subject: settings, deliveries, counts and alerts of any period that is kept, or
    /// archived days.
    async fn is_known(&self, subject: &Subject) -> Result<bool, ExplainError> {
        let partition = self.partitions.partition_of(subject);
        if !super::subject::read_fields(partition, subject).await?.is_empty() {
            return Ok(true);
        }
        let periods = alerts::kept_periods(partition.client.server_time().await?);
        let counted = query::usage(partition, subject, &periods, &BTreeSet::new()).await?;
        if counted.iter().any(|usage| usage.used.is_some() || !usage.alerts.is_empty()) {
            return Ok(true);
        }
        // Once its periods are closed, only the history knows of a subject.
        let Partition { client, keys } = partition;
        if !daily_usage::read(client, keys, subject, None, &[]).await?.is_empty() {
            return Ok(true);
        }
        let filter = DeliveryFilter { subject: Some(subject.clone()), ..DeliveryFilter::default() };
        Ok(!deliveries::list_all(partition, &filter, 1).await?.is_empty())
    }

    async fn subject(&self, subject: Subject, is_known: bool) -> Result<Explanation, ExplainError> {
        let partition = self.partitions.partition_of(&subject);
        let Partition { client, keys } = partition;
        let fields = super::subject::read_fields(partition, &subject).await?;
        let now = client.server_time().await?;
        let (profile, _) = Profile::read(&fields, &self.plans, None);
        let (mutes, _) = SubjectMutes::read(fields.iter().map(|(name, value)| (name, value)), now);
        let settings = SubjectSettings::read(&fields, &self.plans);
        let contacts = self.contacts.contacts_of(client, &subject).await.map_err(|error| error.source)?;
        let request = UsageRequest { subject: subject.clone(), settings, day: None, now, late_max: self.late_max };
        let usage = usage::read(partition, request).await?.ok_or(ExplainError::NoPeriod(now))?;
        let lag = query::lag(client, keys).await?;
        let filter = DeliveryFilter { subject: Some(subject.clone()), ..DeliveryFilter::default() };
        let deliveries = deliveries::list_all(partition, &filter, usize::MAX).await?;
        let facts = subject::SubjectFacts {
            usage: &usage,
            is_known,
            deliveries: &deliveries,
            has_known_limits: profile.has_known_limits(),
            thresholds: profile.thresholds(),
            mutes: &mutes,
            contacts: &contacts,
            now,
            lag,
            refused: refused::count_newest_of(&self.partitions, &subject).await?,
            pause: read_pause(client, keys).await?,
            daemons: live_daemons(self.partitions.first(), now).await?,
        };
        let explanation = subject::sentences(&facts);
        let (about, id) = ("subject", subject.to_string());
        Ok(Explanation { about, id, explanation, alert: None, deliveries: Vec::new(), usage: Some(usage) })
    }
}

/// Whether an alert is not fanned out yet. It lies in the outbox no earlier than it was raised.
async fn waits_in_outbox(client: &RedisClient, keys: &Keys, id: &str, raised_at: UnixMs) -> RedisResult<bool> {
    let mut from = format!("{}-0", raised_at.0);
    for _ in 0..OUTBOX_READS_MAX {
        let mut command = redis::cmd("XRANGE");
        command.arg(keys.outbox()).arg(&from).arg("+").arg("COUNT").arg(OUTBOX_READ);
        let entries: Vec<(String, Vec<String>)> = client.query(&command).await?;
        if entries.iter().any(|(_, values)| values.get(1).is_some_and(|json| json.contains(id))) {
            return Ok(true);
        }
        match entries.last() {
            Some((last, _)) if entries.len() == OUTBOX_READ => from = format!("({last}"),
            _ => break,
        }
    }
    Ok(false)
}
