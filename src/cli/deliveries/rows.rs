//! Deliveries as rows for people. Reads nothing.

use std::time::Duration;

use serde::Serialize;

use crate::outbox::{ActionResult, DeliveryAction};
use crate::terminal::output::{Output, Table, or_dash, rounded};
use crate::terminal::table::Color;
use crate::types::{DeliveryId, DeliveryState, OutcomeClass, UnixMs};
use crate::views::deliveries::{
    AttemptView, DeliveryContactStatus, DeliveryContactView, DeliveryDetailView, DestinationView,
};
use crate::views::{DeliveryView, short_id};

/// The columns of [`list_row`].
const LIST_HEADING: [&str; 8] = ["ID", "AGE", "SUBJECT", "CHANNEL", "STATE", "ATTEMPTS", "NEXT DUE", "LAST ERROR"];
const SUBJECT_COLUMN: usize = 2;
const STATE_COLUMN: usize = 4;
const ERROR_COLUMN: usize = 7;
/// The columns of [`destination_row`]; that of the partition stands there where there are several.
const DESTINATION_HEADING: [&str; 8] =
    ["DESTINATION", "PARTITION", "WAITING", "IN FLIGHT", "BOUND", "FAILURES", "CIRCUIT", "NEXT PROBE"];
const DESTINATION_COLUMN: usize = 0;
const PARTITION_COLUMN: usize = 1;
/// The columns of [`ActionView::row`].
pub(super) const ACTION_HEADING: [&str; 2] = ["ID", "RESULT"];
/// The columns of the attempt log.
const LOG_HEADING: [&str; 5] = ["AT", "OUTCOME", "STATUS", "DURATION", "ERROR"];
const OUTCOME_COLUMN: usize = 1;

/// The columns of a list.
pub(super) fn list_table() -> Table {
    Table::new(&LIST_HEADING).may_shrink(&[SUBJECT_COLUMN, ERROR_COLUMN]).colored(STATE_COLUMN, state_color)
}

/// A delivery in a list, when it is `now`.
pub(super) fn list_row(delivery: &DeliveryView, now: UnixMs) -> Vec<String> {
    let due = delivery.next_due_ms.map(|due| until(due, now));
    let discarded = if delivery.discarded_at.is_some() { ", discarded" } else { "" };
    vec![
        short_id(delivery.id.as_str()).to_owned(),
        rounded(now.since(delivery.created_at_ms)),
        delivery.subject.clone(),
        delivery.channel.as_str().to_owned(),
        format!("{}{discarded}", delivery.state),
        delivery.attempts.to_string(),
        or_dash(due),
        or_dash(delivery.last_error.as_deref()),
    ]
}

fn state_color(state: &str) -> Option<Color> {
    Some(match DeliveryState::from_stored(state.split(',').next()?)? {
        DeliveryState::Pending => Color::Yellow,
        DeliveryState::Delivered => Color::Green,
        DeliveryState::Dead => Color::Red,
        DeliveryState::Muted | DeliveryState::Expired | DeliveryState::Cancelled => Color::Gray,
    })
}

/// Prints one delivery: to whom, about what, where it stands, and its attempts.
pub(super) fn print_detail(detail: &DeliveryDetailView, output: &mut Output) -> anyhow::Result<()> {
    let delivery = &detail.delivery;
    let mut pairs = vec![
        ("id", delivery.id.to_string()),
        ("state", delivery.state.to_string()),
        ("subject", delivery.subject.clone()),
        ("channel", delivery.channel.as_str().to_owned()),
        ("destination", delivery.destination.to_string()),
        ("contact", or_dash(detail.contact.as_ref().map(contact))),
    ];
    if let Some(id) = &delivery.alert_id {
        pairs.push(("alert", id.to_string()));
    }
    if let Some(request) = &detail.verification {
        pairs.extend([
            ("verification", request.id.clone()),
            ("requested", request.requested_at.to_string()),
            ("expires", request.expires_at.to_string()),
        ]);
    }
    if let Some(alert) = &detail.alert {
        pairs.extend([
            ("metric", alert.metric.to_string()),
            ("threshold", format!("{}%: {} of {} used", alert.threshold_percent, alert.used, alert.limit)),
            (alert.window.as_str(), format!("{} ({})", alert.period, alert.timezone)),
            ("raised", alert.raised_at.to_string()),
        ]);
    }
    pairs.extend([
        ("made", delivery.created_at.to_string()),
        ("ended", or_dash(delivery.ended_at)),
        ("attempts", delivery.attempts.to_string()),
        ("next due", or_dash(delivery.next_due)),
        ("last error", or_dash(delivery.last_error.as_deref())),
    ]);
    output.pairs(&pairs)?;
    if detail.attempt_log.is_empty() {
        return Ok(());
    }
    output.line("")?;
    let rows: Vec<Vec<String>> = detail.attempt_log.iter().map(log_row).collect();
    output.rows(&mut Table::new(&LOG_HEADING).colored(OUTCOME_COLUMN, outcome_color), &rows)?;
    print_other_side(detail, output)
}

/// Prints who was talked to in the newest attempt that says so, what the other side said, and what to do about it.
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
        status => {
            let mute = contact.mute.as_ref().map(|mute| mute.mute().to_string());
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

/// What an action did with one id.
#[derive(Debug, Serialize)]
pub(super) struct ActionView<'a> {
    id: &'a DeliveryId,
    /// `replayed`, `retried`, `cancelled` or `discarded`; `not_dead` or `ended` in another state; `leased` while it is
    /// being attempted; `unknown`.
    result: &'static str,
    /// Where the delivery stands now; `null` when there is none.
    state: Option<DeliveryState>,
}

impl<'a> ActionView<'a> {
    pub(super) fn of(action: DeliveryAction, result: &'a ActionResult) -> Self {
        Self { id: &result.id, result: result.word(action), state: result.state(action) }
    }

    pub(super) fn row(self) -> Vec<String> {
        let result = match (self.result, self.state) {
            ("not_dead", Some(state)) => format!("not dead but {state}"),
            ("ended", Some(state)) => format!("ended {state}"),
            ("leased", _) => "is being attempted right now".to_owned(),
            (result, _) => result.to_owned(),
        };
        vec![self.id.to_string(), result]
    }
}

/// The columns of a list of destinations, in so many partitions.
pub(super) fn destination_table(partitions: u32) -> Table {
    let mut heading = DESTINATION_HEADING.to_vec();
    if partitions == 1 {
        heading.remove(PARTITION_COLUMN);
    }
    Table::new(&heading).may_shrink(&[DESTINATION_COLUMN])
}

/// A destination in a list, in so many partitions, when it is `now`.
pub(super) fn destination_row(destination: &DestinationView, partitions: u32, now: UnixMs) -> Vec<String> {
    let mut row = vec![
        destination.destination.to_string(),
        destination.partition.to_string(),
        destination.waiting.to_string(),
        destination.in_flight.to_string(),
        or_dash(destination.bound),
        or_dash(destination.failures),
        destination.circuit.as_str().to_owned(),
        or_dash(destination.next_probe_ms.map(|probe| until(probe, now))),
    ];
    if partitions == 1 {
        row.remove(PARTITION_COLUMN);
    }
    row
}

fn until(due: UnixMs, now: UnixMs) -> String {
    match due.since(now) {
        Duration::ZERO => "now".to_owned(),
        wait => format!("in {}", rounded(wait)),
    }
}
