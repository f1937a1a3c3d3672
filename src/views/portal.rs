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
use super::{Observer, SubjectSettings, alerts};
use crate::contacts::array::{CONTACTS, StoredContact};
use crate::contacts::{Contact, ContactArray, ContactOrigin, masked_address};
use crate::forecast::ForecastState;
use crate::ledger::batch::MetricPeriod;
use crate::signing::PortalAccess;
use crate::subjects::mutes::MutedPart;
use crate::subjects::{StoredLevels, SubjectMutes};
use crate::types::mute::REASON_OF_PORTAL;
use crate::types::text_form::text_enum;
use crate::types::timestamp::Rfc3339;
use crate::types::{
    Alert, Channel, ContactId, DeliveryState, DisplayName, Metric, MetricFormat, Mute, PeriodSpan, Subject, UnixMs,
    Window,
};

/// Maximum number of quotas whose alerts are read: the newest periods of each metric and window.
const QUOTAS_MAX: usize = 256;
/// Maximum number of periods of one metric and window: all of the last two weeks, and the hours of a day.
const PERIODS_MAX: usize = 24;
/// How long after the end of a period its alerts are shown.
const KEPT_FOR: Duration = Duration::from_secs(14 * 86_400);
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
    /// Mutes of the subject and of its metrics.
    pub mutes: Vec<PortalMuteView>,
    pub contacts: Vec<PortalContactView>,
    pub read_at: Rfc3339,
}

/// A metric, in each window with a limit, or the day.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortalMetricView {
    pub metric: Metric,
    pub format: MetricFormat,
    pub windows: Vec<PortalWindowView>,
    /// The page of the plan on which the customer gets more.
    pub upgrade_url: Option<String>,
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

/// A mute of the subject, or of one of its metrics. Why is the operator's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortalMuteView {
    /// The name of the metric; `None` for the whole subject.
    pub metric: Option<String>,
    pub until: Option<Rfc3339>,
}

text_enum! {
    /// Whether a contact gets alerts.
    pub enum PortalContactState {
        Active = "active",
        /// Its owner has not confirmed it yet.
        Unverified = "unverified",
        /// Its receiver or mailbox is gone.
        Disabled = "disabled",
        /// By its own mute, that of the subject, or those of all metrics that it hears.
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
    /// When the last of the mutes that silence it ends, if that has an end.
    pub muted_until: Option<Rfc3339>,
    /// Whether its own mute was begun in the portal, so that it can be ended there.
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
        let request = HistoryRequest {
            subject,
            settings: settings.clone(),
            metric: None,
            range: DayRange::default(),
            now,
            late_max,
            days,
        };
        let history = history::read(partition, &self.plans, request).await?;
        let mut history = history.map(|HistoryView { metrics, .. }| metrics).unwrap_or_default();
        history.retain(|of| access.shows(&of.metric));
        let UsageView { subject, name, timezone, mut metrics, .. } = usage;
        metrics.retain(|of| access.shows(&of.metric));
        let contacts = own_contacts(&stored, now);
        let alerts = self.portal_alerts(access, (&metrics, &settings), &contacts, now).await?;
        let plan = self.plans.get(&settings.plan);
        let upgrade = plan.as_ref().and_then(|plan| plan.upgrade_url.as_ref());
        let metric = |MetricUsageView { metric, format, windows }| PortalMetricView {
            upgrade_url: upgrade.and_then(|page| page.url_of(&subject, &metric)),
            windows: without_foreseen_paces(paced(windows, now), &format),
            metric,
            format,
        };
        let metrics = metrics.into_iter().map(metric).collect();
        let (muted, _) = SubjectMutes::read(stored.fields().iter().map(|(name, value)| (name, value)), now);
        let contacts = contacts.iter().map(|stored| PortalContactView::new(stored, access, &muted, now)).collect();
        let shown = muted.parts().filter(|part| part.metric.is_none_or(|metric| access.shows(metric)));
        let mutes = shown.map(|MutedPart { metric, mute }| PortalMuteView {
            metric: metric.map(|metric| self.plans.format_of(metric).name_of(metric).to_owned()),
            until: mute.until.map(Rfc3339),
        });
        let (mutes, read_at) = (mutes.collect(), Rfc3339(now));
        Ok(Some(PortalView { subject, name, timezone, metrics, history, alerts, mutes, contacts, read_at }))
    }

    async fn portal_alerts(
        &self,
        access: &PortalAccess,
        (metrics, settings): (&[MetricUsageView], &SubjectSettings),
        contacts: &[StoredContact],
        now: UnixMs,
    ) -> RedisResult<Vec<PortalAlertView>> {
        let subject = access.subject();
        let partition = self.partitions.partition_of(subject);
        let mut raised = alerts::of_quotas(partition, subject, &quotas_of(metrics, settings, now), now).await?;
        raised.reverse();
        raised.truncate(ALERTS_MAX);
        let AlertOutcomes { deliveries, .. } = self.outcomes(&raised.iter().collect::<Vec<_>>()).await?;
        let own = contacts.iter().map(|stored| &stored.contact).filter(|contact| !self.is_id_of_another(contact));
        let own: BTreeMap<&ContactId, String> =
            own.map(|contact| (&contact.id, shown_address(contact, access))).collect();
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

    /// Whether a configured contact has the same id: a delivery under that id may have been the operator's.
    fn is_id_of_another(&self, own: &Contact) -> bool {
        self.configured.iter().any(|other| other.id == own.id && !other.has_same_address(own))
    }
}

/// The quotas whose alerts are read: of the windows that are shown, the present period and the ones before.
fn quotas_of(metrics: &[MetricUsageView], settings: &SubjectSettings, now: UnixMs) -> Vec<MetricPeriod> {
    let windows = metrics.iter().flat_map(|of| of.windows.iter().map(|window| (&of.metric, window.window)));
    let quotas = windows.flat_map(|(metric, window)| {
        let containing = move |at| PeriodSpan::containing(window, settings.zone, settings.billing, at);
        let before = move |span: &PeriodSpan| containing(span.start.plus(-1)).filter(|before| before.end < span.end);
        let spans = std::iter::successors(containing(now), before);
        let kept = spans.take_while(move |span| now.since(span.end) < KEPT_FOR).take(PERIODS_MAX);
        kept.map(|span| MetricPeriod { metric: metric.clone(), period: span.period })
    });
    quotas.take(QUOTAS_MAX).collect()
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
    fn new(
        StoredContact { contact, origin, .. }: &StoredContact,
        access: &PortalAccess,
        muted: &SubjectMutes,
        now: UnixMs,
    ) -> Self {
        let mute = contact.muted_at(now);
        let silent_until = mute.map(Mute::end).max(muted.silent_until(&contact.filter.metrics));
        let state = match silent_until {
            _ if !contact.verified => PortalContactState::Unverified,
            _ if contact.disabled.is_some() => PortalContactState::Disabled,
            Some(_) => PortalContactState::Muted,
            None => PortalContactState::Active,
        };
        let thresholds: Vec<String> = contact.filter.thresholds.iter().map(ToString::to_string).collect();
        Self {
            id: contact.id.clone(),
            channel: contact.channel(),
            address: shown_address(contact, access),
            state,
            muted_until: silent_until.filter(|end| *end < UnixMs::MAX).map(Rfc3339),
            muted_here: mute.is_some_and(|mute| mute.reason.as_deref() == Some(REASON_OF_PORTAL)),
            thresholds: if thresholds.is_empty() { "all".to_owned() } else { thresholds.join(", ") },
            added_by_subject: *origin == ContactOrigin::Subject,
        }
    }
}

/// An address without what may be secret: of a URL, only its origin. Each contact gets a link for viewing, with which
/// it must not learn the mailboxes of the others.
fn shown_address(contact: &Contact, access: &PortalAccess) -> String {
    let origin = Url::parse(contact.address()).ok().filter(Url::has_host).map(|url| url.origin().ascii_serialization());
    let address = origin.map_or_else(|| masked_address(contact), |origin| format!("{origin}/…"));
    match address.rsplit_once('@') {
        Some((mailbox, domain)) if !access.may_change_contacts() => {
            format!("{}…@{domain}", mailbox.chars().take(1).collect::<String>())
        }
        _ => address,
    }
}

/// The windows of a metric, from the shortest, with their paces. A period uses no less than a shorter one in it: if its
/// own pace says so, the usage began late in it, and goes on as in the shorter one.
pub fn paced(usages: Vec<WindowUsageView>, now: UnixMs) -> Vec<PortalWindowView> {
    let mut windows: Vec<PortalWindowView> = Vec::new();
    for usage in usages {
        let is_within =
            |of: &&PortalWindowView| of.usage.starts_at >= usage.starts_at && of.usage.resets_at <= usage.resets_at;
        let shorter = windows.iter().filter(is_within).max_by_key(|of| of.pace);
        let pace = pace_of(&usage, now).map(|pace| match shorter {
            Some(shorter) if shorter.pace > Some(pace) => continued(&usage, shorter).unwrap_or(pace),
            _ => pace,
        });
        windows.push(PortalWindowView { pace, usage });
    }
    windows
}

/// The windows as a customer sees them: a pace beside a forecast would contradict it.
fn without_foreseen_paces(mut windows: Vec<PortalWindowView>, format: &MetricFormat) -> Vec<PortalWindowView> {
    for PortalWindowView { pace, usage } in &mut windows {
        let is_foreseen = usage.forecast.as_ref().is_some_and(|of| of.state != ForecastState::Unknown);
        *pace = pace.filter(|_| !is_foreseen).map(|pace| format.rounded(pace));
    }
    windows
}

/// The units at the end of a period at the pace since its start. `None` at its very start, without usage, and for a
/// total.
fn pace_of(usage: &WindowUsageView, now: UnixMs) -> Option<u64> {
    let (Rfc3339(start), Rfc3339(end)) = (usage.starts_at?, usage.resets_at?);
    let (whole, over) = (end.0 - start.0, now.0 - start.0);
    if whole <= 0 || over < whole / PACE_AFTER || over > whole {
        return None;
    }
    let at_end = u128::from(usage.used.filter(|used| *used > 0)?) * whole.unsigned_abs() as u128
        / u128::from(over.unsigned_abs().max(1));
    u64::try_from(at_end).ok()
}

/// The units at the end of a period in which the pace of a shorter one goes on. That of an hour ends with it: a burst
/// says little about the rest of a day.
fn continued(usage: &WindowUsageView, shorter: &PortalWindowView) -> Option<u64> {
    let PortalWindowView { pace, usage: of } = shorter;
    let (Rfc3339(start), Rfc3339(end), Rfc3339(until)) = (of.starts_at?, of.resets_at?, usage.resets_at?);
    let (pace, before) = (u128::from((*pace)?), usage.used?.saturating_sub(of.used?));
    let left = if of.window == Window::Hour { 0 } else { (until.0 - end.0).unsigned_abs() };
    let whole = (end.0 - start.0).unsigned_abs();
    u64::try_from(u128::from(before) + pace + pace * u128::from(left) / u128::from(whole.max(1))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Day, Period};
    use crate::views::forecast::ForecastView;

    /// A subject that begins at the end of a month would read of a day above its month.
    #[test]
    fn a_month_in_which_usage_began_late_goes_on_as_its_day() {
        let day = Day::parse("2026-11-28").expect("a date");
        let midnight = UnixMs(day.since_epoch() * 86_400_000);
        let usage = |window, days_before: i64, days_after: i64| WindowUsageView {
            window,
            period: Period::from(day),
            starts_at: Some(Rfc3339(midnight.plus(-days_before * 86_400_000))),
            resets_at: Some(Rfc3339(midnight.plus(days_after * 86_400_000))),
            used: Some(500),
            limit: Some(550),
            granted: None,
            limit_from: None,
            used_percent: None,
            forecast: None,
            alerts: Vec::new(),
        };
        let paces = |month| -> Vec<Option<u64>> {
            let (format, now) = (MetricFormat::default(), midnight.plus(8 * 3_600_000));
            let windows = paced(vec![usage(Window::Day, 0, 1), month], now);
            let windows = without_foreseen_paces(windows, &format);
            windows.into_iter().map(|of| of.pace).collect()
        };
        assert_eq!(paces(usage(Window::Month, 27, 3)), [Some(1_500), Some(4_500)]);
        assert_eq!(paces(usage(Window::Week, 1, 1)), [Some(1_500), Some(1_500)], "its last day");
        assert_eq!(paces(usage(Window::Month, 0, 30)), [Some(1_500), None], "nobody knows it at the beginning");
        let burst = WindowUsageView {
            starts_at: Some(Rfc3339(midnight.plus(8 * 3_600_000 - 720_000))),
            resets_at: Some(Rfc3339(midnight.plus(9 * 3_600_000 - 720_000))),
            ..usage(Window::Hour, 0, 0)
        };
        let of_burst = |used| {
            let usages =
                [&burst, &usage(Window::Day, 0, 1)].map(|of| WindowUsageView { used: Some(used), ..of.clone() });
            paced(usages.to_vec(), midnight.plus(8 * 3_600_000)).into_iter().map(|of| of.pace).collect::<Vec<_>>()
        };
        assert_eq!(of_burst(500), [Some(2_500), Some(2_500)], "a burst does not last all day");
        assert_eq!(of_burst(0), [None, None]);
        let foreseen = |state| {
            let forecast = Some(ForecastView::sample(state, None));
            paces(WindowUsageView { forecast, ..usage(Window::Month, 27, 3) })[1]
        };
        assert_eq!([ForecastState::Possible, ForecastState::Unknown].map(foreseen), [None, Some(4_500)]);
    }
}
