//! `check-config`: the settings in effect, and whether they work. Writes nothing anywhere.

use clap::Args;

use super::Surroundings;
use super::connect::{self, Redis};
use super::output::{Format, FormatArgs, Output, say};
use crate::config::Config;
use crate::wire::{Fault, fault_of};

/// Arguments of `check-config`.
#[derive(Debug, Args)]
#[command(
    after_help = "Prints the settings in effect, passwords and secrets as ***. Exit 78 names the first thing that is wrong.

Examples:
  quotabell check-config
  quotabell check-config --offline --config quotabell.toml
  QUOTABELL__LOG__LEVEL=debug quotabell check-config --offline | grep level"
)]
pub struct CheckConfigArgs {
    /// Leave out connections: check only what stands in files and variables
    #[arg(long)]
    pub offline: bool,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Checks everything and prints the settings in effect.
///
/// # Errors
///
/// The first thing that is wrong.
pub async fn run(args: CheckConfigArgs, surroundings: &Surroundings) -> anyhow::Result<()> {
    let config = surroundings.config()?;
    let mut output = Output::stdout();
    match args.format.format() {
        Format::Json => output.json(&config.masked())?,
        Format::Table => output.bytes(toml::to_string(&config.masked())?.as_bytes())?,
    }
    output.finish()?;
    if !args.offline {
        check_connections(&config).await?;
    }
    Ok(())
}

/// Every connection that the configuration names: the place for what else can be asked without side effects.
async fn check_connections(config: &Config) -> anyhow::Result<()> {
    let redis = connect::redis(config)?;
    check_redis(&redis).await
}

async fn check_redis(redis: &Redis) -> anyhow::Result<()> {
    match redis.link().query::<String>(&redis::cmd("PING")).await {
        Err(error) if redis.is_embedded() && fault_of(&error) == Fault::Away => {
            say("the embedded Redis is not running; `quotabell run` starts it");
            Ok(())
        }
        reply => {
            redis.judged("ping Redis", reply)?;
            say(format_args!("Redis answers ({})", redis.shown()));
            Ok(())
        }
    }
}
