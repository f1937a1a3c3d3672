//! `contact list / add / remove / mute / unmute / enable`: one contact of a subject at a time.
//!
//! Every change is written only if the contacts are still those that were read, so that the daemon and the subject's
//! side may edit them at the same moment. Read next: [`crate::contacts::edit`], what an edit may do.

use clap::{Args, Subcommand};

use super::context::CliContext;
use edit::SelectedContactArgs;

mod add;
mod edit;
mod enable;
mod list;
mod mute;
mod remove;

#[derive(Debug, Args)]
pub struct ContactArgs {
    #[command(subcommand)]
    pub action: ContactAction,
}

#[derive(Debug, Subcommand)]
pub enum ContactAction {
    /// List the contacts of a subject
    List(list::ContactListArgs),
    /// Add one contact, or change its secret or which alerts it gets
    Add(add::ContactAddArgs),
    /// Remove one contact: its pending deliveries are cancelled
    #[command(after_help = remove::HELP)]
    Remove(SelectedContactArgs),
    /// Send no alerts to a contact, for a time or until it is unmuted
    Mute(mute::ContactMuteArgs),
    /// Send alerts to a muted contact again
    #[command(after_help = mute::UNMUTE_HELP)]
    Unmute(SelectedContactArgs),
    /// Send alerts to a disabled contact again
    #[command(after_help = enable::HELP)]
    Enable(SelectedContactArgs),
}

pub async fn run(args: ContactArgs, context: &CliContext) -> anyhow::Result<()> {
    match args.action {
        ContactAction::List(args) => list::run(args, context).await,
        ContactAction::Add(args) => add::run(args, context).await,
        ContactAction::Remove(args) => remove::run(args, context).await,
        ContactAction::Mute(args) => mute::run(args, context).await,
        ContactAction::Unmute(args) => mute::run_unmute(args, context).await,
        ContactAction::Enable(args) => enable::run(args, context).await,
    }
}
