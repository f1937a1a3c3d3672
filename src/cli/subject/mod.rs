//! `subject set / show / list / remove / mute / unmute / import`: who has which plan, limits, zone and contacts.

use clap::{Args, Subcommand};

use crate::cli::context::CliContext;

mod import;
mod import_csv;
mod import_reader;
mod import_text;
mod import_warnings;
mod list;
mod mute;
mod remove;
mod set;
mod show;

/// Arguments of `subject`.
#[derive(Debug, Args)]
pub struct SubjectArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: SubjectAction,
}

/// What to do with subjects.
#[derive(Debug, Subcommand)]
pub enum SubjectAction {
    /// Set a subject's plan, time zone, limits, thresholds and contacts
    Set(Box<set::SubjectSetArgs>),
    /// Show the settings of a subject
    Show(show::SubjectShowArgs),
    /// List all subjects with settings
    List(list::SubjectListArgs),
    /// Remove the settings of subjects, or all their stored data
    Remove(remove::SubjectRemoveArgs),
    /// Mute a subject, or one metric of it
    Mute(mute::SubjectMuteArgs),
    /// End the mute of a subject, or of one metric of it
    Unmute(mute::SubjectUnmuteArgs),
    /// Set many subjects from a CSV or JSON Lines file
    Import(import::SubjectImportArgs),
}

/// Does what the action says.
pub async fn run(args: SubjectArgs, context: &CliContext) -> anyhow::Result<()> {
    match args.action {
        SubjectAction::Set(args) => set::run(*args, context).await,
        SubjectAction::Show(args) => show::run(args, context).await,
        SubjectAction::List(args) => list::run(args, context).await,
        SubjectAction::Remove(args) => remove::run(args, context).await,
        SubjectAction::Mute(args) => mute::run(args, context).await,
        SubjectAction::Unmute(args) => mute::run_unmute(args, context).await,
        SubjectAction::Import(args) => import::run(args, context).await,
    }
}
