//! What is said of a subject: what it used, what is missing for the next alert, and who would hear of it. Pure.

use super::daemons::{LiveDaemons, SENDS_NOTHING};
use super::delivery::nobody;
use crate::contacts::Contact;
use crate::contacts::resolver::{ContactsSource, ResolvedContacts};
use crate::ledger::thresholds::thresholds_of;
use crate::outbox::Pause;
use crate::subjects::SubjectMutes;
use crate::types::{AlertId, Channel, Metric, Percent, Units};
use crate::views::usage::WindowUsageView;
use crate::views::{DeliveryView, UsageView};

/// What was read of a subject.
pub(super) struct SubjectFacts<'a> {
    pub(super) usage: &'a UsageView,
    /// Those that are kept.
    pub(super) deliveries: &'a [DeliveryView],
    /// Whether its limits are known; where they can't be read, a daemon may judge by the last good ones.
    pub(super) has_known_limits: bool,
    pub(super) thresholds: &'a [Percent],
    pub(super) mutes: &'a SubjectMutes,
    pub(super) contacts: &'a ResolvedContacts,
    /// Entries of its stream that are not counted yet.
    pub(super) lag: u64,
    pub(super) pause: Option<Pause>,
    pub(super) daemons: LiveDaemons,
}

/// All that is said of it.
pub(super) fn sentences(facts: &SubjectFacts<'_>) -> Vec<String> {
    let UsageView { subject, plan, timezone, metrics, unreadable } = facts.usage;
    let mut said = vec![format!("{subject} has plan {plan} and the time zone {timezone}.")];
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
        said.push(format!("{} entries of its stream are not counted yet.", facts.lag));
    }
    said.extend(unreadable.iter().map(|error| format!("Its {error}.")));
    if !facts.has_known_limits {
        said.push(
            "Until that is mended, alerts follow the last good values, and where the daemon has none, nothing is alerted."
                .to_owned(),
        );
    }
    for metric in metrics {
        for window in &metric.windows {
            said.extend(of_window(&metric.metric, window, facts));
        }
    }
    if metrics.is_empty() {
        said.push("It has used nothing, and no limit holds for it. `quotabell refused list` shows events that could not be counted.".to_owned());
    }
    said.extend(facts.mutes.parts().map(|part| format!("Now {part}: alerts are recorded and not sent.")));
    said.push(recipients(facts.contacts));
    if facts.pause.is_some() {
        said.push("All sending is paused: nothing leaves until `quotabell deliveries resume`.".to_owned());
    }
    said
}

/// What was used in a period, what was raised, and what is missing for the next alert.
fn of_window(metric: &Metric, window: &WindowUsageView, facts: &SubjectFacts<'_>) -> Vec<String> {
    let WindowUsageView { period, used, limit, alerts, resets_at, .. } = window;
    let (name, used) = (window.window.as_str(), used.unwrap_or_default());
    let Some(limit) = limit.and_then(Units::new) else {
        return vec![format!(
            "It has used {used} units of {metric} in the {name} {period}; no limit holds, so nothing is alerted."
        )];
    };
    let percent = window.used_percent.unwrap_or_default();
    let mut said = vec![format!(
        "It has used {used} of {limit} units of {metric} ({percent}%) in the {name} {period}, which ends at {resets_at}."
    )];
    for alert in alerts {
        said.push(format!(
            "Alert {} was raised at {}: {}% was reached.",
            alert.id, alert.raised_at, alert.threshold_percent
        ));
        said.push(told(&alert.id, facts.deliveries));
    }
    if !facts.has_known_limits {
        // By which limit the next event is judged, only the daemon knows.
        return said;
    }
    let next = thresholds_of(limit, facts.thresholds).into_iter().find(|threshold| threshold.units > used);
    said.push(match next {
        Some(threshold) => format!(
            "The next alert is due at {}%, which is {} units: {} more {} needed.",
            threshold.percent,
            threshold.units,
            threshold.units - used,
            if threshold.units - used == 1 { "is" } else { "are" }
        ),
        None if alerts.is_empty() => {
            "Every threshold is reached and none was raised: an alert is raised with the next event that is counted."
                .to_owned()
        }
        None => "Every threshold is reached; the next alert is of the next period, or of a higher limit.".to_owned(),
    });
    said
}

/// What became of an alert, in short: one word for each of its deliveries.
fn told(alert: &AlertId, deliveries: &[DeliveryView]) -> String {
    let of_it = deliveries.iter().filter(|delivery| delivery.alert_id.as_ref() == Some(alert));
    let said: Vec<String> = of_it
        .map(|delivery| {
            let DeliveryView { contact_id, channel, state, last_error, .. } = delivery;
            let why = last_error.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
            match channel {
                Channel::None => format!("to nobody yet: {state}"),
                channel => format!("to {contact_id} ({}): {state}{why}", channel.as_str()),
            }
        })
        .collect();
    match said.is_empty() {
        true => format!("No delivery of it is there; `quotabell explain {alert}` says why."),
        false => format!("Its deliveries: {}; `quotabell explain {alert}` says more.", said.join(", ")),
    }
}

fn recipients(contacts: &ResolvedContacts) -> String {
    let own = match contacts.readable.is_empty() {
        true if contacts.operator.is_empty() => format!("Nobody would hear of an alert: {}.", nobody(contacts)),
        true => format!("Nobody but the operator would hear of an alert: {}.", nobody(contacts)),
        false => {
            let whose = match contacts.source {
                ContactsSource::Own => "its contacts",
                ContactsSource::Fallback => "the fallback contacts, since it has none of its own that could be used,",
            };
            format!("Its alerts go to {whose} {}.", named(&contacts.readable))
        }
    };
    let disabled = match contacts.disabled.as_slice() {
        [] => String::new(),
        _ if contacts.readable.is_empty() => String::new(),
        disabled => format!(" Nothing goes to what is disabled: {}.", named(disabled)),
    };
    format!("{own}{disabled}")
}

/// Ids and channels.
fn named(contacts: &[Contact]) -> String {
    let named = contacts.iter().map(|contact| format!("{} ({})", contact.id, contact.channel().as_str()));
    named.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contacts::OperatorContact;

    /// Who is told "nobody" looks for a mistake where the operator was told, and a disabled contact beside others must
    /// not be overlooked.
    #[test]
    fn the_operator_and_disabled_contacts_are_named() {
        let nobody = ResolvedContacts::default();
        assert!(recipients(&nobody).starts_with("Nobody would hear"));
        let contact = Contact::email("ops@b.test");
        let operator = [OperatorContact { contact, plans: Vec::new(), notices: true }].into();
        assert!(recipients(&ResolvedContacts { operator, ..nobody }).starts_with("Nobody but the operator would hear"));
        let (well, gone) = (Contact::email("a@b.test"), Contact::email("gone@b.test"));
        let said = format!(
            "Its alerts go to its contacts {} (email). Nothing goes to what is disabled: {} (email).",
            well.id, gone.id
        );
        let both = ResolvedContacts { readable: vec![well], disabled: vec![gone], ..ResolvedContacts::default() };
        assert_eq!(recipients(&both), said);
    }
}
