//! The interface through which the outbox asks whether a notification is still true, and what follows from the answer.
//!
//! The rules of forecasts and of the ends of alerts are above the outbox, which calls them through a trait.

use std::fmt;
use std::time::Duration;

use redis::RedisResult;

use super::attempt_request::AttemptRequest;
use super::settle::Settlement;
use crate::channels::BoxFuture;
use crate::types::{Alert, AlertId, ContactId, EndReason, Notification, ResolvedNotice, UnixMs, UsageNotice};

/// If its first attempt is within this time after a notice of usage was raised, the notice is sent as it was raised.
/// Times of forecasts are rounded to as much.
const TOLD_AS_RAISED: Duration = Duration::from_secs(600);

/// How long a higher limit or a credit has to last before the end of alerts is told, and before an alert that waits is
/// given up. An incident that was closed stays closed, and whoever mistypes a limit corrects it at once.
pub const RESOLVED_AFTER: Duration = Duration::from_secs(3);
/// How long the end of alerts waits for what it depends on: a quarter of its age within these bounds.
const RESOLVED_WAIT_MIN: Duration = Duration::from_millis(250);
const RESOLVED_WAIT_MAX: Duration = Duration::from_secs(60);

/// Judges notices immediately before they are sent.
pub trait NoticeJudge: fmt::Debug + Send + Sync {
    /// The notice as it is true now; `None` if it is not true any more. Changes nothing. After an error the outbox
    /// attempts the delivery again.
    fn usage<'a>(&'a self, notice: &'a UsageNotice, now: UnixMs) -> BoxFuture<'a, RedisResult<Option<UsageNotice>>>;

    /// Whether an alert is still true, and `contact`, if there is one, was not told of a higher one since. Changes
    /// nothing. After an error the outbox attempts the delivery again.
    fn alert<'a>(
        &'a self,
        alert: &'a Alert,
        contact: Option<&'a ContactId>,
        now: UnixMs,
    ) -> BoxFuture<'a, RedisResult<AlertVerdict>>;

    /// Whether alerts that were delivered to this contact have ended. Those that leave in the same message count as
    /// delivered. If one is open again, the end is withdrawn, and the next one is raised as a new notice. After an
    /// error the outbox attempts the delivery again.
    fn resolved<'a>(
        &'a self,
        notice: &'a ResolvedNotice,
        contact: &'a ContactId,
        sent_together: &'a [&'a AlertId],
        now: UnixMs,
    ) -> BoxFuture<'a, RedisResult<ResolvedVerdict>>;
}

/// Whether an alert is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertVerdict {
    /// It is true.
    True,
    /// Not yet: it may have ended, but that has not lasted long enough, or is not stored.
    Later,
    /// Never: it has ended, or the contact knows more.
    Never,
}

/// Whether the end of alerts is told to a contact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolvedVerdict {
    /// It is true, in this form.
    True(Box<ResolvedNotice>),
    /// Not yet: an alert is still on its way to the contact, or something has changed meanwhile.
    Later,
    /// Never: the contact got none of the alerts or heard of their end, or a later end tells it.
    Never,
}

/// What to record if a notification may not be sent now, else what a notice tells from now on, if that is not fixed.
/// All attempts tell the same under the same id.
pub type Verdict = Result<Option<Notification>, Settlement>;

/// Alerts are told as they were raised.
pub(super) async fn judge_alert(
    alert: &Alert,
    judge: &dyn NoticeJudge,
    request: &AttemptRequest<'_>,
) -> RedisResult<Verdict> {
    // What the contact may have got is sent again, so that it also gets the end. And no end of a fresh alert has lasted
    // long enough: a storm of alerts reads nothing here.
    let is_fresh = request.waited_until.is_none() && request.now.since(alert.raised_at_ms) < RESOLVED_AFTER;
    if request.may_have_arrived || is_fresh {
        return Ok(Ok(None));
    }
    let has_waited = request.waited_until.is_some() && request.attempts <= 1;
    Ok(match judge.alert(alert, has_waited.then_some(&request.contact.id), request.now).await? {
        AlertVerdict::True => Ok(None),
        AlertVerdict::Later => {
            let age = request.now.since(alert.raised_at_ms);
            Err(Settlement::Released((age / 4).clamp(RESOLVED_AFTER, RESOLVED_WAIT_MAX)))
        }
        AlertVerdict::Never => Err(Settlement::Expired),
    })
}

/// A notice of usage that was attempted soon after it was raised, or before, keeps its content until the time that it
/// tells.
pub(super) async fn judge_usage(
    notice: &UsageNotice,
    judge: &dyn NoticeJudge,
    request: &AttemptRequest<'_>,
) -> RedisResult<Verdict> {
    let has_waited = request.first_attempt.since(notice.raised_at.0) > TOLD_AS_RAISED;
    let is_past = notice.expected_at.is_some_and(|expected| request.now >= expected.0);
    Ok(match judge.usage(notice, request.now).await? {
        Some(present) if has_waited && !request.is_told => Ok(Some(Notification::Usage(present))),
        Some(_) if !is_past => Ok((!request.is_told).then(|| Notification::Usage(notice.clone()))),
        _ => Err(Settlement::Expired),
    })
}

/// The end of alerts, if it leaves together with these.
pub(super) async fn judge_resolved(
    notice: &ResolvedNotice,
    judge: &dyn NoticeJudge,
    request: &AttemptRequest<'_>,
    sent_together: &[&AlertId],
) -> RedisResult<Verdict> {
    let age = request.now.since(notice.raised_at.0);
    if notice.reason != EndReason::Reset && age < RESOLVED_AFTER {
        return Ok(Err(Settlement::Released(RESOLVED_AFTER - age)));
    }
    Ok(match judge.resolved(notice, &request.contact.id, sent_together, request.now).await? {
        ResolvedVerdict::True(present) if !request.is_told => Ok(Some(Notification::Resolved(*present))),
        ResolvedVerdict::True(_) => Ok(None),
        ResolvedVerdict::Later => Err(Settlement::Released((age / 4).clamp(RESOLVED_WAIT_MIN, RESOLVED_WAIT_MAX))),
        ResolvedVerdict::Never => Err(Settlement::Expired),
    })
}
