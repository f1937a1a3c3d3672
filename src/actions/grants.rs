//! Adds and revokes grants.
//!
//! A change is computed from the stored grants and the committed counts, and is written only if neither has changed
//! since; otherwise it is computed again. So a grant is given once, however often and from how many sides it is sent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use schemars::JsonSchema;
use serde::Deserialize;

use super::contacts::{LevelError, check_levels};
use crate::ledger::batch::MetricPeriod;
use crate::ledger::grant_group::{Grant, GrantState};
use crate::ledger::grant_store::{self, GrantChange, GrantReply, StoredGrants, UsageOf};
use crate::ledger::grants::{AddGrantError, SubjectGrants};
use crate::redis_client::Partition;
use crate::subjects::{Plans, Profile, StoredLevels};
use crate::types::grant::GRANT_NOTE_BYTES_MAX;
use crate::types::timestamp::Rfc3339;
use crate::types::{GrantId, Metric, PeriodSpan, Subject, Units, UnixMs, Window};
use crate::views::GrantView;

/// The shortest time from adding a grant to its notice. By then the worker has heard of the grant, and need not start
/// over.
const NOTICE_AFTER: Duration = Duration::from_secs(2);
/// How often a change is computed again. A busy subject is counted every few milliseconds.
const TRIES: u32 = 100;

/// A grant that is added.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct NewGrant {
    /// The metric; `requests` if left out.
    #[serde(default)]
    pub metric: Metric,
    /// How many.
    pub units: Units,
    /// The window whose limit is raised: a total, or the present period of another one.
    #[serde(default = "total")]
    pub window: Window,
    /// When what is left is lost; left out or null for never, or for the end of the period.
    #[serde(default)]
    pub expires_at: Option<Rfc3339>,
    /// Your id of the grant, such as that of the invoice. A grant is given once, however often it is sent. Without an
    /// id it gets one, and a repetition gives another grant.
    #[serde(default)]
    pub id: Option<GrantId>,
    /// What the grant is for, in your own words.
    #[serde(default)]
    #[schemars(length(min = 1, max = GRANT_NOTE_BYTES_MAX))]
    pub note: Option<String>,
}

const fn total() -> Window {
    Window::Total
}

/// Why no grant is changed.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    #[error("change the grants of {subject}")]
    Redis {
        subject: Subject,
        #[source]
        source: RedisError,
    },
    #[error(transparent)]
    Level(#[from] LevelError),
    #[error(transparent)]
    Add(#[from] AddGrantError),
    #[error("subject {subject} has settings that can't be read: correct them first")]
    Unreadable { subject: Subject },
    #[error(
        "{subject} has no limit of {metric} for the window {window}, which a grant could raise: set one{}",
        if *.window == Window::Total { ", 0/total lets only grants count" } else { "" }
    )]
    NoLimit { subject: Subject, metric: Metric, window: Window },
    #[error("expires_at {expires_at} has passed: it is {now}")]
    Past { expires_at: UnixMs, now: UnixMs },
    #[error("expires_at {expires_at} is after the end of the {window} {end}: leave it out")]
    AfterPeriod { expires_at: UnixMs, window: Window, end: UnixMs },
    #[error("a note has 1 to {GRANT_NOTE_BYTES_MAX} bytes and no control characters")]
    Note,
    #[error("{subject} has no grant {id}")]
    NotFound { subject: Subject, id: GrantId },
    #[error("the grants or counts of {0} changed all the time: try again")]
    Contended(Subject),
}

/// A grant after it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedGrant {
    /// The grant as it is now.
    pub grant: GrantView,
    /// Whether it was added now, and not before.
    pub is_new: bool,
}

/// What a change is computed from.
struct Present {
    stored: StoredGrants,
    profile: Arc<Profile>,
    has_unreadable: bool,
    now: UnixMs,
}

/// Adds a grant, or finds that it was added before. Repeatable.
///
/// # Errors
///
/// [`GrantError`]; after an error of Redis it may be added.
pub async fn add(
    partition: &Partition,
    plans: &Plans,
    subject: &Subject,
    new: &NewGrant,
) -> Result<AddedGrant, GrantError> {
    check_levels(&partition.keys, subject, false)?;
    let is_sound =
        |note: &String| (1..=GRANT_NOTE_BYTES_MAX).contains(&note.len()) && !note.chars().any(char::is_control);
    if !new.note.as_ref().is_none_or(is_sound) {
        return Err(GrantError::Note);
    }
    let id = new.id.clone().unwrap_or_else(|| GrantId::numbered(rand::random()));
    for _ in 0..TRIES {
        let (profile, has_unreadable, now) = settings(partition, plans, subject).await?;
        let span = PeriodSpan::containing(new.window, profile.zone(), profile.billing(), now);
        let of = span.map(|span| MetricPeriod { metric: new.metric.clone(), period: span.period });
        let stored = read(partition, subject, of.as_ref()).await?;
        let present = Present { stored, profile, has_unreadable, now };
        let mut after = present.stored.grants.clone();
        let grant = present.grant(subject, &id, new, span)?;
        let usage = UsageOf { used: &present.stored.used, profile: &present.profile };
        let is_new = after.add(grant, &usage, present.now)?;
        if is_new && !present.write(partition, &after).await? {
            continue;
        }
        after.settle(&usage);
        if let Some(grant) = after.find(&id) {
            return Ok(AddedGrant { grant: GrantView::new(grant, &present.profile, present.now), is_new });
        }
    }
    Err(GrantError::Contended(subject.clone()))
}

/// Revokes what is left of a grant, and returns it as it is then. Changes nothing if nothing is left. Repeatable.
///
/// # Errors
///
/// [`GrantError`]; after an error of Redis it may be revoked.
pub async fn revoke(
    partition: &Partition,
    plans: &Plans,
    subject: &Subject,
    id: &GrantId,
) -> Result<GrantView, GrantError> {
    for _ in 0..TRIES {
        let (profile, has_unreadable, now) = settings(partition, plans, subject).await?;
        let stored = read(partition, subject, None).await?;
        let present = Present { stored, profile, has_unreadable, now };
        let mut after = present.stored.grants.clone();
        let usage = UsageOf { used: &present.stored.used, profile: &present.profile };
        let Some(grant) = after.revoke(id, &usage, now) else {
            return Err(GrantError::NotFound { subject: subject.clone(), id: id.clone() });
        };
        if present.write(partition, &after).await? {
            return Ok(GrantView::new(&grant, &present.profile, now));
        }
    }
    Err(GrantError::Contended(subject.clone()))
}

/// Warns of grants that raise no limit, because the settings of their subject have none any more: nobody would hear
/// that the units are used up, and checks would refuse nothing.
///
/// # Errors
///
/// [`GrantError::Redis`].
pub async fn warnings_of_lost_limits(
    partition: &Partition,
    plans: &Plans,
    subject: &Subject,
) -> Result<Vec<String>, GrantError> {
    let stored = read(partition, subject, None).await?;
    if stored.grants.all().is_empty() {
        return Ok(Vec::new());
    }
    let (profile, has_unreadable, now) = settings(partition, plans, subject).await?;
    let has_limit = |grant: &Grant| {
        has_unreadable || profile.limits_of(&grant.metric).iter().any(|limit| limit.window == grant.period.window())
    };
    let is_over = |grant: &Grant| grant.period.has_end() && grant.period.ends_everywhere() <= now;
    let lost = stored.grants.all().into_iter().filter(|grant| grant.remaining() > 0 && !is_over(grant));
    let lost: BTreeSet<(Metric, Window)> =
        lost.filter(|grant| !has_limit(grant)).map(|grant| (grant.metric.clone(), grant.period.window())).collect();
    let warning = |(metric, window): (Metric, Window)| {
        let base = if window == Window::Total { ": 0/total lets only grants count" } else { "" };
        format!("{subject} has grants of {metric} for the window {window} and no limit that they raise{base}")
    };
    Ok(lost.into_iter().map(warning).collect())
}

async fn settings(
    Partition { client, keys }: &Partition,
    plans: &Plans,
    subject: &Subject,
) -> Result<(Arc<Profile>, bool, UnixMs), GrantError> {
    let (levels, now) = futures_util::try_join!(StoredLevels::read(client, keys, subject), client.server_time())
        .map_err(|source| GrantError::Redis { subject: subject.clone(), source })?;
    let profile = levels.own_profile(plans);
    let has_unreadable = !profile.has_known_limits();
    Ok((profile, has_unreadable, now))
}

async fn read(
    partition: &Partition,
    subject: &Subject,
    also: Option<&MetricPeriod>,
) -> Result<StoredGrants, GrantError> {
    let read = grant_store::read(partition, subject.clone(), also).await;
    read.map_err(|source| GrantError::Redis { subject: subject.clone(), source })
}

impl Present {
    /// The grant that is asked for, or the one that was added before under this id.
    fn grant(
        &self,
        subject: &Subject,
        id: &GrantId,
        new: &NewGrant,
        span: Option<PeriodSpan>,
    ) -> Result<Grant, GrantError> {
        let NewGrant { metric, units, window, expires_at, note, .. } = new.clone();
        let Self { stored, profile, has_unreadable, now } = self;
        let asked = |span: PeriodSpan| Grant {
            id: id.clone(),
            metric: metric.clone(),
            period: span.period,
            units,
            spent: 0,
            state: GrantState::Active,
            expires_at,
            notice_at: None,
            note: note.clone(),
            added_at: Rfc3339(*now),
            ended_at: None,
        };
        let no_limit = || GrantError::NoLimit { subject: subject.clone(), metric: metric.clone(), window };
        let grant = asked(span.ok_or_else(no_limit)?);
        // Whether a repetition is right does not depend on what holds now.
        if stored.grants.find(id).is_some() {
            return Ok(grant);
        }
        if *has_unreadable {
            return Err(GrantError::Unreadable { subject: subject.clone() });
        }
        if !profile.limits_of(&metric).iter().any(|limit| limit.window == window) {
            return Err(no_limit());
        }
        let Some(Rfc3339(expires_at)) = expires_at else { return Ok(grant) };
        if expires_at <= *now {
            return Err(GrantError::Past { expires_at, now: *now });
        }
        let end = span.filter(|span| span.period.has_end()).map(|span| span.end);
        if let Some(end) = end.filter(|end| expires_at > *end) {
            return Err(GrantError::AfterPeriod { expires_at, window, end });
        }
        // A grant that lives shorter than that is told of at once, and the workers hear of it before. Units that end
        // with their period need no notice.
        let notice = profile.grant_notice().filter(|notice| end != Some(expires_at) && !notice.is_zero());
        let notice_ms = notice.map(|notice| i64::try_from(notice.as_millis()).unwrap_or(i64::MAX));
        let earliest = now.after(NOTICE_AFTER);
        let notice_at = notice_ms.map(|notice_ms| Rfc3339(expires_at.plus(-notice_ms).max(earliest)));
        Ok(Grant { notice_at, ..grant })
    }

    /// Whether the change is written.
    async fn write(&self, partition: &Partition, after: &SubjectGrants) -> Result<bool, GrantError> {
        let change = GrantChange { before: &self.stored, after, checkpoint: None, notices: &[] };
        let reply = grant_store::write(partition, change).await;
        let subject = &self.stored.subject;
        let reply = reply.map_err(|source| GrantError::Redis { subject: subject.clone(), source })?;
        Ok(reply == GrantReply::Written)
    }
}
