//! `deliveries pause` and `deliveries resume`: all sending of all daemons.

use clap::Args;
use serde::Serialize;

use crate::cli::connect::{self, CliConnection};
use crate::cli::context::CliContext;
use crate::outbox::{Pause, pause, read_pause, resume};
use crate::redis_client::Partition;
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, pluralize, printable, say};
use crate::types::mute::checked_reason;
use crate::views::{Rfc3339, deliveries};

#[derive(Debug, Args)]
#[command(
    after_help = "No daemon begins an attempt until `deliveries resume`, also after a restart. Attempts that are under way end by \
    themselves. Usage is counted and alerts are raised all the same, and nothing is lost: deliveries wait.

Examples:
  quotabell deliveries pause --reason \"mail server moves\"
  quotabell deliveries resume"
)]
pub struct DeliveriesPauseArgs {
    /// Why; shown wherever the pause is
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub const RESUME_HELP: &str = "What is due leaves within a second, within the bounds of its destination.

Examples:
  quotabell deliveries resume";

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct PauseView {
    paused: bool,
    since: Option<Rfc3339>,
    reason: Option<String>,
    /// Attempts that are under way.
    in_flight: u64,
}

pub async fn run(args: DeliveriesPauseArgs, context: &CliContext) -> anyhow::Result<()> {
    let reason = checked_reason(args.reason).map_err(|error| hint::usage(error, "shorten the reason"))?;
    let redis = connect::redis(&context.config()?).await?;
    redis.explained("pause deliveries", pause(&redis.partitions, reason.as_deref()).await)?;
    print(&redis, &args.format).await
}

pub async fn run_resume(format: &FormatArgs, context: &CliContext) -> anyhow::Result<()> {
    let redis = connect::redis(&context.config()?).await?;
    redis.explained("resume deliveries", resume(&redis.partitions).await)?;
    print(&redis, format).await
}

async fn print(redis: &CliConnection, format: &FormatArgs) -> anyhow::Result<()> {
    let paused = read(redis).await?;
    let listed = deliveries::list_destinations(&redis.partitions).await;
    let in_flight = redis.explained("list destinations", listed)?.iter().map(|one| one.in_flight).sum();
    let since = paused.as_ref().and_then(|pause| pause.since).map(Rfc3339);
    let reason = paused.as_ref().and_then(|pause| pause.reason.clone());
    output::print(format, &PauseView { paused: paused.is_some(), since, reason, in_flight }, |_| {
        match &paused {
            Some(pause) => {
                let attempts = pluralize(in_flight, "attempt is", "attempts are");
                say(format_args!("{}; {attempts} under way", summary(pause)));
            }
            None => say("sending goes on"),
        }
        Ok(())
    })
}

/// The pause of the first partition that has one.
pub(super) async fn read(redis: &CliConnection) -> anyhow::Result<Option<Pause>> {
    for Partition { client, keys } in redis.partitions.iter() {
        let paused = redis.explained("read the pause of deliveries", read_pause(client, keys).await)?;
        if paused.is_some() {
            return Ok(paused);
        }
    }
    Ok(None)
}

/// The pause as a sentence.
pub(super) fn summary(Pause { since, reason }: &Pause) -> String {
    let since = since.map_or_else(String::new, |since| format!(" since {since}"));
    let reason = reason.as_ref().map_or_else(String::new, |reason| format!(": {}", printable(reason)));
    format!("sending is paused{since}{reason}")
}
