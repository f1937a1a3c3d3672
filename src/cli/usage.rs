//! `usage`: the counts of one subject in its current periods.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use clap::Args;

use super::connect;
use super::context::CliContext;
use crate::subjects::record::{BILLING_DAY, TIMEZONE};
use crate::subjects::{FieldError, Plans};
use crate::terminal::output::{Format, FormatArgs, Output, Table, or_dash, say};
use crate::types::{Day, Metric, Period, Subject};
use crate::views::usage::{self, LimitSource, UsageRequest, WindowUsageView};
use crate::views::{SubjectSettings, UsageView, subject};

/// Arguments of `usage`.
#[derive(Debug, Args)]
#[command(
    after_help = "The day, and each other window that has a limit. A subject that nobody has set has the default plan and 0. Hours are those of \
    UTC; days, weeks and months those of the subject's time zone and billing day. Counts live for 48 h after their period is over \
    everywhere; of one before that, nothing is known. The limit of a period that is over is the one of its newest alert, or else today's.

Examples:
  quotabell usage alice
  quotabell usage alice --day 2026-11-21
  quotabell usage alice --json | jq '.metrics[] | {metric} + (.windows[] | {window, used_percent})'"
)]
pub struct UsageArgs {
    /// Who
    pub subject: Subject,
    /// Another day than today, YYYY-MM-DD; with the week and the month in which it begins
    #[arg(long)]
    pub day: Option<Day>,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Prints the counts, limits and alerts.
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
        Format::Table => print(&usage, day, &mut output)?,
    }
    output.finish()
}

fn warn(subject: &Subject, unreadable: &[FieldError]) {
    for error in unreadable {
        say(format_args!("warning: subject {:?}: {error}", subject.as_str()));
    }
    if unreadable.iter().any(|error| error.field == TIMEZONE) {
        say("warning: days, weeks and months are shown as those of UTC");
    }
    if unreadable.iter().any(|error| error.field == BILLING_DAY) {
        say("warning: months are shown from the first");
    }
    if !unreadable.is_empty() {
        say(
            "warning: until this is mended, alerts follow the last good values, and where the daemon has none nothing is alerted",
        );
    }
}

fn print(usage: &UsageView, day: Option<Day>, output: &mut Output) -> anyhow::Result<()> {
    output.pairs(&[
        ("subject", usage.subject.to_string()),
        ("plan", usage.plan.clone()),
        ("timezone", usage.timezone.to_owned()),
    ])?;
    if !usage.kept {
        let day = day.map_or_else(|| "today".to_owned(), |day| day.to_string());
        say(format_args!("the counts of {day} are no longer kept: what {} used is unknown", usage.subject));
        return Ok(());
    }
    if usage.metrics.is_empty() {
        say(format_args!("{} has no limit and used nothing", usage.subject));
        return Ok(());
    }
    output.line("")?;
    // A bar is for eyes; whoever reads columns from a pipe is not to count past it.
    let bars = io::stdout().is_terminal();
    let mut heading = vec!["METRIC", "WINDOW", "PERIOD", "USED", "LIMIT", "PERCENT", "ALERTS"];
    if bars {
        heading.insert(BAR_COLUMN, "");
    }
    let row = |(metric, usage): (&Metric, &WindowUsageView)| {
        let mut row = row(metric, usage);
        if bars {
            row.insert(BAR_COLUMN, usage.used_percent.map(bar).unwrap_or_default());
        }
        row
    };
    output.rows(&mut Table::new(&heading), &windows(usage).map(row).collect::<Vec<_>>())?;
    tell_counts_that_are_gone(usage);
    tell_limits_of_today(usage);
    Ok(())
}

/// Each metric's windows.
fn windows(usage: &UsageView) -> impl Iterator<Item = (&Metric, &WindowUsageView)> {
    usage.metrics.iter().flat_map(|metric| metric.windows.iter().map(|window| (&metric.metric, window)))
}

/// A week or a month may be kept longer than its days.
fn tell_counts_that_are_gone(usage: &UsageView) {
    let gone: BTreeSet<Period> =
        windows(usage).filter(|(_, usage)| usage.used.is_none()).map(|(_, usage)| usage.period).collect();
    for period in gone {
        say(format_args!("note: the counts of {period} are no longer kept"));
    }
}

/// The limits of a period that is over are known only where an alert has recorded them.
fn tell_limits_of_today(usage: &UsageView) {
    let of_today = windows(usage).filter(|(_, usage)| usage.over && usage.limit_from == Some(LimitSource::Settings));
    let of_today: Vec<String> = of_today.map(|(metric, usage)| format!("{metric} in {}", usage.period)).collect();
    if !of_today.is_empty() {
        say(format_args!("note: no alert has recorded the limit of {}: it is today's", of_today.join(", ")));
    }
}

/// Where the bar stands: behind the percentage that it shows.
const BAR_COLUMN: usize = 6;

fn row(metric: &Metric, usage: &WindowUsageView) -> Vec<String> {
    let alerts: Vec<String> =
        usage.alerts.iter().map(|alert| format!("{}% {}", alert.threshold_percent, alert.raised_at)).collect();
    vec![
        metric.to_string(),
        usage.window.to_string(),
        usage.period.to_string(),
        or_dash(usage.used),
        or_dash(usage.limit),
        or_dash(usage.used_percent.map(|percent| format!("{percent:.1}%"))),
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
