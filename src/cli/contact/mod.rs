//! `contact list / add / remove / mute / unmute`: one contact of a subject at a time.
//!
//! Every change is written only if the contacts are still those that were read, so that the daemon and the subject's side may edit
//! them at the same moment. Read next: [`crate::contacts::edit`], what an edit may do.

use clap::{Args, Subcommand};

use super::CliContext;
use super::connect::Redis;
use crate::contacts::ContactArray;
use crate::contacts::select::SelectContactError;
use crate::contacts::store::{EditContactsError, edit_contacts};
use crate::terminal::hint;
use crate::types::Subject;

pub mod add;
pub mod list;
pub mod mute;
pub mod remove;

/// Arguments of `contact`.
#[derive(Debug, Args)]
pub struct ContactArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: ContactAction,
}

/// What to do with the contacts of a subject.
#[derive(Debug, Subcommand)]
pub enum ContactAction {
    /// List the contacts of a subject
    List(list::ContactListArgs),
    /// Add one contact, or change its secret
    Add(add::ContactAddArgs),
    /// Remove one contact: its pending deliveries are cancelled
    Remove(remove::ContactRemoveArgs),
    /// Send no alerts to a contact until it is unmuted
    Mute(mute::ContactMuteArgs),
    /// Send alerts to a muted contact again
    Unmute(mute::ContactUnmuteArgs),
}

/// Does what the action says.
///
/// # Errors
///
/// A contact that is not there, a bad configuration or value, Redis, or stdout.
pub async fn run(args: ContactArgs, context: &CliContext) -> anyhow::Result<()> {
    match args.action {
        ContactAction::List(args) => list::run(args, context).await,
        ContactAction::Add(args) => add::run(args, context).await,
        ContactAction::Remove(args) => remove::run(args, context).await,
        ContactAction::Mute(args) => mute::run(args, context).await,
        ContactAction::Unmute(args) => mute::run_unmute(args, context).await,
    }
}

/// What ends an edit.
enum ContactVerbError {
    /// The contacts could not be read or written.
    Contacts(EditContactsError),
    /// The edit can't be made; with its hint.
    Refused(anyhow::Error),
}

impl From<EditContactsError> for ContactVerbError {
    fn from(error: EditContactsError) -> Self {
        Self::Contacts(error)
    }
}

/// Edits the contacts of a subject and writes them if nobody has changed them meanwhile; else again.
async fn edit<T>(
    redis: &Redis,
    subject: &Subject,
    mut edit: impl FnMut(&mut ContactArray) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let edited = edit_contacts(redis.client(), subject, |array| edit(array).map_err(ContactVerbError::Refused));
    match edited.await {
        Ok(edited) => Ok(edited),
        Err(ContactVerbError::Refused(error)) => Err(error),
        Err(ContactVerbError::Contacts(error)) => Err(contacts_error(redis, subject, error)),
    }
}

/// Says why the contacts of a subject could not be read or written, with a hint.
fn contacts_error(redis: &Redis, subject: &Subject, error: EditContactsError) -> anyhow::Error {
    let what = format!("contacts of subject {subject}");
    match error {
        EditContactsError::Redis(error) => match redis.judged(what, Err::<(), _>(error)) {
            Err(error) => error,
            Ok(()) => unreachable!("an error stays an error"),
        },
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

/// A contact that is not there, or a text that names several.
fn not_selected(subject: &Subject, error: &SelectContactError) -> anyhow::Error {
    hint::failed(
        format_args!("subject {subject}: {error}"),
        format_args!("`quotabell contact list {subject}` shows its contacts"),
    )
}
