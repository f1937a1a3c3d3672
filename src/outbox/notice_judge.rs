//! The interface through which the outbox asks whether a notice is still true.
//!
//! The rules of forecasts and of the ends of alerts are above the outbox, which calls them through a trait.

use std::fmt;

use redis::RedisResult;

use crate::channels::BoxFuture;
use crate::types::{Alert, AlertId, ContactId, ResolvedNotice, UnixMs, UsageNotice};

/// Judges notices immediately before they are sent.
pub trait NoticeJudge: fmt::Debug + Send + Sync {
    /// Whether the notice is still true. Changes nothing. After an error the outbox attempts the delivery again.
    fn is_true<'a>(&'a self, notice: &'a UsageNotice, now: UnixMs) -> BoxFuture<'a, RedisResult<bool>>;

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
