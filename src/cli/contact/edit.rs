//! Edits the contacts of a subject, and says why that can't be done.

use clap::Args;

use crate::cli::connect::CliConnection;
use crate::contacts::select::{SelectContactError, select};
use crate::contacts::store::{EditContactsError, edit_contacts};
use crate::contacts::{Contact, ContactArray};
use crate::terminal::hint;
use crate::terminal::output::FormatArgs;
use crate::types::{ContactId, Subject};

/// One contact of a subject.
#[derive(Debug, Args)]
pub struct SelectedContactArgs {
    /// Whose contact
    pub subject: Subject,
    /// The contact: its id, the beginning of its id, or its address
    pub contact: String,
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Edits the contacts of a subject and writes them if nobody has changed them meanwhile; else again.
pub(super) async fn edit<T>(
    redis: &CliConnection,
    subject: &Subject,
    mut edit: impl FnMut(&mut ContactArray) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let edited = edit_contacts(redis.client(), redis.keys(), subject, |array| edit(array)).await;
    edited.map_err(|error: anyhow::Error| match error.downcast() {
        Ok(error) => contacts_error(redis, subject, error),
        Err(refused) => refused,
    })
}

/// Edits the contacts that `selector` names: an id, the beginning of one, or an address.
pub(super) async fn edit_selected<T>(
    redis: &CliConnection,
    subject: &Subject,
    selector: &str,
    mut change: impl FnMut(&mut ContactArray, Vec<ContactId>) -> T,
) -> anyhow::Result<T> {
    let not_selected = |error: SelectContactError| {
        hint::failed(
            format_args!("subject {subject}: {error}"),
            format_args!("`quotabell contact list {subject}` shows its contacts"),
        )
    };
    let select = |array: &ContactArray| {
        let stored = array.contacts();
        let contacts: Vec<&Contact> = stored.iter().map(|stored| &stored.contact).collect();
        select(&contacts, selector).map_err(not_selected)
    };
    edit(redis, subject, |array| select(array).map(|ids| change(array, ids))).await
}

/// Says why the contacts of a subject could not be read or written, with a hint.
pub(super) fn contacts_error(redis: &CliConnection, subject: &Subject, error: EditContactsError) -> anyhow::Error {
    let what = format!("contacts of subject {subject}");
    match error {
        EditContactsError::Redis(error) => {
            redis.explained(what, Err::<(), _>(error)).expect_err("an error stays an error")
        }
        EditContactsError::NotAnArray(error) => hint::failed(
            format_args!("subject {subject}: its field {error}"),
            "repair the field contacts, or replace it: `quotabell subject set --replace-all-contacts`",
        ),
        EditContactsError::Contended => hint::failed(
            format_args!("{what}: another client changes them all the time"),
            "nothing was written: try again, or find out who writes them",
        ),
    }
}
