//! Alerts: the fact that a threshold was reached. At most one per subject, metric, period, percentage and threshold
//! units.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::text::hex;
use super::text_form::text_id;
use super::{DeploymentId, Metric, Percent, Period, StreamId, Subject, UnixMs, Window};

text_id! {
    /// An alert's id: `alert_` and 32 hex digits, the same wherever and whenever it is computed. Holds no dot, as
    /// Standard Webhooks demands of a `webhook-id`.
    AlertId
}

/// What tells an alert from others: there is at most one of each key.
#[derive(Debug, Clone, Copy)]
pub struct AlertKey<'a> {
    /// Whose quota.
    pub subject: &'a Subject,
    /// Of what.
    pub metric: &'a Metric,
    /// When.
    pub period: Period,
    /// The threshold, percent of the limit.
    pub percent: Percent,
    /// The same in units, by the limit in force: a higher limit makes another alert.
    pub units: u64,
}

impl AlertId {
    /// The id of the one alert that this deployment can raise of a threshold.
    ///
    /// SHA-256 over the length-prefixed parts, so that no two different ones share a hash input.
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

/// An alert's facts, frozen by the commit that raised it. This is also its JSON form in Redis: the outbox entry and the
/// delivery hold the same text, and the record of raised alerts holds it with those before it in the period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// The id.
    pub id: AlertId,
    /// Whose quota.
    pub subject: Subject,
    /// Of what.
    pub metric: Metric,
    /// Over what the limit counts.
    pub window: Window,
    /// The period.
    pub period: Period,
    /// The threshold that was reached, percent of the limit.
    pub threshold_percent: Percent,
    /// The same in units.
    pub threshold_units: u64,
    /// The limit in force, units a period.
    pub limit: u64,
    /// The plan in force.
    pub plan: String,
    /// The subject's time zone, an IANA name.
    pub timezone: String,
    /// When the period ends and the count starts over.
    pub resets_at_ms: UnixMs,
    /// The count before the commit that raised it, units.
    pub used_before: u64,
    /// The count of the commit that raised it, units.
    pub used: u64,
    /// The first entry of the stream that the commit took in.
    pub first_entry: StreamId,
    /// The last one.
    pub last_entry: StreamId,
    /// When it was raised, server time.
    pub raised_at_ms: UnixMs,
    /// The higher thresholds that were reached by the same commit, percent, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub higher_percents: Vec<Percent>,
}

/// The newest alert of one percentage in a period, with those before it: what the record of raised alerts holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaisedRecord {
    /// The newest alert.
    #[serde(flatten)]
    pub alert: Alert,
    /// Those before it, which a higher limit followed, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Alert>,
}

impl RaisedRecord {
    /// The record of an alert, after that of `before`.
    pub fn after(before: Option<Self>, alert: Alert) -> Self {
        Self { alert, earlier: before.map(Self::into_alerts).unwrap_or_default() }
    }

    /// Every alert in it, the oldest first.
    pub fn into_alerts(self) -> Vec<Alert> {
        let Self { alert, earlier: mut alerts } = self;
        alerts.push(alert);
        alerts
    }
}

impl Alert {
    /// What there is at most one of: this alert.
    pub const fn key(&self) -> AlertKey<'_> {
        AlertKey {
            subject: &self.subject,
            metric: &self.metric,
            period: self.period,
            percent: self.threshold_percent,
            units: self.threshold_units,
        }
    }

    /// How much of the limit is used, percent, one decimal, rounded down so that 99.99 % never reads as 100.
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

    /// Receivers deduplicate by this id for ever, so its value is part of the contract: SHA-256 over the
    /// length-prefixed parts, checked against Python's hashlib.
    #[test]
    fn the_id_never_changes() {
        let (subject, metric) = (Subject::parse(b"alice").expect("legal"), Metric::default());
        let id =
            AlertId::derive(&DeploymentId::from_stored("0123456789abcdef0123456789abcdef"), &key(&subject, &metric));
        assert_eq!(id.as_str(), "alert_5725b489d7cf5f4bb741e820dca044da");
        assert!(!id.as_str().contains('.'));
    }

    /// A receiver that drops what it has seen would drop another environment's alert, or the one after an upgrade.
    #[test]
    fn other_deployments_and_other_limits_have_other_ids() {
        let (subject, metric) = (Subject::parse(b"alice").expect("legal"), Metric::default());
        let one = DeploymentId::from_stored("one");
        let id = AlertId::derive(&one, &key(&subject, &metric));
        assert_ne!(id, AlertId::derive(&DeploymentId::from_stored("two"), &key(&subject, &metric)));
        assert_ne!(id, AlertId::derive(&one, &AlertKey { units: 16_000, ..key(&subject, &metric) }));
    }

    /// A reader must not be told 100 % before the limit is reached.
    #[test]
    fn percent_used_is_rounded_down() {
        assert!((used_percent(4999, 5000) - 99.9).abs() < 1e-9);
        assert!((used_percent(4000, 5000) - 80.0).abs() < 1e-9);
    }
}
