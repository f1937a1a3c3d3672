//! The expected result of a stream of usage events: plain maps, filled entry by entry in the order of the stream.
//!
//! It knows neither Redis nor batches, and shares no code with the tested program: it reads the raw fields by the rules
//! of docs/sending.md. So it handles any entry, including random bytes, and any stream, including the rest of one after
//! a failover.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use chrono::{DateTime, Datelike, Days, Months, NaiveDate, NaiveTime, TimeZone, Utc};
use chrono_tz::Tz;

/// The maximum of a counter.
pub const COUNT_MAX: u64 = (1 << 53) - 1;
/// `stream.late_max` of the default configuration.
const LATE_MAX_MS: i64 = 5 * 3_600_000;
/// Maximum age of an event at its arrival: the longest day plus `late_max`.
const AGE_MAX_MS: i64 = 32 * 3_600_000;
/// Maximum number of fields of an event.
const FIELDS_MAX: usize = 1_000;
/// How far in the future an event may be at its arrival.
const AHEAD_MAX_MS: i64 = 5 * 60_000;
/// An id is known in the window of its arrival and in the next one.
const ID_WINDOW_MS: i64 = 600_000;

/// A field and its value, as an entry holds them.
pub type RawField<'a> = (&'a [u8], &'a [u8]);

/// A metered subject.
#[derive(Debug, Clone)]
pub struct Customer {
    pub subject: String,
    pub zone: Tz,
    /// Its own limits by metric; without one `requests` has the plan's limit.
    pub limits: BTreeMap<&'static str, Vec<Limit>>,
    pub billing_day: u32,
    pub billing_month: u32,
    pub thresholds: Vec<DueAt>,
    /// Number of its contacts.
    pub contacts: usize,
    /// Whether Redis has its settings.
    pub known: bool,
}

/// Units per window.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub window: &'static str,
    pub units: u64,
}

/// When an alert is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DueAt {
    /// This percentage of the limit is used.
    Percent(u64),
    /// These units are used.
    Used(u64),
    /// These units of the limit remain.
    Remaining(u64),
}

/// One counter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Counter {
    pub subject: String,
    pub metric: String,
    pub period: String,
}

/// A reached threshold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reached {
    pub counter: Counter,
    pub due: DueAt,
}

/// The expected result.
#[derive(Debug, Default)]
pub struct StreamModel {
    customers: HashMap<String, Customer>,
    /// The daily limit of `requests` for subjects without another limit; only of the first level, if there are levels.
    plan_limit: u64,
    /// The character between the parts of a subject, if subjects have levels.
    separator: Option<char>,
    pub counts: BTreeMap<Counter, u64>,
    /// The level above and the child, for each child that was counted.
    pub children: BTreeSet<(String, String)>,
    /// The counters to which units were given back, so that their alerts may have ended.
    pub credited: BTreeSet<Counter>,
    /// The highest value of each counter, with its limit.
    peaks: BTreeMap<Counter, Peak>,
    /// Reasons by entry id.
    pub refused: BTreeMap<String, &'static str>,
    pub counted: u64,
    pub duplicates: u64,
    pub entries: u64,
    counted_ids: CountedIds,
}

#[derive(Debug, Clone, Copy)]
struct Peak {
    units: u64,
    limit: Option<u64>,
}

/// Event ids of the newest and the previous window.
#[derive(Debug, Default)]
struct CountedIds {
    window: i64,
    newest: HashSet<EventId>,
    previous: HashSet<EventId>,
}

/// Subject, metric and id.
type EventId = (String, String, Vec<u8>);

/// The content of an event without its subject.
struct Usage<'a> {
    metric: &'a str,
    units: u64,
    is_credit: bool,
    at_ms: i64,
    id: Option<&'a [u8]>,
}

impl DueAt {
    /// Its text in a list of thresholds.
    pub fn setting(self) -> String {
        match self {
            Self::Percent(percent) => percent.to_string(),
            Self::Used(units) => format!("used:{units}"),
            Self::Remaining(units) => format!("remaining:{units}"),
        }
    }

    /// Its text in flags and in the fields of records.
    pub fn in_key(self) -> String {
        match self {
            Self::Percent(percent) => percent.to_string(),
            Self::Used(units) => format!("used{units}"),
            Self::Remaining(units) => format!("remaining{units}"),
        }
    }

    /// Whether a count that was at most `used` units reached it. What remains of a limit that is not above it is never
    /// reached, because every period would begin so.
    pub fn is_reached(self, used: u64, limit: u64) -> bool {
        match self {
            Self::Percent(percent) => u128::from(used) * 100 >= u128::from(limit) * u128::from(percent),
            Self::Used(units) => used >= units,
            Self::Remaining(units) => units < limit && used >= limit - units,
        }
    }
}

impl Customer {
    /// A subject without its own settings.
    pub fn plain(subject: &str) -> Self {
        Self {
            subject: subject.to_owned(),
            zone: Tz::UTC,
            limits: BTreeMap::new(),
            billing_day: 1,
            billing_month: 1,
            thresholds: vec![DueAt::Percent(80), DueAt::Percent(100)],
            contacts: 1,
            known: true,
        }
    }

    /// Its settings as fields and values of its hash, without contacts.
    pub fn settings(&self) -> Vec<String> {
        let thresholds: Vec<String> = self.thresholds.iter().map(|due| due.setting()).collect();
        let (day, month) = (self.billing_day.to_string(), self.billing_month.to_string());
        let zone = self.zone.name().to_owned();
        let settings = [("timezone", zone), ("billing_day", day), ("billing_month", month)];
        let settings = settings.into_iter().chain([("thresholds", thresholds.join(","))]);
        let mut words: Vec<String> = settings.flat_map(|(name, value)| [name.to_owned(), value]).collect();
        for (metric, limits) in &self.limits {
            let limits: Vec<String> = limits.iter().map(|limit| format!("{}/{}", limit.units, limit.window)).collect();
            words.extend([format!("limit:{metric}"), limits.join(" ")]);
        }
        words
    }

    fn limits(&self, metric: &str, plan_limit: Option<u64>) -> Vec<Limit> {
        let of_plan = plan_limit.filter(|_| metric == "requests").map(|units| Limit { window: "day", units });
        self.limits.get(metric).cloned().unwrap_or_else(|| of_plan.into_iter().collect())
    }

    fn period(&self, window: &str, at: DateTime<Utc>) -> String {
        let date = at.with_timezone(&self.zone).date_naive();
        match window {
            "hour" => at.format("%Y-%m-%dT%HZ").to_string(),
            "week" => date.format("%G-W%V").to_string(),
            "day" => date.to_string(),
            "total" => "all".to_owned(),
            _ => {
                let (months, letter) = match window {
                    "month" => (1, 'M'),
                    "quarter" => (3, 'Q'),
                    _ => (12, 'Y'),
                };
                let first = self.first_of(date, months);
                match window {
                    _ if first.day() != 1 || !first.month0().is_multiple_of(months) => format!("{first}{letter}"),
                    "month" => first.format("%Y-%m").to_string(),
                    "quarter" => format!("{}-Q{}", first.year(), first.month().div_ceil(3)),
                    _ => first.format("%Y").to_string(),
                }
            }
        }
    }

    /// The start date of a date's month, quarter or year.
    fn first_of(&self, date: NaiveDate, months: u32) -> NaiveDate {
        let begins_in = |month: NaiveDate| {
            let last = month.with_day(1).expect("a first") + Months::new(1) - Days::new(1);
            last.with_day(self.billing_day.min(last.day())).expect("a day of the month")
        };
        // Goes back month by month to one in which a period begins, and not after the date.
        let mut month = date.with_day(1).expect("a first");
        while !month.month().abs_diff(self.billing_month).is_multiple_of(months) || begins_in(month) > date {
            month = month - Months::new(1);
        }
        begins_in(month)
    }
}

impl StreamModel {
    /// An empty model. `plan_limit` is the plan's daily limit of `requests`.
    pub fn new(customers: &[Customer], plan_limit: u64) -> Self {
        let customers = customers.iter().map(|customer| (customer.subject.clone(), customer.clone())).collect();
        Self { customers, plan_limit, ..Self::default() }
    }

    /// The same model for subjects with levels.
    pub fn with_separator(self, separator: char) -> Self {
        Self { separator: Some(separator), ..self }
    }

    /// Enters an entry under its stream id; returns the reason if it is refused.
    pub fn enter<'a>(&mut self, entry: &str, fields: impl Iterator<Item = RawField<'a>>) -> Option<&'static str> {
        let arrival_ms = entry.split_once('-').expect("an entry id").0.parse().expect("milliseconds");
        self.enter_arrived(entry, arrival_ms, fields)
    }

    /// The same for an entry that was read before the time in its id, because the server's clock stepped back.
    pub fn enter_arrived<'a>(
        &mut self,
        entry: &str,
        arrival_ms: i64,
        fields: impl Iterator<Item = RawField<'a>>,
    ) -> Option<&'static str> {
        self.entries += 1;
        let mut first: HashMap<&[u8], &[u8]> = HashMap::new();
        let mut count = 0;
        for (name, value) in fields {
            first.entry(name).or_insert(value);
            count += 1;
        }
        let reason = match count {
            0..=FIELDS_MAX => self.judge(&first, arrival_ms).err(),
            _ => Some("too_many_fields"),
        };
        if let Some(reason) = reason {
            self.refused.insert(entry.to_owned(), reason);
        }
        reason
    }

    fn judge(&mut self, fields: &HashMap<&[u8], &[u8]>, arrival_ms: i64) -> Result<(), &'static str> {
        let subject = subject_of(fields)?;
        let usage = usage_of(fields, arrival_ms)?;
        let levels = self.levels(subject)?;
        if arrival_ms - usage.at_ms > AGE_MAX_MS {
            return Err("too_late");
        }
        let at = DateTime::from_timestamp_millis(usage.at_ms).expect("judged before");
        for customer in &levels {
            let day = at.with_timezone(&customer.zone).date_naive();
            if arrival_ms > first_instant_after(customer.zone, day) + LATE_MAX_MS {
                return Err("too_late");
            }
        }
        let id = usage.id.map(|id| (subject.to_owned(), usage.metric.to_owned(), id.to_vec()));
        if id.as_ref().is_some_and(|id| self.counted_ids.contains(arrival_ms, id)) {
            self.duplicates += 1;
            return Ok(());
        }
        // A level is counted in the windows of its own limits and of those above it.
        let mut counters: Vec<(Counter, Option<u64>)> = Vec::new();
        let mut windows: BTreeMap<&str, Option<u64>> = [("day", None)].into();
        for (depth, customer) in levels.iter().enumerate() {
            let plan_limit = (depth == 0).then_some(self.plan_limit);
            windows.values_mut().for_each(|limit| *limit = None);
            for limit in customer.limits(usage.metric, plan_limit) {
                windows.insert(limit.window, Some(limit.units));
            }
            for (window, limit) in &windows {
                let (subject, metric) = (customer.subject.clone(), usage.metric.to_owned());
                counters.push((Counter { subject, metric, period: customer.period(window, at) }, *limit));
            }
        }
        let count = |counter| self.counts.get(counter).copied().unwrap_or(0);
        if !usage.is_credit && counters.iter().any(|(counter, _)| count(counter) + usage.units > COUNT_MAX) {
            return Err("counter_overflow");
        }
        self.counted_ids.newest.extend(id);
        let names = levels.windows(2).map(|pair| (pair[0].subject.clone(), pair[1].subject.clone()));
        self.children.extend(names);
        for (counter, limit) in counters {
            let count = self.counts.entry(counter.clone()).or_default();
            if usage.is_credit {
                self.credited.insert(counter.clone());
            }
            *count = if usage.is_credit { count.saturating_sub(usage.units) } else { *count + usage.units };
            let peak = self.peaks.entry(counter).or_insert(Peak { units: 0, limit });
            peak.units = peak.units.max(*count);
        }
        self.counted += 1;
        Ok(())
    }

    /// The subject and the levels above it, from the top.
    fn levels(&mut self, subject: &str) -> Result<Vec<Customer>, &'static str> {
        let parts: Vec<&str> = match self.separator {
            Some(separator) => subject.split(separator).collect(),
            None => vec![subject],
        };
        if parts.len() > 4 || parts.iter().any(|part| part.is_empty()) {
            return Err("bad_subject");
        }
        let separator = self.separator.map(String::from).unwrap_or_default();
        let level = |depth: usize| {
            let name = parts[..=depth].join(&separator);
            self.customers.entry(name.clone()).or_insert_with(|| Customer::plain(&name)).clone()
        };
        Ok((0..parts.len()).map(level).collect())
    }

    /// The highest value of a counter.
    pub fn peak(&self, counter: &Counter) -> u64 {
        self.peaks.get(counter).map_or(0, |peak| peak.units)
    }

    /// Every threshold that was ever reached, with its limit. Limits did not change.
    pub fn reached(&self) -> BTreeMap<Reached, u64> {
        let mut reached = BTreeMap::new();
        for (counter, peak) in &self.peaks {
            let Some(limit) = peak.limit else { continue };
            for due in &self.customers[&counter.subject].thresholds {
                if due.is_reached(peak.units, limit) {
                    reached.insert(Reached { counter: counter.clone(), due: *due }, limit);
                }
            }
        }
        reached
    }
}

impl CountedIds {
    fn contains(&mut self, arrival_ms: i64, id: &EventId) -> bool {
        let window = arrival_ms / ID_WINDOW_MS;
        if window > self.window {
            let newest = std::mem::take(&mut self.newest);
            self.previous = if window == self.window + 1 { newest } else { HashSet::new() };
            self.window = window;
        }
        self.newest.contains(id) || self.previous.contains(id)
    }
}

fn subject_of<'a>(fields: &HashMap<&[u8], &'a [u8]>) -> Result<&'a str, &'static str> {
    let bytes = *fields.get(&b"subject"[..]).ok_or("missing_subject")?;
    let text = std::str::from_utf8(bytes).map_err(|_| "bad_subject")?;
    let is_legal = (1..=256).contains(&bytes.len()) && !text.chars().any(char::is_control);
    if is_legal { Ok(text) } else { Err("bad_subject") }
}

fn usage_of<'a>(fields: &HashMap<&[u8], &'a [u8]>, arrival_ms: i64) -> Result<Usage<'a>, &'static str> {
    let field = |name: &str| fields.get(name.as_bytes()).copied();
    let (units, is_credit) = match (field("units"), field("credit")) {
        _ if field("judge").is_some() => (0, false),
        (None, None) => (1, false),
        (Some(units), None) => (number_of(units).ok_or("bad_units")?, false),
        (None, Some(credit)) => (number_of(credit).ok_or("bad_credit")?, true),
        (Some(_), Some(_)) => return Err("bad_credit"),
    };
    let metric = match field("metric") {
        None => "requests",
        Some(name) => {
            let is_legal = |byte: &u8| b"abcdefghijklmnopqrstuvwxyz0123456789_.-".contains(byte);
            let legal = (1..=64).contains(&name.len()) && name.iter().all(is_legal);
            std::str::from_utf8(name).ok().filter(|_| legal).ok_or("bad_metric")?
        }
    };
    let at_ms = field("ts").map_or(Some(arrival_ms), time_of).ok_or("bad_ts")?;
    let id = field("id");
    if id.is_some_and(|id| !(1..=128).contains(&id.len())) {
        return Err("bad_id");
    }
    if at_ms > arrival_ms + AHEAD_MAX_MS {
        return Err("too_far_ahead");
    }
    Ok(Usage { metric, units, is_credit, at_ms, id })
}

/// Decimal digits, 1 to 2^53 - 1.
fn number_of(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    let text = text.trim_start_matches('0');
    text.parse().ok().filter(|units| *units <= COUNT_MAX)
}

/// Unix milliseconds, or RFC 3339 with an offset.
fn time_of(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let ms: i64 = if text.len() > 20 { None } else { text.parse().ok() }?;
        // Smaller numbers are in seconds.
        return DateTime::from_timestamp_millis(ms).filter(|_| ms >= 100_000_000_000).map(|_| ms);
    }
    DateTime::parse_from_rfc3339(text).ok().map(|at| at.timestamp_millis())
}

fn first_instant_after(zone: Tz, day: NaiveDate) -> i64 {
    let midnight = (day + Days::new(1)).and_time(NaiveTime::MIN);
    // The clocks of the tests' zones never change at midnight.
    zone.from_local_datetime(&midnight).single().expect("one midnight").timestamp_millis()
}
