//! `run`: the daemon.

use anyhow::Context as _;
use clap::Args;

use super::context::CliContext;
use crate::app;

#[derive(Debug, Args)]
#[command(
    after_help = "Without a configuration, `run` starts a Redis of its own on 127.0.0.1:6399 and keeps its data in ./data. \
    SIGTERM or SIGINT drains; a second one ends at once. SIGHUP reads the plans again, like `quotabell reload`.

Examples:
  quotabell run
  quotabell run --config quotabell.toml
  quotabell run --no-send    # a restored copy: counts, and sends nothing
  QUOTABELL__REDIS__URL=redis://127.0.0.1:6379 quotabell run"
)]
pub struct RunArgs {
    /// Send nothing, like delivery.send = false: count and raise alerts, and leave their deliveries pending
    #[arg(long)]
    pub no_send: bool,
}

pub async fn run(args: RunArgs, context: &CliContext) -> anyhow::Result<()> {
    let mut config = context.config_with_files()?;
    config.delivery.send &= !args.no_send;
    app::logging::install(&config.log).context("start the thread of the log")?;
    let context = context.clone();
    app::run(config, Box::new(move || Ok(context.config_with_files()?))).await
}
