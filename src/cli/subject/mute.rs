//! `subject mute` and `subject unmute`: mutes a subject, or one of its metrics.

use clap::Args;
use serde::Serialize;

use crate::cli::connect;
use crate::cli::context::CliContext;
use crate::cli::mute_args::MuteArgs;
use crate::subjects::mutes::{MutedPart, set_mute, warning_of_metric};
use crate::terminal::output::{self, FormatArgs, printable, say};
use crate::types::{Metric, Mute, Subject};

#[derive(Debug, Args)]
#[command(
    after_help = "Counting continues and alerts are recorded. Their deliveries end as muted and are not sent later. \
        `subject set` and `subject import` keep the mute.

Examples:
  quotabell subject mute alice --for 2h --reason \"load test\"
  quotabell subject mute alice --metric tokens --until 2026-12-01T00:00:00Z
  quotabell subject mute alice"
)]
pub struct SubjectMuteArgs {
    #[command(flatten)]
    pub part: MutedPartArgs,
    #[command(flatten)]
    pub mute: MuteArgs,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Alerts that were raised during the mute are not sent. Without --metric, mutes of single metrics stay.

Examples:
  quotabell subject unmute alice
  quotabell subject unmute alice --metric tokens"
)]
pub struct SubjectUnmuteArgs {
    #[command(flatten)]
    pub part: MutedPartArgs,
    #[command(flatten)]
    pub format: FormatArgs,
}

/// A subject, or one of its metrics.
#[derive(Debug, Args)]
pub struct MutedPartArgs {
    /// The subject
    pub subject: Subject,
    /// Only the alerts of this metric
    #[arg(long)]
    pub metric: Option<Metric>,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct MutedSubject<'a> {
    subject: &'a Subject,
    metric: Option<&'a Metric>,
    mute: Option<Mute>,
}

pub async fn run(args: SubjectMuteArgs, context: &CliContext) -> anyhow::Result<()> {
    let SubjectMuteArgs { part, mute, format } = args;
    let config = context.config()?;
    let plans = config.plans()?;
    let redis = connect::redis(&config).await?;
    let mute = mute.into_mute(&redis).await?;
    if let MutedPartArgs { subject, metric: Some(metric) } = &part {
        let warning = warning_of_metric(redis.client(), redis.keys(), &plans, subject, metric).await;
        let warning = redis.explained(format_args!("read subject {subject}"), warning)?;
        warning.iter().for_each(|warning| say(format_args!("warning: {warning}")));
    }
    set(&redis, &part, Some(mute), &format).await
}

pub async fn run_unmute(args: SubjectUnmuteArgs, context: &CliContext) -> anyhow::Result<()> {
    let redis = connect::redis(&context.config()?).await?;
    set(&redis, &args.part, None, &args.format).await
}

async fn set(
    redis: &connect::CliConnection,
    MutedPartArgs { subject, metric }: &MutedPartArgs,
    mute: Option<Mute>,
    format: &FormatArgs,
) -> anyhow::Result<()> {
    let metric = metric.as_ref();
    let written = set_mute(redis.client(), redis.keys(), subject, metric, mute.as_ref()).await;
    let was_muted = redis.explained(format_args!("write subject {subject}"), written)?;
    let action = if mute.is_some() { "muteSubject" } else { "unmuteSubject" };
    redis.record(action, Some(subject), metric.map_or("", Metric::as_str), 1).await;
    let shown = mute.clone();
    output::print(format, &MutedSubject { subject, metric, mute: shown }, |_| {
        let any_more = if was_muted { " any more" } else { "" };
        say(match (&mute, metric) {
            (Some(mute), _) => format!("{subject}: {}", printable(&MutedPart { metric, mute }.to_string())),
            (None, None) => format!("{subject}: the subject is not muted{any_more}"),
            (None, Some(metric)) => format!("{subject}: metric {metric} of the subject is not muted{any_more}"),
        });
        Ok(())
    })
}
