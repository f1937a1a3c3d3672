//! `contact remove`: takes one contact away.

use serde::Serialize;

use super::edit::{SelectedContactArgs, edit_selected};
use crate::cli::connect;
use crate::cli::context::CliContext;
use crate::contacts::edit::RemoveOutcome;
use crate::contacts::{Contact, ContactOrigin, masked_address};
use crate::terminal::output::{self, printable, say};
use crate::types::{ContactId, Subject};

pub const HELP: &str =
    "Removes every contact of the same address, also one that the subject's side added. Pending deliveries to it are \
    cancelled.

Examples:
  quotabell contact remove alice c_ab39b01901a28f91
  quotabell contact remove alice a@b.test";

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct RemovedContacts<'a> {
    subject: &'a Subject,
    removed: Vec<&'a ContactId>,
}

pub async fn run(args: SelectedContactArgs, context: &CliContext) -> anyhow::Result<()> {
    let SelectedContactArgs { subject, contact, format } = args;
    let redis = connect::redis(&context.config()?).await?;
    let removed: Vec<Contact> = edit_selected(&redis, &subject, &contact, |array, ids| {
        let removed = ids.iter().flat_map(|id| match array.remove(id, ContactOrigin::Operator) {
            RemoveOutcome::Removed(removed) => removed,
            // One of the same address, which is gone already.
            RemoveOutcome::OperatorsOwn | RemoveOutcome::NotFound => Vec::new(),
        });
        removed.collect()
    })
    .await?;
    let ids = removed.iter().map(|contact| &contact.id).collect();
    output::print(&format, &RemovedContacts { subject: &subject, removed: ids }, |_| {
        for contact in &removed {
            say(format_args!("removed {} {}", contact.id, printable(&masked_address(contact))));
        }
        Ok(())
    })
}
