//! The grants of a subject: what each has paid for, and what they add to the limits. Pure.
//!
//! Usage is divided among the grants of its metric and period only when a grant is added, revoked or expires; between
//! these moments the counter alone grows. A limit is raised by all units of active grants, and by the units that ended
//! grants have paid for. So it changes only at these moments. Read next: [`super::grant_group`], the division.

use std::collections::BTreeMap;

use redis::RedisResult;
use serde::Serialize;

use super::batch::MetricPeriod;
use super::grant_group::{Grant, GrantGroup, GrantState, StoredGroup, kept_until};
use super::read_totals::wrong_type;
use crate::subjects::AddedUnits;
use crate::subjects::added_units::ADDED_FIELD;
use crate::subjects::record::SubjectField;
use crate::types::timestamp::Rfc3339;
use crate::types::units::UNITS_MAX;
use crate::types::{GrantId, LimitUnits, Period, UnixMs};

/// Maximum number of active grants of a subject and metric.
pub const ACTIVE_MAX: usize = 32;
/// The field that changes with every change of the grants.
pub const VERSION_FIELD: &str = "version";
const GRANT_PREFIX: &str = "grant:";
const GROUP_PREFIX: &str = "group:";

pub(super) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain strings and numbers serialise")
}

/// Why a grant can't be added.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddGrantError {
    #[error("grant {0} exists with other content")]
    Conflict(GrantId),
    #[error("{0} active grants are too many, at most {ACTIVE_MAX} of a metric are allowed")]
    TooMany(usize),
    #[error("the limit would exceed {UNITS_MAX}, with the units that were granted before")]
    TooManyUnits,
}

/// What a subject's counters and limits are when its grants are settled.
pub trait CurrentUsage {
    /// The committed units of a period.
    fn used(&self, of: &MetricPeriod) -> u64;
    /// The limit of a period without grants; `None` if there is none, or nobody knows it.
    fn base(&self, of: &MetricPeriod) -> Option<LimitUnits>;
}

/// All grants of a subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubjectGrants {
    groups: BTreeMap<MetricPeriod, GrantGroup>,
    /// The fields as they are stored.
    stored: BTreeMap<String, String>,
}

/// How the stored fields are to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantFields {
    /// The fields to set.
    pub set: BTreeMap<String, String>,
    /// The fields to remove.
    pub removed: Vec<String>,
    /// Whether no grant is left.
    pub is_empty: bool,
}

impl SubjectGrants {
    /// Reads the hash `quota_grants:{tag}:<subject>`; `key` is its key, for the error.
    ///
    /// # Errors
    ///
    /// `WRONGTYPE` for a field that is none of ours. Nothing is changed then: a grant is worth money.
    pub fn from_stored(key: &str, fields: Vec<SubjectField>) -> RedisResult<Self> {
        let mut grants = Self::default();
        for (name, value) in fields {
            let (name, value) =
                (String::from_utf8_lossy(&name).into_owned(), String::from_utf8_lossy(&value).into_owned());
            if grants.read_field(&name, &value).is_none() {
                return Err(wrong_type(key, &format!("no grant in field {name}")));
            }
            grants.stored.insert(name, value);
        }
        for group in grants.groups.values_mut() {
            group.grants.sort_by(|a, b| (a.added_at, &a.id).cmp(&(b.added_at, &b.id)));
        }
        Ok(grants)
    }

    fn read_field(&mut self, name: &str, value: &str) -> Option<()> {
        if name == VERSION_FIELD || name == ADDED_FIELD {
            return Some(());
        }
        if let Some(of) = name.strip_prefix(GROUP_PREFIX) {
            let (metric, period) = of.split_once(' ')?;
            let of = MetricPeriod { metric: metric.parse().ok()?, period: Period::parse(period).ok()? };
            let StoredGroup { settled, paid, is_closed } = serde_json::from_str(value).ok()?;
            let group = self.groups.entry(of).or_default();
            (group.settled, group.paid, group.is_closed) = (settled, paid, is_closed);
            return Some(());
        }
        let grant: Grant = serde_json::from_str(value).ok()?;
        (name.strip_prefix(GRANT_PREFIX)? == grant.id.as_str()).then_some(())?;
        let of = MetricPeriod { metric: grant.metric.clone(), period: grant.period };
        self.groups.entry(of).or_default().grants.push(grant);
        Some(())
    }

    /// The version of the stored fields; empty if nothing is stored.
    pub fn version(&self) -> &str {
        self.stored.get(VERSION_FIELD).map_or("", String::as_str)
    }

    /// The metrics and periods with grants.
    pub fn groups(&self) -> impl Iterator<Item = &MetricPeriod> {
        self.groups.keys()
    }

    /// All grants, in the order in which they were added.
    pub fn all(&self) -> Vec<&Grant> {
        let mut all: Vec<&Grant> = self.groups.values().flat_map(|group| &group.grants).collect();
        all.sort_by(|a, b| (a.added_at, &a.id).cmp(&(b.added_at, &b.id)));
        all
    }

    /// What grants add to the limits.
    pub fn added(&self) -> AddedUnits {
        let mut added = AddedUnits::default();
        for (of, group) in &self.groups {
            if group.added() > 0 {
                added.add(&of.metric, of.period, group.added());
            }
        }
        added
    }

    /// When something is due next: a notice, an expiry, or the removal of what is no longer needed.
    pub fn due(&self) -> Option<UnixMs> {
        self.groups.iter().filter_map(|(of, group)| group.due(of.period)).min()
    }

    /// Divides the usage of all groups.
    pub fn settle(&mut self, usage: &impl CurrentUsage) {
        for (of, group) in &mut self.groups {
            group.settle(usage.used(of), usage.base(of));
        }
    }

    /// Adds a grant. Returns `false`, and changes nothing, if it was added before.
    ///
    /// # Errors
    ///
    /// [`AddGrantError`]; nothing is changed.
    pub fn add(&mut self, grant: Grant, usage: &impl CurrentUsage, now: UnixMs) -> Result<bool, AddGrantError> {
        if let Some(before) = self.find(&grant.id) {
            let is_same = before.has_content_of(&grant);
            return if is_same { Ok(false) } else { Err(AddGrantError::Conflict(grant.id)) };
        }
        let mut after = self.clone();
        after.settle(usage);
        let is_active = |other: &&Grant| {
            other.metric == grant.metric
                && other.remaining() > 0
                && !(other.period.has_end() && other.period.ends_everywhere() <= now)
        };
        let active = after.all().into_iter().filter(is_active).count();
        if active >= ACTIVE_MAX {
            return Err(AddGrantError::TooMany(active + 1));
        }
        let of = MetricPeriod { metric: grant.metric.clone(), period: grant.period };
        let (used, base) = (usage.used(&of), usage.base(&of));
        let group = after.groups.entry(of).or_insert_with(|| GrantGroup { settled: used, ..GrantGroup::default() });
        let limit = [base.map_or(0, LimitUnits::get), grant.units.get()]
            .iter()
            .fold(group.added(), |sum, units| sum.saturating_add(*units));
        if limit > UNITS_MAX {
            return Err(AddGrantError::TooManyUnits);
        }
        group.grants.push(grant);
        group.settle(used, base);
        group.shorten();
        *self = after;
        Ok(true)
    }

    /// Revokes what a grant has not paid for. Changes nothing if it has ended or nothing is left. Returns the grant
    /// after that; `None` if there is no such grant.
    pub fn revoke(&mut self, id: &GrantId, usage: &impl CurrentUsage, now: UnixMs) -> Option<Grant> {
        self.find(id)?;
        self.settle(usage);
        let grant = self.groups.values_mut().flat_map(|group| &mut group.grants).find(|grant| grant.id == *id)?;
        if grant.remaining() > 0 {
            grant.end(GrantState::Revoked, now);
        }
        Some(grant.clone())
    }

    /// Does what is due until `until`: ends expired grants, and removes those of periods that are long over. Returns
    /// the grants of which a notice is due. `now` may be later, after nobody did it for a while.
    pub fn pass(&mut self, until: UnixMs, usage: &impl CurrentUsage, now: UnixMs) -> Vec<Grant> {
        let mut noticed = Vec::new();
        self.groups.retain(|of, _| kept_until(of.period).is_none_or(|end| end > until));
        for (of, group) in &mut self.groups {
            if group.due(of.period).is_none_or(|due| due > until) {
                continue;
            }
            if of.period.has_end() && of.period.ends_everywhere() <= until {
                group.close(usage.used(of), usage.base(of));
            } else {
                group.settle(usage.used(of), usage.base(of));
            }
            for grant in group.grants.iter_mut().filter(|grant| grant.state == GrantState::Active) {
                let is_due = |at: Option<Rfc3339>| at.is_some_and(|at| at.0 <= until);
                if let Some(at) = grant.expires_at.filter(|_| is_due(grant.expires_at)) {
                    grant.end(GrantState::Expired, at.0);
                } else if is_due(grant.notice_at) {
                    grant.notice_at = None;
                    // After a long absence it may have expired meanwhile.
                    if grant.remaining() > 0 && grant.expires_at.is_some_and(|at| at.0 > now) {
                        noticed.push(grant.clone());
                    }
                }
            }
        }
        noticed
    }

    /// The grant with this id.
    pub fn find(&self, id: &GrantId) -> Option<&Grant> {
        self.groups.values().flat_map(|group| &group.grants).find(|grant| grant.id == *id)
    }

    /// The change from the stored fields to the present ones, which get this version.
    pub fn changes(&self, version: &str) -> GrantFields {
        let mut fields = BTreeMap::new();
        for (MetricPeriod { metric, period }, group) in &self.groups {
            let GrantGroup { settled, paid, is_closed, .. } = *group;
            let stored = StoredGroup { settled, paid, is_closed };
            fields.insert(format!("{GROUP_PREFIX}{metric} {period}"), to_json(&stored));
            fields.extend(group.grants.iter().map(|grant| (format!("{GRANT_PREFIX}{}", grant.id), to_json(grant))));
        }
        let is_empty = fields.is_empty();
        if !is_empty {
            fields.insert(ADDED_FIELD.to_owned(), self.added().to_stored());
        }
        let is_kept = |name: &String| !is_empty && name == VERSION_FIELD || fields.contains_key(name);
        let removed: Vec<String> = self.stored.keys().filter(|name| !is_kept(name)).cloned().collect();
        let mut set: BTreeMap<String, String> =
            fields.into_iter().filter(|(name, value)| self.stored.get(name) != Some(value)).collect();
        let is_changed = !set.is_empty() || !removed.is_empty();
        if is_changed && !is_empty {
            set.insert(VERSION_FIELD.to_owned(), version.to_owned());
        }
        GrantFields { set, removed, is_empty }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::grant_group::LISTED_MAX;
    use super::*;
    use crate::types::{Metric, Units, Window};

    /// A subject that has used these units, with this limit.
    struct Usage(u64, Option<u64>);

    impl CurrentUsage for Usage {
        fn used(&self, _: &MetricPeriod) -> u64 {
            self.0
        }

        fn base(&self, _: &MetricPeriod) -> Option<LimitUnits> {
            Some(LimitUnits::default().plus(self.1?))
        }
    }

    fn id(text: &str) -> GrantId {
        text.parse().expect("legal")
    }

    fn grant(name: &str, units: u64, expires_ms: Option<i64>) -> Grant {
        Grant {
            id: id(name),
            metric: Metric::default(),
            period: Period::parse("all").expect("legal"),
            units: Units::new(units).expect("in range"),
            spent: 0,
            state: GrantState::Active,
            expires_at: expires_ms.map(|ms| Rfc3339(UnixMs(ms))),
            notice_at: None,
            note: None,
            added_at: Rfc3339(UnixMs(0)),
            ended_at: None,
        }
    }

    fn spent(grants: &SubjectGrants) -> Vec<(&str, u64)> {
        grants.all().into_iter().map(|grant| (grant.id.as_str(), grant.spent)).collect()
    }

    fn added(grants: &SubjectGrants) -> u64 {
        grants.added().units_of(&Metric::default(), Period::parse("all").expect("legal"))
    }

    /// The fields that would be stored.
    fn stored(grants: &SubjectGrants) -> Vec<SubjectField> {
        let mut fields = grants.stored.clone();
        let GrantFields { set, removed, .. } = grants.changes("v");
        removed.iter().for_each(|name| drop(fields.remove(name)));
        fields.extend(set);
        fields.into_iter().map(|(name, value)| (name.into_bytes(), value.into_bytes())).collect()
    }

    /// Units that expire soon must be used before those that last, and before what the plan gives again next month.
    #[test]
    fn the_grant_that_expires_first_pays_first_and_the_limit_of_the_plan_last() {
        let mut grants = SubjectGrants::default();
        for one in [grant("a", 10, None), grant("b", 10, Some(900)), grant("c", 10, Some(500))] {
            assert_eq!(grants.add(one, &Usage(5, Some(100)), UnixMs(1)), Ok(true));
        }
        assert_eq!(added(&grants), 30);
        for (used, expected) in [(17, [0, 2, 10]), (30, [5, 10, 10]), (99, [10, 10, 10])] {
            let mut then = grants.clone();
            then.settle(&Usage(used, Some(100)));
            assert_eq!(then.all().iter().map(|grant| grant.spent).collect::<Vec<_>>(), expected, "{used}");
        }
    }

    /// What was paid for stays in the limit: otherwise the same usage would be counted against the plan afterwards.
    #[test]
    fn an_expiry_takes_only_what_is_left() {
        let mut grants = SubjectGrants::default();
        grants.add(grant("a", 100, Some(500)), &Usage(0, Some(0)), UnixMs(1)).expect("added");
        grants.add(grant("b", 50, None), &Usage(0, Some(0)), UnixMs(1)).expect("added");
        assert_eq!((added(&grants), grants.due()), (150, Some(UnixMs(500))));
        assert_eq!(grants.pass(UnixMs(499), &Usage(80, Some(0)), UnixMs(499)), []);
        assert_eq!(added(&grants), 150, "not yet");
        grants.pass(UnixMs(500), &Usage(80, Some(0)), UnixMs(900));
        assert_eq!((added(&grants), spent(&grants)), (130, vec![("a", 80), ("b", 0)]));
        let ended = grants.find(&id("a")).expect("listed");
        assert_eq!((ended.state, ended.ended_at, ended.remaining()), (GrantState::Expired, ended.expires_at, 0));
        assert_eq!(grants.due(), None);
        let revoked = grants.revoke(&id("b"), &Usage(90, Some(0)), UnixMs(1000)).expect("there");
        assert_eq!((revoked.spent, added(&grants)), (10, 90));
        assert_eq!(grants.revoke(&id("b"), &Usage(95, Some(0)), UnixMs(1000)).map(|grant| grant.spent), Some(10));
        assert_eq!(grants.revoke(&id("z"), &Usage(95, Some(0)), UnixMs(1000)), None);
    }

    /// A customer who was let above the limit must not have those units twice after a top-up.
    #[test]
    fn usage_above_the_limit_is_paid_by_the_next_grant() {
        let mut grants = SubjectGrants::default();
        grants.add(grant("a", 50, Some(500)), &Usage(120, Some(100)), UnixMs(1)).expect("added");
        assert_eq!(spent(&grants), [("a", 20)]);
        let mut unlimited = SubjectGrants::default();
        unlimited.add(grant("a", 50, None), &Usage(120, None), UnixMs(1)).expect("added");
        assert_eq!(spent(&unlimited), [("a", 0)], "nobody knows what the plan pays for");
    }

    /// A credit must not revive units that have expired.
    #[test]
    fn a_credit_goes_to_the_plan_first_and_then_to_active_grants() {
        let mut grants = SubjectGrants::default();
        grants.add(grant("a", 10, Some(500)), &Usage(0, Some(100)), UnixMs(1)).expect("added");
        grants.add(grant("b", 10, None), &Usage(0, Some(100)), UnixMs(1)).expect("added");
        grants.pass(UnixMs(500), &Usage(25, Some(100)), UnixMs(500));
        assert_eq!(spent(&grants), [("a", 10), ("b", 10)]);
        for (used, left) in [(21, 10), (18, 8), (5, 0)] {
            let mut then = grants.clone();
            then.settle(&Usage(used, Some(100)));
            assert_eq!(spent(&then), [("a", 10), ("b", left)], "{used}");
        }
    }

    /// The platform repeats a call whose answer was lost, also after the grant has ended.
    #[test]
    fn a_grant_is_given_once() {
        let mut grants = SubjectGrants::default();
        let usage = Usage(0, Some(0));
        assert_eq!(grants.add(grant("a", 10, Some(500)), &usage, UnixMs(1)), Ok(true));
        grants.pass(UnixMs(500), &usage, UnixMs(500));
        assert_eq!(grants.add(grant("a", 10, Some(500)), &usage, UnixMs(600)), Ok(false));
        let note = Some("other".to_owned());
        for other in [grant("a", 11, Some(500)), grant("a", 10, None), Grant { note, ..grant("a", 10, Some(500)) }] {
            assert_eq!(grants.add(other, &usage, UnixMs(1)), Err(AddGrantError::Conflict(id("a"))));
        }
        assert_eq!(added(&grants), 0);
    }

    /// Spent grants are no burden: a customer may top up for years.
    #[test]
    fn only_grants_with_units_left_are_bounded() {
        let mut grants = SubjectGrants::default();
        let mut used = 0;
        for n in 0..LISTED_MAX as u64 + 40 {
            grants.add(grant(&format!("a{n}"), 10, None), &Usage(used, Some(0)), UnixMs(1)).expect("added");
            used += 10;
        }
        assert_eq!((grants.all().len(), added(&grants)), (LISTED_MAX, used));
        for n in 0..ACTIVE_MAX {
            grants.add(grant(&format!("b{n}"), 1, None), &Usage(used, Some(0)), UnixMs(1)).expect("added");
        }
        let more = grants.add(grant("c", 1, None), &Usage(used, Some(0)), UnixMs(1));
        assert_eq!(more, Err(AddGrantError::TooMany(ACTIVE_MAX + 1)));
        let huge = SubjectGrants::default().add(grant("a", UNITS_MAX, None), &Usage(0, Some(1)), UnixMs(1));
        assert_eq!(huge, Err(AddGrantError::TooManyUnits));
    }

    /// The customer hears of it once, if there is anything to hear.
    #[test]
    fn a_notice_is_due_once_while_units_are_left() {
        let noticed = |used, until: i64, now: i64| {
            let mut grants = SubjectGrants::default();
            let expiring = Grant { notice_at: Some(Rfc3339(UnixMs(400))), ..grant("a", 10, Some(500)) };
            grants.add(expiring, &Usage(0, Some(0)), UnixMs(1)).expect("added");
            let noticed = grants.pass(UnixMs(until), &Usage(used, Some(0)), UnixMs(now)).len();
            assert_eq!(grants.pass(UnixMs(until), &Usage(used, Some(0)), UnixMs(now)), [], "twice");
            noticed
        };
        assert_eq!([(4, 399, 399), (4, 400, 400), (10, 400, 400)].map(|(u, t, n)| noticed(u, t, n)), [0, 1, 0]);
        assert_eq!(noticed(4, 400, 500), 0, "the daemon was away until the expiry");
        assert_eq!(noticed(4, 600, 600), 0);
    }

    /// Events of yesterday may arrive today: they are judged by yesterday's limit. What was paid for stays known.
    #[test]
    fn grants_of_a_period_outlive_its_counter() {
        let of_day = Grant { period: Period::parse("2026-11-21").expect("legal"), ..grant("a", 10, None) };
        let (period, added_at) = (of_day.period, UnixMs(1_763_700_000_000));
        let mut grants = SubjectGrants::default();
        grants.add(of_day, &Usage(0, Some(5)), added_at).expect("added");
        assert_eq!(grants.due(), Some(period.ends_everywhere()), "settled while its counter is there");
        grants.pass(period.ends_everywhere(), &Usage(3, Some(5)), period.ends_everywhere());
        let due = grants.due().expect("removed one day");
        assert_eq!(due, period.ends_everywhere().plus(14 * 86_400_000));
        // Its counter is gone by then.
        grants.settle(&Usage(0, Some(5)));
        assert_eq!((spent(&grants), grants.added().units_of(&Metric::default(), period)), (vec![("a", 3)], 10));
        grants.pass(due, &Usage(0, Some(5)), due);
        assert!(grants.changes("v").is_empty && period.window() == Window::Day);
    }

    /// Nothing is lost on the way to Redis, and a field that somebody else wrote is not overlooked.
    #[test]
    fn grants_read_back() {
        let mut grants = SubjectGrants::default();
        let of_day = Grant { period: Period::parse("2026-11-21").expect("legal"), ..grant("x", 10, None) };
        let of_day = Grant { id: id("b:c"), note: Some("für \"x\"".to_owned()), ..of_day };
        for one in [grant("a", UNITS_MAX - 10, Some(500)), of_day] {
            grants.add(one, &Usage(3, Some(5)), UnixMs(1)).expect("added");
        }
        let read = SubjectGrants::from_stored("k", stored(&grants)).expect("readable");
        assert_eq!((read.groups.clone(), read.version(), read.changes("w").set), (grants.groups, "v", BTreeMap::new()));
        for (name, value) in [("grant:x", "{}"), ("more", "7"), ("group:requests all", "5"), ("group:requests", "{}")] {
            let bad = vec![(name.as_bytes().to_vec(), value.as_bytes().to_vec())];
            assert!(SubjectGrants::from_stored("k", bad).is_err(), "{name}");
        }
    }

    proptest! {
        /// Dividing usage only at changes gives what dividing each unit at once would give.
        #[test]
        fn late_settlement_is_exact(
            steps in proptest::collection::vec((0_u8..4, 1_u64..40, proptest::option::of(0_i64..60)), 1..60),
            base in 0_u64..50,
        ) {
            let mut grants = SubjectGrants::default();
            // Of each grant: expiry, units, units spent, ended.
            let mut model: Vec<(i64, u64, u64, bool)> = Vec::new();
            let (mut used, mut paid_by_plan) = (0_u64, 0_u64);
            for (now, (step, units, expires)) in (1..).zip(steps) {
                let expired = |model: &mut Vec<(i64, u64, u64, bool)>| {
                    model.iter_mut().filter(|grant| grant.0 <= now).for_each(|grant| grant.3 = true);
                };
                if grants.due().is_some_and(|due| due <= UnixMs(now)) {
                    grants.pass(UnixMs(now), &Usage(used, Some(base)), UnixMs(now));
                    expired(&mut model);
                }
                if step == 0 {
                    let expires = expires.map(|after| now + 1 + after);
                    grants.add(grant(&format!("g{now:03}"), units, expires), &Usage(used, Some(base)), UnixMs(now)).ok();
                    let taken = paid_by_plan.saturating_sub(base).min(units);
                    if grants.find(&id(&format!("g{now:03}"))).is_some() {
                        paid_by_plan -= taken;
                        model.push((expires.unwrap_or(i64::MAX), units, taken, false));
                    }
                } else {
                    used += units;
                    for _ in 0..units {
                        let open = model.iter_mut().filter(|grant| !grant.3 && grant.2 < grant.1);
                        match open.min_by_key(|grant| grant.0) {
                            Some(payer) => payer.2 += 1,
                            None => paid_by_plan += 1,
                        }
                    }
                }
            }
            grants.settle(&Usage(used, Some(base)));
            let all: Vec<u64> = grants.all().iter().map(|grant| grant.spent).collect();
            prop_assert_eq!(all, model.iter().map(|grant| grant.2).collect::<Vec<_>>());
            let expected: u64 = model.iter().map(|grant| if grant.3 { grant.2 } else { grant.1 }).sum();
            prop_assert_eq!(added(&grants), expected);
        }
    }
}
