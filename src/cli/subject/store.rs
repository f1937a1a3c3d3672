//! Writes changes of subjects. A webhook that names no secret keeps the one that is stored for its URL: its receiver checks with
//! that one.
//!
//! The stored secret is read first, so what depends on it is written only if the contacts are still those that were read. A change
//! that depends on nothing stored is written as it is. Read next: [`Change::keeping`], which secret is kept, and
//! [`crate::contacts::store`], how it is compared.

use redis::RedisResult;

use super::change::{Change, GeneratedSecret};
use crate::contacts::store::{self, TRIES_MAX};
use crate::contacts::stored;
use crate::types::Keys;
use crate::wire::RedisClient;

/// Changes that know the contacts which were stored when they were read.
#[derive(Debug)]
pub struct Prepared(Vec<PreparedChange>);

#[derive(Debug)]
struct PreparedChange {
    change: Change,
    /// The contacts that must still be there; `None` where the change does not depend on them.
    read: Option<Vec<u8>>,
}

/// How the writing of one change ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// It is written, with these secrets that nobody has seen yet.
    Written(Vec<GeneratedSecret>),
    /// Another client changed the contacts since they were read: nothing is written.
    Changed,
}

/// Reads what the changes depend on. Writes nothing.
///
/// # Errors
///
/// As [`RedisClient::pipe`].
pub async fn prepare<'a>(
    client: &RedisClient,
    keys: &Keys,
    changes: impl IntoIterator<Item = &'a Change>,
) -> RedisResult<Prepared> {
    let changes: Vec<&Change> = changes.into_iter().collect();
    let mut pipeline = redis::pipe();
    store::load(&mut pipeline);
    for change in changes.iter().filter(|change| change.depends_on_stored()) {
        pipeline.cmd("HGET").arg(keys.subject(&change.subject)).arg(stored::CONTACTS);
    }
    let contacts: Vec<Option<Vec<u8>>> = match changes.iter().any(|change| change.depends_on_stored()) {
        true => client.pipe(&pipeline).await?,
        false => Vec::new(),
    };
    let mut contacts = contacts.into_iter().map(Option::unwrap_or_default);
    let prepared = changes.into_iter().map(|change| match change.depends_on_stored() {
        true => {
            let read = contacts.next().unwrap_or_default();
            PreparedChange { change: change.keeping(&read), read: Some(read) }
        }
        false => PreparedChange { change: change.clone(), read: None },
    });
    Ok(Prepared(prepared.collect()))
}

/// Writes the changes in one MULTI, and says in their order how each ended. Writing again what was written changes nothing more.
///
/// # Errors
///
/// As [`RedisClient::pipe`]: where one subject's key is of another type, the others are written all the same.
pub async fn write(client: &RedisClient, keys: &Keys, prepared: Prepared) -> RedisResult<Vec<Stored>> {
    let mut pipeline = redis::pipe();
    pipeline.atomic();
    for PreparedChange { change, read } in &prepared.0 {
        match read {
            None => change.write(&mut pipeline, keys),
            Some(read) => store::write_if(&mut pipeline, keys, &change.subject, read, &change.fields()),
        }
    }
    let replies: Vec<String> = match pipeline.cmd_iter().next() {
        Some(_) => client.pipe(&pipeline).await?,
        None => Vec::new(),
    };
    let mut replies = replies.into_iter();
    let stored =
        prepared.0.into_iter().map(|PreparedChange { change, read }| match read.and_then(|_| replies.next()) {
            Some(reply) if reply != "written" => Stored::Changed,
            _ => Stored::Written(change.generated),
        });
    Ok(stored.collect())
}

/// Reads and writes one change, again where another client was quicker; [`Stored::Changed`] only when that never ends.
///
/// # Errors
///
/// As [`prepare`] and [`write()`].
pub async fn one(client: &RedisClient, keys: &Keys, change: &Change) -> RedisResult<Stored> {
    for _ in 0..TRIES_MAX {
        let stored = write(client, keys, prepare(client, keys, [change]).await?).await?;
        if let [written @ Stored::Written(_)] = stored.as_slice() {
            return Ok(written.clone());
        }
    }
    Ok(Stored::Changed)
}
