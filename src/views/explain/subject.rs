//! Explains a subject: its usage, the distance to the next alert, and who would get it. Pure.

use super::content::{status, threshold_name};
use super::daemons::{LiveDaemons, SENDS_NOTHING};
use super::delivery::{no_recipient_reason, paused};
use crate::contacts::Contact;
use crate::contacts::resolver::{ContactsSource, ResolvedContacts};
use crate::ledger::thresholds::{LimitThreshold, thresholds_of};
use crate::outbox::Pause;
use crate::subjects::{RefuseAt, SubjectMutes};
use crate::types::text::pluralize;
use crate::types::{Alert, AlertId, Channel, ContactFilter, DeliveryState, LimitUnits, Threshold, Units, UnixMs};
use crate::views::usage::{MetricUsageView, WindowUsageView};
use crate::views::{DeliveryView, UsageView};

/// Number of the newest deliveries of a subject that are read for the summaries of its alerts.
pub(super) const DELIVERIES_MAX: usize = 500;

pub(super) struct SubjectFacts<'a> {
    pub(super) usage: &'a UsageView,
    /// The usage of the levels above it, the nearest first, with the share of their limits at which checks refuse.
    pub(super) above: &'a [(UsageView, RefuseAt)],
    /// Whether it has stored data.
    pub(super) is_known: bool,
    /// The newest of its stored deliveries, at most [`DELIVERIES_MAX`].
    pub(super) deliveries: &'a [DeliveryView],
    /// Whether its limits are known. If they can't be read, the daemon may use the last good ones.
    pub(super) has_known_limits: bool,
    pub(super) thresholds: &'a [Threshold],
    pub(super) mutes: &'a SubjectMutes,
    pub(super) contacts: &'a ResolvedContacts,
    pub(super) now: UnixMs,
    /// Number of entries of its stream that are not counted yet.
    pub(super) lag: u64,
    /// Number of its events among the newest refused ones.
    pub(super) refused: usize,
    pub(super) pause: Option<&'a Pause>,
    pub(super) daemons: LiveDaemons,
}

/// All sentences.
pub(super) fn sentences(facts: &SubjectFacts<'_>) -> Vec<String> {
    let UsageView { subject, name, plan, timezone, metrics, unreadable } = facts.usage;
    let mut said = Vec::new();
    if !facts.is_known {
        said.push(format!(
            "Nothing is stored of {subject}: no settings, counts, alerts or deliveries. The rest applies to any \
                subject that appears under \
             this name."
        ));
    }
    let name = name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    said.push(format!("{subject}{name} has plan {plan} and the time zone {timezone}."));
    match facts.daemons {
        LiveDaemons::None => {
            said.push(
                "No daemon runs on this stream: nothing is counted and nothing is sent until one does.".to_owned(),
            );
        }
        LiveDaemons::ReadingOnly => said.push(SENDS_NOTHING.to_owned()),
        LiveDaemons::Sending => {}
    }
    if facts.lag > 0 {
        let entries = pluralize(facts.lag, "entry of its stream is", "entries of its stream are");
        said.push(format!("{entries} not counted yet."));
    }
    said.extend(unreadable.iter().map(|error| format!("Its {error}.")));
    if !facts.has_known_limits {
        said.push(
            "Until that is corrected, alerts follow the last good values; without those, no alert is raised."
                .to_owned(),
        );
    }
    for metric in metrics {
        for window in &metric.windows {
            said.extend(of_window(metric, window, facts));
        }
    }
    if metrics.is_empty() {
        said.push("It has used nothing, and no limit holds for it.".to_owned());
    }
    said.extend(facts.above.iter().flat_map(|(level, refuse_at)| exhausted(level, *refuse_at)));
    if facts.refused > 0 {
        let events = pluralize(facts.refused, "event of it is", "events of it are");
        said.push(format!(
            "{events} among the newest that could not be counted: `quotabell refused list --subject {subject}` shows why."
        ));
    }
    said.extend(facts.mutes.parts().map(|part| format!("Now {part}: alerts are recorded and not sent.")));
    said.extend(recipients(facts.contacts, facts.now));
    said.extend(facts.pause.map(paused));
    said
}

/// The limits of a level above that let no check through.
fn exhausted(level: &UsageView, refuse_at: RefuseAt) -> Vec<String> {
    let of_window = |MetricUsageView { metric, format, .. }: &MetricUsageView, window: &WindowUsageView| {
        let (used, limit) = (window.used.unwrap_or_default(), LimitUnits::default().plus(window.limit?));
        let span = match window.resets_at {
            Some(_) => format!("in the {} {}", window.window, window.period),
            None => "in total".to_owned(),
        };
        (used >= refuse_at.units_max(limit)).then(|| {
            format!(
                "The level {} above it refuses checks: that level has used {} of {} of {} {span}.",
                level.subject,
                format.amount(used),
                format.counted(limit.get()),
                format.labelled(metric)
            )
        })
    };
    let windows = |metric: &MetricUsageView| {
        metric.windows.iter().filter_map(|window| of_window(metric, window)).collect::<Vec<_>>()
    };
    level.metrics.iter().flat_map(windows).collect()
}

/// Explains the usage in a period, the raised alerts, and the distance to the next alert.
fn of_window(
    MetricUsageView { metric, format, .. }: &MetricUsageView,
    window: &WindowUsageView,
    facts: &SubjectFacts<'_>,
) -> Vec<String> {
    let WindowUsageView { period, used, limit, alerts, resets_at, .. } = window;
    let used = used.unwrap_or_default();
    let (span, name) = match (window.window, resets_at) {
        (window, Some(_)) => (format!("in the {window} {period}"), format!("in the {window}")),
        (_, None) => ("in total".to_owned(), "in total".to_owned()),
    };
    let Some(limit) = limit.and_then(Units::new) else {
        let why = match window.limit {
            Some(_) => "the limit is 0 until units are granted, so no alert is raised and checks refuse",
            None => "no limit applies, so no alert is raised",
        };
        return vec![format!("It has used {} of {} {span}; {why}.", format.counted(used), format.labelled(metric))];
    };
    let percent = window.used_percent.unwrap_or_default();
    let mut said = vec![format!(
        "It has used {} of {} of {} ({percent}%) {span}{}.",
        format.amount(used),
        format.counted(limit.get()),
        format.labelled(metric),
        resets_at.map(|end| format!(", which ends at {end}")).unwrap_or_default()
    )];
    let forecast = window.forecast.as_ref();
    let forecast = forecast.and_then(|forecast| forecast.sentence(&facts.usage.subject, metric, format, limit.get()));
    said.extend(forecast.map(|sentence| format!("{sentence}.")));
    said.extend(window.granted.map(|granted| {
        let are = if granted == 1 { "is" } else { "are" };
        let added = format!("{} of that limit {are}", format.counted(granted));
        format!("{added} granted: `quotabell grant list {}` shows what is left.", facts.usage.subject)
    }));
    let mut in_order: Vec<&Alert> = alerts.iter().collect();
    in_order.sort_by_key(|alert| (alert.raised_at_ms, alert.threshold_units));
    for alert in in_order {
        let Alert { id, raised_at_ms, threshold, threshold_units, limit, .. } = alert;
        said.push(format!(
            "Alert {id} was raised at {raised_at_ms}: {} of the limit of {} {name} was reached, which is {}.",
            threshold_name(*threshold, format),
            format.counted(*limit),
            format.amount(*threshold_units)
        ));
        said.extend(alert.status.filter(|status| status.end.is_some()).map(status));
        said.push(summary(&alert.id, facts.deliveries));
    }
    if !facts.has_known_limits {
        // Only the daemon knows the limit for the next event.
        return said;
    }
    let thresholds = thresholds_of(limit, facts.thresholds);
    let is_raised = |threshold: &&LimitThreshold| alerts.iter().any(|alert| alert.threshold == threshold.threshold);
    let due: Vec<_> = thresholds.iter().filter(|of| of.units <= used && !is_raised(of)).collect();
    said.extend(due.iter().map(|due| {
        let name = threshold_name(due.threshold, format);
        format!("An alert at {name} is due: it is raised with the next event that is counted.")
    }));
    let next = thresholds.iter().find(|threshold| threshold.units > used && may_be_raised(threshold, alerts));
    said.extend(match next {
        Some(threshold) => Some(format!(
            "The next alert is due at {}, which is {}: {} more {} needed.",
            threshold_name(threshold.threshold, format),
            format.counted(threshold.units),
            format.amount(threshold.units - used),
            if threshold.units - used == 1 { "is" } else { "are" }
        )),
        None if thresholds.is_empty() => Some("No threshold can be reached, so no alert is raised.".to_owned()),
        None if !due.is_empty() => None,
        None => {
            let is_ahead = thresholds.iter().any(|threshold| threshold.units > used);
            let reached =
                if is_ahead { "Every threshold ahead was raised before" } else { "Every threshold is reached" };
            // Under a higher limit, the same units are used.
            let depends_on_limit = facts.thresholds.iter().any(|of| !matches!(of, Threshold::Used(_)));
            Some(match (period.has_end(), depends_on_limit) {
                (true, true) => format!("{reached}; the next alert comes in the next period, or with a higher limit."),
                (true, false) => format!("{reached}; the next alert comes in the next period."),
                (false, true) => format!("{reached}; the next alert comes with a higher limit."),
                (false, false) => format!("{reached}, so no alert is raised any more."),
            })
        }
    });
    let never_due = facts.thresholds.iter().filter(|threshold| threshold.units_of(limit).is_none());
    said.extend(never_due.map(|threshold| {
        let limit = format.counted(limit.get());
        format!("The threshold {} is never due {name}: the limit is {limit}.", format.threshold(*threshold))
    }));
    said
}

/// Whether a crossing raises the threshold's alert, given the earlier alerts of the period.
fn may_be_raised(threshold: &LimitThreshold, alerts: &[Alert]) -> bool {
    let raised = || alerts.iter().filter(|alert| alert.threshold == threshold.threshold);
    let newest = raised().max_by_key(|alert| alert.threshold_units);
    newest.is_none_or(|newest| threshold.may_follow(newest, raised().count() - 1))
}

/// Summarizes an alert: one word for each of its deliveries.
fn summary(alert: &AlertId, deliveries: &[DeliveryView]) -> String {
    let of_it = deliveries.iter().filter(|delivery| delivery.alert_id.as_ref() == Some(alert));
    let said: Vec<String> = of_it
        .map(|delivery| {
            let DeliveryView { contact_id, channel, state, last_error, .. } = delivery;
            // A delivery keeps the error of an attempt before the one that worked.
            let why = last_error.as_ref().filter(|_| *state != DeliveryState::Delivered);
            let why = why.map_or_else(String::new, |why| format!(" ({why})"));
            match channel {
                Channel::None => to_nobody(*state),
                channel => format!("to {contact_id} ({}): {state}{why}", channel.as_str()),
            }
        })
        .collect();
    match said.is_empty() {
        true if deliveries.len() >= DELIVERIES_MAX => {
            format!("None of the newest {DELIVERIES_MAX} deliveries is of it; `quotabell explain {alert}` says more.")
        }
        true => format!("No delivery of it is there; `quotabell explain {alert}` says why."),
        false => format!("Its deliveries: {}; `quotabell explain {alert}` says more.", said.join(", ")),
    }
}

/// Summarizes an alert that waited for a contact.
fn to_nobody(state: DeliveryState) -> String {
    let yet = if state == DeliveryState::Pending { " yet" } else { "" };
    format!("to nobody{yet}: {state}")
}

/// Explains who gets an alert, and which contacts get nothing.
fn recipients(contacts: &ResolvedContacts, now: UnixMs) -> Vec<String> {
    let ResolvedContacts { readable, disabled, unverified, .. } = contacts;
    let (muted, unmuted): (Vec<&Contact>, Vec<&Contact>) =
        readable.iter().partition(|contact| contact.muted_at(now).is_some());
    let nobody_but = if contacts.operator.is_empty() { "Nobody" } else { "Nobody but the operator" };
    let whose = match contacts.source {
        ContactsSource::Own => "its contacts",
        ContactsSource::Fallback => "the fallback contacts (it has none of its own that could be used):",
    };
    let mut said = vec![match (unmuted.as_slice(), muted.as_slice()) {
        ([], []) => format!("{nobody_but} would hear of an alert: {}.", no_recipient_reason(contacts)),
        ([], _) => format!("{nobody_but} would hear of an alert: all of its contacts are muted."),
        (unmuted, _) => {
            let named = unmuted.iter().map(|contact| with_filter(contact)).collect::<Vec<_>>().join(", ");
            format!("Its alerts go to {whose} {named}.")
        }
    }];
    said.extend(muted.into_iter().filter_map(|contact| {
        let mute = contact.muted_at(now)?;
        Some(format!("Nothing goes to {}: it is {mute}.", named(contact)))
    }));
    // If nobody else gets it, the first sentence lists these.
    let disabled = if readable.is_empty() { &[] } else { disabled.as_slice() };
    said.extend(disabled.iter().filter_map(|contact| {
        let state = contact.disabled.as_ref()?;
        let why = state.reason.sentence();
        Some(format!(
            "Nothing goes to {}: it is disabled, because {why} ({}); `quotabell contact enable` takes it back.",
            named(contact),
            state.detail
        ))
    }));
    if !unverified.is_empty() && !readable.is_empty() {
        let ids = unverified.iter().map(|contact| contact.id.as_str()).collect::<Vec<_>>().join(", ");
        said.push(format!("Nothing goes to contacts that are not confirmed: {ids}."));
    }
    said
}

/// A contact, with its filter if there is one.
pub(super) fn with_filter(contact: &Contact) -> String {
    match contact.filter == ContactFilter::default() {
        true => named(contact),
        false => format!("{} ({}, hears {})", contact.id, contact.channel().as_str(), contact.filter.summary()),
    }
}

fn named(contact: &Contact) -> String {
    format!("{} ({})", contact.id, contact.channel().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contacts::OperatorContact;
    use crate::types::{ContactId, DisableReason, DisabledState, Mute};

    const NOW: UnixMs = UnixMs(1_795_250_000_123);

    /// A reader who is told "nobody" would look for a mistake although the operator gets the alert.
    #[test]
    fn the_operator_is_named_where_nobody_else_hears() {
        let nobody = ResolvedContacts::default();
        assert!(recipients(&nobody, NOW)[0].starts_with("Nobody would hear"));
        let contact = Contact::email("ops@b.test");
        let operator = [OperatorContact { contact, plans: Vec::new(), notices: true }].into();
        let told = recipients(&ResolvedContacts { operator, ..nobody }, NOW);
        assert!(told[0].starts_with("Nobody but the operator would hear"), "{told:?}");
    }

    /// A reader of "yet" waits for something.
    #[test]
    fn what_has_ended_is_told_to_nobody_for_good() {
        let told = [DeliveryState::Pending, DeliveryState::Cancelled].map(to_nobody);
        assert_eq!(told, ["to nobody yet: pending", "to nobody: cancelled"]);
    }

    /// The explanation must not say that alerts go to a contact that gets nothing.
    #[test]
    fn contacts_that_hear_nothing_are_named_with_the_reason() {
        let (well, gone) = (Contact::email("a@b.test"), Contact::email("gone@b.test"));
        let state = DisabledState { reason: DisableReason::NoMailbox, detail: "550".to_owned(), at: NOW };
        let gone = Contact { disabled: Some(state), ..gone };
        let mute = Mute { until: Some(NOW.plus(1)), reason: Some("new office".to_owned()) };
        let muted = Contact { mute: Some(mute.clone()), ..Contact::email("muted@b.test") };
        let over = Mute { until: Some(NOW), reason: None };
        let over = Contact { mute: Some(over), ..Contact::email("over@b.test") };
        let unverified = vec![Contact { id: ContactId::from_stored("c_new"), ..Contact::email("new@b.test") }];
        let contacts = ResolvedContacts {
            readable: vec![well.clone(), muted.clone(), over.clone()],
            disabled: vec![gone.clone()],
            unverified,
            ..ResolvedContacts::default()
        };
        let expected = [
            format!("Its alerts go to its contacts {} (email), {} (email).", well.id, over.id),
            format!("Nothing goes to {} (email): it is {mute}.", muted.id),
            format!(
                "Nothing goes to {} (email): it is disabled, because the mail server knows no such mailbox (550); \
                 `quotabell contact enable` takes it back.",
                gone.id
            ),
            "Nothing goes to contacts that are not confirmed: c_new.".to_owned(),
        ];
        assert_eq!(recipients(&contacts, NOW), expected);
        let all_muted = ResolvedContacts { readable: vec![muted], ..ResolvedContacts::default() };
        let told = recipients(&all_muted, NOW);
        assert_eq!(
            (told[0].as_str(), told.len()),
            ("Nobody would hear of an alert: all of its contacts are muted.", 2)
        );
    }
}
