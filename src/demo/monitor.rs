//! Follows what happens: reads what arrives, looks at the counts, tells both, and knows when nothing more can happen.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::interval;

use super::number_format::grouped;
use super::progress::{ProgressDisplay, ProgressSnapshot};
use super::received::{self, LocalReceivers, Received, ReceivedAttempt};
use super::redis_state::StateReader;
use super::scenario::SimulatedSubject;
use super::screen::{LineKind, Screen};
use crate::types::{AlertId, ContactId};

/// Between two looks at the counts.
const POLL_EVERY: Duration = Duration::from_millis(120);

/// Whether anything can still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunState {
    Running,
    Finished,
}

/// Follows one demonstration.
#[derive(Debug)]
pub(super) struct Monitor<'a> {
    /// Where lines go.
    pub(super) screen: &'a Screen,
    /// Where counts go.
    pub(super) progress: ProgressDisplay,
    /// The subjects and what they use.
    pub(super) subjects: &'a [SimulatedSubject],
    /// What arrives.
    pub(super) receivers: &'a mut LocalReceivers,
    /// What Redis holds.
    pub(super) state: &'a mut StateReader,
    /// How many events were sent.
    pub(super) sent: watch::Receiver<u64>,
    /// How many there are.
    pub(super) events: u64,
    /// When the second daemon was ready.
    pub(super) taken_over: &'a Cell<Option<Instant>>,
    /// Everything that arrived.
    pub(super) arrivals: Vec<ReceivedAttempt>,
}

impl Monitor<'_> {
    /// Follows until everything was sent, read, counted and delivered. The caller bounds it.
    pub(super) async fn run(&mut self) -> anyhow::Result<()> {
        let mut looks = interval(POLL_EVERY);
        loop {
            tokio::select! {
                caught = self.receivers.next() => self.arrived(&caught)?,
                _ = looks.tick() => {
                    if self.look().await? == RunState::Finished {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Takes what has arrived and was not looked at.
    pub(super) fn take_remaining(&mut self) -> anyhow::Result<()> {
        while let Some(caught) = self.receivers.try_next() {
            self.arrived(&caught)?;
        }
        Ok(())
    }

    async fn look(&mut self) -> anyhow::Result<RunState> {
        // In this order: an event that was sent is unread or counted, and what was counted has its alert in the outbox or as a
        // delivery. Looked at the other way round, something could slip through between two looks.
        let sent = *self.sent.borrow();
        let unread = self.state.unread().await?;
        let counts = self.state.counts(self.subjects).await?;
        for refusal in self.state.new_refusals().await? {
            let event = format!("{:16}  {}", refusal.reason, refusal.event);
            self.screen.say_with_reason(LineKind::Refused, event, &refusal.detail)?;
        }
        let totals = self.state.totals().await?;
        let alerted = self.alerted();
        self.progress.show(
            self.screen,
            &ProgressSnapshot { subjects: self.subjects, counts: &counts, sent, alerted: &alerted },
        )?;
        let over = sent == self.events
            && self.taken_over.get().is_some()
            && unread == 0
            && totals.outbox == 0
            && totals.pending == 0;
        Ok(if over { RunState::Finished } else { RunState::Running })
    }

    fn arrived(&mut self, caught: &Received) -> anyhow::Result<()> {
        let arrival = received::read(caught, self.subjects);
        let attempt = 1 + self.attempts_before(&arrival.alert, arrival.contact.as_ref());
        let percent = arrival.facts.map_or_else(|| "?".to_owned(), |facts| facts.percent.to_string());
        let of = self.subjects.iter().find(|simulated| {
            simulated.contacts.iter().any(|contact| Some(&contact.id) == arrival.contact.as_ref())
                && simulated.reached().into_iter().any(|percent| simulated.alert_id(percent) == arrival.alert)
        });
        let subject = of.map_or("nobody", |simulated| simulated.subject.as_str());
        let whose = format!("{:7}  {subject:6} {percent:>3} %", arrival.channel.as_str());
        if !arrival.is_accepted() {
            let status = arrival.status;
            self.screen
                .say(LineKind::Failed, format_args!("{whose}  receiver answered {status}, attempt {attempt}"))?;
        } else {
            let used = arrival
                .facts
                .map_or_else(String::new, |facts| format!("{} of {}", grouped(facts.used), grouped(facts.limit)));
            let attempt = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
            let sound = sound(caught);
            let judged = arrival.problem.as_ref().map_or(sound, |problem| format!("WRONG: {problem}"));
            self.screen.say(LineKind::Alert, format_args!("{whose}  {used}, {judged}{attempt}"))?;
        }
        self.arrivals.push(arrival);
        Ok(())
    }

    fn attempts_before(&self, alert: &AlertId, contact: Option<&ContactId>) -> usize {
        self.arrivals.iter().filter(|one| one.alert == *alert && one.contact.as_ref() == contact).count()
    }

    /// The thresholds of each subject whose alert has arrived, in the order of the scenario.
    fn alerted(&self) -> Vec<Vec<u16>> {
        let accepted: BTreeMap<&AlertId, ()> =
            self.arrivals.iter().filter(|arrival| arrival.is_accepted()).map(|arrival| (&arrival.alert, ())).collect();
        let of = |simulated: &SimulatedSubject| {
            let reached =
                simulated.reached().into_iter().filter(|percent| accepted.contains_key(&simulated.alert_id(*percent)));
            reached.map(crate::types::Percent::get).collect()
        };
        self.subjects.iter().map(of).collect()
    }
}

/// What is good about a message that is in order.
fn sound(caught: &Received) -> String {
    match caught {
        Received::Mail(mail) => format!("to {}", mail.to.first().map_or("nobody", String::as_str)),
        Received::Request(_) => "signature ok".to_owned(),
    }
}
