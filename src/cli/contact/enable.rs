//! `contact enable`: sends alerts to a disabled contact again.

use serde::Serialize;

use super::edit::{SelectedContactArgs, edit_selected};
use crate::cli::connect;
use crate::cli::context::CliContext;
use crate::terminal::output::{self, printable, say};
use crate::types::{ContactId, Subject};

pub const HELP: &str = "A contact is disabled when its receiver or mailbox has gone, or when nothing has reached it for days. Mend that first: \
    otherwise the next attempt disables it again. Alerts that went to other contacts meanwhile are not sent again.

Examples:
  quotabell contact enable alice c_ab39b01901a28f91
  quotabell contact enable alice a@b.test";

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct EnabledContacts<'a> {
    subject: &'a Subject,
    enabled: &'a [ContactId],
}

pub async fn run(args: SelectedContactArgs, context: &CliContext) -> anyhow::Result<()> {
    let SelectedContactArgs { subject, contact, format } = args;
    let redis = connect::redis(&context.config()?).await?;
    let enabled: Vec<ContactId> = edit_selected(&redis, &subject, &contact, |array, ids| {
        ids.into_iter().filter(|id| array.enable(id).is_some_and(|were| !were.is_empty())).collect()
    })
    .await?;
    output::print(&format, &EnabledContacts { subject: &subject, enabled: &enabled }, |_| {
        if enabled.is_empty() {
            say(format_args!("{} is not disabled", printable(&contact)));
        }
        enabled.iter().for_each(|id| say(format_args!("enabled {}", printable(id.as_str()))));
        Ok(())
    })
}
