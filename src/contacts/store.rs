//! The wrapper of `store.lua`, which writes fields of a subject only if its fields are still the ones that were read.
//!
//! Every change that depends on what is stored uses it, so that two writers at once do not overwrite each other. It
//! does not interpret contacts.

use std::sync::LazyLock;

use redis::RedisError;

use super::array::{CONTACTS, ContactArray, ContactArrayError};
use crate::redis_client::{RedisClient, Script};
use crate::subjects::record::SubjectField;
use crate::types::{Keys, Subject};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("store.lua")));

/// How often a change is tried while others change the subject. One lost race is bad luck; ten mean that a program
/// writes all the time.
const TRIES_MAX: u32 = 10;

/// The fields of a subject's hash that a change writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldChanges {
    /// Fields that are set, each with its value.
    pub set: Vec<(String, String)>,
    /// Fields that are removed.
    pub cleared: Vec<String>,
}

impl FieldChanges {
    /// Sets a field to a value; an empty one removes it.
    pub fn put(&mut self, field: &str, value: String) {
        match value.is_empty() {
            true => self.cleared.push(field.to_owned()),
            false => self.set.push((field.to_owned(), value)),
        }
    }

    /// The names of the fields.
    pub fn names(&self) -> Vec<String> {
        self.set.iter().map(|(name, _)| name).chain(&self.cleared).cloned().collect()
    }
}

/// Why the contacts of a subject could not be edited.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum EditContactsError {
    /// Redis failed. If the reply was lost, the edit may have been written.
    #[error("redis")]
    Redis(#[from] RedisError),
    #[error("its field {0}")]
    NotAnArray(#[from] ContactArrayError),
    /// Others changed the subject at each try. Nothing was written.
    #[error("other callers keep changing the subject")]
    Contended,
}

/// Reads the contacts of a subject.
pub async fn read_contacts(
    client: &RedisClient,
    keys: &Keys,
    subject: &Subject,
) -> Result<ContactArray, EditContactsError> {
    let stored: Vec<SubjectField> = client.query(redis::cmd("HGETALL").arg(keys.subject(subject))).await?;
    Ok(ContactArray::parse(contacts_of(&stored))?)
}

/// The field of the contacts; empty for none.
pub fn contacts_of(stored: &[SubjectField]) -> &[u8] {
    stored.iter().find(|(name, _)| name == CONTACTS.as_bytes()).map_or(&[], |(_, value)| value)
}

/// Reads the contacts of a subject, lets `edit` change them, and writes them as [`edit_subject`] does.
///
/// # Errors
///
/// The error of `edit`, and [`EditContactsError`].
pub async fn edit_contacts<T, E: From<EditContactsError>>(
    client: &RedisClient,
    keys: &Keys,
    subject: &Subject,
    mut edit: impl FnMut(&mut ContactArray) -> Result<T, E>,
) -> Result<T, E> {
    let edit = |stored: &[SubjectField]| {
        let mut array = ContactArray::parse(contacts_of(stored)).map_err(EditContactsError::from)?;
        let before = array.to_stored();
        let edited = edit(&mut array)?;
        let mut changes = FieldChanges::default();
        if array.to_stored() != before {
            // A subject that has nothing else is unknown again without contacts.
            changes.put(CONTACTS, array.to_stored());
        }
        Ok((changes, edited))
    };
    edit_subject(client, keys, subject, edit).await
}

/// Reads the fields of a subject, calls `edit` for the changes, and writes them unless somebody else changed the
/// subject in the meantime; then it reads them again. Nothing is written if `edit` changes nothing or fails.
///
/// # Errors
///
/// The error of `edit`, and [`EditContactsError`] except [`EditContactsError::NotAnArray`].
pub async fn edit_subject<T, E: From<EditContactsError>>(
    client: &RedisClient,
    keys: &Keys,
    subject: &Subject,
    mut edit: impl FnMut(&[SubjectField]) -> Result<(FieldChanges, T), E>,
) -> Result<T, E> {
    let key = keys.subject(subject);
    for _ in 0..TRIES_MAX {
        let stored = client.query(redis::cmd("HGETALL").arg(&key)).await.map_err(EditContactsError::from)?;
        let stored: Vec<SubjectField> = stored;
        let (FieldChanges { set, cleared }, edited) = edit(&stored)?;
        if set.is_empty() && cleared.is_empty() {
            return Ok(edited);
        }
        let call = SCRIPT.call().key(&key).arg(stored.len()).arg(set.len()).arg(stored).arg(set).arg(cleared);
        let answer: String = call.run(client).await.map_err(EditContactsError::from)?;
        if answer == "written" {
            return Ok(edited);
        }
    }
    Err(EditContactsError::Contended.into())
}
