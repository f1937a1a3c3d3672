//! Changes single contacts of a subject.
//!
//! Each change is written only if the contacts are still those that were read, so that the daemon, the operator and the
//! subject's side may edit them at the same moment. Read next: [`crate::contacts::edit`], what an edit may do.

use serde::Serialize;

use crate::channels;
use crate::contacts::edit::RemoveOutcome;
use crate::contacts::merge::{ContactSpec, UnlistedPolicy};
use crate::contacts::select::{SelectContactError, select};
use crate::contacts::store::{EditContactsError, edit_contacts};
use crate::contacts::{Contact, ContactArray, ContactOrigin, TooManyContacts, masked_address};
use crate::redis_client::Partition;
use crate::types::mute::REASON_OF_PORTAL;
use crate::types::subject::{LEVELS_MAX, SubjectError};
use crate::types::{ContactId, Keys, Mute, Subject, UnixMs};

/// The contacts that are meant.
#[derive(Debug, Clone, Copy)]
pub enum ContactSelector<'a> {
    /// Those of this id.
    Id(&'a ContactId),
    /// Those that an id, the beginning of an id, or an address names.
    Text(&'a str),
}

/// Why no contact is changed.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum ContactActionError {
    #[error(transparent)]
    Edit(#[from] EditContactsError),
    #[error(transparent)]
    Select(#[from] SelectContactError),
    #[error("the operator wrote this contact: only the operator can remove it")]
    OperatorsOwn,
    #[error("id {id} belongs to {address}")]
    IdTaken { id: ContactId, address: String },
    #[error("{address} exists already, as contact {id}")]
    OtherId { address: String, id: ContactId },
    #[error(transparent)]
    TooMany(#[from] TooManyContacts),
    #[error(transparent)]
    Level(#[from] LevelError),
    #[error("somebody else muted this contact: only they or the operator can end the mute")]
    MutedByOthers,
}

/// Why a subject can't be written, or can't have a contact that hears the levels below it.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LevelError {
    #[error(transparent)]
    Path(#[from] SubjectError),
    #[error("subtree has no meaning: without subjects.separator, subjects have no levels")]
    Flat,
    #[error("subtree has no meaning: a subject of {LEVELS_MAX} levels has none below it")]
    Deepest,
}

/// Checks the levels of a subject that is to be written, and whether contacts may hear those below it.
///
/// # Errors
///
/// The broken rule.
pub fn check_levels(keys: &Keys, subject: &Subject, has_subtree: bool) -> Result<(), LevelError> {
    let separator = keys.separator();
    separator.check(subject.as_str())?;
    match has_subtree {
        true if separator.is_none() => Err(LevelError::Flat),
        true if separator.depth(subject.as_str()) + 1 == LEVELS_MAX => Err(LevelError::Deepest),
        _ => Ok(()),
    }
}

/// Edits the contacts that are meant, and writes them. Repeatable if `edit` is.
pub async fn edit<T>(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    selector: ContactSelector<'_>,
    mut edit: impl FnMut(&mut ContactArray, Vec<ContactId>) -> Result<T, ContactActionError>,
) -> Result<T, ContactActionError> {
    let edit = |array: &mut ContactArray| {
        let stored = array.contacts();
        let ids = match selector {
            ContactSelector::Id(id) if stored.iter().any(|stored| stored.contact.id == *id) => vec![id.clone()],
            ContactSelector::Id(id) => Err(SelectContactError::NotFound(id.to_string()))?,
            ContactSelector::Text(text) => {
                select(&stored.iter().map(|stored| &stored.contact).collect::<Vec<_>>(), text)?
            }
        };
        edit(array, ids)
    };
    edit_contacts(client, keys, subject, edit).await
}

/// Mutes contacts, or ends their mutes, and returns their ids.
pub async fn set_mute(
    partition: &Partition,
    subject: &Subject,
    selector: ContactSelector<'_>,
    mute: Option<&Mute>,
) -> Result<Vec<ContactId>, ContactActionError> {
    let set = |array: &mut ContactArray, ids: Vec<ContactId>| {
        ids.iter().for_each(|id| array.set_mute(id, mute));
        Ok(ids)
    };
    edit(partition, subject, selector, set).await
}

/// Mutes a contact for the customer, with the reason [`REASON_OF_PORTAL`], or ends such a mute. A mute that others
/// began stays. Repeatable.
///
/// # Errors
///
/// [`ContactActionError`]; nothing is changed.
pub async fn set_mute_of_portal(
    partition: &Partition,
    subject: &Subject,
    id: &ContactId,
    mute: Option<&Mute>,
    now: UnixMs,
) -> Result<(), ContactActionError> {
    let set = |array: &mut ContactArray, _| {
        let stored = array.contacts().into_iter().map(|stored| stored.contact).filter(|contact| contact.id == *id);
        let mut mutes = stored.filter_map(|contact| contact.muted_at(now).cloned());
        if mutes.any(|mute| mute.reason.as_deref() != Some(REASON_OF_PORTAL)) {
            return Err(ContactActionError::MutedByOthers);
        }
        array.set_mute(id, mute);
        Ok(())
    };
    edit(partition, subject, ContactSelector::Id(id), set).await
}

/// Enables contacts, and returns the ids of those that were disabled.
pub async fn enable(
    partition: &Partition,
    subject: &Subject,
    selector: ContactSelector<'_>,
) -> Result<Vec<ContactId>, ContactActionError> {
    let enable = |array: &mut ContactArray, mut ids: Vec<ContactId>| {
        ids.retain(|id| !array.enable(id).is_empty());
        Ok(ids)
    };
    edit(partition, subject, selector, enable).await
}

/// Removes contacts and every other one of the same address that the same side may remove, and returns them.
pub async fn remove(
    partition: &Partition,
    subject: &Subject,
    selector: ContactSelector<'_>,
    by: ContactOrigin,
) -> Result<Vec<Contact>, ContactActionError> {
    let remove = |array: &mut ContactArray, ids: Vec<ContactId>| {
        let mut all = Vec::new();
        for id in &ids {
            match array.remove(id, by) {
                RemoveOutcome::Removed(removed) => all.extend(removed),
                RemoveOutcome::OperatorsOwn => return Err(ContactActionError::OperatorsOwn),
                // One of the same address, which is gone already.
                RemoveOutcome::NotFound => {}
            }
        }
        Ok(all)
    };
    edit(partition, subject, selector, remove).await
}

/// What became of a contact that the operator added.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AddOutcome {
    Added,
    /// It was there, and has another secret, format or headers, hears other alerts, or is verified or enabled now.
    Changed,
    Unchanged,
}

/// A contact after it was added.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub struct ContactAddition {
    pub id: ContactId,
    /// Its address as it was named, with secret parts masked.
    pub address: String,
    pub outcome: AddOutcome,
    /// Whether it has the secret that was stored before, and not the one that was named or generated now.
    pub keeps_secret: bool,
}

/// Adds a contact for the operator, under `id` if one is given. Repeatable: a secret that was stored by a try whose
/// answer was lost counts as given now.
pub async fn add(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    spec: &ContactSpec,
    id: Option<&ContactId>,
    contacts_max: usize,
) -> Result<ContactAddition, ContactActionError> {
    let contact = &spec.contact;
    let address_as_named = |stored: &Contact| {
        let options = stored.options().cloned().unwrap_or_default();
        masked_address(&contact.clone().with_options(options))
    };
    check_levels(keys, subject, contact.filter.subtree)?;
    let add = |array: &mut ContactArray| {
        let stored: Vec<Contact> = array.contacts().into_iter().map(|stored| stored.contact).collect();
        if let Some(id) = id {
            if let Some(other) = stored.iter().find(|other| other.id == *id && !other.has_same_address(contact)) {
                return Err(ContactActionError::IdTaken { id: id.clone(), address: masked_address(other) });
            }
            if let Some(known) = stored.iter().find(|known| known.id != *id && known.has_same_address(contact)) {
                let (address, id) = (address_as_named(known), known.id.clone());
                return Err(ContactActionError::OtherId { address, id });
            }
        }
        let before = array.to_stored();
        let is_sound = |stored: &Contact| channels::check_contact(stored).is_ok();
        let report = array.merge(std::slice::from_ref(spec), UnlistedPolicy::KeepAll, contacts_max, is_sound)?;
        let outcome = match stored.iter().any(|other| other.has_same_address(contact)) {
            false => AddOutcome::Added,
            true if array.to_stored() == before => AddOutcome::Unchanged,
            true => AddOutcome::Changed,
        };
        let keeps_secret = report.kept_secrets.iter().any(|kept| kept.secret() != contact.secret());
        let known = array.contacts().into_iter().filter(|other| other.contact.has_same_address(contact));
        let known = known.min_by_key(|other| !other.contact.verified).expect("it was merged").contact;
        Ok(ContactAddition { address: address_as_named(&known), id: known.id, outcome, keeps_secret })
    };
    edit_contacts(client, keys, subject, add).await
}
