//! Explains what a delivery carries, and why that was raised. Pure.

use crate::types::{
    Alert, AlertEnd, AlertStatus, EndReason, GrantNotice, MetricFormat, NotificationKind, ResolvedNotice,
    ResolvedScope, Threshold, UsageNotice, UsageNoticeKind,
};
use crate::views::DeliveryDetailView;
use crate::views::deliveries::DisabledContactView;

/// Number of sentences of [`crossing`] about an alert whose state is not known.
pub(super) const CROSSING: usize = 2;

/// Explains why the alert was raised, and its state.
pub(super) fn crossing(alert: &Alert, of: &MetricFormat, stream: &str) -> Vec<String> {
    let Alert { id, subject, metric, window, period, threshold, threshold_units, limit, .. } = alert;
    let Alert { plan, timezone, used_before, used, first_entry, last_entry, raised_at_ms, .. } = alert;
    let raised: [String; CROSSING] = [
        format!(
            "{subject} reached {} of {} of {} {}: the count went from {} to {}, and {} {} needed.",
            threshold_name(*threshold, of),
            of.counted(*limit),
            of.labelled(metric),
            match period.has_end() {
                true => format!("in the {window} {period} ({timezone})"),
                false => "in total".to_owned(),
            },
            of.amount(*used_before),
            of.amount(*used),
            of.amount(*threshold_units),
            if *threshold_units == 1 { "was" } else { "were" }
        ),
        format!(
            "The commit of the entries {first_entry} to {last_entry} of {stream} raised alert {id} at {raised_at_ms}, under plan \
             {plan}."
        ),
    ];
    raised.into_iter().chain(alert.status.map(status)).collect()
}

/// `80%`, `the threshold used 5,000`.
pub(super) fn threshold_name(threshold: Threshold, of: &MetricFormat) -> String {
    match threshold {
        Threshold::Percent(_) => of.threshold(threshold),
        Threshold::Used(_) | Threshold::Remaining(_) => format!("the threshold {}", of.threshold(threshold)),
    }
}

/// Explains contents other than an alert or a request for consent.
pub(super) fn notice(detail: &DeliveryDetailView, of: &MetricFormat) -> Option<String> {
    match (detail.delivery.r#type, &detail.disabled_contact) {
        (NotificationKind::ContactDisabled, Some(DisabledContactView { id, channel, address, disabled })) => {
            Some(format!(
                "It is no alert but a notice: contact {id} ({} {address}) of {} was disabled at {}, because {} ({}).",
                channel.as_str(),
                detail.delivery.subject,
                disabled.at,
                disabled.reason.sentence(),
                disabled.detail
            ))
        }
        (NotificationKind::ContactDisabled, None) => {
            Some("It is no alert but a notice: a contact of the subject was disabled.".to_owned())
        }
        (NotificationKind::GrantExpires, _) => detail.grant_notice.as_ref().map(|notice| expiring_grant(notice, of)),
        (NotificationKind::Usage, _) => detail.usage_notice.as_ref().map(|notice| usage(notice, of)),
        (NotificationKind::Resolved, _) => detail.resolved_notice.as_ref().map(|notice| resolved(notice, of)),
        (NotificationKind::Digest, _) => {
            Some("It is no alert but the operator's digest of a day: what did not reach anybody.".to_owned())
        }
        (NotificationKind::Alert | NotificationKind::Verification, _) => None,
    }
}

/// Explains why a notice of usage was raised.
fn usage(notice: &UsageNotice, of: &MetricFormat) -> String {
    let UsageNotice { id, kind, subject, window, period, used, usual_by_now, raised_at, .. } = notice;
    let metric = of.labelled(&notice.metric);
    let why = match kind {
        UsageNoticeKind::Forecast => format!(
            "the limit of {} of {metric} in the {window} {period} would probably be reached ({}%{})",
            of.counted(notice.limit.unwrap_or_default()),
            notice.probability_percent.unwrap_or_default(),
            notice.expected_at.map(|at| format!(", at about {at}")).unwrap_or_default()
        ),
        UsageNoticeKind::Spike => format!("usage of {metric} in the {window} {period} was far above the usual"),
        UsageNoticeKind::Silence => {
            let since = notice.silent_since.map(|at| at.to_string()).unwrap_or_default();
            let usual = of.counted(of.rounded(notice.usual_per_day.unwrap_or_default()));
            return format!(
                "It is no alert but a notice: at {raised_at}, {subject} had used no {metric} since {since}, and {usual} a \
                 day are usual. Its id is {id}."
            );
        }
    };
    let (used, usual_by_now) = (of.amount(*used), of.amount(of.rounded(*usual_by_now)));
    format!(
        "It is no alert but a notice: at {raised_at}, {why}; {subject} had used {used}, and usually uses \
         {usual_by_now} by that time. Its id is {id}."
    )
}

/// Explains why the end of alerts was raised.
fn resolved(notice: &ResolvedNotice, of: &MetricFormat) -> String {
    let ResolvedNotice { id, scope, subject, window, period, thresholds, used, .. } = notice;
    let metric = of.labelled(&notice.metric);
    let what = match scope {
        ResolvedScope::Quota => "the last open alert",
        ResolvedScope::Alert => "the alert",
    };
    let thresholds: Vec<String> = thresholds.iter().map(|threshold| threshold_name(*threshold, of)).collect();
    format!(
        "It is no alert but an end: at {}, {what} of {subject} ({metric}, {window} {period}) at {} had ended, because {}; \
         {} were used. Its id is {id}.",
        notice.resolved_at,
        thresholds.join(" and "),
        ended_because(notice.reason),
        of.amount(*used),
    )
}

/// Explains the state of an alert.
pub(super) fn status(AlertStatus { end, .. }: AlertStatus) -> String {
    match end {
        Some(AlertEnd { reason, at }) => format!("It ended at {at}, because {}.", ended_because(reason)),
        None => "It is open: the count is at or above the threshold.".to_owned(),
    }
}

/// Why an alert has ended, as part of a sentence.
const fn ended_because(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Reset => "the period was over",
        EndReason::LimitRaised => "a higher limit or a grant put the count below the threshold",
        EndReason::Credited => "a credit put the count below the threshold",
    }
}

/// Explains why the notice before units of a grant expire was raised.
fn expiring_grant(notice: &GrantNotice, of: &MetricFormat) -> String {
    let GrantNotice { id, subject, window, grant, units, remaining, expires_at, raised_at, .. } = notice;
    let metric = of.labelled(&notice.metric);
    format!(
        "It is no alert but a notice: {} of {} of grant {grant} of {subject} ({metric}, {window}) were left at \
         {raised_at} and expire at {expires_at}. Its id is {id}.",
        of.amount(*remaining),
        of.counted(units.get()),
    )
}
