//! `alerts`: what was raised.

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use super::context::CliContext;
use super::{clock, connect};
use crate::ledger::query;
use crate::terminal::output::{Format, FormatArgs, Output, Table, say_empty};
use crate::types::{Alert, AlertId, Day, Metric, Percent, Subject, UnixMs};

/// Arguments of `alerts`.
#[derive(Debug, Args)]
#[command(
    after_help = "Oldest first. Zones ahead of UTC begin their day earlier: without --day its alerts are listed too.

Examples:
  quotabell alerts
  quotabell alerts --day 2026-11-21 --subject alice
  quotabell alerts --json | jq -r .subject"
)]
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

/// An alert as it is printed.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    id: &'a AlertId,
    subject: &'a Subject,
    metric: &'a Metric,
    threshold_percent: Percent,
    used: u64,
    limit: u64,
    day: Day,
    raised_at: String,
}

/// Lists alerts, oldest first.
///
/// # Errors
///
/// A bad configuration, Redis, or stdout.
pub async fn run(args: AlertsArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let redis = connect::redis(&config)?;
    let keys = config.keys();
    let days = match args.day {
        Some(day) => vec![day],
        None => recent(clock::server_time(&redis).await?)?,
    };
    let mut alerts = Vec::new();
    for day in days {
        let of_day = query::alerts(redis.client(), &keys, day).await;
        alerts.extend(redis.judged(format_args!("read the alerts of {day}"), of_day)?);
    }
    alerts.retain(|alert| args.subject.as_ref().is_none_or(|subject| *subject == alert.subject));
    // Days of different zones overlap, and one event may reach several thresholds in one moment.
    let place =
        |alert: &Alert| (alert.raised_at_ms, alert.subject.clone(), alert.metric.clone(), alert.threshold_percent);
    alerts.sort_by_cached_key(place);
    if let Some(limit) = args.limit {
        let surplus = alerts.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        alerts.drain(..surplus);
    }
    print(&alerts, args.format.format())
}

/// Yesterday, today, and the day that zones ahead of UTC call today already.
fn recent(now: UnixMs) -> anyhow::Result<Vec<Day>> {
    let today = Day::in_utc(now).with_context(|| format!("the server's clock shows {now}, which is in no day"))?;
    Ok([today.before(1), Some(today), today.next()].into_iter().flatten().collect())
}

fn print(alerts: &[Alert], format: Format) -> anyhow::Result<()> {
    let mut output = Output::stdout();
    let mut shown = alerts.iter().map(Shown::of);
    match format {
        Format::Json => shown.try_for_each(|alert| output.json(&alert))?,
        Format::Table if alerts.is_empty() => say_empty("no alerts"),
        Format::Table => output.rows(&mut Table::new(&HEADING), &shown.map(Shown::row).collect::<Vec<_>>())?,
    }
    output.finish()
}

const HEADING: [&str; 8] = ["RAISED AT", "SUBJECT", "METRIC", "THRESHOLD", "USED", "LIMIT", "DAY", "ID"];

impl<'a> Shown<'a> {
    fn of(alert: &'a Alert) -> Self {
        Self {
            id: &alert.id,
            subject: &alert.subject,
            metric: &alert.metric,
            threshold_percent: alert.threshold_percent,
            used: alert.used,
            limit: alert.limit,
            day: alert.day,
            raised_at: alert.raised_at_ms.to_string(),
        }
    }

    fn row(self) -> Vec<String> {
        vec![
            self.raised_at,
            self.subject.to_string(),
            self.metric.to_string(),
            format!("{}%", self.threshold_percent),
            self.used.to_string(),
            self.limit.to_string(),
            self.day.to_string(),
            self.id.to_string(),
        ]
    }
}
