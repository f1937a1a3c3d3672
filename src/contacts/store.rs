//! The wrapper of `store.lua`: fields of a subject are written only if its contacts are still those that were read.
//!
//! For every change that depends on what is stored, so that two writers at once lose nothing of each other's. Knows
//! nothing of what a contact means.

use std::sync::LazyLock;

use redis::{Pipeline, RedisError, RedisResult};

use super::array::{CONTACTS, ContactArray, ContactArrayError};
use crate::redis_client::{RedisClient, Script};
use crate::subjects::SubjectRecord;
use crate::subjects::record::is_setting;
use crate::types::{Keys, Subject};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("store.lua")));

/// How often a change is tried whose contacts others change at the same moment. One lost race is bad luck; ten are a
/// program that writes without end.
pub const TRIES_MAX: u32 = 10;

/// The fields of a subject's hash that a change writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldChanges {
    /// Fields that are set, each with its value.
    pub set: Vec<(String, String)>,
    /// Fields that are removed.
    pub cleared: Vec<String>,
}

/// Why the contacts of a subject could not be edited.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum EditContactsError {
    /// Redis failed. Where the reply was lost, the edit may have been written.
    #[error("redis")]
    Redis(#[from] RedisError),
    #[error(transparent)]
    NotAnArray(#[from] ContactArrayError),
    /// Others changed the contacts at each try: nothing was written.
    #[error("other callers keep changing the subject's contacts")]
    Contended,
}

/// Adds the command that makes the script known: a transaction can't load one that the server does not know.
pub fn load(pipeline: &mut Pipeline) {
    pipeline.cmd("SCRIPT").arg("LOAD").arg(SCRIPT.source()).ignore();
}

/// Adds the command that writes `fields` if the contacts are still those that were `read` (empty for none). It answers
/// `written` or `changed`.
pub fn write_if(pipeline: &mut Pipeline, keys: &Keys, subject: &Subject, read: &[u8], fields: &FieldChanges) {
    let command = pipeline.cmd("EVALSHA").arg(SCRIPT.sha1()).arg(1).arg(keys.subject(subject));
    command.arg(read).arg(fields.set.len());
    for (name, value) in &fields.set {
        command.arg(name).arg(value);
    }
    command.arg(&fields.cleared);
}

/// Reads the contacts of a subject.
pub async fn read_contacts(
    client: &RedisClient,
    keys: &Keys,
    subject: &Subject,
) -> Result<ContactArray, EditContactsError> {
    Ok(ContactArray::parse(&read_field(client, keys, subject).await?)?)
}

/// Reads the contacts of a subject, lets `edit` change them, and writes them if nobody else changed them meanwhile;
/// otherwise reads them again. Nothing is written when `edit` changes nothing or fails.
///
/// # Errors
///
/// What `edit` returns, and [`EditContactsError`].
pub async fn edit_contacts<T, E: From<EditContactsError>>(
    client: &RedisClient,
    keys: &Keys,
    subject: &Subject,
    mut edit: impl FnMut(&mut ContactArray) -> Result<T, E>,
) -> Result<T, E> {
    for _ in 0..TRIES_MAX {
        let read = read_field(client, keys, subject).await.map_err(EditContactsError::from)?;
        let mut array = ContactArray::parse(&read).map_err(EditContactsError::from)?;
        let edited = edit(&mut array)?;
        if !array.is_changed() {
            return Ok(edited);
        }
        let call = SCRIPT.call().key(keys.subject(subject)).arg(read);
        let call = match array.to_stored() {
            // A subject that has nothing else is then unknown again.
            nothing if nothing.is_empty() => call.arg(0).arg(CONTACTS),
            contacts => call.arg(1).arg(CONTACTS).arg(contacts),
        };
        let answer: String = call.run(client).await.map_err(EditContactsError::from)?;
        if answer == "written" {
            return Ok(edited);
        }
    }
    Err(EditContactsError::Contended.into())
}

/// Replaces the settings of a subject beside its contacts: what the record does not have is removed. Fields that are
/// not ours stay.
pub async fn replace_settings(
    client: &RedisClient,
    keys: &Keys,
    subject: &Subject,
    record: &SubjectRecord,
) -> Result<(), EditContactsError> {
    let set = record.to_fields();
    for _ in 0..TRIES_MAX {
        let mut command = redis::cmd("HGETALL");
        let stored: Vec<(Vec<u8>, Vec<u8>)> = client.query(command.arg(keys.subject(subject))).await?;
        let names = stored.iter().filter_map(|(name, _)| std::str::from_utf8(name).ok());
        let cleared: Vec<&str> =
            names.filter(|name| is_setting(name) && !set.iter().any(|(kept, _)| kept == name)).collect();
        let read = stored.iter().find(|(name, _)| name == CONTACTS.as_bytes()).map_or(&[][..], |(_, value)| value);
        let mut call = SCRIPT.call().key(keys.subject(subject)).arg(read).arg(set.len());
        for (name, value) in &set {
            call = call.arg(name).arg(value);
        }
        let answer: String = call.arg(cleared).run(client).await?;
        if answer == "written" {
            return Ok(());
        }
    }
    Err(EditContactsError::Contended)
}

async fn read_field(client: &RedisClient, keys: &Keys, subject: &Subject) -> RedisResult<Vec<u8>> {
    let mut command = redis::cmd("HGET");
    command.arg(keys.subject(subject)).arg(CONTACTS);
    Ok(client.query::<Option<Vec<u8>>>(&command).await?.unwrap_or_default())
}
