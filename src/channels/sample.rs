//! Sample alerts: templates are checked with them at start, `preview` shows and `send-test` sends them.

use crate::types::text_form::{parsed_text_enum, text_enum};
use crate::types::{
    Alert, AlertId, AlertKey, BillingStart, DeploymentId, DisplayName, Metric, PeriodSpan, StreamId, Subject,
    Threshold, Units, UnixMs, Window, WindowLimit,
};
use crate::zones::Zone;

/// The samples of templates are raised at this time, 2026-11-21 08:37:00.123 UTC.
pub const SAMPLE_AT: UnixMs = UnixMs(1_795_250_220_123);
/// The limit of a sample subject, large enough to show a separator.
const LIMIT: u64 = 5000;
/// The time zone of a sample subject. It has an offset, so that local times of day can be recognized.
const ZONE: &str = "Europe/Berlin";

text_enum! {
    /// A kind of notification that a test message can be, by the type of its webhook.
    pub enum TestKind {
        /// An alert; its webhook has the type `quota.test`.
        Alert = "quota.threshold_reached",
        /// Units of a grant expire.
        GrantExpires = "quota.grant_expires",
        /// Alerts have ended.
        Resolved = "quota.resolved",
        /// A limit will be reached.
        Forecast = "quota.forecast",
        /// Usage is far above the usual.
        Spike = "quota.spike",
        /// There is no usage.
        Silence = "quota.silence",
        /// An alert and a forecast in one message.
        Digest = "quota.digest",
    }
}

parsed_text_enum!(TestKind, "a kind of notification");

/// The subject of a sample and its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The subject.
    pub subject: Subject,
    /// Its display name.
    pub subject_name: Option<DisplayName>,
    /// Its plan.
    pub plan: String,
    /// The zone of its days and longer periods.
    pub zone: Zone,
    /// The date on which its months, quarters and years begin.
    pub billing: BillingStart,
    /// The metric of the limit.
    pub metric: Metric,
    /// Its units and its window.
    pub limit: WindowLimit,
}

impl Sample {
    /// An example customer.
    pub fn example() -> Self {
        Self::for_subject(Subject::parse(b"example-customer").expect("a legal subject"))
    }

    /// This subject, with the plan, zone and limit of the example.
    pub fn for_subject(subject: Subject) -> Self {
        let limit = WindowLimit { window: Window::Day, units: Units::new(LIMIT).expect("legal units").into() };
        let (plan, billing) = ("free".to_owned(), BillingStart::default());
        // The bundled data have this zone.
        let zone = ZONE.parse().unwrap_or(Zone::UTC);
        Self { subject, subject_name: None, plan, zone, billing, metric: Metric::default(), limit }
    }

    /// An alert that has reached this threshold at `raised_at`. Pure. A threshold that is never due under the limit of
    /// the sample is shown with a count of 0.
    pub fn alert(&self, threshold: impl Into<Threshold>, raised_at: UnixMs) -> Alert {
        let threshold = threshold.into();
        let Self { subject, plan, zone, billing, metric, limit: WindowLimit { window, units: limit }, .. } =
            self.clone();
        let span = |at| PeriodSpan::containing(window, zone, billing, at);
        let span = span(raised_at).or_else(|| span(UnixMs(0))).expect("1970 has periods");
        // Ten times the largest limit is still below 2^64.
        let used = u64::try_from(threshold.units_of(limit).unwrap_or(0)).unwrap_or(u64::MAX);
        let key = AlertKey { subject: &subject, metric: &metric, period: span.period, threshold, units: used };
        let entry = StreamId { ms: u64::try_from(raised_at.0).unwrap_or(0), seq: 0 };
        Alert {
            id: AlertId::derive(&DeploymentId::from_stored("sample"), &key),
            subject,
            metric,
            window,
            period: span.period,
            threshold,
            threshold_units: used,
            limit: limit.get(),
            plan,
            timezone: zone.name().to_owned(),
            resets_at: span.resets_at(),
            used_before: used.saturating_sub(1),
            used,
            first_entry: entry,
            last_entry: entry,
            raised_at_ms: raised_at,
            higher_thresholds: Vec::new(),
            largest: Vec::new(),
            traceparent: None,
            status: None,
        }
    }
}
