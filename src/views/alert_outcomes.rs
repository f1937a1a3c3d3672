//! Who was notified of an alert. The id of a delivery is a hash of its alert and its contact, so the deliveries to the
//! present contacts are found without an index. If none of them got it, the newest deliveries of the subject are
//! searched for those to contacts that were removed meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use redis::{FromRedisValue as _, RedisResult, Value};
use schemars::JsonSchema;
use serde::Serialize;

use super::Observer;
use crate::contacts::Contact;
use crate::contacts::resolver::ResolvedContacts;
use crate::outbox::fan_out::NO_CONTACT;
use crate::outbox::subject_deliveries::newest_of_each;
use crate::outbox::{ENDED_DELIVERY_TTL, MultiplePolicy};
use crate::subjects::SubjectMutes;
use crate::subjects::mutes::mute_field;
use crate::types::text_form::text_enum;
use crate::types::{Alert, Channel, ContactId, DeliveryId, DeliveryState, Metric, Mute, Subject, UnixMs};

/// Number of deliveries that are searched for those to removed contacts, over all subjects; a subject of many has at
/// least [`SEARCHED_MIN`].
const SEARCHED_MAX: usize = 2_000;
const SEARCHED_MIN: usize = 8;

text_enum! {
    /// Whether somebody was notified of an alert.
    pub enum AlertOutcome {
        /// At least one delivery has arrived.
        Notified = "notified",
        /// None has arrived yet, and at least one will be attempted.
        OnTheWay = "on_the_way",
        /// None was made, because the same usage reached a higher threshold, whose alert is sent instead.
        HigherSent = "higher_sent",
        /// None was sent: every delivery ended because of a mute.
        Muted = "muted",
        /// None has arrived, and none will be attempted: the subject has no contact, no contact accepts the threshold,
        /// or every delivery ended without arriving, and not all of them because of a mute.
        Nobody = "nobody",
        /// None is known to have arrived, but the alert is older than 14 days, for which ended deliveries are kept, or
        /// its subject has too many deliveries to search.
        Unknown = "unknown",
    }
}

/// The deliveries of an alert: to the contacts that its subject has now and, if none of them got it, to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AlertDeliveries")]
pub struct AlertDeliveriesView {
    pub outcome: AlertOutcome,
    /// Number of contacts that the alert has reached.
    pub notified: usize,
    pub deliveries: Vec<AlertDeliveryView>,
    /// The mute of its subject or metric that is in force now; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mute: Option<Mute>,
}

/// A delivery of an alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AlertDelivery")]
pub struct AlertDeliveryView {
    pub id: DeliveryId,
    /// `none` while it waits for a contact.
    pub contact_id: ContactId,
    pub channel: Channel,
    pub state: DeliveryState,
}

impl AlertDeliveryView {
    /// Whether it has arrived or will be attempted.
    fn is_hopeful(&self) -> bool {
        match self.state {
            DeliveryState::Delivered => true,
            DeliveryState::Pending => self.channel != Channel::None,
            _ => false,
        }
    }
}

impl AlertDeliveriesView {
    /// Whether it waits because the subject has no contact.
    pub fn waits_for_contact(&self) -> bool {
        let waits = |delivery: &AlertDeliveryView| (delivery.channel, delivery.state);
        self.deliveries.iter().map(waits).any(|of| of == (Channel::None, DeliveryState::Pending))
    }
}

/// The deliveries of alerts, and the contacts of their subjects.
#[derive(Debug, Default)]
pub struct AlertOutcomes {
    /// In the order of the alerts.
    pub deliveries: Vec<AlertDeliveriesView>,
    /// Subjects with disabled contacts, as far as they have an alert.
    pub disabled: BTreeMap<Subject, Vec<Contact>>,
}

impl Observer {
    /// Reads the deliveries of these alerts: in four calls, two more if nobody is known to have got an alert, and one
    /// more if an alert has no delivery.
    pub async fn outcomes(&self, alerts: &[&Alert]) -> RedisResult<AlertOutcomes> {
        if alerts.is_empty() {
            return Ok(AlertOutcomes::default());
        }
        let client = &self.partitions.first().client;
        let subjects: BTreeSet<&Subject> = alerts.iter().map(|alert| &alert.subject).collect();
        let subjects: Vec<&Subject> = subjects.into_iter().collect();
        let contacts = self.contacts.contacts_of_each(client, &subjects).await.map_err(|error| error.source)?;
        let ids: BTreeMap<&Subject, BTreeSet<ContactId>> =
            subjects.iter().copied().zip(contacts.iter().map(|contacts| self.ids_of(contacts))).collect();
        let mut pipeline = redis::pipe();
        for alert in alerts {
            let keys = &self.partitions.partition_of(&alert.subject).keys;
            for contact in &ids[&alert.subject] {
                let id = DeliveryId::derive(&alert.id, contact);
                pipeline.cmd("HMGET").arg(keys.delivery(&id)).arg("state").arg("channel");
            }
        }
        let stored: Vec<(Option<String>, Option<String>)> = client.pipe(&pipeline).await?;
        let mut stored = stored.into_iter();
        let mut deliveries: Vec<Vec<AlertDeliveryView>> = alerts
            .iter()
            .map(|alert| {
                let of_contacts = ids[&alert.subject].iter().zip(stored.by_ref());
                let view = |(contact, (state, channel)): (&ContactId, (Option<String>, Option<String>))| {
                    let (id, contact_id) = (DeliveryId::derive(&alert.id, contact), contact.clone());
                    let state = DeliveryState::from_stored(&state?)?;
                    Some(AlertDeliveryView { id, contact_id, channel: Channel::from_stored(&channel?)?, state })
                };
                of_contacts.filter_map(view).collect()
            })
            .collect();
        let unsearched = self.add_to_removed(alerts, &mut deliveries).await?;
        let is_fanned_out = deliveries.iter().all(|of_alert| !of_alert.is_empty()) || self.outbox_is_empty().await?;
        let now = client.server_time().await?;
        let mutes = self.mutes_of(alerts, now).await?;
        let judged = alerts.iter().zip(deliveries).map(|(alert, deliveries)| {
            let mute = mutes.get(&(&alert.subject, &alert.metric)).cloned();
            let mut judged = self.judge(alert, deliveries, mute, is_fanned_out);
            let may_be_unread =
                unsearched.contains(&alert.subject) || now.since(alert.raised_at_ms) > ENDED_DELIVERY_TTL;
            if may_be_unread && judged.outcome == AlertOutcome::Nobody && !judged.waits_for_contact() {
                judged.outcome = AlertOutcome::Unknown;
            }
            judged
        });
        let with_disabled = subjects.into_iter().zip(contacts).filter(|(_, contacts)| !contacts.disabled.is_empty());
        let disabled = with_disabled.map(|(subject, contacts)| (subject.clone(), contacts.disabled)).collect();
        Ok(AlertOutcomes { deliveries: judged.collect(), disabled })
    }

    /// Adds the deliveries to removed contacts, of alerts that no present contact got or will get. Returns the subjects
    /// with more deliveries than are searched.
    async fn add_to_removed<'a>(
        &self,
        alerts: &[&'a Alert],
        deliveries: &mut [Vec<AlertDeliveryView>],
    ) -> RedisResult<BTreeSet<&'a Subject>> {
        let unheard = alerts.iter().zip(deliveries).filter(|(_, of)| !of.iter().any(AlertDeliveryView::is_hopeful));
        let mut unheard: BTreeMap<&str, (&Subject, &mut Vec<AlertDeliveryView>)> =
            unheard.map(|(alert, of)| (alert.id.as_str(), (&alert.subject, of))).collect();
        let subjects: BTreeSet<&Subject> = unheard.values().map(|(subject, _)| *subject).collect();
        if subjects.is_empty() {
            return Ok(subjects);
        }
        let searched_max = (SEARCHED_MAX / subjects.len()).max(SEARCHED_MIN);
        let mut listed = newest_of_each(&self.partitions, subjects.iter().copied(), searched_max + 1).await?;
        let unsearched = subjects.iter().zip(&listed).filter(|(_, ids)| ids.len() > searched_max);
        let unsearched = unsearched.map(|(subject, _)| *subject).collect();
        let mut pipeline = redis::pipe();
        for (subject, ids) in subjects.into_iter().zip(&mut listed) {
            ids.truncate(searched_max);
            let keys = &self.partitions.partition_of(subject).keys;
            for id in ids {
                pipeline.cmd("HMGET").arg(keys.delivery(id)).arg(&["alert_id", "contact_id", "channel", "state"]);
            }
        }
        let found: Vec<[Option<String>; 4]> = self.partitions.first().client.pipe(&pipeline).await?;
        for (id, [alert, contact_id, channel, state]) in listed.into_iter().flatten().zip(found) {
            let Some((_, known)) = alert.and_then(|alert| unheard.get_mut(alert.as_str())) else { continue };
            let channel = channel.and_then(|channel| Channel::from_stored(&channel));
            let state = state.and_then(|state| DeliveryState::from_stored(&state));
            let (Some(contact_id), Some(channel), Some(state)) = (contact_id, channel, state) else { continue };
            // What a removed contact did not get before, others got or nobody.
            if state != DeliveryState::Cancelled && known.iter().all(|of| of.id != id) {
                let contact_id = ContactId::from_stored(&contact_id);
                known.push(AlertDeliveryView { id, contact_id, channel, state });
            }
        }
        Ok(unsearched)
    }

    /// The contacts that an alert may have been sent to, as far as they still exist.
    fn ids_of(&self, contacts: &ResolvedContacts) -> BTreeSet<ContactId> {
        let ResolvedContacts { readable, disabled, unverified, operator, .. } = contacts;
        let own = readable.iter().chain(disabled).chain(unverified).chain(&self.configured);
        let all = own.chain(operator.iter().map(|one| &one.contact)).map(|contact| contact.id.clone());
        all.chain([ContactId::from_stored(NO_CONTACT)]).collect()
    }

    /// The mutes that are in force, by subject and metric. A key of another type mutes nothing.
    async fn mutes_of<'a>(
        &self,
        alerts: &[&'a Alert],
        now: UnixMs,
    ) -> RedisResult<BTreeMap<(&'a Subject, &'a Metric), Mute>> {
        let first = self.partitions.first();
        let of: BTreeSet<(&Subject, &Metric)> = alerts.iter().map(|alert| (&alert.subject, &alert.metric)).collect();
        let mut pipeline = redis::pipe();
        pipeline.ignore_errors();
        for (subject, metric) in &of {
            let fields = [mute_field(None), mute_field(Some(*metric))];
            pipeline.cmd("HMGET").arg(first.keys.subject(subject)).arg(&fields);
        }
        let replies: Vec<RedisResult<Value>> = first.client.pipe(&pipeline).await?;
        let in_force = of.into_iter().zip(replies).filter_map(|((subject, metric), reply)| {
            let values = Vec::<Option<Vec<u8>>>::from_redis_value(reply.ok()?).ok()?;
            let fields = [mute_field(None), mute_field(Some(metric))].into_iter().zip(values);
            let (mutes, _) = SubjectMutes::read(fields.filter_map(|(field, value)| Some((field, value?))), now);
            Some(((subject, metric), mutes.mute_of(metric)?.mute.clone()))
        });
        Ok(in_force.collect())
    }

    async fn outbox_is_empty(&self) -> RedisResult<bool> {
        let mut pipeline = redis::pipe();
        for partition in self.partitions.iter() {
            pipeline.cmd("XLEN").arg(partition.keys.outbox());
        }
        let waiting: Vec<u64> = self.partitions.first().client.pipe(&pipeline).await?;
        Ok(waiting.iter().all(|waiting| *waiting == 0))
    }

    /// `is_fanned_out`: no alert waits for its deliveries.
    fn judge(
        &self,
        alert: &Alert,
        deliveries: Vec<AlertDeliveryView>,
        mute: Option<Mute>,
        is_fanned_out: bool,
    ) -> AlertDeliveriesView {
        let in_state = |state| deliveries.iter().filter(move |delivery| delivery.state == state);
        let notified = in_state(DeliveryState::Delivered).count();
        let leaves_to_higher = self.on_multiple == MultiplePolicy::Highest && !alert.higher_thresholds.is_empty();
        let outcome = match deliveries.as_slice() {
            _ if notified > 0 => AlertOutcome::Notified,
            _ if deliveries.iter().any(AlertDeliveryView::is_hopeful) => AlertOutcome::OnTheWay,
            [] if leaves_to_higher => AlertOutcome::HigherSent,
            [] if !is_fanned_out => AlertOutcome::OnTheWay,
            [_, ..] if in_state(DeliveryState::Muted).count() == deliveries.len() => AlertOutcome::Muted,
            _ => AlertOutcome::Nobody,
        };
        AlertDeliveriesView { outcome, notified, deliveries, mute }
    }
}
