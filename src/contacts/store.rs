//! The wrapper of `store.lua`: fields of a subject are written only if its contacts are still those that were read.
//!
//! For every change that depends on what is stored, so that two writers at once lose nothing of each other's. Knows nothing of what
//! a contact means.

use std::sync::LazyLock;

use redis::{Pipeline, RedisError, RedisResult};

use super::stored;
use crate::types::{Keys, Subject};
use crate::wire::{RedisClient, Script};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("store.lua")));

/// How often a change is tried whose contacts others change at the same moment. One lost race is bad luck; ten are a program that
/// writes without end.
pub const TRIES_MAX: u32 = 10;

/// The fields of a change: those with a value, and those that are removed.
#[derive(Debug, Default)]
pub struct Fields {
    /// Each with its value.
    pub set: Vec<(String, String)>,
    /// Their names.
    pub cleared: Vec<String>,
}

/// How a change of the contacts ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// They are as the change made them.
    Written,
    /// The change wanted nothing else than what is there: nothing was written.
    Kept,
    /// Others changed them each time: nothing is written.
    Changed,
}

/// Adds the command that makes the script known: a transaction can't load one that the server does not know.
pub fn load(pipeline: &mut Pipeline) {
    pipeline.cmd("SCRIPT").arg("LOAD").arg(SCRIPT.source()).ignore();
}

/// Adds the command that writes `fields` if the contacts are still those that were `read` (empty for none). It answers `written` or
/// `changed`.
pub fn write_if(pipeline: &mut Pipeline, keys: &Keys, subject: &Subject, read: &[u8], fields: &Fields) {
    let command = pipeline.cmd("EVALSHA").arg(SCRIPT.sha1()).arg(1).arg(keys.subject(subject));
    command.arg(read).arg(fields.set.len());
    for (name, value) in &fields.set {
        command.arg(name).arg(value);
    }
    command.arg(&fields.cleared);
}

/// Reads the field of contacts; empty where there is none.
///
/// # Errors
///
/// As [`RedisClient::query`].
pub async fn read_contacts(client: &RedisClient, keys: &Keys, subject: &Subject) -> RedisResult<Vec<u8>> {
    let mut command = redis::cmd("HGET");
    command.arg(keys.subject(subject)).arg(stored::CONTACTS);
    Ok(client.query::<Option<Vec<u8>>>(&command).await?.unwrap_or_default())
}

/// Reads the field of contacts, has `change` make the new one of it (`None`: it stays; empty: it is removed), and writes that if nobody
/// was quicker; else again from the start. Where the reply is lost the change may have been written: the next call finds it there.
///
/// Makes the same calls for a change that wants nothing. Where Redis waits for its disk before it answers (`appendfsync always`) one
/// that is written takes longer all the same.
///
/// # Errors
///
/// What `change` says, and what Redis or the connection said.
pub async fn change_contacts<E: From<RedisError>>(
    client: &RedisClient,
    keys: &Keys,
    subject: &Subject,
    mut change: impl FnMut(&[u8]) -> Result<Option<String>, E>,
) -> Result<Stored, E> {
    for _ in 0..TRIES_MAX {
        let read = read_contacts(client, keys, subject).await?;
        let changed = change(&read)?;
        let call = SCRIPT.call().key(keys.subject(subject)).arg(read);
        let (call, stored) = match changed {
            None => (call.arg(0), Stored::Kept),
            // A subject that has nothing else is then unknown again.
            Some(nothing) if nothing.is_empty() => (call.arg(0).arg(stored::CONTACTS), Stored::Written),
            Some(changed) => (call.arg(1).arg(stored::CONTACTS).arg(changed), Stored::Written),
        };
        let answer: String = call.run(client).await?;
        if answer == "written" {
            return Ok(stored);
        }
    }
    Ok(Stored::Changed)
}
