//! Made-up alerts: what templates are checked with at start, what `preview` shows and `send-test` sends.

use chrono_tz::Tz;

use crate::types::{Alert, AlertId, DaySpan, Metric, Percent, Subject, Units, UnixMs};

/// The samples of templates are raised at this time, 2026-11-21 08:37:00.123 UTC.
pub const SAMPLE_AT: UnixMs = UnixMs(1_795_250_220_123);
/// The limit of a made-up subject: large enough to show a separator.
const LIMIT: u64 = 5000;
/// The time zone of a made-up subject: one with an offset, so that times of day are seen to be local.
const ZONE: Tz = Tz::Europe__Berlin;

/// Whom a sample is about, and what its limit is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Who.
    pub subject: Subject,
    /// Its plan.
    pub plan: String,
    /// The zone of its days.
    pub zone: Tz,
    /// What is limited.
    pub metric: Metric,
    /// Units a day.
    pub limit: Units,
}

impl Sample {
    /// A customer that does not exist.
    #[must_use]
    pub fn made_up() -> Self {
        Self::of(Subject::parse(b"example-customer").expect("a legal subject"))
    }

    /// This subject, with the plan, zone and limit of one that does not exist.
    #[must_use]
    pub fn of(subject: Subject) -> Self {
        let limit = Units::new(LIMIT).expect("legal units");
        Self { subject, plan: "free".to_owned(), zone: ZONE, metric: Metric::default(), limit }
    }

    /// An alert that has just reached `threshold_percent` at `raised_at`. Pure. Its id is that of a real alert of the same facts.
    #[must_use]
    pub fn alert(&self, threshold_percent: Percent, raised_at: UnixMs) -> Alert {
        let Self { subject, plan, zone, metric, limit } = self.clone();
        let epoch = DaySpan::containing(zone, UnixMs(0)).expect("1970 has days");
        let span = DaySpan::containing(zone, raised_at).unwrap_or(epoch);
        Alert {
            id: AlertId::of(&subject, &metric, threshold_percent, span.day),
            subject,
            metric,
            threshold_percent,
            limit: limit.get(),
            plan,
            day: span.day,
            timezone: zone.name().to_owned(),
            resets_at_ms: span.end,
            // Ten times the largest limit is still below 2^64.
            used: u64::try_from(threshold_percent.threshold_units(limit)).unwrap_or(u64::MAX),
            raised_at_ms: raised_at,
        }
    }
}

/// An alert of a made-up subject that has just reached `threshold_percent` at `raised_at`. Pure.
#[must_use]
pub fn sample_alert(threshold_percent: Percent, raised_at: UnixMs) -> Alert {
    Sample::made_up().alert(threshold_percent, raised_at)
}
