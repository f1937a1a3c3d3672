//! The scenario, from `scenario.toml`: usage by subject, and the events that must be refused.
//!
//! The expected results are computed from this file only, never read from the daemon. Events are sent with a plain
//! XADD.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use tokio::time::{Instant, interval};

use super::expected::{INSTANCE, SimulatedAlert, SimulatedKind};
use crate::actions::grants::{self, NewGrant};
use crate::channels::webhook::secret;
use crate::contacts::Contact;
use crate::contacts::array::CONTACTS;
use crate::forecast::{DayCount, UsageProfile};
use crate::redis_client::{Partition, Partitions};
use crate::subjects::Plans;
use crate::subjects::config::PlanConfig;
use crate::subjects::record::TIMEZONE;
use crate::types::{Day, DaySpan, Keys, Metric, Separator, Subject, Units, UnixMs, Window, keys};
use crate::zones::Zone;

/// The scenario; {steady} and {flaky} are the URLs of receivers.
pub(super) const FILE: &str = include_str!("scenario.toml");
/// The separator of the daemon's subjects.
pub(super) const SEPARATOR: &str = "/";
/// The daemon's default plan.
const PLAN: &str = "free";
/// The id of the grant that a subject has bought before.
const FIRST_GRANT: &str = "invoice-1";
/// The id of the grant that it buys during the traffic.
pub(super) const SECOND_GRANT: &str = "invoice-2";
/// The fallback contact: it gets the alerts of subjects without contacts.
pub(super) const FALLBACK_ADDRESS: &str = "ops@example.com";
/// Interval between two writes of events.
const TICK: Duration = Duration::from_millis(40);
/// Delay of a repeated event after its first sending, as a share of the traffic.
const REPEAT_AFTER: f64 = 0.005;
/// Number of earlier days from which a subject's usual usage is known.
const USUAL_DAYS: i32 = 14;

#[derive(Deserialize)]
struct File {
    subjects: Vec<SubjectUse>,
    refused: Vec<BadEvent>,
}

/// A subject and its usage, as in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubjectUse {
    pub(super) subject: Subject,
    #[serde(default)]
    pub(super) metric: Metric,
    /// The expected alerts and notices, which follow from `fields` or the plan and the usage: `80 % of 5000/day`,
    /// `forecast of 5000/day`, and after all alerts of a limit `end of 5000/day`.
    #[serde(default)]
    alerts: Vec<String>,
    /// The fields of its hash; empty for a subject unknown to Redis.
    #[serde(default)]
    fields: BTreeMap<String, String>,
    /// Email addresses and URLs.
    #[serde(default)]
    contacts: Vec<String>,
    /// Further fields of each of them.
    #[serde(default)]
    options: BTreeMap<String, serde_json::Value>,
    /// The units of its first grant.
    pub(super) grant: Option<Units>,
    /// Units of each hour of the days before.
    usual_per_hour: Option<u64>,
    /// Units of an event that is sent before the daemon starts.
    morning: Option<u64>,
    #[serde(default)]
    events: u32,
    #[serde(default)]
    units: Vec<u64>,
    repeat_every: Option<u32>,
    #[serde(default)]
    pub(super) holds: Vec<Hold>,
}

/// All traffic waits for an alert, and then for new fields of the subject's hash or another grant.
#[derive(Deserialize)]
pub(super) struct Hold {
    /// The share of the traffic before it.
    at: f64,
    /// The alert that must arrive.
    pub(super) after: String,
    #[serde(default)]
    pub(super) fields: BTreeMap<String, String>,
    /// The units of the grant.
    pub(super) grant: Option<Units>,
}

#[derive(Deserialize)]
struct BadEvent {
    reason: String,
    /// Names and values in turn.
    fields: Vec<String>,
}

pub(super) struct SimulatedSubject {
    pub(super) uses: SubjectUse,
    /// The day in its zone to which the traffic belongs.
    pub(super) day: Day,
    pub(super) alerts: Vec<SimulatedAlert>,
    /// Whom its alerts reach; the fallback contact where it has none of its own.
    pub(super) contacts: Vec<Contact>,
}

/// A hold: its subject, and the alert that it waits for.
pub(super) type HoldName = (Subject, String);

/// Everybody, and everything that will be sent.
pub(super) struct Scenario {
    pub(super) subjects: Vec<SimulatedSubject>,
    /// How many events must be refused, by reason.
    pub(super) refused: BTreeMap<String, u64>,
    /// How many events bear an id that was sent before.
    pub(super) repeated: u64,
    /// The time of all events.
    now: UnixMs,
    /// The fields of every event, name and value in turn, in the order of sending.
    events: Vec<Vec<Vec<u8>>>,
}

impl SubjectUse {
    /// The units of its own events.
    fn own_units(&self) -> u64 {
        self.morning.unwrap_or(0) + self.units.iter().cycle().take(self.events as usize).sum::<u64>()
    }

    /// The number of its events that count.
    pub(super) fn counted(&self) -> u64 {
        u64::from(self.events) + u64::from(self.morning.is_some())
    }
}

impl SimulatedSubject {
    /// Whether its contacts get one message for what comes within a time.
    pub(super) fn has_digest(&self) -> bool {
        self.uses.options.contains_key("digest")
    }

    /// Its alerts, without notices.
    pub(super) fn raised(&self) -> impl Iterator<Item = &SimulatedAlert> {
        self.alerts.iter().filter(|expected| expected.kind == SimulatedKind::Alert)
    }
}

impl Scenario {
    /// Reads the scenario and spreads everybody's events evenly from beginning to end, so that all counts grow at once.
    /// All events bear the time `now`, so that a midnight during the demonstration changes no count. Pure.
    pub(super) fn parse(file: &str, now: UnixMs) -> anyhow::Result<Self> {
        let hours = |hours: i64| now.plus(hours * 3_600_000).0.to_string();
        let file = file.replace("{3 days ago}", &hours(-72)).replace("{in 2 hours}", &hours(2));
        // These names count hours to the west.
        let noon = format!("Etc/GMT{:+}", now.0.div_euclid(3_600_000).rem_euclid(24) - 12);
        let file = file.replace("{noon}", &noon);
        let File { subjects, refused: bad } = toml::from_str(&file)?;
        let subjects = subjects.into_iter().map(|uses| uses.at(now)).collect::<anyhow::Result<Vec<_>>>()?;
        let (mut placed, mut repeated, mut refused) = (Vec::new(), 0, BTreeMap::new());
        for SimulatedSubject { uses, .. } in &subjects {
            for number in 0..uses.events {
                let place = (f64::from(number) + 0.5) / f64::from(uses.events);
                if uses.repeat_every.is_some_and(|every| number % every == 0) {
                    repeated += 1;
                    placed.push((place + REPEAT_AFTER, uses.event(number, now)));
                }
                placed.push((place, uses.event(number, now)));
            }
        }
        for (index, event) in bad.iter().enumerate() {
            let latin1 = |text: &String| text.chars().map(|letter| letter as u8).collect();
            let place = (index + 1) as f64 / (bad.len() + 1) as f64;
            placed.push((place, event.fields.iter().map(latin1).collect::<Vec<Vec<u8>>>()));
            *refused.entry(event.reason.clone()).or_default() += 1;
        }
        placed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        Ok(Self { subjects, refused, repeated, now, events: placed.into_iter().map(|(_, event)| event).collect() })
    }

    pub(super) fn events(&self) -> u64 {
        self.events.len() as u64
    }

    /// The units that a subject and those below it use of its metric.
    pub(super) fn total_units(&self, SimulatedSubject { uses, .. }: &SimulatedSubject) -> u64 {
        let separator = separator();
        let (subject, metric) = (uses.subject.as_str(), &uses.metric);
        let counts = self.subjects.iter().map(|other| &other.uses).filter(|other| {
            let name = other.subject.as_str();
            other.metric == *metric && (name == subject || separator.is_below(name, subject))
        });
        counts.map(SubjectUse::own_units).sum()
    }

    /// Adds the grants that subjects have bought before, as `quotabell grant add` does.
    pub(super) async fn add_grants(&self, partitions: &Partitions) -> anyhow::Result<()> {
        for SimulatedSubject { uses, .. } in &self.subjects {
            if let Some(units) = uses.grant {
                add_grant(partitions, uses, units, FIRST_GRANT).await?;
            }
        }
        Ok(())
    }

    /// Writes the subjects' hashes with plain HSET, as a platform does, and what is known of the time before. How many
    /// there are.
    pub(super) async fn write_subjects(&self, partitions: &Partitions) -> anyhow::Result<usize> {
        let mut pipeline = redis::pipe();
        for Partition { keys, .. } in partitions.iter() {
            pipeline.cmd("HSET").arg(keys.checkpoint()).arg("instance").arg(INSTANCE).ignore();
        }
        let Partition { client, keys } = partitions.first();
        for SimulatedSubject { uses, .. } in self.subjects.iter().filter(|simulated| !simulated.uses.fields.is_empty())
        {
            pipeline.cmd("HSET").arg(keys.subject(&uses.subject)).arg(&uses.fields);
        }
        let replies: Vec<u64> = client.pipe(&pipeline).await.context("write the subjects")?;
        let mut before = redis::pipe();
        for SimulatedSubject { uses, day, .. } in &self.subjects {
            let SubjectUse { subject, metric, .. } = uses;
            let Partition { keys, .. } = partitions.partition_of(subject);
            if let Some(units) = uses.usual_per_hour {
                let profile = usual(i32::try_from(day.since_epoch())?, units).to_stored();
                let key = keys.profiles(metric, keys::bucket(subject.as_str()));
                before.cmd("HSET").arg(key).arg(subject.as_str()).arg(profile);
            }
            if let Some(units) = uses.morning {
                before.cmd("XADD").arg(keys.stream()).arg("*").arg(uses.fields_of(units, self.now));
            }
        }
        let () = client.pipe(&before).await.context("write what was used before")?;
        Ok(replies.len())
    }

    /// All holds, each with the name by which it is known.
    pub(super) fn holds(&self) -> impl Iterator<Item = (HoldName, &SimulatedSubject, &Hold)> {
        self.subjects.iter().flat_map(|simulated| {
            let holds = simulated.uses.holds.iter();
            holds.map(move |hold| ((simulated.uses.subject.clone(), hold.after.clone()), simulated, hold))
        })
    }

    /// How many events are sent before the next hold that is not among those that are over.
    pub(super) fn held_at(&self, over: &BTreeSet<HoldName>) -> u64 {
        let places = self.holds().filter(|(name, ..)| !over.contains(name)).map(|(.., hold)| hold.at);
        let place = places.min_by(f64::total_cmp);
        place.map_or(u64::MAX, |place| (place * self.events() as f64) as u64)
    }

    /// Sends everything, evenly over `duration`, and tells `sent` how far it is. Waits where as much was sent as
    /// `allowed` says.
    pub(super) async fn send(
        &self,
        partitions: &Partitions,
        duration: Duration,
        sent: &Cell<u64>,
        allowed: &Cell<u64>,
    ) -> anyhow::Result<()> {
        let Partition { client, keys } = partitions.first();
        let (mut started, mut ticks, all) = (Instant::now(), interval(TICK), self.events.len());
        while sent.get() < self.events() {
            ticks.tick().await;
            if sent.get() >= allowed.get() {
                started += TICK;
                continue;
            }
            let share = started.elapsed().as_secs_f64() / duration.as_secs_f64();
            let done = sent.get() as usize;
            let due = ((all as f64 * share) as usize).clamp(done + 1, all).min(allowed.get() as usize);
            let mut pipeline = redis::pipe();
            for event in &self.events[done..due] {
                pipeline.cmd("XADD").arg(stream_of(keys, event)).arg("*").arg(event);
            }
            client.pipe::<()>(&pipeline).await.with_context(|| format!("append events to {}", keys.name()))?;
            sent.set(due as u64);
        }
        Ok(())
    }
}

/// The separator of the daemon's subjects.
pub(super) fn separator() -> Separator {
    SEPARATOR.parse().expect("a separator")
}

/// Grants units of its metric to a subject, once under this id.
pub(super) async fn add_grant(
    partitions: &Partitions,
    SubjectUse { subject, metric, .. }: &SubjectUse,
    units: Units,
    id: &str,
) -> anyhow::Result<()> {
    let (metric, window, id) = (metric.clone(), Window::Total, Some(id.parse()?));
    let grant = NewGrant { metric, units, window, expires_at: None, id, note: None };
    // The limit is the subject's own, not that of a plan.
    let plans = Plans::new(&[(PLAN.to_owned(), PlanConfig::default())].into(), PLAN)?.by_level(separator(), &[])?;
    grants::add(partitions.partition_of(subject), &plans, subject, &grant).await?;
    Ok(())
}

/// What a daemon has learned of a subject with these units in each hour, at the end of the day before `day`.
fn usual(day: i32, units: u64) -> UsageProfile {
    // The first day teaches nothing.
    let mut profile = UsageProfile::beginning(day - USUAL_DAYS - 1);
    for day in day - USUAL_DAYS..day {
        for hour in 1..=24_u32 {
            let (hour, units) = (f64::from(hour), u64::from(hour) * units);
            profile.observe(DayCount { day, since: hour - 1.0, hour, units });
        }
    }
    profile
}

/// The stream that a producer chooses for these fields; any one where they name no subject.
fn stream_of(keys: &Keys, event: &[Vec<u8>]) -> String {
    let subject = event.chunks_exact(2).find_map(|pair| (pair[0] == b"subject").then_some(&pair[1]));
    keys.partition_of(subject.map_or(&[], Vec::as_slice)).stream(keys.name())
}

impl SubjectUse {
    fn at(mut self, now: UnixMs) -> anyhow::Result<SimulatedSubject> {
        let contact = |address: &String| match address.contains('@') {
            true => Contact::email(address),
            false => Contact::webhook(address, secret::generate()),
        };
        let mut contacts: Vec<Contact> = self.contacts.iter().map(contact).collect();
        if contacts.is_empty() {
            contacts.push(Contact::email(FALLBACK_ADDRESS));
        } else {
            let mut stored = serde_json::to_value(&contacts)?;
            for contact in stored.as_array_mut().into_iter().flatten().filter_map(serde_json::Value::as_object_mut) {
                contact.extend(self.options.clone());
            }
            self.fields.insert(CONTACTS.to_owned(), stored.to_string());
        }
        let zone: Zone = self.fields.get(TIMEZONE).map_or(Ok(Zone::UTC), |zone| zone.parse())?;
        let span =
            DaySpan::containing(zone, now).with_context(|| format!("the clock says {now}, which is in no day"))?;
        let mut alerts: Vec<SimulatedAlert> = Vec::new();
        for what in &self.alerts {
            alerts.push(SimulatedAlert::parse(what, (&self.subject, &self.metric), (zone, now), &alerts)?);
        }
        Ok(SimulatedSubject { uses: self, day: span.day, alerts, contacts })
    }

    fn event(&self, number: u32, now: UnixMs) -> Vec<Vec<u8>> {
        let Self { subject, units, repeat_every, .. } = self;
        let mut fields = self.fields_of(units[number as usize % units.len()], now);
        if repeat_every.is_some() {
            fields.extend([b"id".to_vec(), format!("{subject}-{number}").into_bytes()]);
        }
        fields
    }

    fn fields_of(&self, units: u64, now: UnixMs) -> Vec<Vec<u8>> {
        let Self { subject, metric, .. } = self;
        let fields = format!("subject {subject} metric {metric} units {units} ts {}", now.0);
        fields.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The scenario at a fixed time.
    pub(crate) fn sample() -> Scenario {
        Scenario::parse(FILE, UnixMs(1_795_250_000_000)).expect("a scenario")
    }

    /// An event that is not sent, or an overflow that comes before its counter is full, would make the expected sums
    /// wrong.
    #[test]
    fn every_event_is_sent_and_the_counter_is_full_before_it_overflows() {
        let scenario = sample();
        let once: u64 = scenario.subjects.iter().map(|simulated| u64::from(simulated.uses.events)).sum();
        assert!(scenario.repeated > 100);
        let counted: u64 = scenario.subjects.iter().map(|simulated| simulated.uses.counted()).sum();
        assert_eq!(counted, once + 1, "one event comes before the daemon");
        assert_eq!(scenario.events(), once + scenario.repeated + scenario.refused.values().sum::<u64>());
        let of_mallory = scenario.events.iter().filter(|event| event.contains(&b"mallory".to_vec()));
        assert_eq!(of_mallory.map(Vec::len).collect::<Vec<_>>(), [8, 6], "the good one, which has a time, comes first");
    }
}
