//! The variables of the texts about a grant whose units expire soon, and the samples that check their templates. Pure.

use minijinja::{Value, context};

use super::channel::AlertPurpose;
use super::labels::Labels;
use super::sample::{SAMPLE_AT, Sample};
use super::templating::local;
use crate::types::alert::used_percent;
use crate::types::text::printable;
use crate::types::timestamp::Rfc3339;
use crate::types::{Alert, DaySpan, DeploymentId, GrantId, GrantNotice, Percent, Units, UnixMs, Window};
use crate::zones::Zone;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The grants of samples expire at the end of the day this long after they are told.
const SAMPLE_EXPIRES_AFTER_MS: i64 = 7 * DAY_MS;
/// The units of a sample grant, large enough to show a separator.
const SAMPLE_UNITS: u64 = 1000;

/// The variables of a template. They are documented in `templates/grant_expires.txt`. `now` is the time of sending: an
/// email that waited for a contact must not promise days that have passed.
pub(super) fn variables(notice: &GrantNotice, labels: &Labels, purpose: AlertPurpose, now: UnixMs) -> Value {
    let left_ms = notice.expires_at.0.0.saturating_sub(now.0).max(0);
    context! {
        grant => notice.grant.as_str(),
        note => notice.note.as_deref().map(printable).unwrap_or_default(),
        units => notice.units.get(),
        remaining => notice.remaining,
        expires_at => local(notice.expires_at.0, &notice.timezone),
        days_left => rounded(left_ms, DAY_MS),
        hours_left => rounded(left_ms, HOUR_MS),
        used => notice.used,
        limit => notice.limit,
        used_percent => used_percent(notice.used, notice.limit),
        raised_at => local(notice.raised_at.0, &notice.timezone),
        copy => purpose == AlertPurpose::Copy,
        test => purpose == AlertPurpose::Test,
        ..labels.variables(notice, printable)
    }
}

/// Rounds to the nearest whole unit.
const fn rounded(ms: i64, unit_ms: i64) -> i64 {
    ms.saturating_add(unit_ms / 2) / unit_ms
}

/// The sample for `preview`: prepaid units of the subject and metric of this alert.
pub(super) fn sample_for(alert: &Alert) -> GrantNotice {
    let Alert { subject, metric, limit, used, plan, timezone, .. } = alert.clone();
    let grant: GrantId = "welcome-2026".parse().expect("a legal id");
    let last = alert.raised_at_ms.plus(SAMPLE_EXPIRES_AFTER_MS);
    let last_day = DaySpan::containing(timezone.parse().unwrap_or(Zone::UTC), last);
    GrantNotice {
        id: GrantNotice::id_of(&DeploymentId::from_stored("sample"), &subject, &grant),
        subject,
        metric,
        window: Window::Total,
        grant,
        note: Some("welcome pack".to_owned()),
        units: Units::new(SAMPLE_UNITS).expect("legal units"),
        remaining: 400,
        expires_at: Rfc3339(last_day.map_or(last, |day| day.end)),
        limit,
        used,
        plan,
        timezone,
        raised_at: Rfc3339(alert.raised_at_ms),
    }
}

/// The sample with which errors of templates are explained.
pub(super) fn sample() -> GrantNotice {
    sample_for(&Sample::example().alert(Percent::new(80).expect("a legal percentage"), SAMPLE_AT))
}

/// A notice of each kind that a template can distinguish: every window, with and without a note, with one unit left,
/// days and hours before the expiry, and each as a copy, with and without names, a unit and links. Each with its time
/// of sending.
pub(super) fn samples() -> impl Iterator<Item = (GrantNotice, Labels, AlertPurpose, UnixMs)> {
    let notices = Window::ALL.into_iter().flat_map(|window| {
        let notice = GrantNotice { window, ..sample() };
        [notice.clone(), GrantNotice { note: None, remaining: 1, ..notice }]
    });
    notices.flat_map(|notice| {
        let expires = notice.expires_at.0;
        [SAMPLE_AT, expires.plus(-5 * HOUR_MS), expires].into_iter().flat_map(move |now| {
            let kinds = [AlertPurpose::Copy, AlertPurpose::Test].map(|purpose| (purpose, Labels::default()));
            let kinds = kinds.into_iter().chain([(AlertPurpose::Alert, Labels::sample())]);
            let notice = notice.clone();
            kinds.map(move |(purpose, labels)| (notice.clone(), labels, purpose, now))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test message that is sent today would tell of units that expired long ago, or of an end to come.
    #[test]
    fn samples_are_of_their_time() {
        for days in [0, 200, 4_000] {
            let now = SAMPLE_AT.plus(days * DAY_MS);
            let alert = Sample::example().alert(Percent::new(80).expect("a legal percentage"), now);
            let left_days = (sample_for(&alert).expires_at.0.0 - now.0) / DAY_MS;
            assert!((7..9).contains(&left_days), "{left_days}");
            assert!(crate::channels::resolved_text::sample_for(&alert).resolved_at.0 <= now);
        }
    }
}
