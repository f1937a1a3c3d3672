//! The interface through which the outbox asks whether a notice is still true.
//!
//! The rules of forecasts and of the ends of alerts are above the outbox, which calls them through a trait.

use std::fmt;
use std::time::Duration;

use redis::RedisResult;

use super::attempt_request::AttemptRequest;
use super::settle::Settlement;
use crate::channels::BoxFuture;
use crate::redis_client::backoff::BackoffPolicy;
use crate::types::{Alert, AlertId, ContactId, Notification, ResolvedNotice, UnixMs, UsageNotice};

/// If its first attempt is within this time after a notice of usage was raised, the notice is sent as it was raised.
/// Times of forecasts are rounded to as much.
const TOLD_AS_RAISED: Duration = Duration::from_secs(600);

/// Judges notices immediately before they are sent.
pub trait NoticeJudge: fmt::Debug + Send + Sync {
    /// The notice as it is true now; `None` if it is not true any more. Changes nothing. After an error the outbox
    /// attempts the delivery again.
    fn usage<'a>(&'a self, notice: &'a UsageNotice, now: UnixMs) -> BoxFuture<'a, RedisResult<Option<UsageNotice>>>;

    /// Whether an alert is still true, and `contact`, if there is one, was not told of a higher one since. Changes
    /// nothing. After an error the outbox attempts the delivery again.
    fn is_alert_true<'a>(
        &'a self,
        alert: &'a Alert,
        contact: Option<&'a ContactId>,
        now: UnixMs,
    ) -> BoxFuture<'a, RedisResult<bool>>;

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

/// A notice of usage as it is true now, or what to record instead of an attempt. `None` if it was attempted soon after
/// it was raised: it keeps its content in later attempts, until the time that it tells.
pub(super) async fn present_usage(
    notice: &UsageNotice,
    judge: &dyn NoticeJudge,
    request: &AttemptRequest<'_>,
) -> Result<Option<Notification>, Settlement> {
    let has_waited = request.first_attempt.since(notice.raised_at.0) > TOLD_AS_RAISED;
    let is_past = notice.expected_at.is_some_and(|expected| request.now >= expected.0);
    match judge.usage(notice, request.now).await {
        Ok(Some(present)) if has_waited => Ok(Some(Notification::Usage(present))),
        Ok(Some(_)) if !is_past => Ok(None),
        Ok(_) => Err(Settlement::Expired),
        Err(error) => {
            tracing::debug!(delivery = %request.delivery, %error, "a notice could not be judged");
            Err(Settlement::Released(BackoffPolicy::RECONNECT.max_interval))
        }
    }
}
