//! Explains what a delivery carries, and why that was raised. Pure.

use crate::types::{Alert, GrantNotice, MetricFormat, NotificationKind, Threshold, UsageNotice, UsageNoticeKind};
use crate::views::DeliveryDetailView;
use crate::views::deliveries::DisabledContactView;

/// Number of sentences of [`crossing`].
pub(super) const CROSSING: usize = 2;

/// Explains why the alert was raised.
pub(super) fn crossing(alert: &Alert, of: &MetricFormat, stream: &str) -> [String; CROSSING] {
    let Alert { id, subject, metric, window, period, threshold, threshold_units, limit, .. } = alert;
    let Alert { plan, timezone, used_before, used, first_entry, last_entry, raised_at_ms, .. } = alert;
    [
        format!(
            "{subject} reached {} of {} of {metric} {}: the count went from {} to {}, and {} {} needed.",
            threshold_name(*threshold),
            of.counted(*limit),
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
    ]
}

/// `80%`, `the threshold used:5000`.
pub(super) fn threshold_name(threshold: Threshold) -> String {
    match threshold {
        Threshold::Percent(_) => threshold.label(),
        Threshold::Used(_) | Threshold::Remaining(_) => format!("the threshold {threshold}"),
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
        (NotificationKind::Digest, _) => {
            Some("It is no alert but the operator's digest of a day: what did not reach anybody.".to_owned())
        }
        (NotificationKind::Alert | NotificationKind::Verification, _) => None,
    }
}

/// Explains why a notice of usage was raised.
fn usage(notice: &UsageNotice, of: &MetricFormat) -> String {
    let UsageNotice { id, kind, subject, metric, window, period, used, usual_by_now, raised_at, .. } = notice;
    let why = match kind {
        UsageNoticeKind::Forecast => format!(
            "the limit of {} of {metric} in the {window} {period} would probably be reached ({}%)",
            of.counted(notice.limit.unwrap_or_default()),
            notice.probability_percent.unwrap_or_default()
        ),
        UsageNoticeKind::Spike => format!("usage of {metric} in the {window} {period} was far above the usual"),
        UsageNoticeKind::Silence => {
            let since = notice.silent_since.map(|at| at.to_string()).unwrap_or_default();
            let usual = of.counted(notice.usual_per_day.unwrap_or_default());
            return format!(
                "It is no alert but a notice: at {raised_at}, {subject} had used no {metric} since {since}, and {usual} a \
                 day are usual. Its id is {id}."
            );
        }
    };
    let (used, usual_by_now) = (of.amount(*used), of.amount(*usual_by_now));
    format!(
        "It is no alert but a notice: at {raised_at}, {why}; {subject} had used {used} and {usual_by_now} are usual by \
         that time. Its id is {id}."
    )
}

/// Explains why the notice before units of a grant expire was raised.
fn expiring_grant(notice: &GrantNotice, of: &MetricFormat) -> String {
    let GrantNotice { id, subject, metric, window, grant, units, remaining, expires_at, raised_at, .. } = notice;
    format!(
        "It is no alert but a notice: {} of {} of grant {grant} of {subject} ({metric}, {window}) were left at \
         {raised_at} and expire at {expires_at}. Its id is {id}.",
        of.amount(*remaining),
        of.counted(units.get()),
    )
}
