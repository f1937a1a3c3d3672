//! Deliveries as rows for people. Reads nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::actions::deliveries::ChangedDelivery;
use crate::subjects::Plans;
use crate::terminal::output::{Output, Table, or_dash, pluralize, rounded};
use crate::terminal::table::Color;
use crate::types::text::grouped;
use crate::types::{Channel, DeliveryState, Destination, Metric, OutcomeClass, UnixMs};
use crate::views::deliveries::{
    AttemptView, DeliveryContactStatus, DeliveryContactView, DestinationView, DisabledContactView,
};
use crate::views::{DeliveryDetailView, DeliveryView, short_id};

/// The state in the output for a dead delivery that an operator discarded.
const DISCARDED: &str = "discarded";
/// The columns of [`action_row`].
pub(super) const ACTION_HEADING: [&str; 2] = ["ID", "RESULT"];
/// Maximum number of open circuits that are named below a list.
const CIRCUITS_NAMED_MAX: usize = 3;

pub(super) fn list_table() -> Table {
    Table::new(&["ID", "AGE", "TYPE", "SUBJECT", "CHANNEL", "STATE", "TRIED", "NEXT DUE", "ERROR"])
        .may_shrink(&["TYPE", "SUBJECT", "ERROR"])
        .shrinks_first("TYPE")
        .colored("STATE", state_color)
}

/// A row of a list, at the time `now`.
pub(super) fn list_row(delivery: &DeliveryView, now: UnixMs) -> Vec<String> {
    let due = NextStep::from_delivery(delivery).map(|next| match next {
        NextStep::Circuit { .. } => "circuit".to_owned(),
        NextStep::Contact { .. } => "contact".to_owned(),
        NextStep::Attempted { .. } => "attempted now".to_owned(),
        NextStep::Attempt { due } => until(due, now),
    });
    let state = if delivery.discarded_at.is_some() { DISCARDED } else { delivery.state.as_str() };
    vec![
        short_id(delivery.id.as_str()).to_owned(),
        rounded(now.since(delivery.created_at.0)),
        delivery.r#type.as_str().to_owned(),
        delivery.subject.clone(),
        delivery.channel.as_str().to_owned(),
        state.to_owned(),
        delivery.attempts.to_string(),
        or_dash(due),
        or_dash(delivery.last_error.as_deref()),
    ]
}

/// What a pending delivery waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextStep {
    /// The circuit of its destination: one delivery is attempted there at this time.
    Circuit { next_probe: UnixMs },
    /// A contact of its subject, until it expires.
    Contact { expires: UnixMs },
    /// The outcome of the attempt that is running.
    Attempted { lease_end: UnixMs },
    /// Its next attempt.
    Attempt { due: UnixMs },
}

impl NextStep {
    /// `None` for a delivery that has ended.
    fn from_delivery(delivery: &DeliveryView) -> Option<Self> {
        let due = delivery.next_due?.0;
        Some(match delivery.next_probe.map(|probe| probe.0) {
            _ if delivery.channel == Channel::None => Self::Contact { expires: due },
            _ if delivery.is_leased => Self::Attempted { lease_end: due },
            Some(next_probe) => Self::Circuit { next_probe },
            None => Self::Attempt { due },
        })
    }

    /// A sentence of `deliveries show`.
    fn summary(self, delivery: &DeliveryView, partitions: u32, now: UnixMs) -> String {
        match self {
            Self::Circuit { next_probe } => format!(
                "behind the open circuit of {}{}: one attempt is made there {}",
                delivery.destination,
                in_partition(delivery.partition, partitions),
                if next_probe <= now { "now".to_owned() } else { format!("at {next_probe}") }
            ),
            Self::Contact { .. } if delivery.period.is_some_and(|period| !period.has_end()) => {
                "once the subject has a contact".to_owned()
            }
            Self::Contact { expires } => format!("once the subject has a contact; expires at {expires}"),
            Self::Attempted { lease_end } => {
                format!("it is being attempted; if nothing is recorded, again at {lease_end}, when its lease ends")
            }
            Self::Attempt { due } if due <= now => format!("now, since {due}"),
            Self::Attempt { due } => due.to_string(),
        }
    }
}

/// When the next attempt passes each open circuit, by destination and partition: each partition has its own circuits.
pub(super) type OpenCircuits = BTreeMap<(Destination, u32), UnixMs>;

/// The open circuits for which listed deliveries wait.
pub(super) fn circuits_of(listed: &[DeliveryView]) -> OpenCircuits {
    let waits = listed.iter().filter_map(|delivery| match NextStep::from_delivery(delivery)? {
        NextStep::Circuit { next_probe } => Some(((delivery.destination.clone(), delivery.partition), next_probe)),
        NextStep::Contact { .. } | NextStep::Attempted { .. } | NextStep::Attempt { .. } => None,
    });
    waits.collect()
}

/// Sentences about open circuits, with the time of the next attempt through each.
pub(super) fn open_circuits(circuits: &OpenCircuits, partitions: u32, now: UnixMs) -> Vec<String> {
    let told = |((destination, partition), probe): (&(Destination, u32), &UnixMs)| {
        let of = in_partition(*partition, partitions);
        format!("the circuit of {destination}{of} is open: one attempt is made there {}", until(*probe, now))
    };
    let mut said: Vec<String> = circuits.iter().take(CIRCUITS_NAMED_MAX).map(told).collect();
    if circuits.len() > CIRCUITS_NAMED_MAX {
        let more = circuits.len() - CIRCUITS_NAMED_MAX;
        let more = pluralize(more, "more circuit is", "more circuits are");
        said.push(format!("and {more} open: `quotabell deliveries destinations` shows them"));
    }
    said
}

/// Names the partition, if there are several.
fn in_partition(partition: u32, partitions: u32) -> String {
    if partitions == 1 { String::new() } else { format!(" in partition {partition}") }
}

fn state_color(state: &str) -> Option<Color> {
    if state == DISCARDED {
        return Some(Color::Gray);
    }
    Some(match DeliveryState::from_stored(state)? {
        DeliveryState::Pending => Color::Yellow,
        DeliveryState::Delivered => Color::Green,
        DeliveryState::Dead => Color::Red,
        DeliveryState::Muted | DeliveryState::Expired | DeliveryState::Cancelled => Color::Gray,
    })
}

/// Prints one delivery at the time `now`: its recipient, its contents, its state, and its attempts.
pub(super) fn print_detail(
    detail: &DeliveryDetailView,
    partitions: u32,
    (now, plans): (UnixMs, &Plans),
    output: &mut Output,
) -> anyhow::Result<()> {
    let amount = |metric: &Metric, count: u64| plans.format_of(metric).amount(count);
    let delivery = &detail.delivery;
    let mut pairs = vec![
        ("id", delivery.id.to_string()),
        ("type", delivery.r#type.to_string()),
        ("state", delivery.state.to_string()),
        ("subject", delivery.subject.clone()),
        ("channel", delivery.channel.as_str().to_owned()),
        ("destination", delivery.destination.to_string()),
        ("contact", or_dash(detail.contact.as_ref().map(contact))),
    ];
    if let Some(id) = &delivery.alert_id {
        pairs.push(("alert", id.to_string()));
    }
    if let Some(message) = &delivery.sent_in {
        pairs.push(("sent in", message.clone()));
    }
    if let Some(request) = &detail.verification {
        pairs.extend([
            ("verification", request.id.clone()),
            ("requested", request.requested_at.to_string()),
            ("expires", request.expires_at.to_string()),
        ]);
    }
    if let Some(DisabledContactView { id, channel, address, disabled }) = &detail.disabled_contact {
        pairs.extend([
            ("about", format!("contact {id} ({} {address})", channel.as_str())),
            ("disabled", format!("{} at {}", disabled, disabled.at)),
        ]);
    }
    if let Some(notice) = &detail.grant_notice {
        let [remaining, units] = [notice.remaining, notice.units.get()].map(|count| amount(&notice.metric, count));
        pairs.extend([
            ("notice", notice.id.clone()),
            ("metric", notice.metric.to_string()),
            ("grant", format!("{}: {} of {} left, {}", notice.grant, remaining, units, notice.window)),
            ("expires", notice.expires_at.to_string()),
            ("raised", notice.raised_at.to_string()),
        ]);
    }
    if let Some(notice) = &detail.usage_notice {
        pairs.extend([
            ("notice", notice.id.clone()),
            ("metric", notice.metric.to_string()),
            (notice.window.as_str(), format!("{} ({})", notice.period, notice.timezone)),
            ("used", format!("{}, {} times the usual", amount(&notice.metric, notice.used), notice.times_usual())),
            ("raised", notice.raised_at.to_string()),
        ]);
    }
    if let Some(notice) = &detail.resolved_notice {
        pairs.extend([
            ("notice", notice.id.clone()),
            ("metric", notice.metric.to_string()),
            (notice.window.as_str(), format!("{} ({})", notice.period, notice.timezone)),
            ("resolved", format!("{} at {}", notice.reason, notice.resolved_at)),
            ("raised", notice.raised_at.to_string()),
        ]);
    }
    if let Some(alert) = &detail.alert {
        let [used, limit] = [alert.used, alert.limit].map(|count| amount(&alert.metric, count));
        let threshold = plans.format_of(&alert.metric).threshold(alert.threshold);
        pairs.extend([
            ("metric", alert.metric.to_string()),
            ("threshold", format!("{threshold}: {used} of {limit} used")),
            (alert.window.as_str(), format!("{} ({})", alert.period, alert.timezone)),
            ("raised", alert.raised_at_ms.to_string()),
        ]);
    }
    pairs.extend([
        ("made", delivery.created_at.to_string()),
        ("ended", or_dash(delivery.ended_at)),
        ("attempts", delivery.attempts.to_string()),
        ("next due", or_dash(NextStep::from_delivery(delivery).map(|next| next.summary(delivery, partitions, now)))),
        ("last error", or_dash(delivery.last_error.as_deref())),
    ]);
    output.pairs(&pairs)?;
    if detail.attempt_log.is_empty() {
        return Ok(());
    }
    output.line("")?;
    let rows: Vec<Vec<String>> = detail.attempt_log.iter().map(log_row).collect();
    let mut table = Table::new(&["AT", "OUTCOME", "STATUS", "DURATION", "ERROR"]).colored("OUTCOME", outcome_color);
    output.rows(&mut table, &rows)?;
    print_other_side(detail, output)
}

/// Prints the other side and its response from the newest attempt that has them, and what to do.
fn print_other_side(detail: &DeliveryDetailView, output: &mut Output) -> anyhow::Result<()> {
    let told = |attempt: &&AttemptView| attempt.peer.is_some() || attempt.reply.is_some() || attempt.hint.is_some();
    let Some(AttemptView { peer, reply, hint, .. }) = detail.attempt_log.iter().rev().find(told) else { return Ok(()) };
    output.line("")?;
    let named = [("peer", peer), ("reply", reply), ("hint", hint)];
    let known: Vec<(&str, String)> =
        named.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
    output.pairs(&known)
}

fn contact(contact: &DeliveryContactView) -> String {
    let address = contact.address.as_deref().unwrap_or("address not known");
    match contact.status {
        DeliveryContactStatus::Current => format!("{} {address}", contact.id),
        DeliveryContactStatus::Unverified => format!("{} {address} (not confirmed)", contact.id),
        status => {
            let mute = contact.mute.as_ref().map(ToString::to_string);
            format!("{} {address} ({})", contact.id, mute.as_deref().unwrap_or_else(|| status.as_str()))
        }
    }
}

fn log_row(attempt: &AttemptView) -> Vec<String> {
    vec![
        attempt.at.to_string(),
        attempt.outcome.clone(),
        or_dash(attempt.status),
        format!("{} ms", attempt.duration_ms),
        or_dash(attempt.error.as_deref()),
    ]
}

fn outcome_color(outcome: &str) -> Option<Color> {
    Some(match OutcomeClass::from_stored(outcome)? {
        OutcomeClass::Delivered => Color::Green,
        OutcomeClass::Rejected | OutcomeClass::Transient => Color::Yellow,
        OutcomeClass::Permanent => Color::Red,
    })
}

/// The result of an action on one delivery.
pub(super) fn action_row(changed: &ChangedDelivery) -> Vec<String> {
    let ChangedDelivery { id, result, state, circuit, .. } = changed;
    let result = match (*result, state) {
        ("not_dead", Some(state)) => format!("not dead but {state}"),
        ("ended", Some(state)) => format!("ended {state}"),
        ("leased", _) => "is being attempted right now".to_owned(),
        (result, _) if circuit.is_some() => format!("{result}, behind an open circuit"),
        (result, _) => result.to_owned(),
    };
    vec![id.to_string(), result]
}

pub(super) fn destination_table() -> Table {
    let heading = ["DESTINATION", "PARTITION", "WAITING", "IN FLIGHT", "BOUND", "FAILURES", "CIRCUIT", "NEXT PROBE"];
    Table::new(&heading).may_shrink(&["DESTINATION"])
}

/// A destination in a list, at the time `now`.
pub(super) fn destination_row(destination: &DestinationView, now: UnixMs) -> Vec<String> {
    vec![
        destination.destination.to_string(),
        destination.partition.to_string(),
        grouped(destination.waiting, ","),
        grouped(destination.in_flight, ","),
        or_dash(destination.bound),
        or_dash(destination.failures),
        destination.circuit.as_str().to_owned(),
        or_dash(destination.next_probe.map(|probe| until(probe.0, now))),
    ]
}

fn until(due: UnixMs, now: UnixMs) -> String {
    match due.since(now) {
        Duration::ZERO => "now".to_owned(),
        wait => format!("in {}", rounded(wait)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::table::Styling;

    /// A line that the terminal wraps is read as two lines.
    #[test]
    fn a_list_fits_eighty_columns() {
        for kind in ["alert", "grant_expires", "contact_disabled"] {
            let subject = "a-customer-with-a-long-name";
            let row =
                ["6f1ed002", "59m", kind, subject, "webhook", "cancelled", "100", "circuit", "receiver answered 503"];
            let lines = list_table().lines(&[row.map(str::to_owned).to_vec()], Some(80), Styling::Plain);
            assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
            assert!(lines[1].contains("  webhook  cancelled  100    circuit   "), "{lines:#?}");
        }
        // Half of the word is enough to know the kind of a delivery, but not its subject.
        let row = ["6f1ed002", "59m", "contact_disabled", "customer-17", "email", "pending", "0", "now", "-"];
        let lines = list_table().lines(&[row.map(str::to_owned).to_vec()], Some(78), Styling::Plain);
        assert!(lines[1].contains("  contact…  customer-17  email"), "{lines:#?}");
    }

    /// Each partition has its own circuit, so one sentence for all of them would give the time of only one.
    #[test]
    fn circuits_are_told_by_partition_where_there_are_several() {
        let circuit = |partition, probe| ((Destination::from_stored("email"), partition), UnixMs(probe));
        let circuits = OpenCircuits::from([circuit(0, 61_000), circuit(3, 1_000)]);
        assert_eq!(
            open_circuits(&circuits, 4, UnixMs(1_000)),
            [
                "the circuit of email in partition 0 is open: one attempt is made there in 1m",
                "the circuit of email in partition 3 is open: one attempt is made there now",
            ]
        );
        let told = open_circuits(&OpenCircuits::from([circuit(0, 61_000)]), 1, UnixMs(1_000));
        assert_eq!(told, ["the circuit of email is open: one attempt is made there in 1m"]);
    }
}
