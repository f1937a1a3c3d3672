//! `usage`: the day's counts of one subject.

use clap::Args;

use super::output::FormatArgs;
use super::{Surroundings, hint};
use crate::types::{Day, Subject};

/// Arguments of `usage`.
#[derive(Debug, Args)]
#[command(
    after_help = "A subject that nobody has set has the default plan and 0. Days are those of the subject's time zone.

Examples:
  quotabell usage alice
  quotabell usage alice --day 2026-11-21
  quotabell usage alice --json | jq '.metrics[] | {metric, used_percent}'"
)]
pub struct UsageArgs {
    /// Who
    pub subject: Subject,
    /// Another day than today, YYYY-MM-DD
    #[arg(long)]
    pub day: Option<Day>,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Prints the day's counts, limits and alerts.
///
/// # Errors
///
/// A bad configuration, Redis, or stdout.
pub async fn run(_args: UsageArgs, surroundings: &Surroundings) -> anyhow::Result<()> {
    surroundings.config()?;
    Err(hint::failed("usage: not built yet", "`quotabell subject show` works already"))
}
