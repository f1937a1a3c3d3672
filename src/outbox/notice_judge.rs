//! The interface through which the outbox asks whether a notice is still true.
//!
//! The rules of forecasts are above the outbox, which calls them through a trait.

use std::fmt;

use redis::RedisResult;

use crate::channels::BoxFuture;
use crate::types::{UnixMs, UsageNotice};

/// Judges notices of usage immediately before they are sent.
pub trait NoticeJudge: fmt::Debug + Send + Sync {
    /// Whether the notice is still true. Changes nothing. After an error the outbox attempts the delivery again.
    fn is_true<'a>(&'a self, notice: &'a UsageNotice, now: UnixMs) -> BoxFuture<'a, RedisResult<bool>>;
}
