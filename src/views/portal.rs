//! What a customer sees of its own subject: usage, history, alerts, and its own contacts.
//!
//! The subject comes from a verified token. The operator's contacts, contacts of other levels and what receivers
//! answered are left out here, so that no template can show them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redis::RedisResult;
use serde::Serialize;
use url::Url;

use super::alert_outcomes::{AlertDeliveriesView, AlertDeliveryView, AlertOutcomes};
use super::history::{self, DayRange, HistoryRequest, HistoryView, MetricHistoryView};
use super::usage::{self, MetricUsageView, UsageRequest, UsageView, WindowUsageView};
use super::{AlertFilter, Observer, SubjectSettings, alerts, kept_periods};
use crate::contacts::array::{CONTACTS, StoredContact};
use crate::contacts::{Contact, ContactArray, ContactOrigin, masked_address};
use crate::signing::PortalAccess;
use crate::subjects::StoredLevels;
use crate::types::mute::REASON_OF_PORTAL;
use crate::types::text_form::text_enum;
use crate::types::timestamp::Rfc3339;
use crate::types::{Alert, Channel, ContactId, DeliveryState, DisplayName, Metric, MetricFormat, Subject, UnixMs};

/// Maximum number of alerts that are shown.
const ALERTS_MAX: usize = 30;
/// The part of a period that must be over for its pace to be shown, as a divisor.
const PACE_AFTER: i64 = 20;

/// The portal of one subject.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortalView {
    pub subject: Subject,
    pub name: Option<DisplayName>,
    pub timezone: &'static str,
    pub metrics: Vec<PortalMetricView>,
    pub history: Vec<MetricHistoryView>,
    /// The newest first.
    pub alerts: Vec<PortalAlertView>,
    pub contacts: Vec<PortalContactView>,
    pub read_at: Rfc3339,
}

/// A metric, in each window with a limit, or the day.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortalMetricView {
    pub metric: Metric,
    pub format: MetricFormat,
    pub windows: Vec<PortalWindowView>,
}

/// A window, and what is used at its end if usage continues as it was since its start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortalWindowView {
    #[serde(flatten)]
    pub usage: WindowUsageView,
    pub pace: Option<u64>,
}

/// An alert, and which of the subject's own contacts received it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortalAlertView {
    pub alert: Alert,
    pub format: MetricFormat,
    pub deliveries: Vec<PortalDeliveryView>,
}

/// The delivery of an alert to one of the subject's own contacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortalDeliveryView {
    pub address: String,
    pub state: DeliveryState,
}

text_enum! {
    /// Whether a contact gets alerts.
    pub enum PortalContactState {
        Active = "active",
        /// Its owner has not confirmed it yet.
        Unverified = "unverified",
        /// Its receiver or mailbox is gone.
        Disabled = "disabled",
        Muted = "muted",
    }
}

/// One of the subject's own contacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortalContactView {
    pub id: ContactId,
    pub channel: Channel,
    /// Without its secret parts.
    pub address: String,
    pub state: PortalContactState,
    /// When its mute ends, if it has an end.
    pub muted_until: Option<Rfc3339>,
    /// Whether the mute was begun in the portal, so that it can be ended there.
    pub muted_here: bool,
    /// The thresholds that it hears, separated by commas; `all` for all.
    pub thresholds: String,
    /// Whether the subject's own side added it, and may remove it.
    pub added_by_subject: bool,
}

impl Observer {
    /// Reads the portal; `None` if Redis' clock is outside the calendar.
    pub async fn portal(
        &self,
        access: &PortalAccess,
        late_max: Duration,
        history_days: u32,
    ) -> RedisResult<Option<PortalView>> {
        let subject = access.subject();
        let partition = self.partitions.partition_of(subject);
        let stored = StoredLevels::read(&partition.client, &partition.keys, subject).await?;
        let settings = SubjectSettings::read(&stored, &self.plans);
        let now = partition.client.server_time().await?;
        let request = UsageRequest { subject: subject.clone(), settings: settings.clone(), day: None, now, late_max };
        let Some(usage) = usage::read(partition, &self.plans, request).await? else { return Ok(None) };
        let (subject, days) = (subject.clone(), history_days);
        let request =
            HistoryRequest { subject, settings, metric: None, range: DayRange::default(), now, late_max, days };
        let history = history::read(partition, &self.plans, request).await?;
        let mut history = history.map(|HistoryView { metrics, .. }| metrics).unwrap_or_default();
        history.retain(|of| access.shows(&of.metric));
        let contacts = own_contacts(&stored, now);
        let alerts = self.portal_alerts(access, &contacts, now).await?;
        let UsageView { subject, name, timezone, mut metrics, .. } = usage;
        metrics.retain(|of| access.shows(&of.metric));
        let window = |usage: WindowUsageView| PortalWindowView { pace: pace_of(&usage, now), usage };
        let metric = |MetricUsageView { metric, format, windows }| PortalMetricView {
            metric,
            format,
            windows: windows.into_iter().map(window).collect(),
        };
        let metrics = metrics.into_iter().map(metric).collect();
        let contacts = contacts.iter().map(|stored| PortalContactView::new(stored, now)).collect();
        Ok(Some(PortalView { subject, name, timezone, metrics, history, alerts, contacts, read_at: Rfc3339(now) }))
    }

    async fn portal_alerts(
        &self,
        access: &PortalAccess,
        contacts: &[StoredContact],
        now: UnixMs,
    ) -> RedisResult<Vec<PortalAlertView>> {
        let subject = access.subject();
        let filter = AlertFilter { subject: Some(subject.clone()), since: None };
        let partition = self.partitions.partition_of(subject);
        let mut raised = alerts::of_periods(partition, &kept_periods(now), &filter, now).await?;
        raised.retain(|alert| access.shows(&alert.metric));
        raised.reverse();
        raised.truncate(ALERTS_MAX);
        let AlertOutcomes { deliveries, .. } = self.outcomes(&raised.iter().collect::<Vec<_>>()).await?;
        let own: BTreeMap<&ContactId, String> =
            contacts.iter().map(|stored| (&stored.contact.id, shown_address(&stored.contact))).collect();
        let delivery = |AlertDeliveryView { contact_id, state, .. }: AlertDeliveryView| {
            Some(PortalDeliveryView { address: own.get(&contact_id)?.clone(), state })
        };
        let view = |(alert, of_alert): (Alert, AlertDeliveriesView)| PortalAlertView {
            format: self.plans.format_of(&alert.metric),
            deliveries: of_alert.deliveries.into_iter().filter_map(delivery).collect(),
            alert,
        };
        Ok(raised.into_iter().zip(deliveries).map(view).collect())
    }
}

/// The contacts in the subject's own settings, whoever wrote them there. None if they can't be read.
pub fn own_contacts(stored: &StoredLevels, now: UnixMs) -> Vec<StoredContact> {
    let field = stored.fields().iter().find(|(field, _)| field == CONTACTS.as_bytes());
    let mut array = ContactArray::parse(field.map_or(&[], |(_, value)| value)).unwrap_or_default();
    array.remove_unverified(now);
    // A webhook and its unconfirmed successor share their id.
    let mut seen = BTreeSet::new();
    array.contacts().into_iter().filter(|stored| seen.insert(stored.contact.id.clone())).collect()
}

impl PortalContactView {
    fn new(StoredContact { contact, origin, .. }: &StoredContact, now: UnixMs) -> Self {
        let mute = contact.muted_at(now);
        let state = match mute {
            _ if !contact.verified => PortalContactState::Unverified,
            _ if contact.disabled.is_some() => PortalContactState::Disabled,
            Some(_) => PortalContactState::Muted,
            None => PortalContactState::Active,
        };
        let thresholds: Vec<String> = contact.filter.thresholds.iter().map(ToString::to_string).collect();
        Self {
            id: contact.id.clone(),
            channel: contact.channel(),
            address: shown_address(contact),
            state,
            muted_until: mute.and_then(|mute| mute.until).map(Rfc3339),
            muted_here: mute.is_some_and(|mute| mute.reason.as_deref() == Some(REASON_OF_PORTAL)),
            thresholds: if thresholds.is_empty() { "all".to_owned() } else { thresholds.join(", ") },
            added_by_subject: *origin == ContactOrigin::Subject,
        }
    }
}

/// An address without what may be secret: of a URL, only its origin.
fn shown_address(contact: &Contact) -> String {
    let origin = Url::parse(contact.address()).ok().filter(Url::has_host).map(|url| url.origin().ascii_serialization());
    origin.map_or_else(|| masked_address(contact), |origin| format!("{origin}/…"))
}

/// The units at the end of a period at the pace since its start. `None` at its very start, and for a total.
fn pace_of(usage: &WindowUsageView, now: UnixMs) -> Option<u64> {
    let (Rfc3339(start), Rfc3339(end)) = (usage.starts_at?, usage.resets_at?);
    let (whole, over) = (end.0 - start.0, now.0 - start.0);
    if whole <= 0 || over < whole / PACE_AFTER || over > whole {
        return None;
    }
    let at_end = u128::from(usage.used?) * whole.unsigned_abs() as u128 / u128::from(over.unsigned_abs().max(1));
    u64::try_from(at_end).ok()
}
