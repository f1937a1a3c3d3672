//! What can go wrong between the outbox and Redis.

use std::fmt;

use redis::RedisError;

use crate::wire::{ErrorKind, error_kind};

/// What was being done with Redis; also the label of `quotabell_redis_errors_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reading alerts that are not fanned out yet.
    ReadOutbox,
    /// Turning one alert into deliveries.
    FanOut,
    /// Making the delivery of a notification for one contact.
    Enqueue,
    /// Taking deliveries that are due.
    Lease,
    /// Recording how an attempt ended.
    Settle,
    /// Doing with deliveries what an operator asks for.
    Act,
    /// Making deliveries without contact due.
    Wake,
    /// Marking a contact as disabled.
    DisableContact,
    /// Reading deliveries or totals for people.
    Query,
}

impl Operation {
    /// The operation as a metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOutbox => "read_outbox",
            Self::FanOut => "fan_out",
            Self::Enqueue => "enqueue",
            Self::Lease => "lease",
            Self::Settle => "settle",
            Self::Act => "change_deliveries",
            Self::Wake => "wake",
            Self::DisableContact => "disable_contact",
            Self::Query => "query_deliveries",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadOutbox => "read outbox",
            Self::FanOut => "fan out",
            Self::Enqueue => "enqueue",
            Self::Lease => "lease deliveries of",
            Self::Settle => "settle",
            Self::Act => "change deliveries of",
            Self::Wake => "wake deliveries without contact of",
            Self::DisableContact => "disable a contact of",
            Self::Query => "read",
        })
    }
}

/// A call to Redis that did not do its work. May be cloned, because one call may have been made for several deliveries.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, thiserror::Error)]
pub enum OutboxError {
    /// Redis or the connection failed. Whether the call took effect is unknown unless Redis itself answered; each is
    /// safe to repeat.
    #[error("{operation} {of}")]
    Redis {
        operation: Operation,
        /// With what: an alert, a delivery, a stream.
        of: String,
        #[source]
        source: RedisError,
    },
    /// A script answered with a word that its wrapper does not know: two versions of quotabell, or a bug.
    #[error("{operation} {of}: the script answered {answer:?}, which is none of its answers")]
    Answer { operation: Operation, of: String, answer: String },
    #[error(transparent)]
    Contacts(#[from] crate::contacts::resolver::ResolveContactsError),
}

impl OutboxError {
    /// Turns an error of Redis into ours, for `map_err`.
    pub(super) fn redis(operation: Operation, of: impl fmt::Display) -> impl FnOnce(RedisError) -> Self {
        let of = of.to_string();
        move |source| Self::Redis { operation, of, source }
    }

    /// What the failure means for whoever made the call.
    pub fn error_kind(&self) -> ErrorKind {
        match self {
            Self::Redis { source, .. } => error_kind(source),
            Self::Answer { .. } => ErrorKind::Other,
            Self::Contacts(error) => error.error_kind(),
        }
    }

    /// Whether a loop has to end: a key of ours holds something else, or we are not let in. Waiting mends neither, and
    /// going on would mean to guess. An error of an unknown kind is retried: servers have many ways to say "not now".
    pub fn is_fatal(&self) -> bool {
        matches!(self.error_kind(), ErrorKind::WrongType | ErrorKind::Login | ErrorKind::Denied)
    }

    /// The operation as a metric's label.
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::Redis { operation, .. } | Self::Answer { operation, .. } => operation.as_str(),
            Self::Contacts(_) => "read_contacts",
        }
    }
}

/// An error and its causes on one line, for the log. Some errors say their cause in their own text: it is not said
/// again.
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
