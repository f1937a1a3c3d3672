//! The variables of the texts about the end of alerts, and the samples that check their templates. Pure.

use minijinja::{Value, context};

use super::channel::AlertPurpose;
use super::labels::Labels;
use super::sample::{SAMPLE_AT, Sample};
use super::templating::{local, local_or_empty, threshold_value};
use crate::types::alert::used_percent;
use crate::types::resolved_notice::QuotaNow;
use crate::types::text::printable;
use crate::types::timestamp::Rfc3339;
use crate::types::{Alert, AlertEnd, EndReason, Percent, ResolvedNotice, ResolvedScope, Threshold, Window};

/// The variables of a template. They are documented in `templates/resolved.txt`.
pub(super) fn variables(notice: &ResolvedNotice, labels: &Labels, purpose: AlertPurpose) -> Value {
    let limit = notice.limit.unwrap_or_default();
    context! {
        reason => notice.reason.as_str(),
        resolved_at => local(notice.resolved_at.0, &notice.timezone),
        thresholds => notice.thresholds.iter().map(|threshold| threshold_value(*threshold)).collect::<Vec<_>>(),
        period => notice.period.to_string(),
        used => notice.used,
        limit => limit,
        used_percent => used_percent(notice.used, limit),
        resets_at => local_or_empty(notice.resets_at.map(|end| end.0), &notice.timezone),
        raised_at => local(notice.raised_at.0, &notice.timezone),
        copy => purpose == AlertPurpose::Copy,
        test => purpose == AlertPurpose::Test,
        ..labels.variables(notice, printable)
    }
}

/// The sample for `preview`: a higher limit ended this alert and one at 80 %.
pub(super) fn sample_for(alert: &Alert) -> ResolvedNotice {
    let lower: Threshold = Percent::new(80).expect("a legal percentage").into();
    let lower = Alert { threshold: lower, threshold_units: 0, ..alert.clone() };
    let alerts = if lower.threshold == alert.threshold { vec![alert] } else { vec![&lower, alert] };
    let at = Rfc3339(alert.raised_at_ms);
    let quota = QuotaNow {
        used: alert.used,
        limit: Some(alert.limit * 2),
        plan: &alert.plan,
        timezone: &alert.timezone,
        resets_at: alert.resets_at,
        now: at,
    };
    let end = AlertEnd { reason: EndReason::LimitRaised, at };
    ResolvedNotice::new(ResolvedScope::Quota, &alerts, end, quota).expect("it has alerts")
}

/// The sample with which errors of templates are explained.
pub(super) fn sample() -> ResolvedNotice {
    sample_for(&Sample::example().alert(Percent::new(100).expect("a legal percentage"), SAMPLE_AT))
}

/// A notice of each kind that a template can distinguish: each reason and window, with and without a limit, thresholds
/// in units, and each as a copy.
pub(super) fn samples() -> impl Iterator<Item = (ResolvedNotice, Labels, AlertPurpose)> {
    let notices = EndReason::ALL.into_iter().flat_map(|reason| {
        Window::ALL.into_iter().flat_map(move |window| {
            let resets_at = sample().resets_at.filter(|_| window != Window::Total);
            let notice = ResolvedNotice { reason, window, resets_at, ..sample() };
            let units = ["used:4000", "remaining:1000"].into_iter().filter_map(|text| text.parse().ok());
            [ResolvedNotice { limit: None, thresholds: units.collect(), ..notice.clone() }, notice]
        })
    });
    notices.flat_map(|notice| {
        let kinds = [AlertPurpose::Copy, AlertPurpose::Test].map(|purpose| (purpose, Labels::default()));
        let kinds = kinds.into_iter().chain([(AlertPurpose::Alert, Labels::sample())]);
        kinds.map(move |(purpose, labels)| (notice.clone(), labels, purpose))
    })
}
