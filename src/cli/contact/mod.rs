//! `contact list / add / remove / mute / unmute / enable`: one contact of a subject at a time.
//!
//! Read next: [`crate::actions::contacts`], which does the work.

use clap::{Args, Subcommand};

use super::context::CliContext;
pub(super) use change::not_changed;
use change::{ContactMuteArgs, SelectedContactArgs};

mod add;
mod change;
mod list;

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
    Add(Box<add::ContactAddArgs>),
    /// Remove one contact, and cancel its pending deliveries
    #[command(after_help = change::REMOVE_HELP)]
    Remove(SelectedContactArgs),
    /// Mute a contact, for a time or until it is unmuted
    Mute(ContactMuteArgs),
    /// End the mute of a contact
    #[command(after_help = change::UNMUTE_HELP)]
    Unmute(SelectedContactArgs),
    /// Enable a disabled contact
    #[command(after_help = change::ENABLE_HELP)]
    Enable(SelectedContactArgs),
}

pub async fn run(args: ContactArgs, context: &CliContext) -> anyhow::Result<()> {
    match args.action {
        ContactAction::List(args) => list::run(args, context).await,
        ContactAction::Add(args) => add::run(*args, context).await,
        ContactAction::Remove(args) => change::remove(args, context).await,
        ContactAction::Mute(args) => change::mute(args, context).await,
        ContactAction::Unmute(args) => change::unmute(args, context).await,
        ContactAction::Enable(args) => change::enable(args, context).await,
    }
}
