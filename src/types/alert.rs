//! An alert: a threshold was reached. At most one per subject, metric, period, percentage and threshold units.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::text::hex;
use super::text_form::text_id;
use super::timestamp::{Rfc3339, rfc3339};
use super::{DeploymentId, Metric, Percent, Period, StreamId, Subject, UnixMs, Window};

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
    /// The threshold, percent of the limit.
    pub percent: Percent,
    /// The threshold in units, computed from the limit in force: a higher limit makes another alert.
    pub units: u64,
}

impl AlertId {
    /// The id of the only alert that this deployment can raise for this key.
    ///
    /// SHA-256 over the length-prefixed parts, so that different parts never form the same hash input.
    pub fn derive(instance: &DeploymentId, key: &AlertKey<'_>) -> Self {
        let AlertKey { subject, metric, period, percent, units } = *key;
        let (window, period) = (period.window().as_str(), period.to_string());
        let (percent, units) = (percent.to_string(), units.to_string());
        let parts = [instance.as_str(), subject.as_str(), metric.as_str(), window, &period, &percent, &units];
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
    /// The reached threshold, percent of the limit.
    pub threshold_percent: Percent,
    /// The threshold in units. A higher limit lets the percentage be raised again in one period, at more units.
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
    /// The higher thresholds that the same commit reached, percent, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub higher_percents: Vec<Percent>,
}

/// The newest alert of one percentage in a period, with the earlier ones: the content of the record of raised alerts.
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

    /// All its alerts, oldest first.
    pub fn into_alerts(self) -> Vec<Alert> {
        let Self { alert, earlier: mut alerts } = self;
        alerts.push(alert);
        alerts
    }
}

impl Alert {
    /// The identity of this alert.
    pub const fn key(&self) -> AlertKey<'_> {
        AlertKey {
            subject: &self.subject,
            metric: &self.metric,
            period: self.period,
            percent: self.threshold_percent,
            units: self.threshold_units,
        }
    }

    /// Used share of the limit in percent, one decimal, rounded down so that 99.99 % never reads as 100.
    pub fn used_percent(&self) -> f64 {
        used_percent(self.used, self.limit)
    }
}

/// `used` of `limit` in percent with one decimal, rounded down.
pub fn used_percent(used: u64, limit: u64) -> f64 {
    let tenths = (u128::from(used) * 1000) / u128::from(limit.max(1));
    tenths as f64 / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key<'a>(subject: &'a Subject, metric: &'a Metric) -> AlertKey<'a> {
        let (period, percent) = (Period::parse("2026-11-21").expect("legal"), Percent::new(80).expect("legal"));
        AlertKey { subject, metric, period, percent, units: 4000 }
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

    /// Texts must not show 100 % before the limit is reached.
    #[test]
    fn percent_used_is_rounded_down() {
        assert!((used_percent(4999, 5000) - 99.9).abs() < 1e-9);
        assert!((used_percent(4000, 5000) - 80.0).abs() < 1e-9);
    }
}
