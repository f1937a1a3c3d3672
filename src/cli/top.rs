//! `top`: who used most, or is nearest to the limit.

use clap::Args;

use super::connect;
use super::context::CliContext;
use crate::ledger::batch::MetricPeriod;
use crate::terminal::bar::bar;
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, Table, or_dash, say_empty};
use crate::types::{Metric, MetricFormat, Period, Subject, Window};
use crate::views::forecast::ForecastView;
use crate::views::top::{self, RankedSubjectView, RankingOrder, TOP_MAX, TopRequest};

#[derive(Debug, Args)]
#[command(after_help = "Ranks the subjects of one period by usage (--by used) or by the share of their limit (--by \
        percent). Reads every counter of the period, and with --by percent the settings of every subject, in small \
        slices. The default is the current period in UTC; subjects in other zones may be in the one before or after \
        it. --json prints one object with the subjects.

Examples:
  quotabell top
  quotabell top --metric tokens --window month --limit 50
  quotabell top --under acme/search
  quotabell top --by percent --json | jq '.subjects[] | select(.used_percent >= 80)'
  quotabell top --period 2026-11-20")]
pub struct TopArgs {
    /// The metric
    #[arg(long, default_value_t)]
    pub metric: Metric,
    /// The current hour, day, week, month, quarter or year, or the total [default: day]
    #[arg(long, value_name = "WINDOW")]
    pub window: Option<Window>,
    /// Another period, such as 2026-11-21T14Z, 2026-11-21, 2026-W47, 2026-11, 2026-11-15M, 2026-Q4, 2026 or all
    #[arg(long)]
    pub period: Option<Period>,
    /// The order: used, or percent
    #[arg(long, value_name = "ORDER", default_value_t = RankingOrder::Used)]
    pub by: RankingOrder,
    /// Only subjects below this one
    #[arg(long, value_name = "SUBJECT")]
    pub under: Option<Subject>,
    /// Number of subjects, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=TOP_MAX as u64))]
    pub limit: u64,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub async fn run(args: TopArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let plans = config.plans()?;
    let is_path = args.under.as_ref().map_or(Ok(()), |branch| config.subjects.separator.check(branch.as_str()));
    is_path.map_err(|error| {
        hint::usage(format_args!("--under: {error}"), "subjects.separator decides how ids are divided")
    })?;
    let redis = connect::redis(&config).await?;
    let now = redis.server_time().await?;
    let period = top::period(args.window, args.period, now).map_err(|error| {
        hint::failed(format_args!("--period: {error}"), "leave --window out: a period tells its window")
    })?;
    let request = TopRequest { of: MetricPeriod { metric: args.metric, period }, by: args.by, under: args.under };
    let limit = usize::try_from(args.limit).unwrap_or(TOP_MAX);
    let ranked = top::read(&redis.partitions, &plans, &request, limit).await;
    let ranked = redis.explained(format_args!("read the counters of {period}"), ranked)?;
    output::print(&args.format, &ranked, |output| {
        if ranked.subjects.is_empty() {
            say_empty("nobody used that metric in that period");
            return Ok(());
        }
        let mut heading = HEADING.to_vec();
        let mut rows: Vec<Vec<String>> = ranked.subjects.iter().map(|subject| row(subject, &ranked.format)).collect();
        if ranked.subjects.iter().all(|subject| subject.name.is_none()) {
            heading.remove(NAME);
            rows.iter_mut().for_each(|row| drop(row.remove(NAME)));
        }
        output.rows(&mut Table::new(&heading).may_shrink(&["SUBJECT"]).picture(BAR), &rows)
    })
}

const BAR: &str = "OF LIMIT";
/// The column of display names: only if there are any.
const NAME: usize = 1;
const HEADING: [&str; 8] = ["SUBJECT", "NAME", "PLAN", "USED", "LIMIT", "PERCENT", BAR, "FORECAST (UTC)"];

fn row(ranked: &RankedSubjectView, format: &MetricFormat) -> Vec<String> {
    let percent = ranked.used_percent.map(|percent| format!("{percent:.1}%"));
    vec![
        ranked.subject.to_string(),
        or_dash(ranked.name.as_ref()),
        ranked.plan.clone(),
        format.amount(ranked.used),
        or_dash(ranked.limit.map(|limit| format.amount(limit))),
        or_dash(percent),
        bar(ranked.used, ranked.limit, &ranked.thresholds),
        or_dash(ranked.forecast.as_ref().map(ForecastView::summary)),
    ]
}
