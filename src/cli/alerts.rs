//! `alerts`: what was raised.

use clap::Args;

use super::output::FormatArgs;
use super::{Surroundings, hint};
use crate::types::{Day, Subject};

/// Arguments of `alerts`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  quotabell alerts
  quotabell alerts --day 2026-11-21 --subject alice
  quotabell alerts --json | jq -r .subject")]
pub struct AlertsArgs {
    /// Only this day, YYYY-MM-DD [default: today's and yesterday's]
    #[arg(long)]
    pub day: Option<Day>,
    /// Only this subject's
    #[arg(long)]
    pub subject: Option<Subject>,
    /// Only the newest N [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Lists alerts.
///
/// # Errors
///
/// A bad configuration, Redis, or stdout.
pub async fn run(_args: AlertsArgs, surroundings: &Surroundings) -> anyhow::Result<()> {
    surroundings.config()?;
    Err(hint::failed("alerts: not built yet", "`quotabell refused list` works already"))
}
