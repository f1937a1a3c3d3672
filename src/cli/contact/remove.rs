//! `contact remove`: takes one contact away.

use clap::Args;
use serde::Serialize;

use super::edit::{edit, not_selected};
use crate::cli::connect;
use crate::cli::context::CliContext;
use crate::contacts::edit::RemoveOutcome;
use crate::contacts::select::select;
use crate::contacts::{Contact, ContactOrigin, masked_contact};
use crate::terminal::output::{Format, FormatArgs, Output, printable, say};
use crate::types::{ContactId, Subject};

/// Arguments of `contact remove`.
#[derive(Debug, Args)]
#[command(
    after_help = "Removes every contact of the same address, also one that the subject's side added. Pending deliveries to it are \
    cancelled.

Examples:
  quotabell contact remove alice c_ab39b01901a28f91
  quotabell contact remove alice a@b.test"
)]
pub struct ContactRemoveArgs {
    /// Whose contact
    pub subject: Subject,
    /// The contact: its id, the beginning of its id, or its address
    pub contact: String,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct RemovedContacts<'a> {
    subject: &'a Subject,
    removed: Vec<&'a ContactId>,
}

/// Removes the contact.
///
/// # Errors
///
/// When there is no such contact; a bad configuration, Redis, or stdout.
pub async fn run(args: ContactRemoveArgs, context: &CliContext) -> anyhow::Result<()> {
    let ContactRemoveArgs { subject, contact, format } = args;
    let redis = connect::redis(&context.config()?).await?;
    let removed: Vec<Contact> = edit(&redis, &subject, |array| {
        let ids = select(&array.contacts(), &contact).map_err(|error| not_selected(&subject, &error))?;
        let removed = ids.iter().flat_map(|id| match array.remove(id, ContactOrigin::Operator) {
            RemoveOutcome::Removed(removed) => removed,
            // One of the same address, which is gone already.
            RemoveOutcome::OperatorsOwn | RemoveOutcome::NotFound => Vec::new(),
        });
        Ok(removed.collect())
    })
    .await?;
    let mut output = Output::stdout();
    match format.format() {
        Format::Json => {
            let removed = removed.iter().map(|contact| &contact.id).collect();
            output.json(&RemovedContacts { subject: &subject, removed })?;
        }
        Format::Table => {
            for contact in &removed {
                say(format_args!("removed {} {}", contact.id, printable(masked_contact(contact).address())));
            }
        }
    }
    output.finish()
}
