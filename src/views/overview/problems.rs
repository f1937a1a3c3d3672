//! What needs attention: the cause, and the command that mends it. Pure.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::contacts::Contact;
use crate::outbox::Pause;
use crate::types::text::{grouped, pluralize, shell_word};
use crate::types::text_form::text_enum;
use crate::types::timestamp::Rfc3339;
use crate::types::{Destination, Subject, UnixMs};
use crate::views::deliveries::{CircuitState, DeadCauseView, DestinationView};
use crate::views::refused::RefusedReasonsView;
use crate::views::system::{PartitionView, SystemView};

/// How long an entry may wait before counting is behind.
const BEHIND_AFTER: Duration = Duration::from_secs(10);
/// Number of things that a sentence names.
const NAMED_MAX: usize = 3;

/// Something that needs attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "SystemProblem")]
pub struct SystemProblemView {
    pub kind: SystemProblemKind,
    /// What is wrong, and why.
    pub cause: String,
    /// The command that mends it, or that shows more.
    pub command: String,
    /// The subject that the command is about; null if it is about none.
    pub subject: Option<String>,
    /// The destination that the command is about; null if it is about none.
    pub destination: Option<Destination>,
    /// How many things are concerned: partitions, deliveries, alerts, contacts or events.
    #[schemars(range(min = 1))]
    pub count: u64,
}

text_enum! {
    /// What is wrong. In the order of urgency.
    pub enum SystemProblemKind {
        /// No daemon runs.
        NoDaemon = "no_daemon",
        /// Daemons run, and none of them reads a partition.
        CountingStopped = "counting_stopped",
        /// Entries of the stream wait.
        CountingBehind = "counting_behind",
        /// Every daemon was started to send nothing.
        SendingOff = "sending_off",
        /// An operator has paused sending.
        SendingPaused = "sending_paused",
        /// Attempts at a receiver fail, or it refuses deliveries.
        ReceiverFailing = "receiver_failing",
        /// Deliveries were given up.
        DeliveriesDead = "deliveries_dead",
        /// Alerts wait because their subject has no contact.
        NoContact = "no_contact",
        /// Alerts have reached nobody, and not because of a mute.
        NobodyNotified = "nobody_notified",
        /// Contacts are disabled because nothing reaches them.
        ContactsDisabled = "contacts_disabled",
        /// Events of the last 24 hours can't be counted.
        EventsRefused = "events_refused",
    }
}

/// A destination that has failed some times in a row, or that refuses deliveries.
#[derive(Debug)]
pub struct FailingReceiver(pub DestinationView);

impl FailingReceiver {
    /// Adds the same receiver in another partition: the earliest of each time counts.
    pub fn add(&mut self, other: DestinationView) {
        let earlier = |a: Option<Rfc3339>, b: Option<Rfc3339>| a.into_iter().chain(b).min();
        let Self(view) = self;
        view.waiting += other.waiting;
        view.failures = view.failures.max(other.failures);
        view.failing_since = earlier(view.failing_since, other.failing_since);
        view.retried_until = earlier(view.retried_until, other.retried_until);
        view.next_probe = earlier(view.next_probe, other.next_probe);
        view.last_error = view.last_error.take().or(other.last_error);
        if other.circuit == CircuitState::Open {
            view.circuit = CircuitState::Open;
        }
    }
}

/// What the problems follow from.
#[derive(Debug)]
pub struct OverviewFacts {
    pub now: UnixMs,
    pub system: SystemView,
    pub pause: Option<Pause>,
    pub failing: Vec<FailingReceiver>,
    /// Dead deliveries that can be replayed.
    pub dead: u64,
    pub dead_causes: Vec<DeadCauseView>,
    /// Deliveries that wait for a contact, and some of their subjects.
    pub waiting: u64,
    pub waiting_subjects: Vec<String>,
    /// Number of alerts that have reached nobody, among the newest `judged` alerts, and their subjects.
    pub unheard: usize,
    pub not_notified: Vec<Subject>,
    pub judged: usize,
    pub disabled: Vec<(Subject, Contact)>,
    /// Those of the last 24 hours.
    pub refused: RefusedReasonsView,
}

impl OverviewFacts {
    /// The problems, the most urgent first.
    pub fn problems(&self) -> Vec<SystemProblemView> {
        let one = [self.no_daemon(), self.stopped(), self.behind(), self.sending_off(), self.paused()];
        let others = [self.dead(), self.no_contact(), self.nobody(), self.disabled(), self.refused()];
        let failing = self.failing.iter().map(failing);
        one.into_iter().flatten().chain(failing).chain(others.into_iter().flatten()).collect()
    }

    /// Partitions that no daemon reads.
    pub fn unread(&self) -> Vec<&PartitionView> {
        self.system.partitions.iter().filter(|partition| partition.reader.is_none()).collect()
    }

    /// Partitions with an entry that has waited for too long.
    pub fn late(&self) -> Vec<&PartitionView> {
        let arrived = |partition: &&PartitionView| partition.oldest_arrived_at.map(|arrived| arrived.0);
        let is_late = |arrived: UnixMs| self.now.since(arrived) > BEHIND_AFTER;
        self.system.partitions.iter().filter(|partition| arrived(partition).is_some_and(is_late)).collect()
    }

    fn no_daemon(&self) -> Option<SystemProblemView> {
        let cause = "No daemon runs: nothing is counted, and nothing is sent.".to_owned();
        let count = self.system.partitions.len() as u64;
        self.system.daemons.is_empty().then(|| problem(SystemProblemKind::NoDaemon, cause, "quotabell run", count))
    }

    fn stopped(&self) -> Option<SystemProblemView> {
        let unread = self.unread();
        if self.system.daemons.is_empty() || unread.is_empty() {
            return None;
        }
        let streams = named(unread.iter().map(|partition| partition.stream.clone()));
        let cause = format!("No daemon reads {streams}: the log of the daemons says why.");
        Some(problem(SystemProblemKind::CountingStopped, cause, "quotabell check-config", unread.len() as u64))
    }

    fn behind(&self) -> Option<SystemProblemView> {
        let late = self.late();
        let oldest = late.iter().filter_map(|partition| partition.oldest_arrived_at).min()?;
        let lag: u64 = late.iter().map(|partition| partition.lag).sum();
        let entries = pluralize(lag, "entry waits", "entries wait");
        let cause = format!("Counting is behind: {entries}, the oldest since {}.", clock(oldest.0, self.now));
        Some(problem(SystemProblemKind::CountingBehind, cause, "quotabell check-config", late.len() as u64))
    }

    fn sending_off(&self) -> Option<SystemProblemView> {
        let daemons = &self.system.daemons;
        let cause = "Every daemon was started to send nothing (`--no-send` or `delivery.send = false`).".to_owned();
        let is_off = !daemons.is_empty() && daemons.iter().all(|daemon| !daemon.sends);
        is_off.then(|| problem(SystemProblemKind::SendingOff, cause, "quotabell run", daemons.len() as u64))
    }

    fn paused(&self) -> Option<SystemProblemView> {
        let Pause { since, reason } = self.pause.as_ref()?;
        let since = since.map(|since| format!(" since {}", clock(since, self.now))).unwrap_or_default();
        let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let cause = format!("Sending is paused{since}{reason}. Deliveries wait.");
        Some(problem(SystemProblemKind::SendingPaused, cause, "quotabell deliveries resume", 1))
    }

    fn dead(&self) -> Option<SystemProblemView> {
        let cause_of = |cause: &DeadCauseView| {
            format!("{} to {}: {}", grouped(cause.count as u64, ","), cause.destination, cause.cause)
        };
        let causes: Vec<String> = self.dead_causes.iter().take(NAMED_MAX).map(cause_of).collect();
        let dead = pluralize(self.dead, "delivery is", "deliveries are");
        let causes = if causes.is_empty() { String::new() } else { format!(": {}", causes.join("; ")) };
        let cause = format!("{dead} dead{causes}.");
        let command = "quotabell deliveries replay --all";
        (self.dead > 0).then(|| problem(SystemProblemKind::DeliveriesDead, cause, command, self.dead))
    }

    fn no_contact(&self) -> Option<SystemProblemView> {
        let waiting = pluralize(self.waiting, "alert waits", "alerts wait");
        let subjects = named(self.waiting_subjects.iter().cloned());
        let cause = format!("{waiting} because the subject has no contact that gets them: {subjects}.");
        let subject = self.waiting_subjects.first()?;
        let command = format!("quotabell contact add {} --email ADDRESS", shell_word(subject));
        let problem = || problem(SystemProblemKind::NoContact, cause, command, self.waiting).of_subject(subject);
        (self.waiting > 0).then(problem)
    }

    fn nobody(&self) -> Option<SystemProblemView> {
        let subject = self.not_notified.first()?;
        let count = self.unheard as u64;
        let alerts = pluralize(count, "alert has", "alerts have");
        let named = named(self.not_notified.iter().map(Subject::to_string));
        let judged = pluralize(self.judged as u64, "alert", "alerts");
        let cause = format!("{alerts} reached nobody ({named}). Examined: the newest {judged}.");
        let command = format!("quotabell explain --subject {}", shell_word(subject.as_str()));
        Some(problem(SystemProblemKind::NobodyNotified, cause, command, count).of_subject(subject.as_str()))
    }

    fn disabled(&self) -> Option<SystemProblemView> {
        let (subject, contact) = self.disabled.first()?;
        let sentence = |(subject, contact): &(Subject, Contact)| {
            let reason = contact.disabled.as_ref().map_or("", |state| state.reason.sentence());
            format!("{} of {subject} ({reason})", contact.id)
        };
        let count = self.disabled.len() as u64;
        let contacts = pluralize(count, "contact is", "contacts are");
        let cause = format!("{contacts} disabled: {}.", named(self.disabled.iter().map(sentence)));
        let (of, id) = (shell_word(subject.as_str()), shell_word(contact.id.as_str()));
        let command = format!("quotabell contact enable {of} {id}");
        Some(problem(SystemProblemKind::ContactsDisabled, cause, command, count).of_subject(subject.as_str()))
    }

    fn refused(&self) -> Option<SystemProblemView> {
        let RefusedReasonsView { reasons, examined, next } = &self.refused;
        let at_least = if next.is_some() { "At least " } else { "" };
        let events = pluralize(*examined as u64, "event was", "events were");
        let reasons =
            named(reasons.iter().map(|reason| format!("{} ({})", reason.reason, grouped(reason.count as u64, ","))));
        let cause = format!("{at_least}{events} refused in the last 24 hours and not counted: {reasons}.");
        let command = "quotabell refused list --limit 20";
        (*examined > 0).then(|| problem(SystemProblemKind::EventsRefused, cause, command, *examined as u64))
    }
}

fn failing(FailingReceiver(view): &FailingReceiver) -> SystemProblemView {
    let DestinationView { destination, circuit, waiting, failures, next_probe, failing_since, retried_until, .. } =
        view;
    let waits = pluralize(*waiting, "delivery waits", "deliveries wait");
    let error = view.last_error.as_ref().map(|error| format!(", {error}")).unwrap_or_default();
    let cause = if *circuit == CircuitState::Open {
        let since = failing_since.map(|since| format!(" Its circuit opened at {since}.")).unwrap_or_default();
        let next = next_probe.map(|next| format!(" The next attempt is at {next}.")).unwrap_or_default();
        let until = retried_until.map(|until| format!(" until {until}")).unwrap_or_default();
        format!("{destination} fails: {waits}{error}.{since}{next} Deliveries not attempted yet are kept{until}.")
    } else if let Some(failures) = failures.filter(|failures| *failures > 0) {
        let failures = grouped(failures, ",");
        format!("{destination} fails: {waits}{error}. {failures} attempts in a row have failed; they are repeated.")
    } else {
        format!(
            "{destination} refuses deliveries: {waits}{error}. Refused deliveries are retried for a day at most, and \
             are dead then."
        )
    };
    let command = retry_command(destination);
    let problem = problem(SystemProblemKind::ReceiverFailing, cause, command, (*waiting).max(1));
    SystemProblemView { destination: Some(destination.clone()), ..problem }
}

fn retry_command(destination: &Destination) -> String {
    format!("quotabell deliveries retry --destination {}", shell_word(destination.as_str()))
}

fn problem(kind: SystemProblemKind, cause: String, command: impl Into<String>, count: u64) -> SystemProblemView {
    SystemProblemView { kind, cause, command: command.into(), subject: None, destination: None, count }
}

impl SystemProblemView {
    fn of_subject(self, subject: &str) -> Self {
        Self { subject: Some(subject.to_owned()), ..self }
    }
}

/// Some names, and the number of the others.
fn named(names: impl ExactSizeIterator<Item = String>) -> String {
    let others = names.len().saturating_sub(NAMED_MAX);
    let mut named = names.take(NAMED_MAX).collect::<Vec<_>>().join(", ");
    if others > 0 {
        named += &format!(" and {} more", grouped(others as u64, ","));
    }
    named
}

/// An instant, with its distance from now.
fn clock(at: UnixMs, now: UnixMs) -> String {
    format!("{at} ({} s)", grouped(now.since(at).as_secs(), ","))
}
