//! Writes changes of subjects.
//!
//! Contacts that are named are merged into the stored ones. So the stored ones are read first, and the result is
//! written only if they are still the same. A change without contacts is written as it is. Read next:
//! [`SubjectChange::merged`], what is kept, and [`crate::contacts::store`], how it is compared.

use redis::{Pipeline, RedisResult};

use super::change::{MergeError, MergedChange, SubjectChange};
use crate::contacts::array::CONTACTS;
use crate::contacts::store::{self, FieldChanges, TRIES_MAX};
use crate::redis_client::RedisClient;
use crate::types::{Keys, Subject};

/// Changes that were merged into the contacts which were stored when they were read.
#[derive(Debug)]
pub struct PreparedChanges(Vec<PreparedChange>);

#[derive(Debug)]
struct PreparedChange {
    subject: Subject,
    /// The contacts that must still be there; `None` where the change does not depend on them.
    read: Option<Vec<u8>>,
    merged: Result<MergedChange, MergeError>,
}

/// How the writing of one change ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubjectWrite {
    /// It is written.
    Written(MergedChange),
    /// Another client changed the contacts since they were read: nothing is written.
    Conflict,
    /// The contacts can't be merged into the stored ones: nothing is written.
    Unmergeable(MergeError),
}

/// Reads what the changes depend on. Writes nothing. A subject may have `contacts_max` contacts.
pub async fn prepare<'a>(
    client: &RedisClient,
    keys: &Keys,
    contacts_max: usize,
    changes: impl IntoIterator<Item = &'a SubjectChange>,
) -> RedisResult<PreparedChanges> {
    let changes: Vec<&SubjectChange> = changes.into_iter().collect();
    let mut pipeline = redis::pipe();
    store::load(&mut pipeline);
    for change in changes.iter().filter(|change| change.depends_on_stored()) {
        pipeline.cmd("HGET").arg(keys.subject(&change.subject)).arg(CONTACTS);
    }
    let contacts: Vec<Option<Vec<u8>>> = match changes.iter().any(|change| change.depends_on_stored()) {
        true => client.pipe(&pipeline).await?,
        false => Vec::new(),
    };
    let mut contacts = contacts.into_iter().map(Option::unwrap_or_default);
    let prepared = changes.into_iter().map(|change| {
        let read = change.depends_on_stored().then(|| contacts.next().unwrap_or_default());
        let merged = change.merged(read.as_deref().unwrap_or_default(), contacts_max);
        PreparedChange { subject: change.subject.clone(), read, merged }
    });
    Ok(PreparedChanges(prepared.collect()))
}

/// Writes the changes in one MULTI, and says in their order how each ended. Writing again what was written changes
/// nothing more.
///
/// # Errors
///
/// As [`RedisClient::pipe`]: where one subject's key is of another type, the others are written all the same.
pub async fn write(client: &RedisClient, keys: &Keys, prepared: PreparedChanges) -> RedisResult<Vec<SubjectWrite>> {
    let mut pipeline = redis::pipe();
    pipeline.atomic();
    for PreparedChange { subject, read, merged } in &prepared.0 {
        let Ok(MergedChange { fields, .. }) = merged else { continue };
        match read {
            None => write_fields(&mut pipeline, keys, subject, fields),
            Some(read) => store::write_if(&mut pipeline, keys, subject, read, fields),
        }
    }
    let mut replies = client.pipe::<Vec<String>>(&pipeline).await?.into_iter();
    let outcome = |PreparedChange { read, merged, .. }: PreparedChange| match merged {
        Err(error) => SubjectWrite::Unmergeable(error),
        Ok(merged) => match read.and_then(|_| replies.next()) {
            Some(reply) if reply != "written" => SubjectWrite::Conflict,
            _ => SubjectWrite::Written(merged),
        },
    };
    Ok(prepared.0.into_iter().map(outcome).collect())
}

/// Adds the commands that write these fields whatever is stored.
fn write_fields(pipeline: &mut Pipeline, keys: &Keys, subject: &Subject, fields: &FieldChanges) {
    let key = keys.subject(subject);
    if !fields.set.is_empty() {
        let command = pipeline.cmd("HSET").arg(&key);
        for (name, value) in &fields.set {
            command.arg(name).arg(value);
        }
        pipeline.ignore();
    }
    if !fields.cleared.is_empty() {
        pipeline.cmd("HDEL").arg(&key).arg(&fields.cleared).ignore();
    }
}

/// Reads and writes one change, again where another client was quicker; [`SubjectWrite::Conflict`] only when that never
/// ends.
pub async fn write_one(
    client: &RedisClient,
    keys: &Keys,
    contacts_max: usize,
    change: &SubjectChange,
) -> RedisResult<SubjectWrite> {
    for _ in 0..TRIES_MAX {
        let outcomes = write(client, keys, prepare(client, keys, contacts_max, [change]).await?).await?;
        if let Some(outcome) = outcomes.into_iter().find(|outcome| *outcome != SubjectWrite::Conflict) {
            return Ok(outcome);
        }
    }
    Ok(SubjectWrite::Conflict)
}
