//! Who uses the API in the demonstration: subjects, their limits, zones and contacts, and how much each will use.
//!
//! Pure. What is expected of the daemon is computed from here and from the planned traffic alone, never read back from it.

use chrono_tz::Tz;

use crate::channels::webhook::secret;
use crate::contacts::Contact;
use crate::contacts::array::CONTACTS;
use crate::subjects::record::{LIMIT_PREFIX, PLAN, THRESHOLDS, TIMEZONE};
use crate::terminal::hint;
use crate::types::{AlertId, AlertKey, Day, DaySpan, Instance, Metric, Percent, Subject, Units, UnixMs};

/// The instance that the daemon of the demonstration finds, so that the ids of its alerts are known beforehand.
pub(super) const INSTANCE: &str = "demo";

/// The plan of subjects that name none, units of `requests` a day.
pub(super) const FREE_LIMIT: u64 = 5_000;
/// The larger plan.
pub(super) const PRO_LIMIT: u64 = 20_000;
/// The fallback contact: it gets the alerts of subjects without contacts.
pub(super) const FALLBACK_ADDRESS: &str = "ops@example.com";
/// What a plan alerts at.
pub(super) const PLAN_THRESHOLDS: [u16; 2] = [80, 100];
/// The largest number of units that a counter holds.
const COUNTER_MAX: u64 = crate::types::units::UNITS_MAX;

/// One subject and the use that it will make.
#[derive(Debug, Clone)]
pub(super) struct SimulatedSubject {
    /// The subject.
    pub(super) subject: Subject,
    /// What it uses.
    pub(super) metric: Metric,
    /// Units a day; `None`: counted, never alerted.
    pub(super) limit: Option<Units>,
    /// Where alerts are due.
    pub(super) thresholds: Vec<Percent>,
    /// The day in its zone to which the traffic belongs.
    pub(super) day: Day,
    /// Whom its alerts reach; the fallback contact where it has none of its own.
    pub(super) contacts: Vec<Contact>,
    /// The fields of its hash, as a platform writes them; empty: Redis does not know it.
    pub(super) fields: Vec<HashField>,
    /// How many events.
    pub(super) events: u32,
    /// Units of each event.
    pub(super) units: UnitsPerEvent,
    /// Whether its events bear ids, and every so many is sent twice.
    pub(super) repeat_every: Option<u32>,
}

/// One field of a subject's hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HashField {
    /// Its name.
    pub(super) name: String,
    /// Its value.
    pub(super) value: String,
}

/// How many units an event uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitsPerEvent {
    /// Always as many.
    Always(u64),
    /// From the first number on, a little more from event to event, as calls to a language model do.
    Varying(u64),
}

impl UnitsPerEvent {
    /// Units of the `number`th event.
    pub(super) const fn of(self, number: u32) -> u64 {
        match self {
            Self::Always(units) => units,
            Self::Varying(least) => least + (number as u64 * 37) % 101,
        }
    }
}

impl SimulatedSubject {
    /// Everything that it will use.
    pub(super) fn total_units(&self) -> u64 {
        (0..self.events).map(|number| self.units.of(number)).sum()
    }

    /// The thresholds that this use reaches, ascending.
    pub(super) fn reached(&self) -> Vec<Percent> {
        let Some(limit) = self.limit else { return Vec::new() };
        let total = u128::from(self.total_units());
        self.thresholds.iter().copied().filter(|percent| percent.threshold_units(limit) <= total).collect()
    }

    /// The id of its one alert at this threshold.
    pub(super) fn alert_id(&self, percent: Percent) -> AlertId {
        let units = self.limit.and_then(|limit| u64::try_from(percent.threshold_units(limit)).ok()).unwrap_or(0);
        let (subject, metric, period) = (&self.subject, &self.metric, self.day.into());
        AlertId::of(&Instance::from_stored(INSTANCE), &AlertKey { subject, metric, period, percent, units })
    }
}

/// Where the demonstration's own webhooks listen.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceiverUrls<'a> {
    /// Takes everything: `http://127.0.0.1:<port>`.
    pub(super) steady: &'a str,
    /// Fails twice before it takes something.
    pub(super) flaky: &'a str,
}

/// Everybody. `now` is the time that all traffic bears, so that a midnight during the demonstration changes no count.
pub(super) fn subjects(now: UnixMs, receivers: ReceiverUrls<'_>) -> anyhow::Result<Vec<SimulatedSubject>> {
    let steady = |name: &str| Contact::webhook(&format!("{}/{name}", receivers.steady), secret::generate());
    let flaky = |name: &str| Contact::webhook(&format!("{}/{name}", receivers.flaky), secret::generate());
    let mail = |name: &str| Contact::email(&format!("{name}@example.com"));

    let alice = SubjectBuilder::new("alice").plan("free", FREE_LIMIT).contacts(vec![mail("alice")]);
    let bob =
        SubjectBuilder::new("bob").plan("pro", PRO_LIMIT).zone(Tz::Asia__Ho_Chi_Minh).contacts(vec![steady("bob")]);
    let carol = SubjectBuilder::new("carol").limit("requests", 3_000).zone(Tz::America__New_York);
    let carol = carol.contacts(vec![mail("carol"), steady("carol")]);
    let dave = SubjectBuilder::new("dave").limit("requests", 8_000).contacts(vec![mail("dave")]);
    let erin = SubjectBuilder::new("erin").plan("free", FREE_LIMIT);
    let frank = SubjectBuilder::new("frank").limit("requests", 2_000).thresholds(&[75]).contacts(vec![flaky("frank")]);
    let grace = SubjectBuilder::new("grace").limit("tokens", 1_000_000).zone(Tz::Europe__Berlin);
    let grace = grace.contacts(vec![steady("grace")]);
    let mallory = SubjectBuilder::new("mallory").metric("bytes");

    [
        alice.uses(8_000, UnitsPerEvent::Always(1)).repeats(20),
        bob.uses(5_000, UnitsPerEvent::Always(5)).repeats(25),
        // Crosses both before the daemon is killed, so that the next one could raise them again.
        carol.uses(7_200, UnitsPerEvent::Always(1)),
        dave.uses(4_960, UnitsPerEvent::Always(1)),
        erin.uses(4_600, UnitsPerEvent::Always(1)),
        frank.uses(2_600, UnitsPerEvent::Always(1)),
        grace.uses(2_150, UnitsPerEvent::Varying(400)).repeats(50),
        // Fills its counter to the brim with one event, so that a later one must be refused.
        mallory.uses(1, UnitsPerEvent::Always(COUNTER_MAX)),
    ]
    .into_iter()
    .map(|builder| builder.finish(now))
    .collect()
}

/// An simulated while it is being described.
#[derive(Debug)]
struct SubjectBuilder {
    name: &'static str,
    metric: &'static str,
    limit: Option<u64>,
    thresholds: Vec<u16>,
    zone: Tz,
    contacts: Vec<Contact>,
    fields: Vec<HashField>,
    events: u32,
    units: UnitsPerEvent,
    repeat_every: Option<u32>,
}

impl SubjectBuilder {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            metric: "requests",
            limit: None,
            thresholds: PLAN_THRESHOLDS.to_vec(),
            zone: Tz::UTC,
            contacts: vec![Contact::email(FALLBACK_ADDRESS)],
            fields: Vec::new(),
            events: 0,
            units: UnitsPerEvent::Always(1),
            repeat_every: None,
        }
    }

    fn metric(mut self, metric: &'static str) -> Self {
        self.metric = metric;
        self
    }

    fn plan(mut self, plan: &str, limit: u64) -> Self {
        self.limit = Some(limit);
        self.field(PLAN.to_owned(), plan.to_owned())
    }

    fn limit(mut self, metric: &'static str, limit: u64) -> Self {
        self.metric = metric;
        self.limit = Some(limit);
        self.field(format!("{LIMIT_PREFIX}{metric}"), limit.to_string())
    }

    fn thresholds(mut self, percents: &[u16]) -> Self {
        self.thresholds = percents.to_vec();
        let written: Vec<String> = percents.iter().map(ToString::to_string).collect();
        self.field(THRESHOLDS.to_owned(), written.join(","))
    }

    fn zone(mut self, zone: Tz) -> Self {
        self.zone = zone;
        self.field(TIMEZONE.to_owned(), zone.name().to_owned())
    }

    fn contacts(mut self, contacts: Vec<Contact>) -> Self {
        let json = serde_json::to_string(&contacts).expect("contacts are plain strings");
        self.contacts = contacts;
        self.field(CONTACTS.to_owned(), json)
    }

    fn field(mut self, name: String, value: String) -> Self {
        self.fields.push(HashField { name, value });
        self
    }

    fn uses(mut self, events: u32, units: UnitsPerEvent) -> Self {
        self.events = events;
        self.units = units;
        self
    }

    fn repeats(mut self, every: u32) -> Self {
        self.repeat_every = Some(every);
        self
    }

    fn finish(self, now: UnixMs) -> anyhow::Result<SimulatedSubject> {
        let span = DaySpan::containing(self.zone, now).ok_or_else(|| {
            hint::failed(format_args!("the clock of this machine says {now}, which no calendar holds"), "set the clock")
        })?;
        Ok(SimulatedSubject {
            subject: Subject::parse(self.name.as_bytes())?,
            metric: Metric::parse(self.metric.as_bytes())?,
            limit: self.limit.and_then(Units::new),
            thresholds: self.thresholds.into_iter().filter_map(Percent::new).collect(),
            day: span.day,
            contacts: self.contacts,
            fields: self.fields,
            events: self.events,
            units: self.units,
            repeat_every: self.repeat_every,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The demonstration promises that several cross both thresholds, one crosses one, and one stays below.
    #[test]
    fn some_cross_their_thresholds_and_one_does_not() {
        let receivers = ReceiverUrls { steady: "http://127.0.0.1:1", flaky: "http://127.0.0.1:2" };
        let subjects = subjects(UnixMs(1_795_250_000_000), receivers).expect("a scenario");
        let reached = |name: &str| -> Vec<u16> {
            let simulated =
                subjects.iter().find(|simulated| simulated.subject.as_str() == name).expect("in the scenario");
            simulated.reached().into_iter().map(Percent::get).collect()
        };
        for name in ["alice", "bob", "carol"] {
            assert_eq!(reached(name), [80, 100], "{name}");
        }
        assert_eq!((reached("erin"), reached("grace"), reached("frank")), (vec![80], vec![80], vec![75]));
        assert!(reached("dave").is_empty() && reached("mallory").is_empty());
    }
}
