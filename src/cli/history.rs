//! `history`: the usage of one subject on each day.

use anyhow::Context as _;
use clap::Args;

use super::connect;
use super::context::CliContext;
use super::subject_settings;
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, Output, Table, say, say_empty};
use crate::types::{Day, Metric, Subject};
use crate::views::history::{self, DayRange, DayUsageView, HistoryRequest, HistoryView, MetricHistoryView};

#[derive(Debug, Args)]
#[command(
    after_help = "Lists the days with usage, in the subject's time zone. An open day may still get events. Days are \
        kept for history.days, 90 by default.

Examples:
  quotabell history alice
  quotabell history alice --metric tokens --from 2026-11-01 --to 2026-11-21
  quotabell history alice --json | jq '.metrics[] | {metric, sum: [.days[].used] | add}'"
)]
pub struct HistoryArgs {
    /// The subject
    pub subject: Subject,
    /// Only this metric [default: all]
    #[arg(long)]
    pub metric: Option<Metric>,
    /// The first day, YYYY-MM-DD [default: the oldest that is kept]
    #[arg(long, value_name = "DAY")]
    pub from: Option<Day>,
    /// The last day, YYYY-MM-DD [default: tomorrow, because a subject that changed its zone may have usage there]
    #[arg(long, value_name = "DAY")]
    pub to: Option<Day>,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub async fn run(args: HistoryArgs, context: &CliContext) -> anyhow::Result<()> {
    let HistoryArgs { subject, metric, from, to, format } = args;
    let range = DayRange::new(from, to)
        .map_err(|error| hint::failed(format_args!("--from: {error}"), "--from and --to may be the same day"))?;
    let config = context.config()?;
    let plans = config.plans()?;
    let redis = connect::redis(&config).await?;
    let settings = subject_settings::read(&redis, &subject, &plans).await?;
    let now = redis.server_time().await?;
    let what = format!("read history of {subject}");
    let (late_max, days) = (config.stream.late_max, config.history.days);
    let request = HistoryRequest { subject, settings, metric, range, now, late_max, days };
    let partition = redis.partitions.partition_of(&request.subject);
    let history = redis.explained(what, history::read(partition, &plans, request).await)?;
    let history = history.with_context(|| format!("no day holds {now}, which the server's clock shows"))?;
    if config.history.days == 0 {
        say("note: history.days is 0: only days whose counters are still there are known");
    }
    output::print(&format, &history, |output| print(&history, output))
}

const HEADING: [&str; 4] = ["METRIC", "DAY", "USED", "STATE"];

fn print(history: &HistoryView, output: &mut Output) -> anyhow::Result<()> {
    let row = |of: &MetricHistoryView, day: &DayUsageView| {
        let state = if day.open { "open" } else { "closed" };
        vec![of.metric.to_string(), day.day.to_string(), of.format.amount(day.used), state.to_owned()]
    };
    let rows: Vec<Vec<String>> = history.metrics.iter().flat_map(|of| of.days.iter().map(|day| row(of, day))).collect();
    if rows.is_empty() {
        say_empty("nothing was used on these days, or it is no longer kept");
        return Ok(());
    }
    output.rows(&mut Table::new(&HEADING).may_shrink(&["METRIC"]), &rows)
}
