//! The load: a million events over ten thousand subjects, a few busy and most not (Zipf, s = 1), with limits that make
//! a known set of alerts due. The same in every run.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use quotabell::types::units::UNITS_MAX;
use quotabell::types::{Day, Keys, Metric, PartitionNumber, Percent, Separator, Subject, UnixMs};
use redis::Connection;

use crate::machine;

/// The stream of usage events.
pub const STREAM: &str = "usage";
/// The stream of the events; each drain gets a copy of it, and may trim the copy.
const MASTER: &str = "bench:events";
/// The thresholds of every subject.
pub const PERCENTS: [u16; 2] = [80, 100];
/// Entries per pipeline while loading.
const AT_ONCE: usize = 1000;
/// Minimum time before midnight (UTC) for a start, because a later load could end on the next day, with its alerts.
const BEFORE_MIDNIGHT: Duration = Duration::from_secs(180);

/// One event of the load.
#[derive(Debug, Clone, Copy)]
struct Event {
    subject: usize,
    units: u64,
}

/// The shape of a load.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Number of subjects.
    pub subjects: usize,
    /// Whether each subject has limits per hour, day and month; otherwise per day only. Only the daily limit is ever
    /// reached.
    pub three_windows: bool,
    /// Whether each event has an id.
    pub ids: bool,
    /// Whether the subjects are keys of organizations with ten teams of ten keys.
    pub paths: bool,
    /// The character between the parts of subjects, if events count for teams and organizations too.
    pub separator: Separator,
}

impl Shape {
    /// Daily limits, and no ids.
    pub const fn of_subjects(subjects: usize) -> Self {
        Self { subjects, three_windows: false, ids: false, paths: false, separator: Separator::NONE }
    }
}

/// Events and their expected result.
#[derive(Debug)]
pub struct Load {
    shape: Shape,
    /// The subjects.
    pub subjects: Vec<Subject>,
    /// Daily limit of each subject, units.
    limits: Vec<u64>,
    events: Vec<Event>,
    /// The day of all events.
    pub day: Day,
}

/// The expected result of the first events.
#[derive(Debug)]
pub struct Expected {
    /// Each subject's count.
    pub counts: Vec<u64>,
    /// `<percent>:<subject>` of every due alert.
    pub alerts: BTreeSet<String>,
}

impl Load {
    /// `entries` events of this shape, all today.
    pub fn new(entries: usize, shape: Shape) -> anyhow::Result<Self> {
        let Shape { subjects, .. } = shape;
        let picker = Zipf::new(subjects);
        let mut random = XorShift(0x0123_4567_89ab_cdef);
        let events: Vec<Event> = (0..entries)
            .map(|_| Event { subject: picker.pick(random.fraction()), units: 1 + random.next() % 9 })
            .collect();
        let mut counts = vec![0; subjects];
        events.iter().for_each(|event| counts[event.subject] += event.units);
        let limits = counts.iter().enumerate().map(|(at, count)| limit_of(at, *count)).collect();
        // Scattered, so that names are not in the order of popularity.
        let name = |at: usize| {
            let at = (at * 7919 + 13) % 10_000_000;
            match shape.paths {
                true => format!("org-{}/team-{}/key-{at}", at % 100, at / 100 % 10).parse(),
                false => format!("user-{at:07}").parse(),
            }
        };
        let subjects = (0..subjects).map(name).collect::<Result<_, _>>()?;
        Ok(Self { shape, subjects, limits, events, day: today()? })
    }

    /// The separator of its subjects.
    pub const fn separator(&self) -> Separator {
        self.shape.separator
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Appends all events to the stream that [`reset`] copies.
    pub fn append(&self, connection: &mut Connection) -> anyhow::Result<()> {
        for (chunk, first) in self.events.chunks(AT_ONCE).zip((0..).step_by(AT_ONCE)) {
            let mut pipeline = redis::pipe();
            for (event, number) in chunk.iter().zip(first..) {
                let subject = self.subjects[event.subject].as_str();
                pipeline.cmd("XADD").arg(MASTER).arg("*").arg("subject").arg(subject);
                pipeline.arg("units").arg(event.units);
                if self.shape.ids {
                    // As long as a random id: 22 characters.
                    let id: u64 = number;
                    pipeline.arg("id").arg(format!(
                        "{:016x}{:06x}",
                        id.wrapping_mul(0x9E37_79B9_7F4A_7C15),
                        id % 0xff_ffff
                    ));
                }
                pipeline.ignore();
            }
            let () = pipeline.query(connection).context("append events")?;
        }
        Ok(())
    }

    /// Pipelines that append the events to this number of partitions, each with its partition.
    pub fn partitioned(&self, partitions: usize) -> anyhow::Result<Vec<(usize, redis::Pipeline)>> {
        let count = u32::try_from(partitions)?;
        let streams: Vec<String> = PartitionNumber::all(count).map(|number| number.stream(STREAM)).collect();
        let of: Vec<usize> = self
            .subjects
            .iter()
            .map(|subject| {
                PartitionNumber::of_subject(subject.as_str().as_bytes(), Separator::NONE, count).get() as usize
            })
            .collect();
        let mut pipelines = Vec::new();
        for chunk in self.events.chunks(AT_ONCE * partitions) {
            let mut some = vec![redis::pipe(); partitions];
            for event in chunk {
                let (at, subject) = (of[event.subject], self.subjects[event.subject].as_str());
                some[at].cmd("XADD").arg(&streams[at]).arg("*").arg("subject").arg(subject);
                some[at].arg("units").arg(event.units).ignore();
            }
            pipelines.extend(some.into_iter().enumerate());
        }
        Ok(pipelines)
    }

    /// Writes each subject's limit to its hash.
    pub fn write_limits(&self, connection: &mut Connection) -> anyhow::Result<()> {
        for (subjects, limits) in self.subjects.chunks(AT_ONCE).zip(self.limits.chunks(AT_ONCE)) {
            let mut pipeline = redis::pipe();
            for (subject, limit) in subjects.iter().zip(limits) {
                let limits = match self.shape.three_windows {
                    true => format!("{UNITS_MAX}/hour {limit}/day {UNITS_MAX}/month"),
                    false => limit.to_string(),
                };
                pipeline.hset(Keys::new(STREAM).subject(subject), limit_field(), limits).ignore();
            }
            // Limits of the levels above that are never reached, so that their thresholds are judged.
            for above in subjects.iter().flat_map(|subject| self.shape.separator.ancestors(subject)) {
                pipeline.hset(Keys::new(STREAM).subject(&above), limit_field(), UNITS_MAX).ignore();
            }
            let () = pipeline.query(connection).context("write limits")?;
        }
        Ok(())
    }

    /// The expected result of the first `entries` events.
    pub fn expected(&self, entries: usize) -> Expected {
        let mut counts = vec![0; self.subjects.len()];
        self.events[..entries].iter().for_each(|event| counts[event.subject] += event.units);
        let mut alerts = BTreeSet::new();
        for ((subject, limit), count) in self.subjects.iter().zip(&self.limits).zip(&counts) {
            for percent in PERCENTS {
                if count * 100 >= limit * u64::from(percent) {
                    alerts.insert(format!("{percent}:{subject}"));
                }
            }
        }
        Expected { counts, alerts }
    }
}

/// The field of the limit in a subject's hash.
pub fn limit_field() -> String {
    format!("limit:{}", Metric::default())
}

/// Of twenty subjects one ends at 111 % of its limit, one at 87 %, one passes both thresholds early; the others stay at
/// 25 %.
fn limit_of(at: usize, count: u64) -> u64 {
    let count = count.max(10);
    match at % 20 {
        0 => count * 9 / 10,
        1 => count * 115 / 100,
        2 => (count / 100).max(1),
        _ => count * 4,
    }
}

/// Today in UTC; waits for tomorrow if midnight is near.
fn today() -> anyhow::Result<Day> {
    let now = machine::today();
    let day_ms = 86_400_000;
    let left = Duration::from_millis(u64::try_from(day_ms - now.timestamp_millis().rem_euclid(day_ms))?);
    if left < BEFORE_MIDNIGHT {
        println!("midnight (UTC) is near: waiting {} s for it, so that all events are of one day", left.as_secs() + 1);
        std::thread::sleep(left + Duration::from_secs(1));
    }
    Day::in_utc(UnixMs(machine::today().timestamp_millis())).context("the clock shows no date")
}

/// Compares the daemon's stored results with the expected ones.
pub fn audit(connection: &mut Connection, load: &Load, expected: &Expected) -> anyhow::Result<()> {
    let (counts, alerts) = books(connection, load)?;
    let in_outbox: usize = redis::cmd("XLEN").arg(Keys::new(STREAM).outbox()).query(connection)?;
    anyhow::ensure!(in_outbox == alerts.len(), "{in_outbox} alerts in the outbox, {} recorded", alerts.len());
    compare(&counts, &alerts, expected)
}

/// The same after all events, when alerts may have left the outbox.
pub fn audit_all(connection: &mut Connection, load: &Load) -> anyhow::Result<()> {
    let (counts, alerts) = books(connection, load)?;
    compare(&counts, &alerts, &load.expected(load.len()))
}

/// Each subject's count, and `<percent>:<subject>` of every alert.
fn books(connection: &mut Connection, load: &Load) -> anyhow::Result<(Vec<u64>, BTreeSet<String>)> {
    let keys = Keys::new(STREAM);
    let metric = Metric::default();
    let mut counts = std::collections::HashMap::new();
    let mut alerts = BTreeSet::new();
    for bucket in 0..=u8::MAX {
        let (usage, raised) = (keys.usage(&metric, load.day, bucket), keys.raised(&metric, load.day, bucket));
        let (page, records): (Vec<(String, u64)>, Vec<String>) =
            redis::pipe().hgetall(usage).hkeys(raised).query(connection).context("read the books")?;
        counts.extend(page);
        alerts.extend(records);
    }
    let count_of = |subject: &Subject| counts.get(subject.as_str()).copied().unwrap_or(0);
    Ok((load.subjects.iter().map(count_of).collect(), alerts))
}

/// Fails if a count or an alert is wrong.
pub fn compare(counts: &[u64], alerts: &BTreeSet<String>, expected: &Expected) -> anyhow::Result<()> {
    let (counted, due) = (counts.iter().sum::<u64>(), expected.counts.iter().sum::<u64>());
    anyhow::ensure!(counts == expected.counts, "counted {counted} units instead of {due}, or for the wrong subjects");
    let wrong: Vec<_> = alerts.symmetric_difference(&expected.alerts).take(5).collect();
    anyhow::ensure!(wrong.is_empty(), "{} alerts instead of {}: {wrong:?}", alerts.len(), expected.alerts.len());
    Ok(())
}

/// Removes everything that a drain wrote, and makes a fresh copy of the stream.
pub fn reset(connection: &mut Connection) -> anyhow::Result<()> {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(connection)?;
    let ours = |key: &&String| *key != MASTER && !key.starts_with(quotabell::types::keys::SUBJECT_PREFIX_DEFAULT);
    let doomed: Vec<&String> = keys.iter().filter(ours).collect();
    for chunk in doomed.chunks(AT_ONCE) {
        let () = redis::cmd("DEL").arg(chunk).query(connection)?;
    }
    let copied: bool = redis::cmd("COPY").arg(MASTER).arg(STREAM).query(connection)?;
    anyhow::ensure!(copied, "the stream could not be copied");
    Ok(())
}

/// The highest threshold of this load that `count` of `limit` has reached, and the lower ones.
pub fn reached(count: u64, limit: u64) -> impl Iterator<Item = Percent> {
    let is = move |percent: &u16| count * 100 >= limit * u64::from(*percent);
    PERCENTS.into_iter().filter(is).filter_map(Percent::new)
}

/// Picks a rank with a probability proportional to 1 / rank.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(ranks: usize) -> Self {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=ranks)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        up_to.iter_mut().for_each(|share| *share /= sum);
        Self(up_to)
    }

    fn pick(&self, fraction: f64) -> usize {
        self.0.partition_point(|share| *share < fraction).min(self.0.len() - 1)
    }
}

/// Marsaglia's xorshift64: good enough for a load, and the same in every run.
struct XorShift(u64);

impl XorShift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// In [0, 1).
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
