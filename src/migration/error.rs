//! Errors of a migration.

use redis::RedisError;

use crate::ledger::commit_settings::FORMAT;
use crate::outbox::OutboxError;
use crate::types::StreamId;

/// Why the migration stopped.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    #[error("{what}")]
    Redis { what: String, source: RedisError },
    #[error(transparent)]
    Totals(#[from] OutboxError),
    #[error("{0} is not there: nothing was counted at the source")]
    NothingStored(String),
    #[error("{checkpoint} was written in format {format}, this quotabell knows {FORMAT}")]
    Format { checkpoint: String, format: String },
    #[error("a daemon is at work: {holder} holds {lease}")]
    Daemon { lease: String, holder: String },
    #[error("the target is not empty: {0} is there")]
    NotEmpty(String),
    #[error("the target has other settings of a subject than the source: {0}")]
    OtherSettings(String),
    #[error("{checkpoint} of the source says that everything was moved to {moved_to}")]
    MovedElsewhere { checkpoint: String, moved_to: String },
    #[error(
        "entries of {stream} at the target are older than the checkpoint {checkpoint}, so they would never be counted"
    )]
    OldEntries { stream: String, checkpoint: StreamId },
    #[error("{0} of the source is not marked any more, although everything was moved: both may have counted since")]
    Unmarked(String),
    #[error("the source has counted events since they were copied")]
    CountedSince,
    #[error("the move is complete: {0} may have counted since")]
    Complete(String),
    #[error("{} at the target", events_are(*events))]
    EventsAtTarget { events: u64 },
    #[error("{0} is a key that this version does not know")]
    UnknownKey(String),
    #[error("{0} names no subject")]
    NoSubject(String),
    #[error("the target differs from the source in {count} places, among them {named}")]
    Differs { count: u64, named: String },
}

fn events_are(events: u64) -> String {
    match events {
        1 => "1 event that a producer has written is".to_owned(),
        _ => format!("{events} events that producers have written are"),
    }
}

impl MigrationError {
    /// Wraps an error of Redis, with the operation that failed.
    pub(super) fn redis(what: impl Into<String>) -> impl Fn(RedisError) -> Self {
        let what = what.into();
        move |source| Self::Redis { what: what.clone(), source }
    }
}
