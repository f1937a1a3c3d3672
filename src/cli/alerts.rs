//! `alerts`: what was raised.

use anyhow::ensure;
use clap::Args;

use super::connect;
use super::context::CliContext;
use super::since::Since;
use crate::ledger::retention::kept_until;
use crate::terminal::output::{Format, FormatArgs, Output, Table, say_empty};
use crate::types::{Day, Subject, UnixMs};
use crate::views::alerts::{self, AlertFilter, AlertView};
use crate::views::short_id;

/// Arguments of `alerts`.
#[derive(Debug, Args)]
#[command(
    after_help = "Oldest first. Zones ahead of UTC begin their day earlier: without --day its alerts are listed too. Alerts are kept as \
    long as the counts of their day: 48 h after it is over everywhere.

Examples:
  quotabell alerts
  quotabell alerts --since 6h
  quotabell alerts --day 2026-11-21 --subject alice
  quotabell alerts --json | jq -r .subject"
)]
pub struct AlertsArgs {
    /// Only this day, YYYY-MM-DD [default: today's and yesterday's]
    #[arg(long)]
    pub day: Option<Day>,
    /// Only those raised since: a duration back, as 6h, or a time, as 2026-11-21T08:37:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
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

/// Lists alerts, oldest first.
///
/// # Errors
///
/// A bad configuration, Redis, or stdout.
pub async fn run(args: AlertsArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let redis = connect::redis(&config).await?;
    let keys = config.keys();
    let now = redis.server_time().await?;
    let since = args.since.map(|since| since.before(now));
    let days = match (args.day, since) {
        (Some(day), _) => vec![day],
        (None, Some(_)) => alerts::kept_days(now),
        (None, None) => recent(now),
    };
    ensure!(!days.is_empty(), "the server's clock shows {now}, which is in no day");
    let gone = args.day.is_some_and(|day| kept_until(day, config.stream.late_max) <= now);
    let nothing = if gone { "the alerts of that day are no longer kept" } else { "no alerts" };
    let filter = AlertFilter { subject: args.subject, since };
    let mut listed = Vec::new();
    for day in days {
        let of_day = alerts::of_day(redis.client(), &keys, day, &filter).await;
        listed.extend(redis.judged(format_args!("read the alerts of {day}"), of_day)?);
    }
    // Days of different zones overlap.
    alerts::sort(&mut listed);
    if let Some(limit) = args.limit {
        let surplus = listed.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        listed.drain(..surplus);
    }
    print(&listed, nothing, args.format.format())
}

/// Yesterday, today, and the day that zones ahead of UTC call today already.
fn recent(now: UnixMs) -> Vec<Day> {
    let today = Day::in_utc(now);
    [today.and_then(|day| day.before(1)), today, today.and_then(Day::next)].into_iter().flatten().collect()
}

/// Prints the alerts, or on a terminal why there are none.
fn print(alerts: &[AlertView], nothing: &str, format: Format) -> anyhow::Result<()> {
    let mut output = Output::stdout();
    match format {
        Format::Json => alerts.iter().try_for_each(|alert| output.json(alert))?,
        Format::Table if alerts.is_empty() => say_empty(nothing),
        Format::Table => {
            let mut table = Table::new(&HEADING).may_shrink(&[SUBJECT_COLUMN, METRIC_COLUMN]);
            output.rows(&mut table, &alerts.iter().map(row).collect::<Vec<_>>())?;
        }
    }
    output.finish()
}

const HEADING: [&str; 8] = ["RAISED UTC", "SUBJECT", "METRIC", "REACHED", "USED", "LIMIT", "DAY", "ID"];
const SUBJECT_COLUMN: usize = 1;
const METRIC_COLUMN: usize = 2;

fn row(alert: &AlertView) -> Vec<String> {
    vec![
        minute(alert.raised_at_ms),
        alert.subject.to_string(),
        alert.metric.to_string(),
        format!("{}%", alert.threshold_percent),
        alert.used.to_string(),
        alert.limit.to_string(),
        alert.day.to_string(),
        short_id(alert.id.as_str()).to_owned(),
    ]
}

/// Month, day and minute: the year stands in the day beside it.
fn minute(at: UnixMs) -> String {
    at.to_utc().map_or_else(|| at.to_string(), |at| at.format("%m-%d %H:%M").to_string())
}
