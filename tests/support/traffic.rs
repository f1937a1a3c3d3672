//! Usage events as real producers send them, good and bad, and the plain books that they must lead to. The books know neither
//! Redis nor batches: a map, filled in the order of the stream.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::collections::{BTreeMap, HashSet, VecDeque};

use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveTime, TimeZone, Utc};
use chrono_tz::Tz;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The largest counter.
const COUNT_MAX: u64 = (1 << 53) - 1;
/// `stream.late_max` of the default configuration.
const LATE_MAX_MS: i64 = 5 * 3_600_000;
/// Hours back that an event's `ts` may lie; beyond some of them its day is over too long.
const TS_HOURS_BACK: i64 = 40;
/// How many ids are remembered to be sent again.
const IDS_KEPT: usize = 400;
/// What subjects without limits of their own may use a day, as the plan `free` of the test says.
pub const FREE_LIMIT: u64 = 300;
/// The metrics of events. The plan limits `requests`; of the last nobody has a limit.
const METRICS: [&str; 3] = ["requests", "tokens", "bytes_out"];
const ZONES: [&str; 6] =
    ["UTC", "Asia/Ho_Chi_Minh", "America/St_Johns", "Pacific/Kiritimati", "Antarctica/Troll", "Pacific/Pago_Pago"];
/// The subject whose counter runs full.
const WHALE: &str = "whale";

/// Who is metered.
#[derive(Debug, Clone)]
pub struct Customer {
    pub subject: String,
    pub zone: Tz,
    /// Limits of its own by metric; `requests` has the plan's limit where none is here.
    pub limits: BTreeMap<&'static str, Vec<Limit>>,
    pub billing_day: u32,
    pub thresholds: Vec<u64>,
    /// How many contacts it has.
    pub contacts: usize,
    /// Whether Redis knows it.
    pub known: bool,
}

/// Units a window.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub window: &'static str,
    pub units: u64,
}

impl Customer {
    fn limits(&self, metric: &str) -> Vec<Limit> {
        let of_plan = (metric == "requests").then_some(Limit { window: "day", units: FREE_LIMIT });
        self.limits.get(metric).cloned().unwrap_or_else(|| of_plan.into_iter().collect())
    }

    /// The periods in which an event counts, by window: the day's always, others where a limit asks.
    fn periods(&self, metric: &str, at: DateTime<Utc>) -> BTreeMap<&'static str, String> {
        let limits = self.limits(metric);
        let windows = limits.iter().map(|limit| limit.window).chain(["day"]);
        windows.map(|window| (window, self.period(window, at))).collect()
    }

    fn period(&self, window: &str, at: DateTime<Utc>) -> String {
        let date = at.with_timezone(&self.zone).date_naive();
        match window {
            "hour" => at.format("%Y-%m-%dT%HZ").to_string(),
            "week" => date.format("%G-W%V").to_string(),
            "month" => {
                let first = self.month_of(date);
                if first.day() == 1 { first.format("%Y-%m").to_string() } else { format!("{first}M") }
            }
            _ => date.to_string(),
        }
    }

    /// The date on which the month of a date begins.
    fn month_of(&self, date: NaiveDate) -> NaiveDate {
        let begins_in = |month: NaiveDate| {
            let last = month.with_day(1).expect("a first") + Months::new(1) - Days::new(1);
            last.with_day(self.billing_day.min(last.day())).expect("a day of the month")
        };
        let this = begins_in(date);
        if this <= date { this } else { begins_in(date - Months::new(1)) }
    }
}

/// One event, ready for XADD, with what is expected of it.
#[derive(Debug, Clone)]
pub struct Event {
    pub fields: Vec<Field>,
    expected: Expected,
}

#[derive(Debug, Clone)]
pub struct Field {
    pub name: &'static str,
    pub value: Vec<u8>,
}

#[derive(Debug, Clone)]
enum Expected {
    Refused(&'static str),
    Judged(Usage),
}

#[derive(Debug, Clone)]
struct Usage {
    customer: usize,
    metric: &'static str,
    units: u64,
    /// Whether the units are given back.
    is_credit: bool,
    ts: Option<i64>,
    id: Option<String>,
}

/// Makes events, the same for the same seed and clock.
#[derive(Debug)]
pub struct Traffic {
    seed: u64,
    random: StdRng,
    pub customers: Vec<Customer>,
    sent_ids: VecDeque<Usage>,
    next_id: u64,
}

/// One counter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Counter {
    pub subject: String,
    pub metric: String,
    pub period: String,
}

/// A threshold that was reached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reached {
    pub counter: Counter,
    pub percent: u64,
}

/// What everything must add up to.
#[derive(Debug, Default)]
pub struct Books {
    pub counts: BTreeMap<Counter, u64>,
    /// The most that each counter ever stood at, with its limit.
    peaks: BTreeMap<Counter, Peak>,
    /// Entry id to reason.
    pub refused: BTreeMap<String, &'static str>,
    pub counted: u64,
    pub duplicates: u64,
    pub entries: u64,
    seen: HashSet<String>,
}

#[derive(Debug, Clone, Copy)]
struct Peak {
    units: u64,
    limit: Option<u64>,
}

impl Traffic {
    pub fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut customers: Vec<Customer> = (0..120).map(|number| customer(&mut random, number)).collect();
        customers.push(Customer {
            limits: [("bytes_out", vec![Limit { window: "day", units: COUNT_MAX }])].into(),
            ..plain(WHALE)
        });
        // Redis does not know these: default plan, and nobody to tell.
        customers.extend((0..6).map(|number| Customer {
            known: false,
            contacts: 0,
            ..plain(&format!("stranger {number}"))
        }));
        Self { seed, random, customers, sent_ids: VecDeque::new(), next_id: 0 }
    }

    /// What it was made from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The next event. `now_ms` is the server's time, roughly.
    pub fn event(&mut self, now_ms: i64) -> Event {
        match self.random.random_range(0..100) {
            0..5 => self.bad(now_ms),
            5..13 if !self.sent_ids.is_empty() => self.sent_again(),
            13..15 => self.of_the_whale(),
            _ => self.good(now_ms),
        }
    }

    fn good(&mut self, now_ms: i64) -> Event {
        // The whale is left out: whether its events fit is a matter of their order.
        let customer = self.random.random_range(0..self.customers.len());
        let customer = if self.customers[customer].subject == WHALE { 0 } else { customer };
        let metric = METRICS[self.random.random_range(0..METRICS.len())];
        let units = if self.random.random_bool(0.5) { 1 } else { self.random.random_range(1..20) };
        let back_ms = self.random.random_range(0..TS_HOURS_BACK * 3_600_000);
        // A minute ahead is allowed, and may be tomorrow.
        let ts = self.random.random_bool(0.3).then(|| now_ms + 60_000 - back_ms);
        let id = self.random.random_bool(0.2).then(|| {
            self.next_id += 1;
            format!("id {} \u{0} é", self.next_id)
        });
        // So many that some find less to give back.
        let is_credit = self.random.random_bool(0.05);
        let units = if is_credit { units * 4 } else { units };
        let usage = Usage { customer, metric, units, is_credit, ts, id };
        if usage.id.is_some() {
            self.sent_ids.push_back(usage.clone());
            if self.sent_ids.len() > IDS_KEPT {
                self.sent_ids.pop_front();
            }
        }
        self.event_of(usage)
    }

    /// A producer that did not hear an answer sends again; another one uses an id for other units.
    fn sent_again(&mut self) -> Event {
        let at = self.random.random_range(0..self.sent_ids.len());
        let mut usage = self.sent_ids[at].clone();
        if self.random.random_bool(0.2) {
            usage.units += 1;
        }
        self.event_of(usage)
    }

    fn of_the_whale(&mut self) -> Event {
        let customer = self.customers.iter().position(|customer| customer.subject == WHALE).expect("it is there");
        // Of every size, so that a full counter refuses the large ones and still takes the small ones between them.
        let bits = self.random.random_range(1..50);
        let units = self.random.random_range(1..1_u64 << bits);
        let is_credit = self.random.random_bool(0.05);
        self.event_of(Usage { customer, metric: "bytes_out", units, is_credit, ts: None, id: None })
    }

    fn event_of(&mut self, usage: Usage) -> Event {
        let mut fields = vec![field("subject", &self.customers[usage.customer].subject)];
        // What is the default may be said or left out.
        if usage.is_credit {
            fields.push(field("credit", &usage.units.to_string()));
        } else if usage.units != 1 || self.random.random_bool(0.5) {
            fields.push(field("units", &usage.units.to_string()));
        }
        if usage.metric != "requests" || self.random.random_bool(0.5) {
            fields.push(field("metric", usage.metric));
        }
        if let Some(ts) = usage.ts {
            let rfc3339 = || DateTime::<Utc>::from_timestamp_millis(ts).expect("a time").to_rfc3339();
            let text = if self.random.random_bool(0.5) { ts.to_string() } else { rfc3339() };
            fields.push(field("ts", &text));
        }
        if let Some(id) = &usage.id {
            fields.push(field("id", id));
        }
        if self.random.random_bool(0.1) {
            fields.push(field("note", "of the producer's own"));
        }
        Event { fields, expected: Expected::Judged(usage) }
    }

    fn bad(&mut self, now_ms: i64) -> Event {
        let subject = self.customers[self.random.random_range(0..self.customers.len())].subject.clone();
        let long = "x".repeat(257);
        let ahead = (now_ms + 600_000).to_string();
        let old = (now_ms - 4 * 86_400_000).to_string();
        let (name, value, reason): (&'static str, &[u8], &'static str) = match self.random.random_range(0..25) {
            0 => ("subjekt", b"alice", "missing_subject"),
            1 => ("subject", b"", "bad_subject"),
            2 => ("subject", b"\xff\xfe", "bad_subject"),
            3 => ("subject", b"a\nb", "bad_subject"),
            4 => ("subject", long.as_bytes(), "bad_subject"),
            5 => ("units", b"-1", "bad_units"),
            6 => ("units", b"+1", "bad_units"),
            7 => ("units", b"1.5", "bad_units"),
            8 => ("units", b"1e3", "bad_units"),
            9 => ("units", b"0x10", "bad_units"),
            10 => ("units", b" 5", "bad_units"),
            11 => ("units", b"9007199254740992", "bad_units"),
            12 => ("units", b"1000000000000000000000000000000", "bad_units"),
            13 => ("units", b"NaN", "bad_units"),
            14 => ("units", b"", "bad_units"),
            15 => ("units", b"0", "bad_units"),
            16 => ("metric", b"Requests", "bad_metric"),
            17 => ("metric", b"", "bad_metric"),
            18 => ("metric", "é".as_bytes(), "bad_metric"),
            19 => ("ts", b"2026-11-21", "bad_ts"),
            20 => ("ts", b"yesterday", "bad_ts"),
            21 => ("id", b"", "bad_id"),
            23 => ("credit", b"0", "bad_credit"),
            22 => ("ts", ahead.as_bytes(), "too_far_ahead"),
            _ => ("ts", old.as_bytes(), "too_late"),
        };
        let mut fields = vec![Field { name, value: value.to_vec() }];
        if !name.starts_with("subj") {
            fields.insert(0, field("subject", &subject));
        }
        Event { fields, expected: Expected::Refused(reason) }
    }
}

impl Books {
    /// Enters an event under the id that the stream gave it.
    pub fn enter(&mut self, customers: &[Customer], entry: String, event: &Event) {
        self.entries += 1;
        let reason = match &event.expected {
            Expected::Refused(reason) => Some(*reason),
            Expected::Judged(usage) => self.judge(customers, &entry, usage),
        };
        if let Some(reason) = reason {
            self.refused.insert(entry, reason);
        }
    }

    fn judge(&mut self, customers: &[Customer], entry: &str, usage: &Usage) -> Option<&'static str> {
        let customer = &customers[usage.customer];
        let arrival_ms: i64 = entry.split_once('-').expect("an entry id").0.parse().expect("milliseconds");
        let at = DateTime::from_timestamp_millis(usage.ts.unwrap_or(arrival_ms)).expect("a time");
        let day = at.with_timezone(&customer.zone).date_naive();
        if arrival_ms > first_instant_after(customer.zone, day) + LATE_MAX_MS {
            return Some("too_late");
        }
        let (subject, metric) = (&customer.subject, usage.metric);
        let id = usage.id.as_ref().map(|id| format!("{subject}\n{metric}\n{id}"));
        if id.as_ref().is_some_and(|id| self.seen.contains(id)) {
            self.duplicates += 1;
            return None;
        }
        let counter = |period| Counter { subject: subject.clone(), metric: metric.to_owned(), period };
        let counters: BTreeMap<&str, Counter> =
            customer.periods(metric, at).into_iter().map(|(window, period)| (window, counter(period))).collect();
        let count = |counter| self.counts.get(counter).copied().unwrap_or(0);
        if !usage.is_credit && counters.values().any(|counter| count(counter) + usage.units > COUNT_MAX) {
            return Some("counter_overflow");
        }
        self.seen.extend(id);
        for (window, counter) in counters {
            let limit = customer.limits(metric).iter().find(|limit| limit.window == window).map(|limit| limit.units);
            let count = self.counts.entry(counter.clone()).or_default();
            *count = if usage.is_credit { count.saturating_sub(usage.units) } else { *count + usage.units };
            let peak = self.peaks.entry(counter).or_insert(Peak { units: 0, limit });
            peak.units = peak.units.max(*count);
        }
        self.counted += 1;
        None
    }

    /// The most that a counter ever stood at.
    pub fn peak(&self, counter: &Counter) -> u64 {
        self.peaks[counter].units
    }

    /// Every threshold that was reached, if only for a moment, with its limit. Limits did not change.
    pub fn reached(&self, customers: &[Customer]) -> BTreeMap<Reached, u64> {
        let mut reached = BTreeMap::new();
        for (counter, peak) in &self.peaks {
            let customer = customers.iter().find(|customer| customer.subject == counter.subject).expect("known");
            let Some(limit) = peak.limit else { continue };
            for percent in &customer.thresholds {
                if u128::from(peak.units) * 100 >= u128::from(limit) * u128::from(*percent) {
                    reached.insert(Reached { counter: counter.clone(), percent: *percent }, limit);
                }
            }
        }
        reached
    }
}

fn first_instant_after(zone: Tz, day: NaiveDate) -> i64 {
    let midnight = (day + Days::new(1)).and_time(NaiveTime::MIN);
    // None of our zones changes its clocks at midnight.
    zone.from_local_datetime(&midnight).single().expect("one midnight").timestamp_millis()
}

fn field(name: &'static str, value: &str) -> Field {
    Field { name, value: value.as_bytes().to_vec() }
}

fn plain(subject: &str) -> Customer {
    let thresholds = vec![80, 100];
    Customer {
        subject: subject.to_owned(),
        zone: Tz::UTC,
        limits: BTreeMap::new(),
        billing_day: 1,
        thresholds,
        contacts: 1,
        known: true,
    }
}

fn customer(random: &mut StdRng, number: usize) -> Customer {
    // Names that a careless key would mix up.
    let subject = match number % 5 {
        0 => format!("customer {number}"),
        1 => format!("c:{number}:requests:80"),
        2 => format!("{{usage}}*{number}"),
        3 => format!("kunde é 😀 {number}"),
        _ => format!("c{number}"),
    };
    let zone = ZONES[random.random_range(0..ZONES.len())].parse().expect("a zone");
    let mut limits = BTreeMap::new();
    for metric in &METRICS[..2] {
        if random.random_bool(0.8) {
            let windows: &[&str] = match random.random_range(0..8) {
                0 => &["hour", "day"],
                1 => &["week"],
                2 => &["day", "month"],
                3 => &["hour", "day", "week", "month"],
                _ => &["day"],
            };
            // Spread over orders of magnitude, so that alerts are raised from the first to the last minute.
            let units = |random: &mut StdRng| random.random_range(5..20) << random.random_range(0..9);
            let limit = |window: &&'static str| Limit { window, units: units(random) };
            let own = windows.iter().map(limit).collect();
            limits.insert(*metric, own);
        }
    }
    let thresholds = if random.random_bool(0.3) { vec![33, 50, 100, 150] } else { vec![80, 100] };
    let contacts = [0, 1, 1, 1, 2, 2][random.random_range(0..6)];
    let billing_day = random.random_range(1..=31);
    Customer { limits, billing_day, zone, thresholds, contacts, ..plain(&subject) }
}
