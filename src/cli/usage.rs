//! `usage`: the day's counts of one subject.

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use clap::Args;

use super::connect;
use super::context::CliContext;
use crate::subjects::record::TIMEZONE;
use crate::subjects::{FieldError, Plans};
use crate::terminal::output::{Format, FormatArgs, Output, Table, or_dash, say};
use crate::types::{Day, Subject};
use crate::views::usage::{self, LimitSource, MetricUsageView, UsageRequest};
use crate::views::{SubjectSettings, UsageView, subject};

/// Arguments of `usage`.
#[derive(Debug, Args)]
#[command(
    after_help = "A subject that nobody has set has the default plan and 0. Days are those of the subject's time zone. Counts live for \
    48 h after their day is over everywhere; of a day before that, nothing is known. The limit of a day that is over is the one of its \
    newest alert, or else today's.

Examples:
  quotabell usage alice
  quotabell usage alice --day 2026-11-21
  quotabell usage alice --json | jq '.metrics[] | {metric, used_percent}'"
)]
pub struct UsageArgs {
    /// Who
    pub subject: Subject,
    /// Another day than today, YYYY-MM-DD
    #[arg(long)]
    pub day: Option<Day>,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Prints the day's counts, limits and alerts.
///
/// # Errors
///
/// A bad configuration, Redis, or stdout.
pub async fn run(args: UsageArgs, context: &CliContext) -> anyhow::Result<()> {
    let UsageArgs { subject, day, format } = args;
    let config = context.config()?;
    let plans = Plans::new(&config.plans, &config.default_plan)?;
    let redis = connect::redis(&config).await?;
    let fields = subject::read_fields(redis.client(), redis.keys(), &subject).await;
    let fields = redis.judged(format_args!("read subject {subject}"), fields)?;
    let (settings, unreadable) = SubjectSettings::read(&fields, &plans);
    warn(&subject, &unreadable);
    let now = redis.server_time().await?;
    let what = format!("read usage of {subject}");
    let request = UsageRequest { subject, settings, day, now, late_max: config.stream.late_max };
    let usage = usage::read(redis.client(), &config.keys(), request).await;
    let usage = redis.judged(what, usage)?;
    let usage = usage.with_context(|| format!("the server's clock shows {now}, which is in no day"))?;
    let mut output = Output::stdout();
    match format.format() {
        Format::Json => output.json(&usage)?,
        Format::Table => print(&usage, &mut output)?,
    }
    output.finish()
}

fn warn(subject: &Subject, unreadable: &[FieldError]) {
    for error in unreadable {
        say(format_args!("warning: subject {:?}: {error}", subject.as_str()));
    }
    if unreadable.iter().any(|error| error.field == TIMEZONE) {
        say("warning: days are shown as those of UTC");
    }
    if !unreadable.is_empty() {
        say(
            "warning: until this is mended, alerts follow the last good values, and where the daemon has none nothing is alerted",
        );
    }
}

fn print(usage: &UsageView, output: &mut Output) -> anyhow::Result<()> {
    output.pairs(&[
        ("subject", usage.subject.to_string()),
        ("plan", usage.plan.clone()),
        ("timezone", usage.timezone.to_owned()),
        ("day", usage.day.to_string()),
    ])?;
    if !usage.kept {
        say(format_args!("the counts of {} are no longer kept: what {} used is unknown", usage.day, usage.subject));
        return Ok(());
    }
    if usage.metrics.is_empty() {
        say(format_args!("{} has no limit and used nothing that day", usage.subject));
        return Ok(());
    }
    output.line("")?;
    // A bar is for eyes; whoever reads columns from a pipe is not to count past it.
    let bars = io::stdout().is_terminal();
    let mut heading = vec!["METRIC", "USED", "LIMIT", "PERCENT", "ALERTS"];
    if bars {
        heading.insert(BAR_COLUMN, "");
    }
    let row = |metric: &MetricUsageView| {
        let mut row = row(metric);
        if bars {
            row.insert(BAR_COLUMN, metric.used_percent.map(bar).unwrap_or_default());
        }
        row
    };
    output.rows(&mut Table::new(&heading), &usage.metrics.iter().map(row).collect::<Vec<_>>())?;
    tell_limits_of_today(usage);
    Ok(())
}

/// The limits of a day that is over are known only where an alert has recorded them.
fn tell_limits_of_today(usage: &UsageView) {
    if !usage.over {
        return;
    }
    let of_today = usage.metrics.iter().filter(|metric| metric.limit_from == Some(LimitSource::Settings));
    let of_today: Vec<String> = of_today.map(|metric| metric.metric.to_string()).collect();
    if !of_today.is_empty() {
        say(format_args!(
            "note: no alert of that day has recorded the limit of {}: it is today's",
            of_today.join(", ")
        ));
    }
}

/// Where the bar stands: behind the percentage that it shows.
const BAR_COLUMN: usize = 4;

fn row(metric: &MetricUsageView) -> Vec<String> {
    let alerts: Vec<String> =
        metric.alerts.iter().map(|alert| format!("{}% {}", alert.threshold_percent, alert.raised_at)).collect();
    vec![
        metric.metric.to_string(),
        or_dash(metric.used),
        or_dash(metric.limit),
        or_dash(metric.used_percent.map(|percent| format!("{percent:.1}%"))),
        or_dash(Some(alerts.join(", ")).filter(|text| !text.is_empty())),
    ]
}

/// How much is used, as a picture. Full only when the limit is reached.
fn bar(used_percent: f64) -> String {
    const CELLS: usize = 20;
    let filled = ((used_percent / 100.0 * CELLS as f64) as usize).min(CELLS);
    format!("[{}{}]", "=".repeat(filled), " ".repeat(CELLS - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture that is full at 99.9 % would hide that there is something left.
    #[test]
    fn the_bar_is_full_only_at_the_limit() {
        assert_eq!(bar(0.0), format!("[{}]", " ".repeat(20)));
        assert_eq!(bar(99.9), format!("[{} ]", "=".repeat(19)));
        assert_eq!(bar(100.0), bar(4000.0));
    }
}
