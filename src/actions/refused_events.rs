//! Keeps events that were refused before they were appended, so that `quotabell refused list` shows them: many
//! producers don't read answers.
//!
//! They are in the same stream as refused entries of the usage stream, in the same form and with the same bounds.

use std::borrow::Cow;

use futures_util::future::join_all;
use redis::{Pipeline, RedisResult};

use crate::events::parse::InvalidEvent;
use crate::ledger::RefusedEvent;
use crate::ledger::commit_settings::REFUSED_KEPT;
use crate::redis_client::Partitions;

/// An event that was refused before it was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedNewEvent {
    /// The broken rule.
    pub broken: InvalidEvent,
    /// Its subject, which decides where it is kept; empty if it is unknown.
    pub subject: String,
    /// The part of its fields that is stored: names and values in turn.
    pub fields: Vec<Vec<u8>>,
}

impl RefusedNewEvent {
    /// Keeps a part of the fields.
    pub fn new(broken: InvalidEvent, fields: &[(&str, Cow<'_, str>)]) -> Self {
        let subject = fields.iter().find(|(name, _)| *name == "subject").map(|(_, value)| value.clone().into_owned());
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        Self { broken, subject: subject.unwrap_or_default(), fields: RefusedEvent::kept(fields) }
    }
}

/// Stores refused events. `source` stands in the place of the id of an entry.
///
/// # Errors
///
/// Some of them were not stored.
pub async fn keep(partitions: &Partitions, source: &str, events: &[RefusedNewEvent]) -> RedisResult<()> {
    let keys = &partitions.first().keys;
    let mut pipelines: Vec<Pipeline> = partitions.iter().map(|_| redis::pipe()).collect();
    for RefusedNewEvent { broken, subject, fields } in events {
        let number = keys.partition_of(subject.as_bytes());
        let pipeline = &mut pipelines[number.get() as usize];
        let command = pipeline.cmd("XADD").arg(keys.of_sibling(number).refused());
        command.arg("MAXLEN").arg("~").arg(REFUSED_KEPT).arg("*").arg("entry").arg(source);
        command.arg("reason").arg(broken.reason.as_str()).arg("detail").arg(&broken.detail).arg(fields);
    }
    let stored = partitions.iter().zip(&pipelines);
    let stored = stored.map(|(partition, pipeline)| partition.client.pipe::<Vec<String>>(pipeline));
    join_all(stored).await.into_iter().try_for_each(|stored| stored.map(|_| ()))
}
