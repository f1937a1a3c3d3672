//! Deliveries as they are printed: JSON objects with the documented fields, and rows for people. Reads nothing.

use serde::Serialize;

use crate::outbox::{DeliveryDetail, DeliveryView, ReplayAnswer, Replayed};
use crate::terminal::output::{Output, Table, or_dash};
use crate::types::{AlertId, Attempt, Channel, DeliveryId, DeliveryState, UnixMs};

/// The columns of [`Listed::row`].
pub(super) const LIST_HEADING: [&str; 8] =
    ["ID", "SUBJECT", "CHANNEL", "STATE", "ATTEMPTS", "NEXT DUE", "LAST ERROR", "ALERT"];
/// The columns of [`Told::row`].
pub(super) const REPLAY_HEADING: [&str; 2] = ["ID", "RESULT"];
/// The columns of the attempt log.
const LOG_HEADING: [&str; 5] = ["AT", "OUTCOME", "STATUS", "DURATION", "ERROR"];

/// A delivery in a list.
#[derive(Debug, Serialize)]
pub(super) struct Listed<'a> {
    id: &'a DeliveryId,
    alert_id: Option<&'a AlertId>,
    subject: &'a str,
    channel: Channel,
    state: DeliveryState,
    attempts: u32,
    next_due: Option<String>,
    last_error: Option<&'a str>,
}

impl<'a> Listed<'a> {
    pub(super) fn of(view: &'a DeliveryView) -> Self {
        Self {
            id: &view.id,
            alert_id: view.alert_id.as_ref(),
            subject: &view.subject,
            channel: view.channel,
            state: view.state,
            attempts: view.attempts,
            next_due: view.next_due.map(|due| due.to_string()),
            last_error: view.last_error.as_deref(),
        }
    }

    pub(super) fn row(self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.subject.to_owned(),
            self.channel.as_str().to_owned(),
            self.state.to_string(),
            self.attempts.to_string(),
            or_dash(self.next_due),
            or_dash(self.last_error),
            or_dash(self.alert_id),
        ]
    }
}

/// One delivery with its attempts.
#[derive(Debug, Serialize)]
pub(super) struct Detail<'a> {
    #[serde(flatten)]
    delivery: Listed<'a>,
    attempt_log: Vec<Logged<'a>>,
}

#[derive(Debug, Serialize)]
struct Logged<'a> {
    at: String,
    outcome: &'a str,
    status: Option<u16>,
    duration_ms: u64,
    error: Option<&'a str>,
}

impl<'a> Detail<'a> {
    pub(super) fn of(detail: &'a DeliveryDetail) -> Self {
        Self { delivery: Listed::of(&detail.view), attempt_log: detail.attempt_log.iter().map(Logged::of).collect() }
    }

    pub(super) fn print(self, output: &mut Output) -> anyhow::Result<()> {
        let Listed { id, alert_id, subject, channel, state, attempts, next_due, last_error } = self.delivery;
        output.pairs(&[
            ("id", id.to_string()),
            ("alert", or_dash(alert_id)),
            ("subject", subject.to_owned()),
            ("channel", channel.as_str().to_owned()),
            ("state", state.to_string()),
            ("attempts", attempts.to_string()),
            ("next due", or_dash(next_due)),
            ("last error", or_dash(last_error)),
        ])?;
        if self.attempt_log.is_empty() {
            return Ok(());
        }
        output.line("")?;
        let rows: Vec<Vec<String>> = self.attempt_log.into_iter().map(Logged::row).collect();
        output.rows(&mut Table::new(&LOG_HEADING), &rows)
    }
}

impl<'a> Logged<'a> {
    fn of(attempt: &'a Attempt) -> Self {
        Self {
            at: UnixMs(attempt.at_ms).to_string(),
            outcome: &attempt.outcome,
            status: attempt.status,
            duration_ms: attempt.duration_ms,
            error: attempt.error.as_deref(),
        }
    }

    fn row(self) -> Vec<String> {
        vec![
            self.at,
            self.outcome.to_owned(),
            or_dash(self.status),
            format!("{} ms", self.duration_ms),
            or_dash(self.error),
        ]
    }
}

/// What a replay did with one id.
#[derive(Debug, Serialize)]
pub(super) struct Told<'a> {
    id: &'a DeliveryId,
    /// `replayed`, `not_dead` or `unknown`.
    result: &'static str,
    /// Where the delivery stands now; `null` when there is none.
    state: Option<DeliveryState>,
}

impl<'a> Told<'a> {
    pub(super) fn of(replayed: &'a Replayed) -> Self {
        let id = &replayed.id;
        match replayed.answer {
            ReplayAnswer::Replayed => Self { id, result: "replayed", state: Some(DeliveryState::Pending) },
            ReplayAnswer::NotDead(state) => Self { id, result: "not_dead", state: Some(state) },
            ReplayAnswer::Missing => Self { id, result: "unknown", state: None },
        }
    }

    pub(super) fn row(self) -> Vec<String> {
        let result = match (self.result, self.state) {
            ("not_dead", Some(state)) => format!("not dead but {state}"),
            (result, _) => result.to_owned(),
        };
        vec![self.id.to_string(), result]
    }
}
