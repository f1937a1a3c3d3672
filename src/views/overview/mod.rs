//! The state of everything on one page: a verdict, what needs attention, and the numbers behind it. Read next:
//! `problems`, which judges the numbers.

mod hours;
mod problems;
mod reading;

use schemars::JsonSchema;
use serde::Serialize;

pub use hours::{HOURS, HourOverviewView};
pub use problems::SystemProblemView;
pub use reading::OverviewError;

use super::alert_list::NotifiedAlertView;
use super::near::NearSubjectView;
use crate::types::text::{grouped, pluralize};
use crate::types::text_form::text_enum;
use crate::types::timestamp::Rfc3339;

/// What an operator wants to know first.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Overview")]
pub struct OverviewView {
    /// One sentence or two: how many problems there are, and whether counting is up to date.
    pub verdict: String,
    /// What needs attention, the most urgent first; empty if nothing does.
    pub problems: Vec<SystemProblemView>,
    pub counting: CountingOverviewView,
    pub sending: SendingOverviewView,
    pub near: NearOverviewView,
    /// Those that run out first, of the examined ones, and then some that have reached their limit: the beginning of
    /// the list of subjects near to a limit.
    #[schemars(length(max = NEAREST + NEAREST_REACHED))]
    pub nearest: Vec<NearSubjectView>,
    /// Number of the newest 200 alerts that were not sent because of a mute. That needs no attention.
    pub muted_alerts: usize,
    /// The newest alerts of the examined ones.
    #[schemars(length(max = NEWEST_ALERTS))]
    pub newest_alerts: Vec<NotifiedAlertView>,
    /// The hours of two days, the oldest first.
    #[schemars(length(min = HOURS, max = HOURS))]
    pub hours: Vec<HourOverviewView>,
    pub read_at: Rfc3339,
}

/// Number of subjects below a limit in an overview.
pub const NEAREST: usize = 10;
/// Number of those that have reached it.
pub const NEAREST_REACHED: usize = 5;
/// Number of alerts in an overview.
pub const NEWEST_ALERTS: usize = 10;

text_enum! {
    /// Whether usage is counted.
    pub enum CountingState {
        /// Nothing waits for longer than some seconds.
        UpToDate = "up_to_date",
        /// Entries of the stream wait.
        Behind = "behind",
        /// No daemon reads some partition.
        Stopped = "stopped",
    }
}

/// How far usage is counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "CountingOverview")]
pub struct CountingOverviewView {
    pub state: CountingState,
    /// Number of stream entries that are not counted yet.
    pub lag: u64,
    /// When the oldest of them arrived; null if there are none.
    pub oldest_arrived_at: Option<Rfc3339>,
    /// Number of events that were counted so far.
    pub counted: u64,
    pub daemons: usize,
    #[schemars(range(min = 1))]
    pub partitions: usize,
}

/// What waits to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "SendingOverview")]
pub struct SendingOverviewView {
    /// Deliveries that are pending.
    pub pending: u64,
    /// When the oldest of them was made; null if there are none.
    pub oldest_pending_at: Option<Rfc3339>,
    /// Those of them that wait because their subject has no contact.
    pub without_contact: u64,
    /// Dead deliveries that can be replayed.
    pub dead: u64,
    /// Alerts whose deliveries are not made yet.
    pub outbox: u64,
    pub is_paused: bool,
}

/// Subjects near to a limit, or above it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "NearOverview")]
pub struct NearOverviewView {
    /// Subjects that have used at least 80 % of a limit, without those of `reached`.
    pub above_80: usize,
    /// Subjects that have used all of a limit, or more.
    pub reached: usize,
    /// Number of recorded alerts that were examined.
    pub examined: usize,
    /// Whether these are all; otherwise the numbers of subjects are lower bounds.
    pub is_complete: bool,
    /// When the first of them was read.
    pub ranked_at: Rfc3339,
}

impl OverviewView {
    /// Whether nothing needs attention.
    pub fn is_healthy(&self) -> bool {
        self.problems.is_empty()
    }
}

fn verdict(problems: usize, counting: &CountingOverviewView) -> String {
    let attention = match problems {
        0 => "Nothing needs attention.".to_owned(),
        1 => "1 thing needs attention.".to_owned(),
        several => format!("{several} things need attention."),
    };
    let CountingOverviewView { state, lag, daemons, partitions, .. } = counting;
    let state = match state {
        CountingState::UpToDate if *lag > 0 => "keeps up",
        CountingState::UpToDate => "is up to date",
        CountingState::Behind => "is behind",
        CountingState::Stopped => "has stopped",
    };
    let (daemons, partitions) = (*daemons as u64, *partitions as u64);
    let daemons = pluralize(daemons, "daemon", "daemons");
    let partitions = pluralize(partitions, "partition", "partitions");
    format!("{attention} Counting {state} (lag {}). {daemons}, {partitions}.", grouped(*lag, ","))
}
