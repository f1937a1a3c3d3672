//! `contact mute` and `contact unmute`: whether a contact gets alerts.

use clap::Args;
use serde::Serialize;

use super::edit::{edit, not_selected};
use crate::cli::connect;
use crate::cli::context::CliContext;
use crate::contacts::edit::MuteState;
use crate::contacts::select::select;
use crate::terminal::output::{Format, FormatArgs, Output, printable, say};
use crate::types::{ContactId, Subject};

/// Arguments of `contact mute`.
#[derive(Debug, Args)]
#[command(after_help = "Deliveries to a muted contact end as muted, and are not sent later.

Examples:
  quotabell contact mute alice c_ab39b01901a28f91
  quotabell contact mute alice a@b.test")]
pub struct ContactMuteArgs {
    /// Which contact.
    #[command(flatten)]
    pub selected: SelectedContactArgs,
}

/// Arguments of `contact unmute`.
#[derive(Debug, Args)]
#[command(after_help = "Alerts that were raised while it was muted are not sent.

Examples:
  quotabell contact unmute alice c_ab39b01901a28f91
  quotabell contact unmute alice a@b.test")]
pub struct ContactUnmuteArgs {
    /// Which contact.
    #[command(flatten)]
    pub selected: SelectedContactArgs,
}

/// One contact of a subject.
#[derive(Debug, Args)]
pub struct SelectedContactArgs {
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
struct MutedContacts<'a> {
    subject: &'a Subject,
    muted: bool,
    contacts: &'a [ContactId],
}

/// Mutes the contact.
///
/// # Errors
///
/// When there is no such contact; a bad configuration, Redis, or stdout.
pub async fn run(args: ContactMuteArgs, context: &CliContext) -> anyhow::Result<()> {
    set(args.selected, MuteState::Muted, context).await
}

/// Unmutes the contact.
///
/// # Errors
///
/// As [`run`].
pub async fn run_unmute(args: ContactUnmuteArgs, context: &CliContext) -> anyhow::Result<()> {
    set(args.selected, MuteState::Unmuted, context).await
}

async fn set(args: SelectedContactArgs, state: MuteState, context: &CliContext) -> anyhow::Result<()> {
    let SelectedContactArgs { subject, contact, format } = args;
    let redis = connect::redis(&context.config()?).await?;
    let ids = edit(&redis, &subject, |array| {
        let ids = select(&array.contacts(), &contact).map_err(|error| not_selected(&subject, &error))?;
        for id in &ids {
            array.set_muted(id, state);
        }
        Ok(ids)
    })
    .await?;
    let mut output = Output::stdout();
    match format.format() {
        Format::Json => {
            let muted = state == MuteState::Muted;
            output.json(&MutedContacts { subject: &subject, muted, contacts: &ids })?;
        }
        Format::Table => {
            let done = if state == MuteState::Muted { "muted" } else { "unmuted" };
            for id in &ids {
                say(format_args!("{done} {}", printable(id.as_str())));
            }
        }
    }
    output.finish()
}
