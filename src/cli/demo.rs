//! `demo`: the whole job on one machine, in under a minute.

use clap::Args;

use super::{Surroundings, hint};

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(
    after_help = "Starts a Redis, a catcher for mail and webhooks and the daemon, all on free ports and in a temporary folder; sends \
    traffic for a few subjects, shows the alerts as they arrive, and ends with a summary. Exit 1 when an alert is missing, \
    doubled or wrong.

Examples:
  quotabell demo
  quotabell demo --subjects 20"
)]
pub struct DemoArgs {
    /// How many subjects use the API
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub subjects: u32,
}

/// Runs the demonstration.
///
/// # Errors
///
/// When a part can't be started, or the summary finds an alert missing, doubled or wrong.
pub async fn run(_args: DemoArgs, _surroundings: &Surroundings) -> anyhow::Result<()> {
    Err(hint::failed("demo: not built yet", "`quotabell check-config` works already"))
}
