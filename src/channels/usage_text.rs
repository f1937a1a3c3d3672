//! The variables of the texts about usage that no threshold reports, and the samples that check their templates. Pure.

use minijinja::{Value, context};

use super::channel::AlertPurpose;
use super::labels::Labels;
use super::sample::{SAMPLE_AT, Sample};
use super::templating::local;
use crate::types::alert::used_percent;
use crate::types::text::printable;
use crate::types::timestamp::Rfc3339;
use crate::types::{
    Alert, DaySpan, DeploymentId, NoticeTopic, Percent, PeriodSpan, UnixMs, UsageNotice, UsageNoticeKind, Window,
};
use crate::zones::Zone;

const HOUR_MS: i64 = 3_600_000;
/// Times of forecasts are rounded to this, ms.
const ROUNDED_TO_MS: i64 = 600_000;

/// The variables of a template. They are documented in `templates/usage_notice.txt`.
pub(super) fn variables(notice: &UsageNotice, labels: &Labels, purpose: AlertPurpose) -> Value {
    let at = |time: Option<Rfc3339>| time.map(|Rfc3339(at)| local(at, &notice.timezone)).unwrap_or_default();
    let limit = notice.limit.unwrap_or_default();
    context! {
        kind => notice.kind.as_str(),
        used => notice.used,
        limit => limit,
        used_percent => used_percent(notice.used, limit),
        probability => notice.probability_percent.unwrap_or_default(),
        expected_at => at(notice.expected_at),
        earliest_at => at(notice.earliest_at),
        latest_at => at(notice.latest_at),
        usual_by_now => labels.format.rounded(notice.usual_by_now),
        usual_per_day => labels.format.rounded(notice.usual_per_day.unwrap_or_default()),
        silent_since => at(notice.silent_since),
        times_usual => notice.times_usual(),
        resets_at => local(notice.resets_at.0, &notice.timezone),
        raised_at => local(notice.raised_at.0, &notice.timezone),
        copy => purpose == AlertPurpose::Copy,
        test => purpose == AlertPurpose::Test,
        ..labels.variables(notice, printable)
    }
}

/// A sample: a forecast for the subject and limit of this alert.
pub(super) fn sample_for(alert: &Alert) -> UsageNotice {
    let Alert { subject, metric, limit, used, plan, timezone, window, period, raised_at_ms: now, .. } = alert;
    let (period, now) = (*period, *now);
    let (kind, limit) = (UsageNoticeKind::Forecast, Some(*limit));
    let id = UsageNotice::id_of(&DeploymentId::from_stored("sample"), kind, (subject, metric, period), limit);
    let rounded = |at: i64| (at + ROUNDED_TO_MS / 2).div_euclid(ROUNDED_TO_MS) * ROUNDED_TO_MS;
    let at = |hours: i64| Some(Rfc3339(UnixMs(rounded(now.0 + hours * HOUR_MS))));
    let end = alert.resets_at.map_or(now.plus(24 * HOUR_MS), |end| end.0);
    let topic = NoticeTopic { subject, metric, span: PeriodSpan { period, start: now, end }, plan, timezone };
    UsageNotice {
        window: *window,
        used: *used,
        limit,
        probability_percent: Some(93),
        expected_at: at(4),
        earliest_at: at(3),
        latest_at: at(5),
        usual_by_now: *used * 5 / 7,
        ..UsageNotice::new(id, kind, topic, now)
    }
}

/// The sample for `preview`, of this kind. A spike and a silence are of a day, whatever the window of the limit.
pub(super) fn of_kind(kind: UsageNoticeKind, forecast: UsageNotice) -> UsageNotice {
    let (window, raised_at) = (forecast.window, forecast.raised_at.0);
    let silent_since = (raised_at.0 - 72 * HOUR_MS).div_euclid(HOUR_MS) * HOUR_MS;
    let today = DaySpan::containing(forecast.timezone.parse().unwrap_or(Zone::UTC), raised_at);
    let (period, resets_at) =
        today.map_or((forecast.period, forecast.resets_at), |day| (day.day.into(), Rfc3339(day.end)));
    let unusual = UsageNotice {
        id: forecast.id.replacen(forecast.kind.as_str(), kind.as_str(), 1),
        kind,
        window: Window::Day,
        period,
        resets_at,
        limit: forecast.limit.filter(|_| window == Window::Day),
        probability_percent: None,
        ..forecast.clone()
    };
    match kind {
        UsageNoticeKind::Forecast => forecast,
        UsageNoticeKind::Spike => UsageNotice { usual_by_now: forecast.used / 3, ..unusual },
        UsageNoticeKind::Silence => UsageNotice {
            used: 0,
            silent_since: Some(Rfc3339(UnixMs(silent_since))),
            usual_per_day: Some(4_800),
            ..unusual
        },
    }
}

/// The sample with which errors of templates are explained.
pub(super) fn sample() -> UsageNotice {
    sample_for(&Sample::example().alert(Percent::new(80).expect("a legal percentage"), SAMPLE_AT))
}

/// A notice of each kind that a template can distinguish: each window, with and without times, and each as a copy.
pub(super) fn samples() -> impl Iterator<Item = (UsageNotice, Labels, AlertPurpose)> {
    let windows = [Window::Day, Window::Week, Window::Month].into_iter().flat_map(|window| {
        let notice = UsageNotice { window, ..sample() };
        let late = UsageNotice { latest_at: None, ..notice.clone() };
        [notice, UsageNotice { expected_at: None, earliest_at: None, ..late.clone() }, late]
    });
    let [spike, silence] = [UsageNoticeKind::Spike, UsageNoticeKind::Silence].map(|kind| of_kind(kind, sample()));
    let unlimited = [&spike, &silence].map(|notice| UsageNotice { limit: None, ..notice.clone() });
    let notices = windows.chain(unlimited).chain([spike, silence]);
    notices.flat_map(|notice| {
        let kinds = [AlertPurpose::Copy, AlertPurpose::Test].map(|purpose| (purpose, Labels::default()));
        let kinds = kinds.into_iter().chain([(AlertPurpose::Alert, Labels::sample())]);
        kinds.map(move |(purpose, labels)| (notice.clone(), labels, purpose))
    })
}
