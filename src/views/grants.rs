//! The grants of a subject as they are now.

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ledger::grant_group::{Grant, GrantState};
use crate::ledger::grant_store::{self, UsageOf};
use crate::redis_client::Partition;
use crate::subjects::{Plans, Profile, StoredLevels};
use crate::types::text_form::text_enum;
use crate::types::timestamp::Rfc3339;
use crate::types::{GrantId, Metric, Period, PeriodSpan, Subject, Units, UnixMs, Window};

text_enum! {
    /// What became of a grant.
    pub enum GrantStatus {
        /// Units are left.
        Active = "active",
        /// It has paid for all of its units.
        Spent = "spent",
        /// It expired, or its period is over.
        Expired = "expired",
        /// What was left of it was revoked.
        Revoked = "revoked",
    }
}

/// A grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Grant")]
pub struct GrantView {
    /// A grant is given once by its id.
    pub id: GrantId,
    /// The metric of the limit that it raises.
    pub metric: Metric,
    /// The window of that limit.
    pub window: Window,
    /// The period whose limit it raises; `all` for a total.
    pub period: Period,
    /// Whether it pays, or why no more.
    pub status: GrantStatus,
    /// The units that it adds.
    pub units: Units,
    /// The units that it has paid for.
    pub spent: u64,
    /// The units that are left.
    pub remaining: u64,
    /// When what is left is lost; null if it does not expire before its period ends.
    pub expires_at: Option<Rfc3339>,
    /// A text of whoever gave it.
    pub note: Option<String>,
    /// When it was added.
    pub added_at: Rfc3339,
    /// When it expired or was revoked; null before.
    pub ended_at: Option<Rfc3339>,
}

/// The grants of a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GrantList {
    /// In the order in which they were added.
    pub grants: Vec<GrantView>,
}

impl GrantView {
    /// The view of a settled grant of a subject with these settings.
    pub fn new(grant: &Grant, profile: &Profile, now: UnixMs) -> Self {
        let Grant { id, metric, period, units, spent, expires_at, note, added_at, ended_at, .. } = grant.clone();
        let current = PeriodSpan::containing(period.window(), profile.zone(), profile.billing(), now);
        let status = match grant.state {
            GrantState::Revoked => GrantStatus::Revoked,
            GrantState::Expired => GrantStatus::Expired,
            GrantState::Active if grant.remaining() == 0 => GrantStatus::Spent,
            GrantState::Active if current.is_some_and(|current| current.period != period) => GrantStatus::Expired,
            GrantState::Active => GrantStatus::Active,
        };
        let remaining = if status == GrantStatus::Active { grant.remaining() } else { 0 };
        let window = period.window();
        Self { id, metric, window, period, status, units, spent, remaining, expires_at, note, added_at, ended_at }
    }
}

/// Reads the grants of a subject with what each has paid for until now.
///
/// # Errors
///
/// The error of Redis; `WRONGTYPE` also for a field that is no grant.
pub async fn read(partition: &Partition, plans: &Plans, subject: &Subject) -> RedisResult<GrantList> {
    let Partition { client, keys } = partition;
    let (stored, levels, now) = futures_util::try_join!(
        grant_store::read(partition, subject.clone(), None),
        StoredLevels::read(client, keys, subject),
        client.server_time()
    )?;
    let profile = levels.own_profile(plans);
    let mut grants = stored.grants;
    grants.settle(&UsageOf { used: &stored.used, profile: &profile });
    Ok(GrantList { grants: grants.all().into_iter().map(|grant| GrantView::new(grant, &profile, now)).collect() })
}
