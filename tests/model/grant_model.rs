//! Subjects with prepaid units in trees of three levels, and a plain model of their grants: each unit of usage is taken
//! at once from the grant that expires first, in the order in which events were counted.
//!
//! The model knows neither settlements nor due times. A [`HistoryLog`] tells it what happened in which order.

use std::collections::BTreeMap;

use quotabell::ledger::grant_group::{Grant, GrantState};
use quotabell::ledger::grants::SubjectGrants;
use quotabell::types::{GrantNotice, Metric, Period, StreamId, Subject, UnixMs};

use crate::support::stream_model::{Customer, Limit};
use crate::support::traffic::Event;

/// The beginning of the names of prepaid subjects.
const PREPAID: &str = "prepaid ";
const ORGANIZATIONS: usize = 3;
/// The levels of each organization below its name.
const LEVELS: [&str; 4] = ["", "/team", "/team/key 1", "/team/key 2"];

/// An entry of the stream, as its worker judged it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivedEntry {
    pub id: StreamId,
    /// The smaller of the time in its id and the server's time at the read.
    pub arrival: UnixMs,
}

/// What took effect in the store.
#[derive(Debug, Clone)]
pub enum LogItem {
    /// A commit.
    Counted(Vec<ArrivedEntry>),
    Added(Subject, Box<Grant>),
    /// Everything that was due of a subject until a time was done; `now` is the time at which that was computed.
    Settled {
        subject: Subject,
        until: UnixMs,
        now: UnixMs,
    },
}

/// Everything that took effect, in its order.
pub type HistoryLog = Vec<LogItem>;

/// The prepaid subjects, with a limit to which only grants add.
pub fn prepaid_customers() -> Vec<Customer> {
    let names = (0..ORGANIZATIONS).flat_map(|number| LEVELS.map(|below| format!("{PREPAID}{number}{below}")));
    let limits: BTreeMap<_, _> = [("requests", vec![Limit { window: "total", units: 0 }])].into();
    let customer = |name: String| Customer { limits: limits.clone(), thresholds: Vec::new(), ..Customer::plain(&name) };
    names.map(customer).collect()
}

/// The only metric and period of grants.
pub fn total_of_requests() -> (Metric, Period) {
    (Metric::default(), Period::parse("all").expect("a period"))
}

#[derive(Debug)]
struct PlainGrant {
    grant: Grant,
    spent: u64,
    has_ended: bool,
    is_noticed: bool,
}

#[derive(Debug, Default)]
struct PlainSubject {
    grants: Vec<PlainGrant>,
    used: u64,
    /// Usage that no grant has paid for.
    unpaid: u64,
}

/// A notice that is expected, or was raised: subject, grant, units left, units used.
pub type NoticeFacts = (String, String, u64, u64);

/// The plain model.
#[derive(Debug, Default)]
pub struct GrantModel {
    subjects: BTreeMap<String, PlainSubject>,
    /// Units of the events of each subject itself.
    pub sent: BTreeMap<String, u64>,
    pub notices: Vec<NoticeFacts>,
    pub faults: Vec<String>,
}

impl PlainSubject {
    fn pay(&mut self, units: u64, arrival: UnixMs) {
        self.used += units;
        let is_over = |of: &PlainGrant| of.grant.expires_at.is_some_and(|at| at.0 <= arrival);
        self.grants.iter_mut().filter(|of| is_over(of)).for_each(|of| of.has_ended = true);
        for _ in 0..units {
            let open = self.grants.iter_mut().filter(|of| !of.has_ended && of.spent < of.grant.units.get());
            let expiry = |of: &Grant| of.expires_at.map_or(i64::MAX, |at| at.0.0);
            match open.min_by_key(|of| (expiry(&of.grant), of.grant.added_at, of.grant.id.clone())) {
                Some(payer) => payer.spent += 1,
                None => self.unpaid += 1,
            }
        }
    }
}

impl GrantModel {
    /// Enters an entry that was counted.
    pub fn enter(&mut self, fields: &[(Vec<u8>, Vec<u8>)], arrival: UnixMs) {
        let field = |name: &str| fields.iter().find(|field| field.0 == name.as_bytes()).map(|field| &field.1);
        let text = |name| field(name).and_then(|value| std::str::from_utf8(value).ok());
        let Some(subject) = text("subject").filter(|subject| subject.starts_with(PREPAID)) else { return };
        // The entry that has thresholds judged uses nothing, but time has passed until its arrival.
        let units: u64 = match text("judge") {
            Some(_) => 0,
            None => text("units").and_then(|units| units.parse().ok()).expect("ours has units"),
        };
        *self.sent.entry(subject.to_owned()).or_default() += units;
        let ends = subject.match_indices('/').map(|(at, _)| at).chain([subject.len()]);
        for end in ends {
            self.subjects.entry(subject[..end].to_owned()).or_default().pay(units, arrival);
        }
    }

    /// Adds a grant: usage that nobody has paid for is paid by it.
    pub fn add(&mut self, subject: &Subject, grant: Grant) {
        let subject = self.subjects.entry(subject.to_string()).or_default();
        let spent = subject.unpaid.min(grant.units.get());
        subject.unpaid -= spent;
        subject.grants.push(PlainGrant { grant, spent, has_ended: false, is_noticed: false });
    }

    /// Lets the time of a subject pass, although no event did.
    pub fn pass(&mut self, subject: &Subject, until: UnixMs, now: UnixMs) {
        let plain = self.subjects.entry(subject.to_string()).or_default();
        let mut grants: Vec<&mut PlainGrant> = plain.grants.iter_mut().filter(|of| !of.has_ended).collect();
        grants.sort_by_key(|of| (of.grant.added_at, of.grant.id.clone()));
        for of in grants {
            let Grant { id, expires_at, notice_at, units, .. } = &of.grant;
            if expires_at.is_some_and(|at| at.0 <= until) {
                of.has_ended = true;
            } else if notice_at.is_some_and(|at| at.0 <= until) && !of.is_noticed {
                of.is_noticed = true;
                let left = units.get() - of.spent;
                if left > 0 && expires_at.is_some_and(|at| at.0 > now) {
                    self.notices.push((subject.to_string(), id.to_string(), left, plain.used));
                }
            }
        }
    }

    /// Compares the stored grants of a subject with those of the model, after they were settled.
    pub fn compare(&mut self, subject: &Subject, stored: &SubjectGrants) {
        let none = PlainSubject::default();
        let plain = self.subjects.get(subject.as_str()).unwrap_or(&none);
        let mut added = 0;
        if stored.all().len() != plain.grants.len() {
            let (listed, expected) = (stored.all().len(), plain.grants.len());
            self.faults.push(format!("{subject} has {listed} grants, expected {expected}"));
        }
        for PlainGrant { grant, spent, has_ended, .. } in &plain.grants {
            added += if *has_ended { *spent } else { grant.units.get() };
            let expected = (*spent, if *has_ended { GrantState::Expired } else { GrantState::Active });
            let found = stored.find(&grant.id).map(|grant| (grant.spent, grant.state));
            if found != Some(expected) {
                self.faults.push(format!("{subject} {}: {found:?}, expected {expected:?}: {grant:?}", grant.id));
            }
        }
        let (metric, period) = total_of_requests();
        let found = stored.added().units_of(&metric, period);
        if found != added {
            self.faults.push(format!("the grants of {subject} add {found}, expected {added}"));
        }
    }

    /// Each notice was raised once, with what was left at its place in the stream.
    pub fn compare_notices(&mut self, raised: &[GrantNotice]) {
        let facts = |of: &GrantNotice| (of.subject.to_string(), of.grant.to_string(), of.remaining, of.used);
        let mut found: Vec<NoticeFacts> = raised.iter().map(facts).collect();
        found.sort();
        self.notices.sort();
        if found != self.notices {
            self.faults.push(format!("notices {found:?}, expected {:?}", self.notices));
        }
    }

    /// Each level has used what was sent to it, and what its children have used.
    pub fn compare_levels(&mut self, used: impl Fn(&str) -> u64) {
        for organization in 0..ORGANIZATIONS {
            let name = |below: &str| format!("{PREPAID}{organization}{below}");
            for (level, children) in [("", &["/team"][..]), ("/team", &LEVELS[2..]), (LEVELS[2], &[]), (LEVELS[3], &[])]
            {
                let sent = self.sent.get(&name(level)).copied().unwrap_or(0);
                let expected = sent + children.iter().map(|child| used(&name(child))).sum::<u64>();
                let found = used(&name(level));
                if found != expected {
                    self.faults.push(format!("{} has used {found}, its children and itself {expected}", name(level)));
                }
            }
        }
    }
}

/// An event of a prepaid subject, chosen by a number.
pub fn prepaid_event(number: usize, units: u64) -> Event {
    let (organization, below) = (number % ORGANIZATIONS, LEVELS[number / ORGANIZATIONS % LEVELS.len()]);
    Event::usage(&format!("{PREPAID}{organization}{below}"), units)
}
