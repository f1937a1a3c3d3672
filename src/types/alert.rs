//! An alert: a threshold was reached. At most one per subject, metric, period, threshold and threshold units.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Number;
use sha2::{Digest, Sha256};

use super::text::hex;
use super::text_form::text_id;
use super::timestamp::{Rfc3339, rfc3339};
use super::{
    AlertEnd, AlertStatus, AlertThreshold, Branch, DeploymentId, EndReason, Metric, MetricUnit, Percent, Period,
    StreamId, Subject, Threshold, TraceParent, UnixMs, Window,
};

text_id! {
    /// An alert's id: `alert_` and 32 hex digits, always the same for the same alert. Has no dot, because Standard
    /// Webhooks forbids dots in a `webhook-id`.
    AlertId
}

/// The identity of an alert: there is at most one alert per key.
#[derive(Debug, Clone, Copy)]
pub struct AlertKey<'a> {
    /// The subject whose quota it is.
    pub subject: &'a Subject,
    /// The metric.
    pub metric: &'a Metric,
    /// The period.
    pub period: Period,
    /// The threshold.
    pub threshold: Threshold,
    /// The count that reaches it, computed from the limit in force: a higher limit makes another alert.
    pub units: u64,
}

impl AlertId {
    /// The id of the only alert that this deployment can raise for this key.
    ///
    /// SHA-256 over the length-prefixed parts, so that different parts never form the same hash input.
    pub fn derive(instance: &DeploymentId, key: &AlertKey<'_>) -> Self {
        let AlertKey { subject, metric, period, threshold, units } = *key;
        let (window, period) = (period.window().as_str(), period.to_string());
        let (threshold, units) = (threshold.to_string(), units.to_string());
        let parts = [instance.as_str(), subject.as_str(), metric.as_str(), window, &period, &threshold, &units];
        Self(format!("alert_{}", digest_of(&parts)))
    }
}

/// 32 hex digits of SHA-256 over the parts, each preceded by its length in bytes as eight big-endian bytes.
pub fn digest_of(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize()[..16])
}

/// The facts of an alert, fixed by the commit that raised it. Also its JSON form in Redis: the outbox entry and the
/// delivery hold this text, and the record of raised alerts holds it with the earlier alerts of the period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Alert {
    /// The id.
    #[schemars(regex(pattern = "^alert_[0-9a-f]{32}$"))]
    pub id: AlertId,
    /// The subject whose quota it is.
    pub subject: Subject,
    /// The metric.
    pub metric: Metric,
    /// The window of the limit.
    pub window: Window,
    /// The period.
    pub period: Period,
    /// The reached threshold. JSON has it as `threshold`, and a percentage also as `threshold_percent`.
    #[serde(flatten, with = "threshold_members")]
    #[schemars(with = "ThresholdMembers")]
    pub threshold: Threshold,
    /// The count that reaches the threshold, units. A higher limit lets a percentage, and what remains, be raised again
    /// in one period, at more units.
    pub threshold_units: u64,
    /// The limit in force, units per period.
    #[schemars(range(min = 1))]
    pub limit: u64,
    /// The plan in force.
    pub plan: String,
    /// The subject's time zone, an IANA name.
    pub timezone: String,
    /// When the period ends and the count restarts; null for a total.
    pub resets_at: Option<Rfc3339>,
    /// The count before the commit that raised the alert, units.
    pub used_before: u64,
    /// The count after the commit that raised the alert, units.
    pub used: u64,
    /// The first stream entry of the commit.
    pub first_entry: StreamId,
    /// The last stream entry of the commit.
    pub last_entry: StreamId,
    /// When it was raised, server time.
    #[serde(rename = "raised_at", with = "rfc3339")]
    #[schemars(with = "Rfc3339")]
    pub raised_at_ms: UnixMs,
    /// The higher thresholds that the same commit reached, in the order of their counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "higher_percents")]
    pub higher_thresholds: Vec<Threshold>,
    /// Those of the level below that had used most, the largest first; absent for a subject without levels below it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = LARGEST_MAX))]
    pub largest: Vec<LargestChild>,
    /// The `traceparent` of the event that reached the threshold; absent if it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
    /// Whether it has ended, as of now: only in lists. Never stored with the alert.
    #[serde(flatten)]
    pub status: Option<AlertStatus>,
    /// The unit of its metric, as of now: only in lists. Never stored with the alert.
    #[serde(flatten)]
    pub unit: MetricUnit,
}

/// Maximum number of children that an alert names.
pub const LARGEST_MAX: usize = 3;

/// One of the largest children of a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LargestChild {
    /// The child.
    pub subject: Subject,
    /// Its units in the period of the alert.
    pub used: u64,
    /// Its share of what the alert's subject used, percent, rounded down to one decimal.
    #[schemars(with = "f64", range(min = 0))]
    pub percent: Number,
}

impl LargestChild {
    /// A child that used `used` of the units `of_all`.
    pub fn new(subject: Subject, used: u64, of_all: u64) -> Self {
        let percent = Number::from_f64(used_percent(used, of_all)).unwrap_or_else(|| 0.into());
        Self { subject, used, percent }
    }
}

/// The members of an alert's JSON that name its threshold.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct ThresholdMembers {
    /// The reached threshold, percent of the limit; left out if it is in units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    threshold_percent: Option<Percent>,
    /// The reached threshold.
    // Alerts of an older daemon lack it and have a percentage.
    #[schemars(with = "AlertThreshold")]
    threshold: Option<AlertThreshold>,
}

/// Serde for [`Alert::threshold`].
mod threshold_members {
    use super::{AlertThreshold, Deserialize, Deserializer, Serialize, Serializer, Threshold, ThresholdMembers, de};

    pub(super) fn serialize<S: Serializer>(threshold: &Threshold, serializer: S) -> Result<S::Ok, S::Error> {
        let threshold_percent = threshold.percent();
        let threshold = Some(AlertThreshold::from(*threshold));
        ThresholdMembers { threshold_percent, threshold }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Threshold, D::Error> {
        let ThresholdMembers { threshold_percent, threshold } = ThresholdMembers::deserialize(deserializer)?;
        let threshold = threshold.map(Threshold::from).or_else(|| threshold_percent.map(Threshold::from));
        threshold.ok_or_else(|| de::Error::missing_field("threshold"))
    }
}

/// The newest alert of one threshold in a period, with the earlier ones: the content of the record of raised alerts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaisedRecord {
    /// The newest alert.
    #[serde(flatten)]
    pub alert: Alert,
    /// The earlier alerts, oldest first. A higher limit followed each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Alert>,
}

impl RaisedRecord {
    /// The record of an alert that follows the record `before`.
    pub fn after(before: Option<Self>, alert: Alert) -> Self {
        Self { alert, earlier: before.map(Self::into_alerts).unwrap_or_default() }
    }

    /// Removes the subjects of a branch from [`Alert::largest`] of all its alerts. Returns whether there were any.
    pub fn forget(&mut self, branch: &Branch) -> bool {
        let earlier =
            self.earlier.iter_mut().map(|alert| alert.forget(branch)).filter(|is_changed| *is_changed).count();
        self.alert.forget(branch) || earlier > 0
    }

    /// All its alerts, oldest first.
    pub fn into_alerts(self) -> Vec<Alert> {
        let Self { alert, earlier: mut alerts } = self;
        alerts.push(alert);
        alerts
    }
}

impl Alert {
    /// Removes the subjects of a branch from [`Self::largest`]. Returns whether there were any.
    pub fn forget(&mut self, branch: &Branch) -> bool {
        let named = self.largest.len();
        self.largest.retain(|child| !branch.contains(child.subject.as_str()));
        self.largest.len() < named
    }

    /// The end of the earlier alert of the same threshold: the limit was raised before this one.
    pub const fn end_of_earlier(&self) -> AlertEnd {
        AlertEnd { reason: EndReason::LimitRaised, at: Rfc3339(self.raised_at_ms) }
    }

    /// The end of the alert with its period, if that is over at `now`. One that was raised later ended at once.
    pub fn end_by_reset(&self, now: UnixMs) -> Option<AlertEnd> {
        let Rfc3339(end) = self.resets_at.filter(|Rfc3339(end)| *end <= now)?;
        Some(AlertEnd { reason: EndReason::Reset, at: Rfc3339(end.max(self.raised_at_ms)) })
    }

    /// The identity of this alert.
    pub const fn key(&self) -> AlertKey<'_> {
        AlertKey {
            subject: &self.subject,
            metric: &self.metric,
            period: self.period,
            threshold: self.threshold,
            units: self.threshold_units,
        }
    }

    /// An id of the quota's period: `period_` and 32 hex digits, the same for all alerts about it.
    pub fn period_id(&self) -> String {
        period_id_of(&self.subject, &self.metric, self.period)
    }

    /// The percentage of the limit at which the threshold is: a percentage itself, and for a threshold in units the
    /// share of its count, rounded down.
    pub fn threshold_share(&self) -> u64 {
        match self.threshold {
            Threshold::Percent(percent) => percent.get().into(),
            Threshold::Used(_) | Threshold::Remaining(_) => {
                let share = u128::from(self.threshold_units) * 100 / u128::from(self.limit.max(1));
                u64::try_from(share).unwrap_or(u64::MAX)
            }
        }
    }

    /// Used share of the limit in percent, one decimal, rounded down so that 99.99 % never reads as 100.
    pub fn used_percent(&self) -> f64 {
        used_percent(self.used, self.limit)
    }
}

/// An id of a quota's period: see [`Alert::period_id`].
pub(super) fn period_id_of(subject: &Subject, metric: &Metric, period: Period) -> String {
    let (window, period) = (period.window().as_str(), period.to_string());
    format!("period_{}", digest_of(&[subject.as_str(), metric.as_str(), window, &period]))
}

/// `used` of `limit` in percent with one decimal, rounded down.
pub fn used_percent(used: u64, limit: u64) -> f64 {
    let tenths = (u128::from(used) * 1000) / u128::from(limit.max(1));
    tenths as f64 / 10.0
}

/// [`used_percent`]; `None` of a limit of 0.
pub fn percent_of_limit(used: u64, limit: u64) -> Option<f64> {
    (limit > 0).then(|| used_percent(used, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key<'a>(subject: &'a Subject, metric: &'a Metric) -> AlertKey<'a> {
        let (period, threshold) = (Period::parse("2026-11-21").expect("legal"), "80".parse().expect("legal"));
        AlertKey { subject, metric, period, threshold, units: 4000 }
    }

    /// Receivers deduplicate by this id forever, so its value is part of the contract: SHA-256 over the length-prefixed
    /// parts, checked against Python's hashlib.
    #[test]
    fn the_id_never_changes() {
        let (subject, metric) = (Subject::parse(b"alice").expect("legal"), Metric::default());
        let id =
            AlertId::derive(&DeploymentId::from_stored("0123456789abcdef0123456789abcdef"), &key(&subject, &metric));
        assert_eq!(id.as_str(), "alert_5725b489d7cf5f4bb741e820dca044da");
        assert!(!id.as_str().contains('.'));
    }

    /// A receiver that drops known ids would drop another environment's alert, or the first one after an upgrade.
    #[test]
    fn other_deployments_and_other_limits_have_other_ids() {
        let (subject, metric) = (Subject::parse(b"alice").expect("legal"), Metric::default());
        let one = DeploymentId::from_stored("one");
        let id = AlertId::derive(&one, &key(&subject, &metric));
        assert_ne!(id, AlertId::derive(&DeploymentId::from_stored("two"), &key(&subject, &metric)));
        assert_ne!(id, AlertId::derive(&one, &AlertKey { units: 16_000, ..key(&subject, &metric) }));
    }

    /// An upgrade must not lose the alerts that an older daemon stored, nor raise them again.
    #[test]
    fn alerts_that_name_a_percentage_alone_are_read() {
        let stored = |threshold: &str| {
            format!(
                r#"{{"id":"alert_x","subject":"alice","metric":"requests","window":"day","period":"2026-11-21",{threshold}
                "threshold_units":80,"limit":100,"plan":"free","timezone":"UTC","resets_at":null,"used_before":0,"used":100,
                "first_entry":"1-0","last_entry":"2-0","raised_at":"2026-11-21T08:37:00.123Z","higher_percents":[100]}}"#
            )
        };
        let before: RaisedRecord = serde_json::from_str(&stored(r#""threshold_percent":80,"#)).expect("readable");
        let alert = &before.alert;
        assert_eq!((alert.threshold, alert.threshold_share()), ("80".parse().expect("legal"), 80));
        assert_eq!(alert.higher_thresholds, ["100".parse().expect("legal")]);
        let written = serde_json::to_string(alert).expect("JSON");
        let members = r#""threshold_percent":80,"threshold":{"kind":"percent","percent":80},"threshold_units":80"#;
        assert!(written.contains(members), "{written}");
        assert_eq!(serde_json::from_str::<Alert>(&written).expect("readable"), *alert);
        let error = serde_json::from_str::<Alert>(&stored("")).expect_err("no threshold").to_string();
        assert!(error.contains("missing field `threshold`"), "{error}");
    }

    /// Texts must not show 100 % before the limit is reached.
    #[test]
    fn percent_used_is_rounded_down() {
        assert!((used_percent(4999, 5000) - 99.9).abs() < 1e-9);
        assert!((used_percent(4000, 5000) - 80.0).abs() < 1e-9);
    }
}
