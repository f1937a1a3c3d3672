//! Writes changes of subjects: settings and contacts.
//!
//! Contacts that are named are merged into the stored ones, and a caller may expect the subject as it was shown.
//! Therefore the subject is read first, and the result is written only if it is still the same. Read next:
//! [`crate::contacts::store`], which compares.

use super::contact_spec::GeneratedSecret;
use super::contacts::{ContactActionError, LevelError, check_levels};
use super::subject_patch::SubjectPatch;
use crate::channels;
use crate::contacts::array::CONTACTS;
use crate::contacts::merge::{ContactSpec, MergeReport, UnlistedPolicy};
use crate::contacts::store::{EditContactsError, FieldChanges, contacts_of, edit_subject};
use crate::contacts::{Contact, ContactArray};
use crate::redis_client::Partition;
use crate::subjects::record::SubjectField;
use crate::types::{Keys, Secret, Subject};

/// A change of one subject, checked and ready to be written.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectChange {
    pub subject: Subject,
    pub settings: SubjectPatch,
    pub contacts: ContactsChange,
}

/// What happens to the contacts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ContactsChange {
    /// They stay as they are.
    #[default]
    Keep,
    /// They are removed, and these are written.
    Replace(Vec<ContactSpec>),
    /// These are merged into the stored ones by address, see [`ContactArray::merge`].
    Merge(Vec<ContactSpec>, UnlistedPolicy),
}

/// What a change writes after its contacts were merged into the stored ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MergedChange {
    /// The fields as they are written.
    pub fields: FieldChanges,
    /// The secrets that were generated and are used: nobody has seen them yet.
    pub generated: Vec<GeneratedSecret>,
    /// What was kept of the stored contacts.
    pub report: MergeReport,
}

impl ContactsChange {
    /// The change that merges these into the stored contacts; naming none leaves them as they are.
    pub fn merge(named: Vec<ContactSpec>, unlisted: UnlistedPolicy) -> Self {
        if named.is_empty() { Self::Keep } else { Self::Merge(named, unlisted) }
    }

    /// The contacts that it names.
    pub fn specs(&self) -> &[ContactSpec] {
        match self {
            Self::Keep => &[],
            Self::Replace(named) | Self::Merge(named, _) => named,
        }
    }
}

impl SubjectChange {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty() && self.contacts == ContactsChange::Keep
    }

    /// Checks the levels of the subject, and whether its contacts may hear those below it. [`write()`] does that too.
    ///
    /// # Errors
    ///
    /// The broken rule.
    pub fn check_levels(&self, keys: &Keys) -> Result<(), LevelError> {
        let has_subtree = self.contacts.specs().iter().any(|spec| spec.contact.filter.subtree);
        check_levels(keys, &self.subject, has_subtree)
    }

    /// What it writes if these fields are `stored`. Pure.
    ///
    /// # Errors
    ///
    /// The stored contacts can be neither merged nor kept, or the subject would have more than `contacts_max`.
    pub fn merged(&self, stored: &[SubjectField], contacts_max: usize) -> Result<MergedChange, ContactActionError> {
        let names = stored.iter().filter_map(|(name, _)| std::str::from_utf8(name).ok());
        let mut merged = MergedChange { fields: self.settings.changes(names), ..MergedChange::default() };
        let (named, unlisted, mut array) = match &self.contacts {
            ContactsChange::Keep => return Ok(merged),
            ContactsChange::Replace(named) => (named, UnlistedPolicy::RemoveAll, ContactArray::default()),
            ContactsChange::Merge(named, unlisted) => match ContactArray::parse(contacts_of(stored)) {
                // What is removed need not be readable.
                Err(_) if *unlisted == UnlistedPolicy::RemoveAll => (named, *unlisted, ContactArray::default()),
                array => (named, *unlisted, array.map_err(EditContactsError::from)?),
            },
        };
        let is_sound = |contact: &Contact| channels::check_contact(contact).is_ok();
        merged.report = array.merge(named, unlisted, contacts_max, is_sound)?;
        merged.fields.put(CONTACTS, array.to_stored());
        // One that is stored already is our own, from a try whose answer was lost: nobody has seen it yet.
        let is_replaced = |generated: &GeneratedSecret| {
            let kept = merged.report.kept_secrets.iter().filter(|kept| kept.address() == generated.url);
            kept.map(Contact::secret).any(|kept| kept.map(Secret::reveal) != Some(generated.secret.as_str()))
        };
        merged.generated = named.iter().filter_map(GeneratedSecret::of).filter(|secret| !is_replaced(secret)).collect();
        Ok(merged)
    }
}

/// Writes a change, again if another client changed the subject meanwhile. Repeatable.
///
/// # Errors
///
/// As [`SubjectChange::merged`], and what Redis or the connection said.
pub async fn write(
    partition: &Partition,
    contacts_max: usize,
    change: &SubjectChange,
) -> Result<MergedChange, ContactActionError> {
    let written = write_if(partition, contacts_max, change, |_| true).await?;
    Ok(written.expect("every state of the subject is expected"))
}

/// Like [`write()`], but only if `is_expected` accepts the fields that are stored when it is written. Returns `None` if
/// it does not: nothing is written then.
///
/// # Errors
///
/// As [`write()`].
pub async fn write_if(
    Partition { client, keys }: &Partition,
    contacts_max: usize,
    change: &SubjectChange,
    is_expected: impl Fn(&[SubjectField]) -> bool,
) -> Result<Option<MergedChange>, ContactActionError> {
    change.check_levels(keys)?;
    let merge = |stored: &[SubjectField]| {
        if !is_expected(stored) {
            return Ok((FieldChanges::default(), None));
        }
        let merged = change.merged(stored, contacts_max)?;
        Ok((merged.fields.clone(), Some(merged)))
    };
    edit_subject(client, keys, &change.subject, merge).await
}
