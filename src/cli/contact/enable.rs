//! `contact enable`: sends alerts to a disabled contact again.

use clap::Args;
use serde::Serialize;

use super::edit::{edit, not_selected};
use super::mute::SelectedContactArgs;
use crate::cli::connect;
use crate::cli::context::CliContext;
use crate::contacts::select::select;
use crate::terminal::output::{Format, Output, printable, say};
use crate::types::{ContactId, Subject};

/// Arguments of `contact enable`.
#[derive(Debug, Args)]
#[command(
    after_help = "A contact is disabled when its receiver or mailbox has gone, or when nothing has reached it for days. Mend that first: \
    otherwise the next attempt disables it again. Alerts that went to other contacts meanwhile are not sent again.

Examples:
  quotabell contact enable alice c_ab39b01901a28f91
  quotabell contact enable alice a@b.test"
)]
pub struct ContactEnableArgs {
    /// Which contact.
    #[command(flatten)]
    pub selected: SelectedContactArgs,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct EnabledContacts<'a> {
    subject: &'a Subject,
    enabled: &'a [ContactId],
}

/// Enables the contact.
///
/// # Errors
///
/// When there is no such contact; a bad configuration, Redis, or stdout.
pub async fn run(args: ContactEnableArgs, context: &CliContext) -> anyhow::Result<()> {
    let SelectedContactArgs { subject, contact, format } = args.selected;
    let redis = connect::redis(&context.config()?).await?;
    let enabled: Vec<ContactId> = edit(&redis, &subject, |array| {
        let ids = select(&array.contacts(), &contact).map_err(|error| not_selected(&subject, &error))?;
        let enabled = ids.into_iter().filter(|id| array.enable(id).is_some_and(|were| !were.is_empty()));
        Ok(enabled.collect())
    })
    .await?;
    let mut output = Output::stdout();
    match format.format() {
        Format::Json => output.json(&EnabledContacts { subject: &subject, enabled: &enabled })?,
        Format::Table if enabled.is_empty() => say(format_args!("{} is not disabled", printable(&contact))),
        Format::Table => {
            for id in &enabled {
                say(format_args!("enabled {}", printable(id.as_str())));
            }
        }
    }
    output.finish()
}
