//! Made-up alerts: what templates are checked with at start, what `preview` shows and `send-test` sends.

use chrono_tz::Tz;

use crate::types::{Alert, AlertId, DaySpan, Metric, Percent, Subject, UnixMs};

/// The limit of every sample: large enough to show a separator.
const LIMIT: u64 = 5000;
/// The sample's time zone: one with an offset, so that times of day are seen to be local.
const ZONE: Tz = Tz::Europe__Berlin;

/// An alert of a made-up subject that has just reached `threshold_percent` at `raised_at`.
///
/// Pure. Its id is that of a real alert of the same facts.
#[must_use]
pub fn sample_alert(threshold_percent: Percent, raised_at: UnixMs) -> Alert {
    let subject = Subject::parse(b"example-customer").expect("a legal subject");
    let metric = Metric::default();
    let epoch = DaySpan::containing(ZONE, UnixMs(0)).expect("1970 has days");
    let span = DaySpan::containing(ZONE, raised_at).unwrap_or(epoch);
    Alert {
        id: AlertId::of(&subject, &metric, threshold_percent, span.day),
        subject,
        metric,
        threshold_percent,
        limit: LIMIT,
        plan: "free".to_owned(),
        day: span.day,
        timezone: ZONE.name().to_owned(),
        resets_at_ms: span.end,
        used: LIMIT * u64::from(threshold_percent.get()) / 100,
        raised_at_ms: raised_at,
    }
}
