//! `check-config`: prints the settings in effect, and checks whether they work. Writes nothing to Redis.
//!
//! Settings go to stdout, and a line for each check to stderr. A fault in a file or a variable ends the command at once
//! with exit 78. All connections are tried, and any failure gives exit 1. Read next: `server` and `permissions`, the
//! checks of Redis, and `channels`, those of channels.

use clap::Args;

use super::context::CliContext;
use crate::terminal::output::{self, FormatArgs};
use crate::types::Channel;
use crate::zones;

mod channels;
mod findings;
mod permissions;
mod server;
mod user;

use findings::Findings;

#[derive(Debug, Args)]
#[command(
    after_help = "Prints the settings in effect, with passwords and secrets as ***. Exit 78: a setting is wrong; the \
        error names it and its place. Exit 1: a connection failed, a contact may not be called, or the user of \
        redis.url lacks a right; all are tried first. Sends no email, calls no webhook, writes nothing to Redis.

Root can read files that the daemon can't; --user checks with the daemon's rights.

Examples:
  quotabell check-config
  quotabell check-config --offline --config quotabell.toml
  quotabell check-config --user quotabell
  QUOTABELL__LOG__LEVEL=debug quotabell check-config --offline | grep level"
)]
pub struct CheckConfigArgs {
    /// Skip connections: check only files and variables
    #[arg(long)]
    pub offline: bool,
    /// Check with the rights of the daemon's user, a name or a number. Only for root
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub async fn run(args: CheckConfigArgs, context: &CliContext) -> anyhow::Result<()> {
    if let Some(user) = &args.user {
        user::become_user(user)?;
    }
    let config = context.config_with_files()?;
    let channels = config.channels()?;
    let tokens = config.tokens()?;
    let masked = config.masked();
    output::print(&args.format, &masked, |output| output.bytes(toml::to_string(&masked)?.as_bytes()))?;
    let mut findings = Findings::default();
    config.warnings().iter().for_each(|warning| findings.warn(warning));
    Channel::SENDING.iter().flat_map(|channel| channels.warnings(*channel)).for_each(|warning| findings.warn(warning));
    tokens.warnings().for_each(|warning| findings.warn(&warning));
    channels::warn_of_defaults(&config, &findings)?;
    findings.note("configuration", Ok("configuration and templates are valid".to_owned()));
    let zone_data = zones::data_in_use();
    zone_data.warning().iter().for_each(|warning| findings.warn(warning));
    findings.inform(format_args!("zone data: {zone_data}"));
    if !args.offline {
        server::check(&config, &mut findings).await?;
        channels::check(&channels, &config, &mut findings).await?;
    } else {
        channels::check_offline(&channels, &config, &mut findings);
    }
    findings.into_result()
}
