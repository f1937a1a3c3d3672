//! Follows what happens: reads what arrives, looks at the counts, tells both, and knows when nothing more can happen.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::interval;

use super::books::Books;
use super::cast::Actor;
use super::gauges::{Gauges, Look};
use super::inbox::{self, Arrival, Caught, Inbox};
use super::screen::{About, Screen};
use super::words::grouped;
use crate::types::{AlertId, ContactId};

/// Between two looks at the counts.
const LOOK_EVERY: Duration = Duration::from_millis(120);

/// Whether anything can still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Motion {
    Going,
    Over,
}

/// Follows one demonstration.
#[derive(Debug)]
pub(super) struct Follower<'a> {
    /// Where lines go.
    pub(super) screen: &'a Screen,
    /// Where counts go.
    pub(super) gauges: Gauges,
    /// Who uses what.
    pub(super) cast: &'a [Actor],
    /// What arrives.
    pub(super) inbox: &'a mut Inbox,
    /// What Redis holds.
    pub(super) books: &'a mut Books,
    /// How many events were sent.
    pub(super) sent: watch::Receiver<u64>,
    /// How many there are.
    pub(super) events: u64,
    /// When the second daemon was ready.
    pub(super) taken_over: &'a Cell<Option<Instant>>,
    /// Everything that arrived.
    pub(super) arrivals: Vec<Arrival>,
}

impl Follower<'_> {
    /// Follows until everything was sent, read, counted and delivered. The caller bounds it.
    pub(super) async fn follow(&mut self) -> anyhow::Result<()> {
        let mut looks = interval(LOOK_EVERY);
        loop {
            tokio::select! {
                caught = self.inbox.next() => self.arrived(&caught)?,
                _ = looks.tick() => {
                    if self.look().await? == Motion::Over {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Takes what has arrived and was not looked at.
    pub(super) fn take_the_rest(&mut self) -> anyhow::Result<()> {
        while let Some(caught) = self.inbox.try_next() {
            self.arrived(&caught)?;
        }
        Ok(())
    }

    async fn look(&mut self) -> anyhow::Result<Motion> {
        // In this order: an event that was sent is unread or counted, and what was counted has its alert in the outbox or as a
        // delivery. Looked at the other way round, something could slip through between two looks.
        let sent = *self.sent.borrow();
        let unread = self.books.unread().await?;
        let counts = self.books.counts(self.cast).await?;
        for refusal in self.books.new_refusals().await? {
            let event = format!("{:16}  {}", refusal.reason, refusal.event);
            self.screen.say_more(About::Refused, event, &refusal.detail)?;
        }
        let totals = self.books.totals().await?;
        let alerted = self.alerted();
        self.gauges.show(self.screen, &Look { cast: self.cast, counts: &counts, sent, alerted: &alerted })?;
        let over = sent == self.events
            && self.taken_over.get().is_some()
            && unread == 0
            && totals.outbox == 0
            && totals.pending == 0;
        Ok(if over { Motion::Over } else { Motion::Going })
    }

    fn arrived(&mut self, caught: &Caught) -> anyhow::Result<()> {
        let arrival = inbox::read(caught, self.cast);
        let attempt = 1 + self.attempts_before(&arrival.alert, arrival.contact.as_ref());
        let percent = arrival.facts.map_or_else(|| "?".to_owned(), |facts| facts.percent.to_string());
        let of = self.cast.iter().find(|actor| {
            actor.contacts.iter().any(|contact| Some(&contact.id) == arrival.contact.as_ref())
                && actor.reached().into_iter().any(|percent| actor.alert_id(percent) == arrival.alert)
        });
        let subject = of.map_or("nobody", |actor| actor.subject.as_str());
        let whose = format!("{:7}  {subject:6} {percent:>3} %", arrival.channel.as_str());
        if !arrival.is_accepted() {
            let status = arrival.status;
            self.screen.say(About::Failed, format_args!("{whose}  receiver answered {status}, attempt {attempt}"))?;
        } else {
            let used = arrival
                .facts
                .map_or_else(String::new, |facts| format!("{} of {}", grouped(facts.used), grouped(facts.limit)));
            let attempt = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
            let sound = sound(caught);
            let judged = arrival.trouble.as_ref().map_or(sound, |trouble| format!("WRONG: {trouble}"));
            self.screen.say(About::Alert, format_args!("{whose}  {used}, {judged}{attempt}"))?;
        }
        self.arrivals.push(arrival);
        Ok(())
    }

    fn attempts_before(&self, alert: &AlertId, contact: Option<&ContactId>) -> usize {
        self.arrivals.iter().filter(|one| one.alert == *alert && one.contact.as_ref() == contact).count()
    }

    /// The thresholds of each subject whose alert has arrived, in the order of the cast.
    fn alerted(&self) -> Vec<Vec<u16>> {
        let accepted: BTreeMap<&AlertId, ()> =
            self.arrivals.iter().filter(|arrival| arrival.is_accepted()).map(|arrival| (&arrival.alert, ())).collect();
        let of = |actor: &Actor| {
            let reached =
                actor.reached().into_iter().filter(|percent| accepted.contains_key(&actor.alert_id(*percent)));
            reached.map(crate::types::Percent::get).collect()
        };
        self.cast.iter().map(of).collect()
    }
}

/// What is good about a message that is in order.
fn sound(caught: &Caught) -> String {
    match caught {
        Caught::Mail(mail) => format!("to {}", mail.to.first().map_or("nobody", String::as_str)),
        Caught::Request(_) => "signature ok".to_owned(),
    }
}
