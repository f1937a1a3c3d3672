//! `deliveries pause` and `deliveries resume`: sending by all daemons.

use clap::Args;

use crate::actions::sending::{self, SendingState};
use crate::cli::connect;
use crate::cli::context::CliContext;
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, pluralize, printable, say};
use crate::types::UnixMs;
use crate::types::mute::checked_reason;

#[derive(Debug, Args)]
#[command(
    after_help = "No daemon begins an attempt until `deliveries resume`, also after a restart. Attempts that are under way end by \
    themselves. Usage is counted and alerts are raised all the same, and nothing is lost: deliveries wait.

Examples:
  quotabell deliveries pause --reason \"mail server moves\"
  quotabell deliveries resume"
)]
pub struct DeliveriesPauseArgs {
    /// The reason, shown beside the pause
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub const RESUME_HELP: &str = "Deliveries that are due leave within a second, within the bounds of their destinations.

Examples:
  quotabell deliveries resume";

pub async fn run(args: DeliveriesPauseArgs, context: &CliContext) -> anyhow::Result<()> {
    let reason = checked_reason(args.reason).map_err(|error| hint::usage(error, "shorten the reason"))?;
    let redis = connect::redis(&context.config()?).await?;
    let paused = sending::pause(&redis.partitions, reason.as_deref()).await;
    let paused = redis.explained("pause deliveries", paused)?;
    redis.record("pauseDeliveries", None, "", 1).await;
    print(&paused, &args.format)
}

pub async fn run_resume(format: &FormatArgs, context: &CliContext) -> anyhow::Result<()> {
    let redis = connect::redis(&context.config()?).await?;
    let resumed = redis.explained("resume deliveries", sending::resume(&redis.partitions).await)?;
    redis.record("resumeDeliveries", None, "", 1).await;
    print(&resumed, format)
}

fn print(state: &SendingState, format: &FormatArgs) -> anyhow::Result<()> {
    output::print(format, state, |_| {
        let SendingState { paused, since, ref reason, in_flight } = *state;
        if paused {
            let attempts = pluralize(in_flight, "attempt is", "attempts are");
            say(format_args!("{}; {attempts} under way", summary(since.map(|since| since.0), reason.as_deref())));
        } else {
            say("sending goes on");
        }
        Ok(())
    })
}

/// The pause as a sentence.
pub(super) fn summary(since: Option<UnixMs>, reason: Option<&str>) -> String {
    let since = since.map_or_else(String::new, |since| format!(" since {since}"));
    let reason = reason.map_or_else(String::new, |reason| format!(": {}", printable(reason)));
    format!("sending is paused{since}{reason}")
}
