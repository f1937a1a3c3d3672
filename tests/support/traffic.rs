//! Usage events of realistic producers, valid and invalid. [`super::stream_model`] computes the expected result.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::collections::{BTreeMap, VecDeque};

use chrono::{DateTime, Utc};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::stream_model::{COUNT_MAX, Customer, DueAt, Limit, RawField, StreamModel};

/// Maximum age of an event's `ts`, hours; the days of the oldest ones ended too long ago.
const TS_HOURS_BACK: i64 = 40;
/// Number of ids that are remembered for repeated sending.
const IDS_KEPT: usize = 400;
/// Daily limit of subjects without their own limits, from the plan `free` of the test.
pub const FREE_LIMIT: u64 = 300;
/// The metrics of events. The plan limits `requests`; nobody has a limit of the last one.
const METRICS: [&str; 3] = ["requests", "tokens", "bytes_out"];
const ZONES: [&str; 6] =
    ["UTC", "Asia/Ho_Chi_Minh", "America/St_Johns", "Pacific/Kiritimati", "Antarctica/Troll", "Pacific/Pago_Pago"];
/// The subject whose counter reaches the maximum.
const WHALE: &str = "whale";

/// One event, ready for XADD.
#[derive(Debug, Clone)]
pub struct Event {
    pub fields: Vec<Field>,
    /// The reason if it must be refused.
    refused: Option<&'static str>,
}

#[derive(Debug, Clone)]
pub struct Field {
    pub name: &'static str,
    pub value: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Usage {
    customer: usize,
    metric: &'static str,
    units: u64,
    /// Whether the event is a credit.
    is_credit: bool,
    ts: Option<i64>,
    id: Option<String>,
}

/// Generates events, the same for the same seed and clock.
#[derive(Debug)]
pub struct Traffic {
    seed: u64,
    random: StdRng,
    pub customers: Vec<Customer>,
    sent_ids: VecDeque<Usage>,
    next_id: u64,
}

impl Event {
    /// These units of the default metric.
    pub fn usage(subject: &str, units: u64) -> Self {
        Self { fields: vec![field("subject", subject), field("units", &units.to_string())], refused: None }
    }

    /// Its fields in the form of an entry.
    pub fn raw(&self) -> impl Iterator<Item = RawField<'_>> {
        self.fields.iter().map(|field| (field.name.as_bytes(), field.value.as_slice()))
    }

    /// Enters it into the model under its stream id. The model must refuse events that were made to break a rule.
    pub fn enter(&self, model: &mut StreamModel, entry: &str) {
        let refused = model.enter(entry, self.raw());
        assert!(self.refused.is_none() || refused == self.refused, "{refused:?}: {self:?}");
    }
}

impl Traffic {
    pub fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut customers: Vec<Customer> = (0..120).map(|number| customer(&mut random, number)).collect();
        customers.push(Customer {
            limits: [("bytes_out", vec![Limit { window: "day", units: COUNT_MAX }])].into(),
            ..Customer::plain(WHALE)
        });
        // Redis has no settings for these: default plan, and no contacts.
        customers.extend((0..6).map(|number| Customer {
            known: false,
            contacts: 0,
            ..Customer::plain(&format!("stranger {number}"))
        }));
        Self { seed, random, customers, sent_ids: VecDeque::new(), next_id: 0 }
    }

    /// The same events for customers of which some form trees: organizations, their teams and keys, each with settings
    /// and contacts of its own.
    pub fn of_trees(seed: u64) -> Self {
        let mut traffic = Self::new(seed);
        for (number, customer) in traffic.customers.iter_mut().enumerate().take(60) {
            let (organization, team) = (number % 5, 5 + number % 15);
            customer.subject = match number {
                0..5 => format!("org {organization}"),
                5..20 => format!("org {organization}/team {team}"),
                _ => format!("org {}/team {team}/key {number}", team % 5),
            };
            customer.contacts = customer.contacts.max(1);
        }
        traffic
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The next event. `now_ms` is the approximate server time.
    pub fn event(&mut self, now_ms: i64) -> Event {
        match self.random.random_range(0..100) {
            0..5 => self.bad(now_ms),
            5..13 if !self.sent_ids.is_empty() => self.sent_again(),
            13..15 => self.of_the_whale(),
            _ => self.good(now_ms),
        }
    }

    fn good(&mut self, now_ms: i64) -> Event {
        // Without the whale: whether its events fit depends on their order.
        let customer = self.random.random_range(0..self.customers.len());
        let customer = if self.customers[customer].subject == WHALE { 0 } else { customer };
        let metric = METRICS[self.random.random_range(0..METRICS.len())];
        let units = if self.random.random_bool(0.5) { 1 } else { self.random.random_range(1..20) };
        let back_ms = self.random.random_range(0..TS_HOURS_BACK * 3_600_000);
        // A minute in the future is allowed, and may be tomorrow.
        let ts = self.random.random_bool(0.3).then(|| now_ms + 60_000 - back_ms);
        let has_id = self.random.random_bool(0.2);
        // Frequent enough that some credits exceed the count.
        let is_credit = self.random.random_bool(0.05);
        let units = if is_credit { units * 4 } else { units };
        self.new_event(Usage { customer, metric, units, is_credit, ts, id: None }, has_id)
    }

    /// An event that was not sent before.
    fn new_event(&mut self, mut usage: Usage, has_id: bool) -> Event {
        if has_id {
            self.next_id += 1;
            usage.id = Some(format!("id {} \u{0} é", self.next_id));
            self.sent_ids.push_back(usage.clone());
            if self.sent_ids.len() > IDS_KEPT {
                self.sent_ids.pop_front();
            }
        }
        self.event_of(usage)
    }

    /// A producer resends after a lost reply; another producer reuses an id for other units.
    fn sent_again(&mut self) -> Event {
        let at = self.random.random_range(0..self.sent_ids.len());
        let mut usage = self.sent_ids[at].clone();
        if self.random.random_bool(0.2) {
            usage.units = (usage.units + 1).min(COUNT_MAX);
        }
        self.event_of(usage)
    }

    fn of_the_whale(&mut self) -> Event {
        let customer = self.customers.iter().position(|customer| customer.subject == WHALE).expect("it is there");
        // Of every size, so that a full counter refuses large events and still accepts small ones between them. A
        // refused event does not use up its id: sent again, it may fit.
        let bits = self.random.random_range(1..=53);
        let units = self.random.random_range(1..1_u64 << bits);
        let is_credit = self.random.random_bool(0.05);
        let has_id = self.random.random_bool(0.4);
        self.new_event(Usage { customer, metric: "bytes_out", units, is_credit, ts: None, id: None }, has_id)
    }

    fn event_of(&mut self, usage: Usage) -> Event {
        let mut fields = vec![field("subject", &self.customers[usage.customer].subject)];
        // Defaults may be given or omitted.
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
        Event { fields, refused: None }
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
        Event { fields, refused: Some(reason) }
    }
}

fn field(name: &'static str, value: &str) -> Field {
    Field { name, value: value.as_bytes().to_vec() }
}

fn customer(random: &mut StdRng, number: usize) -> Customer {
    // Names that could collide in a careless key.
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
            let windows: &[&str] = match random.random_range(0..11) {
                0 => &["hour", "day"],
                1 => &["week"],
                2 => &["day", "month"],
                3 => &["hour", "day", "week", "month", "quarter", "year", "total"],
                4 => &["quarter"],
                5 => &["day", "year"],
                6 => &["total"],
                _ => &["day"],
            };
            // Spread over orders of magnitude, so that alerts are raised during the whole run.
            let units = |random: &mut StdRng| random.random_range(5..20) << random.random_range(0..9);
            let limit = |window: &&'static str| Limit { window, units: units(random) };
            let own = windows.iter().map(limit).collect();
            limits.insert(*metric, own);
        }
    }
    let thresholds = match random.random_range(0..10) {
        0..3 => [33, 50, 100, 150].map(DueAt::Percent).to_vec(),
        // Some of these are above the smallest limits, and some coincide.
        3..6 => vec![DueAt::Percent(80), DueAt::Used(10), DueAt::Used(70), DueAt::Remaining(10), DueAt::Remaining(1)],
        _ => [80, 100].map(DueAt::Percent).to_vec(),
    };
    let contacts = [0, 1, 1, 1, 2, 2][random.random_range(0..6)];
    let (billing_day, billing_month) = (random.random_range(1..=31), random.random_range(1..=12));
    Customer { limits, billing_day, billing_month, zone, thresholds, contacts, ..Customer::plain(&subject) }
}
