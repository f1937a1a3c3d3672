//! `contact mute` and `contact unmute`: whether a contact gets alerts.

use clap::Args;
use serde::Serialize;

use super::edit::{SelectedContactArgs, edit_selected};
use crate::cli::connect::{self, CliConnection};
use crate::cli::context::CliContext;
use crate::cli::mute_args::MuteArgs;
use crate::terminal::output::{self, printable, say};
use crate::types::{ContactId, Mute, Subject};

#[derive(Debug, Args)]
#[command(after_help = "Deliveries to a muted contact end as muted, and are not sent later.

Examples:
  quotabell contact mute alice c_ab39b01901a28f91
  quotabell contact mute alice a@b.test --for 2h --reason \"new office\"
  quotabell contact mute alice a@b.test --until 2026-12-01T00:00:00Z")]
pub struct ContactMuteArgs {
    #[command(flatten)]
    pub selected: SelectedContactArgs,
    #[command(flatten)]
    pub mute: MuteArgs,
}

pub const UNMUTE_HELP: &str = "Alerts that were raised while it was muted are not sent.

Examples:
  quotabell contact unmute alice c_ab39b01901a28f91
  quotabell contact unmute alice a@b.test";

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct MutedContacts<'a> {
    subject: &'a Subject,
    muted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    mute: Option<Mute>,
    contacts: &'a [ContactId],
}

pub async fn run(args: ContactMuteArgs, context: &CliContext) -> anyhow::Result<()> {
    let redis = connect::redis(&context.config()?).await?;
    let mute = args.mute.into_mute(&redis).await?;
    set(&redis, args.selected, Some(&mute)).await
}

pub async fn run_unmute(args: SelectedContactArgs, context: &CliContext) -> anyhow::Result<()> {
    let redis = connect::redis(&context.config()?).await?;
    set(&redis, args, None).await
}

async fn set(redis: &CliConnection, args: SelectedContactArgs, mute: Option<&Mute>) -> anyhow::Result<()> {
    let SelectedContactArgs { subject, contact, format } = args;
    let ids = edit_selected(redis, &subject, &contact, |array, ids| {
        for id in &ids {
            array.set_mute(id, mute);
        }
        ids
    })
    .await?;
    let (muted, shown) = (mute.is_some(), mute.cloned());
    output::print(&format, &MutedContacts { subject: &subject, muted, mute: shown, contacts: &ids }, |_| {
        for id in &ids {
            let id = printable(id.as_str());
            say(mute.map_or_else(|| format!("unmuted {id}"), |mute| format!("muted {id}{}", printable(&mute.terms()))));
        }
        Ok(())
    })
}
