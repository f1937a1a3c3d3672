//! Changes of grants, one step at a time: reading what a change is computed from, and writing it. Settlements are
//! computed as `events/grant_expiry.rs` does, and additions as `actions/grants.rs` does, with the same pure parts.

use std::collections::{BTreeMap, BTreeSet};

use quotabell::ledger::batch::MetricPeriod;
use quotabell::ledger::grant_group::{Grant, GrantState};
use quotabell::ledger::grant_store::{GrantReply, StoredGrants, UsageOf};
use quotabell::ledger::grants::SubjectGrants;
use quotabell::subjects::Profile;
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{DeploymentId, GrantNotice, Keys, StreamId, Subject, UnixMs};

use crate::grant_model::{LogItem, total_of_requests};

/// A computed change that is not written yet.
#[derive(Debug, Clone)]
pub struct PendingChange {
    pub before: StoredGrants,
    pub after: SubjectGrants,
    /// The checkpoint that the counters belong to; `None` if it does not matter.
    pub checkpoint: Option<StreamId>,
    pub notices: Vec<GrantNotice>,
    /// What it means for the model.
    pub item: LogItem,
}

/// What a settlement depends on.
#[derive(Debug, Clone)]
pub struct SettlementOf<'a> {
    pub profile: &'a Profile,
    pub until: UnixMs,
    pub now: UnixMs,
    pub checkpoint: StreamId,
    pub instance: &'a DeploymentId,
}

impl PendingChange {
    /// Does what is due of a subject until a time.
    pub fn settlement(before: StoredGrants, of: &SettlementOf<'_>) -> Self {
        let SettlementOf { profile, until, now, checkpoint, instance } = *of;
        let mut after = before.grants.clone();
        let expiring = after.pass(until, &UsageOf { used: &before.used, profile }, now);
        let notices = expiring.into_iter().map(|grant| notice(instance, &before, profile, grant, now)).collect();
        let item = LogItem::Settled { subject: before.subject.clone(), until, now };
        Self { before, after, checkpoint: Some(checkpoint), notices, item }
    }

    /// Adds a grant; `None` if it was added before, or may not be added.
    pub fn addition(before: StoredGrants, grant: Grant, profile: &Profile, now: UnixMs) -> Option<Self> {
        let mut after = before.grants.clone();
        let item = LogItem::Added(before.subject.clone(), Box::new(grant.clone()));
        let is_new = after.add(grant, &UsageOf { used: &before.used, profile }, now).ok()?;
        is_new.then_some(Self { before, after, checkpoint: None, notices: Vec::new(), item })
    }

    /// The grants that it ends, with the time of their expiry.
    pub fn expired(&self) -> Vec<&Grant> {
        let was_active = |grant: &&Grant| {
            grant.state == GrantState::Expired
                && self.before.grants.find(&grant.id).is_some_and(|before| before.state == GrantState::Active)
        };
        self.after.all().into_iter().filter(was_active).collect()
    }
}

fn notice(instance: &DeploymentId, before: &StoredGrants, profile: &Profile, grant: Grant, now: UnixMs) -> GrantNotice {
    let of = MetricPeriod { metric: grant.metric.clone(), period: grant.period };
    GrantNotice {
        id: GrantNotice::id_of(instance, &before.subject, &grant.id),
        subject: before.subject.clone(),
        window: grant.period.window(),
        note: None,
        units: grant.units,
        remaining: grant.remaining(),
        expires_at: grant.expires_at.expect("it has a notice"),
        limit: 0,
        used: before.used.get(&of).copied().unwrap_or(0),
        plan: profile.plan().to_string(),
        timezone: profile.zone().name().to_owned(),
        raised_at: Rfc3339(now),
        metric: grant.metric,
        grant: grant.id,
    }
}

/// The metric and period of grants.
pub fn of_grants() -> MetricPeriod {
    let (metric, period) = total_of_requests();
    MetricPeriod { metric, period }
}

/// A model of the hashes with grants, and of `grant_store.lua`.
#[derive(Debug, Clone, Default)]
pub struct MemoryGrants {
    fields: BTreeMap<Subject, BTreeMap<String, String>>,
    /// When something is due of each subject; `None`: never.
    due: BTreeMap<Subject, Option<UnixMs>>,
    pub notices: Vec<GrantNotice>,
}

impl MemoryGrants {
    /// When something is due next.
    pub fn due(&self) -> Option<UnixMs> {
        self.due.values().flatten().min().copied()
    }

    /// The subjects of which something is due until this time.
    pub fn due_subjects(&self, until: UnixMs) -> Vec<Subject> {
        let is_due = |due: &Option<UnixMs>| due.is_some_and(|due| due <= until);
        self.due.iter().filter(|(_, due)| is_due(due)).map(|(subject, _)| subject.clone()).collect()
    }

    /// The grants of a subject, with the counters of their groups and of the only one that tests use.
    pub fn read(&self, subject: &Subject, used: impl Fn(&MetricPeriod) -> u64) -> StoredGrants {
        let stored = self.fields.get(subject).into_iter().flatten();
        let stored = stored.map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes())).collect();
        let key = Keys::new("usage").grants(subject);
        let grants = SubjectGrants::from_stored(&key, stored).expect("only we write them");
        let of: BTreeSet<MetricPeriod> = grants.groups().cloned().chain([of_grants()]).collect();
        let used = of.into_iter().map(|of| (of.clone(), used(&of))).collect();
        StoredGrants { subject: subject.clone(), grants, used }
    }

    /// Writes a change, unless the grants, a counter or the checkpoint has changed. `version` must be new.
    pub fn write(
        &mut self,
        change: &PendingChange,
        checkpoint: StreamId,
        version: &str,
        used: impl Fn(&MetricPeriod) -> u64,
    ) -> GrantReply {
        let PendingChange { before, after, notices, .. } = change;
        if change.checkpoint.is_some_and(|of_counters| of_counters != checkpoint) {
            return GrantReply::Stale;
        }
        let stored = self.fields.entry(before.subject.clone()).or_default();
        let is_same = stored.get("version").map_or("", String::as_str) == before.grants.version();
        if !is_same || before.used.iter().any(|(of, before)| used(of) != *before) {
            return GrantReply::Changed;
        }
        let changes = after.changes(version);
        stored.extend(changes.set);
        changes.removed.iter().for_each(|name| drop(stored.remove(name)));
        if changes.is_empty {
            self.due.remove(&before.subject);
        } else {
            self.due.insert(before.subject.clone(), after.due());
        }
        self.notices.extend(notices.iter().cloned());
        GrantReply::Written
    }
}
