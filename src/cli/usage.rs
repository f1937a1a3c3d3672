//! `usage`: the usage of one subject, and its limits.

use anyhow::Context as _;
use clap::Args;

use super::alerts::reached;
use super::connect;
use super::context::CliContext;
use super::subject_settings;
use crate::terminal::bar::bar;
use crate::terminal::output::{self, FormatArgs, Output, Table, or_dash, rounded, say};
use crate::types::{Day, Metric, Subject, Threshold, UnixMs, Window};
use crate::views::UsageView;
use crate::views::children::{self, ChildView, ChildrenRequest, ChildrenView};
use crate::views::forecast::ForecastView;
use crate::views::usage::{self, LimitSource, MetricUsageView, UsageRequest, WindowUsageView};

#[derive(Debug, Args)]
#[command(
    after_help = "A subject without settings has the default plan. Hours are those of UTC, longer windows those of \
        the subject's time zone. --day shows that day and the longer periods that contain it. Counts are kept for 48 \
        h after their period has ended in every time zone, totals until an erasure. The limit of a past period is that of its newest alert, \
        or else today's.

Examples:
  quotabell usage alice
  quotabell usage alice --day 2026-11-21
  quotabell usage acme --children --window month
  quotabell usage alice --json | jq '.metrics[] | {metric, percent: .windows[0].used_percent}'"
)]
pub struct UsageArgs {
    /// The subject
    pub subject: Subject,
    /// A day, YYYY-MM-DD [default: today]
    #[arg(long)]
    pub day: Option<Day>,
    /// Show instead what the level below used in the current period
    #[arg(long, conflicts_with = "day")]
    pub children: bool,
    /// With --children: the metric [default: requests]
    #[arg(long, requires = "children")]
    pub metric: Option<Metric>,
    /// With --children: the window [default: day]
    #[arg(long, requires = "children")]
    pub window: Option<Window>,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub async fn run(args: UsageArgs, context: &CliContext) -> anyhow::Result<()> {
    let UsageArgs { subject, day, children, metric, window, format } = args;
    let config = context.config()?;
    let plans = config.plans()?;
    let redis = connect::redis(&config).await?;
    let settings = subject_settings::read(&redis, &subject, &plans).await?;
    let now = redis.server_time().await?;
    let what = format!("read usage of {subject}");
    let partition = redis.partitions.partition_of(&subject);
    let no_period = || format!("that day, or the time of the server's clock, {now}, is in no period");
    if children {
        let (metric, window) = (metric.unwrap_or_default(), window.unwrap_or(Window::Day));
        let request = ChildrenRequest { subject, settings, metric, window, now };
        let view = redis.explained(what, children::read(partition, &plans, request).await)?.with_context(no_period)?;
        return output::print(&format, &view, |output| print_children(&view, output));
    }
    let thresholds = settings.thresholds.clone();
    let request = UsageRequest { subject, settings, day, now, late_max: config.stream.late_max };
    let usage = redis.explained(what, usage::read(partition, &plans, request).await)?.with_context(no_period)?;
    output::print(&format, &usage, |output| print(&usage, &thresholds, now, output))
}

fn print_children(view: &ChildrenView, output: &mut Output) -> anyhow::Result<()> {
    let ChildrenView { subject, metric, format, period, used, children, .. } = view;
    output.pairs(&[
        ("subject", subject.to_string()),
        ("metric", metric.to_string()),
        ("period", period.to_string()),
        ("used", or_dash(used.map(|used| format.amount(used)))),
    ])?;
    if children.is_empty() {
        say(format_args!("no level below {subject} used that metric in that period"));
        return Ok(());
    }
    output.line("")?;
    let row = |child: &ChildView| {
        let share = or_dash(child.percent.map(|percent| format!("{percent:.1}%")));
        vec![child.subject.to_string(), format.amount(child.used), share]
    };
    let rows: Vec<Vec<String>> = children.iter().map(row).collect();
    output.rows(&mut Table::new(&["SUBJECT", "USED", "SHARE"]).may_shrink(&["SUBJECT"]), &rows)
}

const BAR: &str = "OF LIMIT";
const HEADING: [&str; 9] = ["METRIC", "WINDOW", "PERIOD", "USED", "LIMIT", "PERCENT", BAR, "RESETS", "ALERTS"];

fn print(usage: &UsageView, thresholds: &[Threshold], now: UnixMs, output: &mut Output) -> anyhow::Result<()> {
    let name = usage.name.as_ref().map(|name| ("name", name.to_string()));
    let subject = [("subject", usage.subject.to_string())].into_iter().chain(name);
    let pairs = subject.chain([("plan", usage.plan.clone()), ("timezone", usage.timezone.to_owned())]);
    output.pairs(&pairs.collect::<Vec<_>>())?;
    if usage.metrics.is_empty() {
        say(format_args!("{} has no limit and used nothing", usage.subject));
        return Ok(());
    }
    output.line("")?;
    let windows = || usage.metrics.iter().flat_map(|metric| metric.windows.iter().map(move |window| (metric, window)));
    let rows: Vec<Vec<String>> = windows().map(|(metric, window)| row(metric, window, thresholds, now)).collect();
    output.rows(&mut Table::new(&HEADING).may_shrink(&["METRIC"]).picture(BAR), &rows)?;
    for (metric, window) in windows() {
        let told = |(forecast, limit): (&ForecastView, u64)| {
            forecast.sentence(&usage.subject, &metric.metric, &metric.format, limit)
        };
        let sentence = window.forecast.as_ref().zip(window.limit).and_then(told);
        sentence.map_or(Ok(()), |sentence| output.line(&sentence))?;
    }
    if windows().any(|(_, window)| window.used.is_none()) {
        say("note: counts that are no longer kept are shown as -: what was used is unknown");
    }
    // The limits of a period that is over are known only where an alert has recorded them.
    if windows().any(|(_, window)| window.limit_from == Some(LimitSource::Settings)) {
        say("note: the limit of a past period is known only from its alerts; without one, today's limit is shown");
    }
    Ok(())
}

fn row(
    MetricUsageView { metric, format, .. }: &MetricUsageView,
    window: &WindowUsageView,
    thresholds: &[Threshold],
    now: UnixMs,
) -> Vec<String> {
    let resets = window.resets_at.map(|end| match end.0 <= now {
        true => "over".to_owned(),
        false => format!("in {}", rounded(end.0.since(now))),
    });
    let alerts: Vec<String> = window.alerts.iter().map(|alert| reached(alert, format)).collect();
    vec![
        format.labelled(metric),
        window.window.to_string(),
        window.period.to_string(),
        or_dash(window.used.map(|used| format.amount(used))),
        or_dash(window.limit.map(|limit| format.amount(limit))),
        or_dash(window.used_percent.map(|percent| format!("{percent:.1}%"))),
        window.used.map_or_else(String::new, |used| bar(used, window.limit, thresholds)),
        or_dash(resets),
        or_dash(Some(alerts.join(", ")).filter(|text| !text.is_empty())),
    ]
}
