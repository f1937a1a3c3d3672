//! Explains the state of an alert, a delivery or a subject in sentences. Read next: `delivery`.
//!
//! Reads stored data and changes nothing. The sentences are pure functions of the data.

mod alert;
mod content;
mod daemons;
mod delivery;
mod notification;
mod outbox;
mod subject;

pub use delivery::Audience;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, RedisResult};
use serde::Serialize;

use self::alert::NoDeliveryReason;
use self::daemons::{LiveDaemons, live_daemons};
use self::delivery::CapState;
use self::outbox::waits_in_outbox;
use super::deliveries::{self, read_destinations};
use super::refused;
use super::subject::SubjectSettings;
use super::usage::{self, UsageRequest};
use super::{
    AlertFilter, DeliveryDetailView, DeliveryFilter, DeliveryView, IdPrefix, NotificationId, Observer, UsageView,
    alerts, without_message_id,
};
use crate::channels::{Cap, Channels};
use crate::contacts::Contact;
use crate::contacts::resolver::ResolvedContacts;
use crate::ledger::{daily_usage, query};
use crate::outbox::{MultiplePolicy, Pause, Recipients, paused_for, read_pause};
use crate::redis_client::{Partition, Partitions};
use crate::subjects::{StoredLevels, SubjectMutes};
use crate::types::{Alert, AlertId, DeliveryId, Subject, UnixMs};

#[derive(Debug)]
pub struct Explainer {
    pub observer: Observer,
    pub channels: Arc<Channels>,
    /// How long after the end of its day an event may arrive.
    pub late_max: Duration,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// `delivery`, `alert`, `notice`, `message` or `subject`.
    pub about: &'static str,
    pub id: String,
    /// What is known, in the order of time; what happens next comes last.
    pub explanation: Vec<String>,
    /// The alert, if the request named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert: Option<Alert>,
    /// The deliveries that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deliveries: Vec<DeliveryDetailView>,
    /// The usage of the subject, if the request named one.
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
        "no delivery, alert or notice that is kept has the id {0}, and no subject of this name has settings, counts, alerts or \
         deliveries"
    )]
    NothingNamed(String),
    #[error("several {what} begin with {text}: {}", .ids.join(", "))]
    Ambiguous { what: &'static str, text: String, ids: Vec<String> },
    #[error("the time of the server's clock, {0}, is in no period")]
    NoPeriod(UnixMs),
}

const NAMED_MAX: usize = 10;
/// The number of digits in a list. With fewer, a word could be taken for an id.
const DIGITS_MIN: usize = 8;

/// The data that explanations of one partition share; read once.
struct PartitionFacts<'a> {
    partition: &'a Partition,
    now: UnixMs,
    pause: Option<Pause>,
    /// The total time for which sending has been paused.
    paused: Duration,
    daemons: LiveDaemons,
}

/// The stored data of a subject; read once.
struct StoredSubject {
    stored: StoredLevels,
    deliveries: Vec<DeliveryView>,
    /// Whether anything is stored.
    is_known: bool,
}

impl Explainer {
    /// Explains what `text` names: a delivery or an alert by its id with prefix, a subject with stored data, an id by
    /// at least eight of its digits, a notice or a message by its id with prefix, or any other subject.
    pub async fn explain(&self, text: &str, audience: Audience) -> Result<Explanation, ExplainError> {
        let text = without_message_id(text);
        let names = |word: &str| text.starts_with(word);
        let has_word = names("delivery_") || names("alert_");
        let notification: Option<NotificationId> = text.parse().ok();
        let may_be_id = has_word || notification.is_some() || text.len() >= DIGITS_MIN;
        let subject: Result<Subject, _> = text.parse();
        // The subject is tried first, because a search for the first digits of an id reads all ids.
        let mut stored = None;
        if let (true, false, Ok(subject)) = (may_be_id, has_word, &subject) {
            let found = stored_subject(&self.observer.partitions, subject).await?;
            if found.is_known {
                return self.stored(subject, found).await;
            }
            stored = Some(found);
        }
        let delivery: Option<IdPrefix<DeliveryId>> = text.parse().ok().filter(|_| may_be_id);
        if let Some(prefix) = &delivery {
            let found = deliveries::find(&self.observer.partitions, std::slice::from_ref(prefix)).await?.concat();
            match found.as_slice() {
                [] => {}
                [(partition, id)] => {
                    // The list may contain a delivery longer than it is stored.
                    if let Some((explanation, detail)) = self.explained_delivery(partition, id, audience).await? {
                        let (about, id, deliveries) = ("delivery", id.to_string(), vec![detail]);
                        return Ok(Explanation { about, id, explanation, alert: None, deliveries, usage: None });
                    }
                }
                several => {
                    let ids = several.iter().take(NAMED_MAX).map(|(_, id)| id.to_string()).collect();
                    return Err(ExplainError::Ambiguous { what: "deliveries", text: text.to_owned(), ids });
                }
            }
        }
        let alert: Option<IdPrefix<AlertId>> = text.parse().ok().filter(|_| may_be_id);
        if let Some(prefix) = &alert {
            let mut found = self.alerts(prefix).await?;
            match found.len() {
                0 => {}
                1 => return self.alert(found.remove(0), audience).await,
                _ => {
                    let ids = found.iter().take(NAMED_MAX).map(|alert| alert.id.to_string()).collect();
                    return Err(ExplainError::Ambiguous { what: "alerts", text: text.to_owned(), ids });
                }
            }
        }
        if let Some(named) = &notification
            && let Some(explained) = self.notification(named, audience).await?
        {
            return Ok(explained);
        }
        let subject = subject.map_err(|_| ExplainError::NotFound(format!("subject {text:?}")))?;
        let stored = match stored {
            Some(stored) => stored,
            None => stored_subject(&self.observer.partitions, &subject).await?,
        };
        // A name in the form of an id is a subject if it has stored data, and otherwise an expired id.
        if !stored.is_known && (has_word || notification.is_some() || delivery.is_some() || alert.is_some()) {
            return Err(ExplainError::NothingNamed(subject.to_string()));
        }
        self.stored(&subject, stored).await
    }

    /// Explains a subject, whatever the form of its name.
    pub async fn subject(&self, subject: &Subject) -> Result<Explanation, ExplainError> {
        self.stored(subject, stored_subject(&self.observer.partitions, subject).await?).await
    }

    /// The stored alerts with this id prefix.
    async fn alerts(&self, prefix: &IdPrefix<AlertId>) -> RedisResult<Vec<Alert>> {
        let now = self.observer.partitions.first().client.server_time().await?;
        let periods = alerts::kept_periods(now);
        let mut listed =
            alerts::of_partitions(&self.observer.partitions, &periods, &AlertFilter::default(), now).await?;
        listed.retain(|alert| prefix.matches(alert.id.as_str()));
        Ok(listed)
    }

    /// Explains a delivery, and returns it; `None` if it does not exist.
    pub async fn delivery(
        &self,
        id: &DeliveryId,
        audience: Audience,
    ) -> RedisResult<Option<(Vec<String>, DeliveryDetailView)>> {
        let partition = deliveries::partition_of(&self.observer.partitions, id).await?;
        self.explained_delivery(partition, id, audience).await
    }

    async fn explained_delivery(
        &self,
        partition: &Partition,
        id: &DeliveryId,
        audience: Audience,
    ) -> RedisResult<Option<(Vec<String>, DeliveryDetailView)>> {
        let client = &partition.client;
        let Some(detail) = deliveries::read_detail(partition, id).await? else { return Ok(None) };
        let shared = self.partition_facts(partition).await?;
        let (contacts, mutes) = match (detail.quota(), detail.delivery.subject.parse()) {
            (Some(quota), _) => self.observer.contacts.recipients_of(client, quota, shared.now).await,
            (None, Ok(subject)) if detail.is_to_own_contact() => self
                .observer
                .contacts
                .contacts_of(client, &subject)
                .await
                .map(|contacts| (contacts, SubjectMutes::default())),
            _ => Ok((ResolvedContacts::default(), SubjectMutes::default())),
        }
        .map_err(|error| error.source)?;
        self.sentences(&shared, &contacts, &mutes, detail, audience).await.map(Some)
    }

    async fn partition_facts<'a>(&self, partition: &'a Partition) -> RedisResult<PartitionFacts<'a>> {
        let Partition { client, keys } = partition;
        let now = client.server_time().await?;
        let pause = read_pause(client, keys).await?;
        let paused = paused_for(client, keys, pause.as_ref(), now).await?;
        let daemons = live_daemons(self.observer.partitions.first(), now).await?;
        Ok(PartitionFacts { partition, now, pause, paused, daemons })
    }

    /// The sentences about a delivery to one of these contacts, and the parts of the delivery that the audience may
    /// see.
    async fn sentences(
        &self,
        shared: &PartitionFacts<'_>,
        contacts: &ResolvedContacts,
        mutes: &SubjectMutes,
        mut detail: DeliveryDetailView,
        audience: Audience,
    ) -> RedisResult<(Vec<String>, DeliveryDetailView)> {
        let PartitionFacts { partition, now, ref pause, paused, daemons } = *shared;
        detail.contact = deliveries::contact_view(&detail.delivery, contacts, &self.observer.configured, now);
        let paused = paused.saturating_sub(detail.paused_before.unwrap_or(Duration::MAX));
        let destination = &detail.delivery.destination;
        let destinations = read_destinations(partition, std::slice::from_ref(destination)).await?;
        // The first partition counts the messages of all partitions.
        let first = self.observer.partitions.first();
        let cap = match Cap::for_destination(&self.channels, &first.keys, detail.delivery.channel, destination) {
            // A user without the right to read the cap is told its rate alone.
            Some(cap) => {
                let exhausted_for = cap.exhausted_for(&first.client).await.unwrap_or(None);
                Some(CapState { rate: cap.rate(), exhausted_for })
            }
            None => None,
        };
        let facts = delivery::DeliveryFacts {
            stream: partition.keys.stream(),
            cap,
            now,
            mutes,
            contacts,
            pause: pause.as_ref(),
            destination: destinations.into_iter().next(),
            give_up_after: self.observer.give_up_after,
            first_attempt: detail.first_attempt.map(|first| first.after(paused)),
            daemons,
            format: detail.quota().map(|quota| self.observer.plans.format_of(quota.metric())).unwrap_or_default(),
            detail,
        };
        let sentences = delivery::sentences(&facts, audience);
        let detail = match audience {
            Audience::Operator => facts.detail,
            Audience::Platform => facts.detail.without_other_side(),
        };
        Ok((sentences, detail))
    }

    async fn alert(&self, raised: Alert, audience: Audience) -> Result<Explanation, ExplainError> {
        let partition = self.observer.partitions.partition_of(&raised.subject);
        let Partition { client, keys } = partition;
        let shared = self.partition_facts(partition).await?;
        let recipients = self.observer.contacts.recipients_of(client, (&raised).into(), shared.now).await;
        let (contacts, mutes) = recipients.map_err(|error| error.source)?;
        let id = raised.id.to_string();
        let filter = DeliveryFilter {
            alert: id.parse().ok(),
            subject: Some(raised.subject.clone()),
            ..DeliveryFilter::default()
        };
        let mut explanation = content::crossing(&raised, &self.observer.plans.format_of(&raised.metric), keys.stream());
        let mut details = Vec::new();
        for view in deliveries::list_all(partition, &filter, usize::MAX).await? {
            if let Some(detail) = deliveries::read_detail(partition, &view.id).await? {
                let (sentences, detail) = self.sentences(&shared, &contacts, &mutes, detail, audience).await?;
                // The crossing is only explained once.
                explanation.extend(sentences.into_iter().skip(if detail.alert.is_some() {
                    content::CROSSING
                } else {
                    0
                }));
                details.push(detail);
            }
        }
        explanation.extend(not_heard(&raised, &contacts, &details));
        if details.is_empty() {
            let waits = waits_in_outbox(partition, &id, raised.raised_at_ms).await?;
            let reason = self.no_delivery_reason(&raised, &contacts);
            explanation.push(alert::without_deliveries(waits, reason, shared.daemons));
        }
        Ok(Explanation { about: "alert", id, explanation, alert: Some(raised), deliveries: details, usage: None })
    }

    fn no_delivery_reason(&self, alert: &Alert, contacts: &ResolvedContacts) -> NoDeliveryReason {
        if self.observer.on_multiple == MultiplePolicy::Highest && !alert.higher_thresholds.is_empty() {
            return NoDeliveryReason::HigherIsTold;
        }
        let Recipients { contacts, waits, .. } = Recipients::select(alert, contacts, self.observer.on_multiple);
        if contacts.is_empty() && !waits { NoDeliveryReason::NoContactHears } else { NoDeliveryReason::Unknown }
    }

    async fn stored(&self, subject: &Subject, stored: StoredSubject) -> Result<Explanation, ExplainError> {
        let StoredSubject { stored, deliveries, is_known } = stored;
        let fields = stored.fields();
        let partition = self.observer.partitions.partition_of(subject);
        let Partition { client, keys } = partition;
        let PartitionFacts { now, pause, daemons, .. } = self.partition_facts(partition).await?;
        let (levels, _) = stored.settings(&self.observer.plans);
        let profile = &levels[0].profile;
        let (mutes, _) = SubjectMutes::read(fields.iter().map(|(name, value)| (name, value)), now);
        let settings = SubjectSettings::read(&stored, &self.observer.plans);
        let contacts = self.observer.contacts.read_contacts(&stored);
        let request = UsageRequest { subject: subject.clone(), settings, day: None, now, late_max: self.late_max };
        let usage = usage::read(partition, &self.observer.plans, request).await?.ok_or(ExplainError::NoPeriod(now))?;
        let mut above = Vec::new();
        for level in &levels[1..] {
            let settings =
                SubjectSettings::read(&StoredLevels::read(client, keys, &level.subject).await?, &self.observer.plans);
            let subject = level.subject.clone();
            let request = UsageRequest { subject, settings, day: None, now, late_max: self.late_max };
            let usage =
                usage::read(partition, &self.observer.plans, request).await?.ok_or(ExplainError::NoPeriod(now))?;
            above.push((usage, level.profile.refuse_at()));
        }
        let facts = subject::SubjectFacts {
            usage: &usage,
            above: &above,
            is_known,
            deliveries: &deliveries,
            has_known_limits: profile.has_known_limits(),
            thresholds: profile.thresholds(),
            mutes: &mutes,
            contacts: &contacts,
            now,
            lag: query::lag(client, keys).await?,
            refused: refused::count_newest_of(&self.observer.partitions, subject).await?,
            pause: pause.as_ref(),
            daemons,
        };
        let (explanation, id) = (subject::sentences(&facts), subject.to_string());
        Ok(Explanation { about: "subject", id, explanation, alert: None, deliveries: Vec::new(), usage: Some(usage) })
    }
}

/// Whether anything is stored of a subject itself.
pub async fn is_known(partitions: &Partitions, subject: &Subject) -> RedisResult<bool> {
    Ok(stored_subject(partitions, subject).await?.is_known)
}

/// Reads the settings and deliveries of a subject, and whether it has stored data: these, counts and alerts of any
/// stored period, or archived days.
async fn stored_subject(partitions: &Partitions, subject: &Subject) -> RedisResult<StoredSubject> {
    let partition = partitions.partition_of(subject);
    let Partition { client, keys } = partition;
    let stored = StoredLevels::read(client, keys, subject).await?;
    let filter = DeliveryFilter { subject: Some(subject.clone()), ..DeliveryFilter::default() };
    let deliveries = deliveries::list_all(partition, &filter, subject::DELIVERIES_MAX).await?;
    let mut is_known = !stored.fields().is_empty() || !deliveries.is_empty();
    if !is_known {
        let now = client.server_time().await?;
        let counted = query::usage(partition, subject, &alerts::kept_periods(now), &BTreeSet::new(), now).await?;
        // Once its periods are closed, only the history contains a subject.
        is_known = counted.iter().any(|usage| usage.used.is_some() || !usage.alerts.is_empty())
            || !daily_usage::read(client, keys, subject, None, &[]).await?.is_empty();
    }
    Ok(StoredSubject { stored, deliveries, is_known })
}

/// The contacts whose filter excluded this alert, so that they got no delivery of it.
fn not_heard(alert: &Alert, contacts: &ResolvedContacts, details: &[DeliveryDetailView]) -> Option<String> {
    let got = |contact: &Contact| details.iter().any(|detail| detail.delivery.contact_id == contact.id);
    let skipped = contacts.readable.iter().filter(|contact| !contact.filter.takes(alert) && !got(contact));
    let others: Vec<String> = skipped.map(subject::with_filter).collect();
    (!others.is_empty()).then(|| format!("Not sent to these contacts, by their filters: {}.", others.join(", ")))
}
