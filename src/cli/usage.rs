//! `usage`: the day's counts of one subject.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use chrono_tz::Tz;
use clap::Args;
use serde::Serialize;

use super::context::CliContext;
use super::{clock, connect};
use crate::ledger::query::{self, MetricUsage};
use crate::subjects::record::{LIMIT_PREFIX, PLAN, TIMEZONE};
use crate::subjects::{FieldError, Plans, Profile, SubjectRecord};
use crate::terminal::output::{Format, FormatArgs, Output, Table, lossless, or_dash, say};
use crate::types::alert::used_percent;
use crate::types::{AlertId, Day, DaySpan, Metric, Percent, Subject, Units, UnixMs};

/// Arguments of `usage`.
#[derive(Debug, Args)]
#[command(
    after_help = "A subject that nobody has set has the default plan and 0. Days are those of the subject's time zone.

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

/// What is printed.
#[derive(Debug, Serialize)]
struct Shown {
    subject: Subject,
    plan: String,
    timezone: &'static str,
    day: Day,
    metrics: Vec<ShownMetric>,
}

#[derive(Debug, Serialize)]
struct ShownMetric {
    metric: Metric,
    used: u64,
    limit: Option<Units>,
    used_percent: Option<f64>,
    alerts: Vec<ShownAlert>,
}

#[derive(Debug, Serialize)]
struct ShownAlert {
    id: AlertId,
    threshold_percent: Percent,
    raised_at: String,
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
    let redis = connect::redis(&config)?;
    let mut command = redis::cmd("HGETALL");
    command.arg(redis.keys().subject(&subject));
    let fields: Vec<RawField> = redis.query(format_args!("read subject {subject}"), &command).await?;
    let (settings, unreadable) = Settings::read(&fields, &plans);
    warn(&subject, &unreadable);
    let day = match day {
        Some(day) => day,
        None => today(settings.zone, clock::server_time(&redis).await?)?,
    };
    let limited: Vec<Metric> = settings.limits.keys().cloned().collect();
    let usage = query::usage(redis.client(), &config.keys(), &subject, day, &limited).await;
    let usage = redis.judged(format_args!("read usage of {subject}"), usage)?;
    let metrics = usage.into_iter().map(|usage| shown(usage, &settings)).collect();
    let shown = Shown { subject, plan: settings.plan, timezone: settings.zone.name(), day, metrics };
    let mut output = Output::stdout();
    match format.format() {
        Format::Json => output.json(&shown)?,
        Format::Table => print(&shown, &mut output)?,
    }
    output.finish()
}

/// A field and its value, as HGETALL gives them.
pub(super) type RawField = (Vec<u8>, Vec<u8>);

/// What a subject's hash amounts to, as far as it can be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// The plan's name, also of one that is not configured.
    pub(super) plan: String,
    /// The zone of its days.
    pub(super) zone: Tz,
    /// The limits that hold.
    pub(super) limits: BTreeMap<Metric, Units>,
}

impl Settings {
    /// Reads the hash. A limit that can't be known is none here: neither the default plan's nor the plan's own stands in for it.
    pub(super) fn read(fields: &[RawField], plans: &Plans) -> (Self, Vec<FieldError>) {
        let (profile, errors) = Profile::read(fields, plans, None);
        let mut settings = Self { plan: profile.plan().to_string(), zone: profile.zone(), limits: profile.limits() };
        let unreadable: BTreeSet<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        if unreadable.contains(PLAN) {
            let stored = fields.iter().find(|(name, _)| name == PLAN.as_bytes());
            settings.plan = stored.map(|(_, value)| lossless(value)).unwrap_or_default();
            settings.limits = SubjectRecord::parse(fields.iter().map(|(name, value)| (name, value))).record.limits;
        }
        let unknown = |metric: &Metric| unreadable.contains(format!("{LIMIT_PREFIX}{metric}").as_str());
        settings.limits.retain(|metric, _| !unknown(metric));
        (settings, errors)
    }
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

fn today(zone: Tz, now: UnixMs) -> anyhow::Result<Day> {
    let span = DaySpan::containing(zone, now);
    span.map(|span| span.day).with_context(|| format!("the server's clock shows {now}, which is in no day"))
}

fn shown(usage: MetricUsage, settings: &Settings) -> ShownMetric {
    let MetricUsage { metric, used, alerts } = usage;
    let limit = settings.limits.get(&metric).copied();
    let alerts = alerts.into_iter().map(|alert| ShownAlert {
        id: alert.id,
        threshold_percent: alert.threshold_percent,
        raised_at: alert.raised_at_ms.to_string(),
    });
    let used_percent = limit.map(|limit| used_percent(used, limit.get()));
    ShownMetric { metric, used, limit, used_percent, alerts: alerts.collect() }
}

fn print(shown: &Shown, output: &mut Output) -> anyhow::Result<()> {
    output.pairs(&[
        ("subject", shown.subject.to_string()),
        ("plan", shown.plan.clone()),
        ("timezone", shown.timezone.to_owned()),
        ("day", shown.day.to_string()),
    ])?;
    if shown.metrics.is_empty() {
        say(format_args!("{} has no limit and used nothing that day", shown.subject));
        return Ok(());
    }
    output.line("")?;
    // A bar is for eyes; whoever reads columns from a pipe is not to count past it.
    let bars = io::stdout().is_terminal();
    let mut heading = vec!["METRIC", "USED", "LIMIT", "PERCENT", "ALERTS"];
    if bars {
        heading.insert(BAR_COLUMN, "");
    }
    let row = |metric: &ShownMetric| {
        let mut row = row(metric);
        if bars {
            row.insert(BAR_COLUMN, metric.used_percent.map(bar).unwrap_or_default());
        }
        row
    };
    output.rows(&mut Table::new(&heading), &shown.metrics.iter().map(row).collect::<Vec<_>>())
}

/// Where the bar stands: behind the percentage that it shows.
const BAR_COLUMN: usize = 4;

fn row(metric: &ShownMetric) -> Vec<String> {
    let alerts: Vec<String> =
        metric.alerts.iter().map(|alert| format!("{}% {}", alert.threshold_percent, alert.raised_at)).collect();
    vec![
        metric.metric.to_string(),
        metric.used.to_string(),
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
    use crate::subjects::config::PlanConfig;
    use crate::subjects::rates::RateConfig;

    /// A picture that is full at 99.9 % would hide that there is something left.
    #[test]
    fn the_bar_is_full_only_at_the_limit() {
        assert_eq!(bar(0.0), format!("[{}]", " ".repeat(20)));
        assert_eq!(bar(99.9), format!("[{} ]", "=".repeat(19)));
        assert_eq!(bar(100.0), bar(4000.0));
    }

    fn settings(pairs: &[(&str, &str)]) -> (Settings, usize) {
        let limits = [("requests", 5000), ("tokens", 9)];
        let limits = limits.map(|(metric, units)| (metric.parse().expect("legal"), Units::new(units).expect("legal")));
        let plan = PlanConfig { limits: limits.into(), thresholds: Vec::new(), rate: RateConfig::default() };
        let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("free is there");
        let fields: Vec<RawField> =
            pairs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
        let (settings, errors) = Settings::read(&fields, &plans);
        (settings, errors.len())
    }

    fn limits(settings: &Settings) -> Vec<String> {
        settings.limits.iter().map(|(metric, limit)| format!("{metric}={limit}")).collect()
    }

    /// A percentage of a limit that does not hold would calm or alarm somebody for nothing.
    #[test]
    fn a_limit_that_cannot_be_read_is_not_replaced_by_another() {
        let (own, errors) = settings(&[("limit:requests", "7")]);
        assert_eq!((limits(&own), errors), (vec!["requests=7".to_owned(), "tokens=9".to_owned()], 0));
        let (broken, errors) = settings(&[("limit:requests", "lots")]);
        assert_eq!((limits(&broken), errors), (vec!["tokens=9".to_owned()], 1));
        let (gold, errors) = settings(&[("plan", "gold"), ("limit:tokens", "3"), ("limit:requests", "0")]);
        assert_eq!((gold.plan.as_str(), limits(&gold), errors), ("gold", vec!["tokens=3".to_owned()], 2));
    }
}
