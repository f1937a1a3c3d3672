//! Does what is due of grants at its place in the stream: an expired grant has paid for exactly the usage that arrived
//! before its expiry, also if the daemon was away then.
//!
//! The batch builder stops before the first event that arrived at or after the due time. When everything before it is
//! committed, the grants are settled with the committed counts; then counting goes on. A commit that would pass a due
//! time is refused by its script, so no worker can skip this.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use metrics::counter;
use redis::RedisResult;

use crate::ledger::batch::MetricPeriod;
use crate::ledger::grant_group::Grant;
use crate::ledger::grant_store::{self, GrantChange, GrantReply, StoredGrants, UsageOf};
use crate::ledger::grants::SubjectGrants;
use crate::ledger::grants_due;
use crate::redis_client::{ErrorKind, Partition, error_kind};
use crate::subjects::watch::SubjectChanges;
use crate::subjects::{Profile, StoredLevels};
use crate::types::timestamp::Rfc3339;
use crate::types::{DeploymentId, GrantNotice, LimitUnits, Subject, UnixMs, meters};

use super::session::Session;
use super::session_error::SessionError;

/// Grants that can't be read are tried again after this time. Until then they keep their units.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How often grants that change meanwhile are read again; after that the session starts over.
const TRIES: u32 = 10;

/// What settling is about.
struct DueGrants<'a> {
    partition: Partition,
    session: &'a Session<'a>,
    until: UnixMs,
    now: UnixMs,
}

impl Session<'_> {
    /// Settles grants if the batch is empty and stopped before an event because of them. Returns whether it did.
    ///
    /// # Errors
    ///
    /// A failure of Redis, or another worker committed.
    pub(super) async fn settle_due_grants(&mut self) -> Result<bool, SessionError> {
        let Some(until) = self.builder.stopped_at_grants() else { return Ok(false) };
        self.finish_commit().await?;
        self.settle_grants(until).await?;
        Ok(true)
    }

    /// Settles the grants of which something is due until this time. Everything that arrived before is committed.
    ///
    /// # Errors
    ///
    /// A failure of Redis, or another worker committed.
    pub(super) async fn settle_grants(&mut self, until: UnixMs) -> Result<(), SessionError> {
        let failed = |source| SessionError::Redis { operation: "settle grants", source };
        let parts = &self.worker.parts;
        let partition = Partition { client: parts.client.clone(), keys: parts.keys.clone() };
        let mut tries = 0;
        while tries < TRIES {
            let subjects = grants_due::some_subjects(&partition, until).await.map_err(failed)?;
            if subjects.is_empty() {
                self.builder.set_grants_due(grants_due::next(&partition).await.map_err(failed)?);
                return Ok(());
            }
            let now = partition.client.server_time().await.map_err(failed)?;
            let due = DueGrants { partition: partition.clone(), session: self, until, now };
            let replies = try_join_all(subjects.iter().map(|subject| due.settle(subject))).await.map_err(failed)?;
            if replies.contains(&GrantReply::Stale) {
                return Err(SessionError::Again("another worker committed while grants were settled"));
            }
            // Their limits are lower for the next event already. Settings that are being read may be older.
            let names: Vec<Vec<u8>> = subjects.iter().map(|subject| subject.as_str().as_bytes().to_vec()).collect();
            names.iter().for_each(|subject| self.held.cache.changed(subject));
            self.worker.parts.changes.note(SubjectChanges::Of(names));
            self.worker.report.notices_raised();
            // Any number of grants may be due at one moment.
            tries = if replies.contains(&GrantReply::Written) { 0 } else { tries + 1 };
        }
        Err(SessionError::Again("grants changed all the time while they were settled"))
    }
}

impl DueGrants<'_> {
    async fn settle(&self, subject: &Subject) -> RedisResult<GrantReply> {
        match self.try_settle(subject).await {
            Err(error) if error_kind(&error) == ErrorKind::WrongType => {
                tracing::error!(%subject, %error, "grants can't be read: they keep their units until that is corrected");
                grants_due::postpone(&self.partition, subject, self.now.after(AGAIN_AFTER)).await?;
                Ok(GrantReply::Written)
            }
            settled => settled,
        }
    }

    async fn try_settle(&self, subject: &Subject) -> RedisResult<GrantReply> {
        let Self { partition, session, until, now } = self;
        let before = grant_store::read(partition, subject.clone(), None).await?;
        let plans = &session.worker.parts.plans;
        let profile = match StoredLevels::read(&partition.client, &partition.keys, subject).await {
            Ok(stored) => Some(stored.own_profile(plans)),
            // Units expire also if nobody can read what the plan gives.
            Err(error) if error_kind(&error) == ErrorKind::WrongType => None,
            Err(error) => return Err(error),
        };
        let profile = &*profile.unwrap_or_else(|| Arc::new(Profile::unreadable(plans, 0)));
        let mut after = before.grants.clone();
        let expiring = after.pass(*until, &UsageOf { used: &before.used, profile }, *now);
        let notice = |grant| notice(session.builder.instance(), &before, &after, profile, grant, *now);
        let notices: Vec<GrantNotice> = expiring.into_iter().filter_map(notice).collect();
        let checkpoint = Some(session.builder.from());
        let change = GrantChange { before: &before, after: &after, checkpoint, notices: &notices };
        let reply = grant_store::write(partition, change).await?;
        if reply == GrantReply::Written {
            counter!(meters::NOTICES_RAISED, "type" => GrantNotice::WEBHOOK_TYPE).increment(notices.len() as u64);
            for grant in after.all() {
                if before.grants.find(&grant.id).is_some_and(|earlier| earlier.state != grant.state) {
                    let lost = grant.units.get() - grant.spent;
                    tracing::info!(%subject, grant = %grant.id, spent = grant.spent, lost, "a grant expired");
                }
            }
        }
        Ok(reply)
    }
}

fn notice(
    instance: &DeploymentId,
    StoredGrants { subject, used, .. }: &StoredGrants,
    grants: &SubjectGrants,
    profile: &Profile,
    grant: Grant,
    now: UnixMs,
) -> Option<GrantNotice> {
    let remaining = grant.remaining();
    let Grant { id, metric, period, units, expires_at, note, .. } = grant;
    let of = MetricPeriod { metric, period };
    let base = profile.limits_of(&of.metric).iter().find(|limit| limit.window == period.window());
    let base = base.map_or_else(LimitUnits::default, |limit| limit.units);
    Some(GrantNotice {
        id: GrantNotice::id_of(instance, subject, &id),
        subject: subject.clone(),
        window: period.window(),
        grant: id,
        note,
        units,
        remaining,
        expires_at: expires_at?,
        limit: base.plus(grants.added().units_of(&of.metric, period)).get(),
        used: used.get(&of).copied().unwrap_or(0),
        plan: profile.plan().to_string(),
        timezone: profile.zone().name().to_owned(),
        raised_at: Rfc3339(now),
        metric: of.metric,
    })
}
