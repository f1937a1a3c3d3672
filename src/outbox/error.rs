//! Errors between the outbox and Redis.

use std::fmt;

use redis::RedisError;

use crate::redis_client::{ErrorKind, error_kind};
use crate::types::text_form::text_enum;

text_enum! {
    /// The operation, as the label of `quotabell_redis_errors_total`.
    pub enum Operation {
        /// Reading alerts that are not fanned out yet.
        ReadOutbox = "read_outbox",
        /// Turning an alert into deliveries.
        FanOut = "fan_out",
        /// Creating the delivery of a notification for one contact.
        Enqueue = "enqueue",
        /// Leasing due deliveries.
        Lease = "lease",
        /// Storing what a notice tells, before its first attempt.
        StoreTold = "store_told",
        /// Recording how an attempt ended.
        Settle = "settle",
        /// Applying an operator's action to deliveries.
        Act = "change_deliveries",
        /// Making deliveries without contact due.
        Wake = "wake",
        /// Marking a contact as disabled.
        DisableContact = "disable_contact",
        /// Reading deliveries or totals for people.
        Query = "query_deliveries",
    }
}

impl Operation {
    /// The beginning of an error about the operation.
    const fn phrase(self) -> &'static str {
        match self {
            Self::ReadOutbox => "read outbox",
            Self::FanOut => "fan out",
            Self::Enqueue => "enqueue",
            Self::Lease => "lease deliveries of",
            Self::StoreTold => "store what is told of",
            Self::Settle => "settle",
            Self::Act => "change deliveries of",
            Self::Wake => "wake deliveries without contact of",
            Self::DisableContact => "disable a contact of",
            Self::Query => "read",
        }
    }
}

/// A failed call to Redis. Cloneable, because one call may serve several deliveries.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, thiserror::Error)]
pub enum OutboxError {
    /// Redis or the connection failed. Unless Redis itself answered, the call may have taken effect; all calls are
    /// repeatable.
    #[error("{} {of}", .operation.phrase())]
    Redis {
        operation: Operation,
        /// The object of the operation: an alert, a delivery, a stream.
        of: String,
        #[source]
        source: RedisError,
    },
    /// A script returned a word that its wrapper does not know: two versions of quotabell, or a bug.
    #[error("{} {of}: the script gave the unexpected answer {answer:?}", .operation.phrase())]
    Answer { operation: Operation, of: String, answer: String },
    #[error(transparent)]
    Contacts(#[from] crate::contacts::resolver::ResolveContactsError),
}

impl OutboxError {
    /// Wraps an error of Redis, for `map_err`.
    pub(crate) fn redis(operation: Operation, of: impl fmt::Display) -> impl FnOnce(RedisError) -> Self {
        let of = of.to_string();
        move |source| Self::Redis { operation, of, source }
    }

    /// The error for a reply of a script that its wrapper does not know.
    pub(super) fn answer(operation: Operation, of: impl fmt::Display, answer: impl Into<String>) -> Self {
        Self::Answer { operation, of: of.to_string(), answer: answer.into() }
    }

    /// What the failure means for the caller.
    pub fn error_kind(&self) -> ErrorKind {
        match self {
            Self::Redis { source, .. } => error_kind(source),
            Self::Answer { .. } => ErrorKind::Other,
            Self::Contacts(error) => error.error_kind(),
        }
    }

    /// Whether a loop must end: one of our keys has another type, Redis refuses the daemon, or the partition was moved
    /// away. Waiting fixes none of these, and continuing would mean guessing. An error of an unknown kind is retried,
    /// because servers have many ways to say "not now".
    pub fn is_fatal(&self) -> bool {
        matches!(self.error_kind(), ErrorKind::WrongType | ErrorKind::Login | ErrorKind::Denied | ErrorKind::MovedAway)
    }

    /// The operation as a label of metrics.
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::Redis { operation, .. } | Self::Answer { operation, .. } => operation.as_str(),
            Self::Contacts(_) => "read_contacts",
        }
    }
}

/// An error and its causes on one line, for the log, without causes that an outer text already contains.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}
