//! Appends usage events to their streams, for producers that don't speak with Redis.
//!
//! An event is judged by the rules of the reader before it is appended, so that a producer learns what is wrong with
//! it. Appending marks no event id as seen: only the commit that counts an event does. Read next:
//! [`crate::events::parse`], the rules; [`super::refused_events`], which keeps the others.

use std::borrow::Cow;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Cmd, Pipeline, RedisError};

use crate::events::parse::{InvalidEvent, RawEvent};
use crate::redis_client::Partitions;
use crate::types::{Keys, UnixMs};

/// Text of the fields of an entry beside the values: names, lengths and line breaks of the protocol.
const FIELD_OVERHEAD_BYTES: usize = 32;
/// What a command takes in memory beside the text of its arguments, and what each argument does.
const COMMAND_OVERHEAD_BYTES: usize = 128;
const ARGUMENT_OVERHEAD_BYTES: usize = 32;

/// A usage event that is not in the stream yet: the fields of its entry, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewEvent<'a> {
    /// `subject`.
    pub subject: Option<Cow<'a, str>>,
    /// `metric`.
    pub metric: Option<Cow<'a, str>>,
    /// `units`.
    pub units: Option<Cow<'a, str>>,
    /// `credit`.
    pub credit: Option<Cow<'a, str>>,
    /// `ts`.
    pub ts: Option<Cow<'a, str>>,
    /// `id`.
    pub id: Option<Cow<'a, str>>,
    /// `traceparent`.
    pub traceparent: Option<Cow<'a, str>>,
}

impl NewEvent<'_> {
    /// Judges the event as if it arrived at this time.
    ///
    /// # Errors
    ///
    /// The first broken rule.
    pub fn check(&self, keys: &Keys, now: UnixMs, late_max: Duration) -> Result<(), InvalidEvent> {
        let fields = self.fields().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        RawEvent::from_fields(fields).check_new(keys.separator(), now, late_max)
    }

    /// The fields with a value, in the order of the table in docs/sending.md.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let fields = [
            ("subject", &self.subject),
            ("metric", &self.metric),
            ("units", &self.units),
            ("credit", &self.credit),
            ("ts", &self.ts),
            ("id", &self.id),
            ("traceparent", &self.traceparent),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }
}

/// Events that are to be appended, in their order.
#[derive(Debug)]
pub struct NewEntries {
    /// The keys of each partition.
    keys: Vec<Keys>,
    /// The commands of each partition.
    pipelines: Vec<Pipeline>,
    entries: u64,
    /// What the commands take in memory, bytes.
    bytes: usize,
}

/// Redis did not take all entries.
#[derive(Debug, thiserror::Error)]
#[error("append {entries} usage events, {appended} of them were appended")]
pub struct AppendError {
    /// How many are known to be in the streams. More of them may be, if a reply was lost.
    pub appended: u64,
    /// How many there were.
    pub entries: u64,
    /// The first error.
    pub source: RedisError,
}

impl NewEntries {
    /// Without events yet.
    pub fn new(partitions: &Partitions) -> Self {
        let keys: Vec<Keys> = partitions.iter().map(|partition| partition.keys.clone()).collect();
        let pipelines = keys.iter().map(|_| redis::pipe()).collect();
        Self { keys, pipelines, entries: 0, bytes: 0 }
    }

    /// The keys of the first partition.
    pub fn keys(&self) -> &Keys {
        &self.keys[0]
    }

    /// Adds a valid event.
    pub fn add(&mut self, event: &NewEvent<'_>) {
        let subject = event.subject.as_deref().unwrap_or_default();
        let partition = self.keys().partition_of(subject.as_bytes()).get() as usize;
        let stream = self.keys[partition].stream();
        let (count, bytes) = event.fields().fold((0, stream.len()), |(count, bytes), (name, value)| {
            (count + 1, bytes + name.len() + value.len() + FIELD_OVERHEAD_BYTES)
        });
        let mut command = Cmd::with_capacity(3 + 2 * count, bytes);
        command.arg("XADD").arg(stream).arg("*");
        for (name, value) in event.fields() {
            command.arg(name).arg(value);
        }
        self.pipelines[partition].add_command(command);
        self.entries += 1;
        self.bytes += bytes + COMMAND_OVERHEAD_BYTES + count * ARGUMENT_OVERHEAD_BYTES;
    }

    /// Approximately what the commands take in memory, bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends all of them: one pipeline per partition, all at once. Repeatable for events with ids.
    ///
    /// # Errors
    ///
    /// Some of them were not appended, or nobody knows. The others are in the streams and will be counted.
    pub async fn append(self, partitions: &Partitions) -> Result<(), AppendError> {
        let used = partitions.iter().zip(self.pipelines).filter(|(_, pipeline)| !pipeline.is_empty());
        let appending = used.map(|(partition, mut pipeline)| async move {
            pipeline.ignore_errors();
            partition.client.pipe_each(&pipeline).await
        });
        let (mut appended, mut failed) = (0, None);
        for replies in join_all(appending).await {
            match replies {
                Ok(replies) => {
                    appended += replies.iter().filter(|reply| reply.is_ok()).count() as u64;
                    failed = failed.or_else(|| replies.into_iter().find_map(Result::err));
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let entries = self.entries;
        failed.map_or(Ok(()), |source| Err(AppendError { appended, entries, source }))
    }
}
