//! The traffic: which events are sent, in which order, and how fast. The plan is pure; sending is a plain client's XADD.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use redis::Pipeline;
use tokio::sync::watch;
use tokio::time::{Instant, interval};

use super::scenario::SimulatedSubject;
use crate::types::{RefusalReason, UnixMs};
use crate::wire::RedisClient;

/// Between two writes.
const TICK: Duration = Duration::from_millis(40);
/// The most events of one write.
const CHUNK: usize = 1_000;
/// How far behind its first sending an event is sent again, as a share of the traffic, in 1/POSITIONS.
const REPEAT_AFTER: u64 = POSITIONS / 200;
/// Into how many places the traffic is divided to put events in order.
const POSITIONS: u64 = 1 << 32;

/// One event to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planned {
    /// A subject uses some units.
    Use { simulated: usize, number: u32 },
    /// A client that is broken.
    Bad(usize),
}

/// An event that must be refused: its fields, and why.
struct BadEvent {
    fields: &'static [BadField],
    /// Hours from now that its `ts` lies; `None`: it has none of ours.
    hours_off: Option<i64>,
    reason: RefusalReason,
}

struct BadField {
    name: &'static str,
    value: &'static [u8],
}

const fn field(name: &'static str, value: &'static [u8]) -> BadField {
    BadField { name, value }
}

const fn bad(reason: RefusalReason, fields: &'static [BadField]) -> BadEvent {
    BadEvent { fields, hours_off: None, reason }
}

/// Every way to be refused with one stream. The last must come after the event that fills its counter, which stands in the middle.
const BAD: [BadEvent; 13] = [
    bad(RefusalReason::MissingSubject, &[field("user", b"alice")]),
    bad(RefusalReason::BadSubject, &[field("subject", b"")]),
    bad(RefusalReason::BadSubject, &[field("subject", b"ali\xffce")]),
    bad(RefusalReason::BadUnits, &[field("subject", b"alice"), field("units", b"-1")]),
    bad(RefusalReason::BadUnits, &[field("subject", b"alice"), field("units", b"1.5")]),
    bad(RefusalReason::BadUnits, &[field("subject", b"bob"), field("units", b"1e3")]),
    bad(RefusalReason::BadMetric, &[field("subject", b"bob"), field("metric", b"Requests!")]),
    bad(RefusalReason::BadTs, &[field("subject", b"carol"), field("ts", b"yesterday")]),
    bad(RefusalReason::BadId, &[field("subject", b"carol"), field("id", b"")]),
    BadEvent { fields: &[field("subject", b"dave")], hours_off: Some(-72), reason: RefusalReason::TooLate },
    BadEvent { fields: &[field("subject", b"dave")], hours_off: Some(2), reason: RefusalReason::TooFarAhead },
    bad(RefusalReason::BadUnits, &[field("subject", b"erin"), field("units", b"9007199254740992")]),
    bad(
        RefusalReason::CounterOverflow,
        &[field("subject", b"mallory"), field("metric", b"bytes"), field("units", b"1")],
    ),
];

/// Everything that will be sent, in order.
#[derive(Debug)]
pub(super) struct Traffic {
    events: Vec<Planned>,
    /// How many of them bear an id that was sent before.
    pub(super) repeated: u64,
    /// How many must be refused, by reason.
    pub(super) refused: BTreeMap<RefusalReason, u64>,
}

impl Traffic {
    /// Plans the traffic: everybody's events spread evenly from beginning to end, so that all counts grow at once. Pure.
    pub(super) fn plan(subjects: &[SimulatedSubject]) -> Self {
        let mut placed: Vec<Placed> = Vec::new();
        let mut repeated = 0;
        for (index, simulated) in subjects.iter().enumerate() {
            for number in 0..simulated.events {
                let event = Planned::Use { simulated: index, number };
                let place = (u64::from(number) * 2 + 1) * POSITIONS / (u64::from(simulated.events) * 2);
                placed.push(Placed { place, event });
                if simulated.repeat_every.is_some_and(|every| number % every == 0) {
                    repeated += 1;
                    placed.push(Placed { place: place + REPEAT_AFTER, event });
                }
            }
        }
        let mut refused = BTreeMap::new();
        for (index, bad) in BAD.iter().enumerate() {
            let place = (index as u64 + 1) * POSITIONS / (BAD.len() as u64 + 1);
            placed.push(Placed { place, event: Planned::Bad(index) });
            *refused.entry(bad.reason).or_default() += 1;
        }
        placed.sort_by_key(|placed| placed.place);
        Self { events: placed.into_iter().map(|placed| placed.event).collect(), repeated, refused }
    }

    /// How many events there are.
    pub(super) fn len(&self) -> u64 {
        self.events.len() as u64
    }

    /// Sends everything, evenly over `duration`, and tells `sent` how far it is. `now` is the time that the events bear.
    ///
    /// # Errors
    ///
    /// Redis or the connection.
    pub(super) async fn send(&self, to: &TrafficTarget<'_>, duration: Duration) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut ticks = interval(TICK);
        let mut done = 0;
        while done < self.events.len() {
            ticks.tick().await;
            let share = started.elapsed().as_secs_f64() / duration.as_secs_f64();
            let due = ((self.events.len() as f64 * share).ceil() as usize).min(self.events.len());
            while done < due {
                let until = due.min(done + CHUNK);
                let mut pipeline = redis::pipe();
                self.events[done..until].iter().for_each(|event| to.append(&mut pipeline, *event));
                let what = || format!("append events {} to {until} to {}", done + 1, to.stream);
                to.client.pipe::<()>(&pipeline).await.with_context(what)?;
                done = until;
                to.sent.send_replace(done as u64);
            }
        }
        Ok(())
    }
}

struct Placed {
    place: u64,
    event: Planned,
}

/// Where events go, and what they say.
#[derive(Debug)]
pub(super) struct TrafficTarget<'a> {
    /// The producer's own connection.
    pub(super) client: &'a RedisClient,
    /// The stream.
    pub(super) stream: &'a str,
    /// The subjects.
    pub(super) subjects: &'a [SimulatedSubject],
    /// The time that the events bear.
    pub(super) now: UnixMs,
    /// Told how many were sent.
    pub(super) sent: &'a watch::Sender<u64>,
}

impl TrafficTarget<'_> {
    fn append(&self, pipeline: &mut Pipeline, event: Planned) {
        let command = pipeline.cmd("XADD").arg(self.stream).arg("*");
        match event {
            Planned::Use { simulated, number } => {
                let SimulatedSubject { subject, metric, units, repeat_every, .. } = &self.subjects[simulated];
                command.arg("subject").arg(subject.as_str()).arg("units").arg(units.of(number));
                command.arg("metric").arg(metric.as_str()).arg("ts").arg(self.now.0);
                if repeat_every.is_some() {
                    command.arg("id").arg(format!("{subject}-{number}"));
                }
            }
            Planned::Bad(index) => {
                let BadEvent { fields, hours_off, .. } = &BAD[index];
                for BadField { name, value } in *fields {
                    command.arg(name).arg(value);
                }
                if let Some(hours) = hours_off {
                    command.arg("ts").arg(self.now.plus(hours * 3_600_000).0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::{ReceiverUrls, subjects};
    use super::*;

    fn planned() -> (Vec<SimulatedSubject>, Traffic) {
        let receivers = ReceiverUrls { steady: "http://127.0.0.1:1", flaky: "http://127.0.0.1:2" };
        let subjects = subjects(UnixMs(1_795_250_000_000), receivers).expect("a scenario");
        let traffic = Traffic::plan(&subjects);
        (subjects, traffic)
    }

    /// A repetition that came first would be the one that counts, and the expected sums would be right by luck only.
    #[test]
    fn every_event_is_sent_and_some_are_sent_twice() {
        let (subjects, traffic) = planned();
        let once: u64 = subjects.iter().map(|simulated| u64::from(simulated.events)).sum();
        assert!(traffic.repeated > 100);
        assert_eq!(traffic.len(), once + traffic.repeated + BAD.len() as u64);
    }

    /// The overflow is one only after the counter is full.
    #[test]
    fn the_full_counter_comes_before_the_event_that_overflows_it() {
        let (subjects, traffic) = planned();
        let mallory =
            subjects.iter().position(|simulated| simulated.subject.as_str() == "mallory").expect("in the scenario");
        let at = |wanted| traffic.events.iter().position(|event| *event == wanted).expect("planned");
        assert!(at(Planned::Use { simulated: mallory, number: 0 }) < at(Planned::Bad(BAD.len() - 1)));
    }
}
