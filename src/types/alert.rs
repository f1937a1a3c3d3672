//! Alerts: the fact that a threshold was reached. At most one per subject, metric, threshold and day.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::text_id::text_id;
use super::{Day, Metric, Percent, Subject, UnixMs};

text_id! {
    /// An alert's id: `alert_` and 32 hex digits, the same wherever and whenever it is computed. Holds no dot, as Standard
    /// Webhooks demands of a `webhook-id`.
    AlertId
}

impl AlertId {
    /// The id of the one alert that this subject, metric, threshold and day can have.
    ///
    /// SHA-256 over the length-prefixed parts, so that no two different quadruples share a hash input.
    #[must_use]
    pub fn of(subject: &Subject, metric: &Metric, percent: Percent, day: Day) -> Self {
        let percent = percent.to_string();
        let day = day.to_string();
        Self(format!("alert_{}", digest_of(&[subject.as_str(), metric.as_str(), &percent, &day])))
    }
}

/// 32 hex digits of SHA-256 over the parts, each preceded by its length in bytes as eight big-endian bytes.
pub(crate) fn digest_of(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// An alert's facts, frozen by the commit that raised it. This is also its JSON form in Redis: the record of raised alerts,
/// the outbox entry and the delivery all hold the same text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// The id.
    pub id: AlertId,
    /// Whose quota.
    pub subject: Subject,
    /// Of what.
    pub metric: Metric,
    /// The threshold that was reached.
    pub threshold_percent: Percent,
    /// The limit in force, units a day.
    pub limit: u64,
    /// The plan in force.
    pub plan: String,
    /// The day.
    pub day: Day,
    /// The subject's time zone, an IANA name.
    pub timezone: String,
    /// When the day ends and the count starts over.
    pub resets_at_ms: UnixMs,
    /// The count of the commit that raised it, units.
    pub used: u64,
    /// When it was raised, server time.
    pub raised_at_ms: UnixMs,
}

impl Alert {
    /// The JSON object without its last two fields and its closing brace, ending in a comma: what `commit.lua` completes with
    /// `"used":N,"raised_at_ms":N}`, because only the script knows the count.
    #[must_use]
    pub fn json_head(&self) -> String {
        let json = serde_json::to_string(self).expect("plain strings and numbers serialise");
        let cut = json.rfind("\"used\":").expect("used is the last field but one");
        json[..cut].to_owned()
    }

    /// How much of the limit is used, percent, one decimal, rounded down so that 99.99 % never reads as 100.
    #[must_use]
    pub fn used_percent(&self) -> f64 {
        used_percent(self.used, self.limit)
    }
}

/// `used` of `limit` in percent with one decimal, rounded down.
#[must_use]
pub fn used_percent(used: u64, limit: u64) -> f64 {
    let tenths = (u128::from(used) * 1000) / u128::from(limit.max(1));
    tenths as f64 / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert() -> Alert {
        let subject = Subject::parse("a \"quoted\" : subject".as_bytes()).expect("legal");
        let metric = Metric::default();
        let percent = Percent::new(80).expect("legal");
        let day = Day::parse("2026-11-21").expect("legal");
        Alert {
            id: AlertId::of(&subject, &metric, percent, day),
            subject,
            metric,
            threshold_percent: percent,
            limit: 5000,
            plan: "free".into(),
            day,
            timezone: "UTC".into(),
            resets_at_ms: UnixMs(1_795_305_600_000),
            used: 4000,
            raised_at_ms: UnixMs(1_795_250_000_123),
        }
    }

    /// The script completes the head by hand; what it makes must read back as the same alert.
    #[test]
    fn the_head_completed_by_the_script_reads_back() {
        let alert = alert();
        let text = format!("{}\"used\":{},\"raised_at_ms\":{}}}", alert.json_head(), alert.used, alert.raised_at_ms.0);
        assert_eq!(serde_json::from_str::<Alert>(&text).expect("JSON"), alert);
    }

    /// Receivers deduplicate by this id for ever, so its value is part of the contract: SHA-256 over the length-prefixed parts,
    /// checked against Python's hashlib.
    #[test]
    fn the_id_never_changes() {
        let id = AlertId::of(
            &Subject::parse(b"alice").expect("legal"),
            &Metric::default(),
            Percent::new(80).expect("legal"),
            Day::parse("2026-11-21").expect("legal"),
        );
        assert_eq!(id.as_str(), "alert_49b9c819a935e9ab96eabcc398e3a831");
        assert!(!id.as_str().contains('.'));
    }

    /// A reader must not be told 100 % before the limit is reached.
    #[test]
    fn percent_used_is_rounded_down() {
        assert!((used_percent(4999, 5000) - 99.9).abs() < 1e-9);
        assert!((used_percent(4000, 5000) - 80.0).abs() < 1e-9);
    }
}
