//! What can go wrong between the outbox and Redis.

use std::fmt;

use redis::RedisError;

use crate::redis_client::{ErrorKind, error_kind};
use crate::types::text_form::text_enum;

text_enum! {
    /// What was being done with Redis, as the label of `quotabell_redis_errors_total`.
    pub enum Operation {
        /// Reading alerts that are not fanned out yet.
        ReadOutbox = "read_outbox",
        /// Turning one alert into deliveries.
        FanOut = "fan_out",
        /// Making the delivery of a notification for one contact.
        Enqueue = "enqueue",
        /// Taking deliveries that are due.
        Lease = "lease",
        /// Recording how an attempt ended.
        Settle = "settle",
        /// Doing with deliveries what an operator asks for.
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
    /// How an error begins that names it.
    const fn phrase(self) -> &'static str {
        match self {
            Self::ReadOutbox => "read outbox",
            Self::FanOut => "fan out",
            Self::Enqueue => "enqueue",
            Self::Lease => "lease deliveries of",
            Self::Settle => "settle",
            Self::Act => "change deliveries of",
            Self::Wake => "wake deliveries without contact of",
            Self::DisableContact => "disable a contact of",
            Self::Query => "read",
        }
    }
}

/// A call to Redis that did not do its work. May be cloned, because one call may have been made for several deliveries.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, thiserror::Error)]
pub enum OutboxError {
    /// Redis or the connection failed. Whether the call took effect is unknown unless Redis itself answered; each is
    /// safe to repeat.
    #[error("{} {of}", .operation.phrase())]
    Redis {
        operation: Operation,
        /// With what: an alert, a delivery, a stream.
        of: String,
        #[source]
        source: RedisError,
    },
    /// A script answered with a word that its wrapper does not know: two versions of quotabell, or a bug.
    #[error("{} {of}: the script gave the unexpected answer {answer:?}", .operation.phrase())]
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

    /// Whether a loop has to end: a key of ours holds something else, we are not let in, or the partition was moved
    /// away. Waiting mends none of these, and going on would mean to guess. An error of an unknown kind is retried:
    /// servers have many ways to say "not now".
    pub fn is_fatal(&self) -> bool {
        matches!(self.error_kind(), ErrorKind::WrongType | ErrorKind::Login | ErrorKind::Denied | ErrorKind::MovedAway)
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
