//! `status`: whether everything works, and what needs attention.

use clap::Args;

use super::connect;
use super::context::CliContext;
use crate::terminal::hint::NeedsAttention;
use crate::terminal::output::{self, FormatArgs, Output, Table};
use crate::types::text::{grouped, pluralize, printable};
use crate::views::alert_list::NotifiedAlertView;
use crate::views::alert_outcomes::AlertOutcome;
use crate::views::near::NearReading;
use crate::views::overview::{NearOverviewView, OverviewError, OverviewView, SendingOverviewView};

#[derive(Debug, Args)]
#[command(
    after_help = "Shows one sentence, then each problem with its cause and the command that mends it, the subjects near to a limit, \
        and the newest alerts with the number of contacts that were notified. JSON is that of GET /v1/overview.

Exit codes: 0 nothing needs attention, 3 something does, 1 the status could not be read

Examples:
  quotabell status
  quotabell status --json | jq -r '.problems[].command'
  quotabell status || quotabell deliveries list --state dead"
)]
pub struct StatusArgs {
    #[command(flatten)]
    pub format: FormatArgs,
}

pub async fn run(args: StatusArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config_with_files()?;
    let redis = connect::redis(&config).await?;
    let overview = match config.observer(&redis.partitions, config.plans()?).overview(NearReading::LONG).await {
        Err(OverviewError::Redis(error)) => redis.explained("read the status", Err(error))?,
        overview => overview?,
    };
    output::print(&args.format, &overview, |output| print(&overview, output))?;
    if overview.is_healthy() { Ok(()) } else { Err(NeedsAttention.into()) }
}

fn print(overview: &OverviewView, output: &mut Output) -> anyhow::Result<()> {
    let OverviewView { verdict, problems, sending, near, muted_alerts, newest_alerts, .. } = overview;
    output.sentence(verdict)?;
    for problem in problems {
        output.sentence("")?;
        output.sentence(&printable(&problem.cause))?;
        output.behind("  ", 2, &printable(&problem.command))?;
    }
    output.sentence("")?;
    let mut pairs = vec![("near a limit", near_line(near)), ("deliveries", sending_line(sending))];
    if *muted_alerts > 0 {
        let alerts = pluralize(*muted_alerts as u64, "alert was", "alerts were");
        pairs.push(("muted", format!("{alerts} not sent because of a mute")));
    }
    output.pairs(&pairs)?;
    if newest_alerts.is_empty() {
        return Ok(());
    }
    output.sentence("")?;
    let rows: Vec<Vec<String>> = newest_alerts.iter().map(row).collect();
    output.rows(&mut Table::new(&HEADING).may_shrink(&["SUBJECT", "METRIC"]), &rows)
}

fn near_line(NearOverviewView { above_80, reached, is_complete, .. }: &NearOverviewView) -> String {
    let at_least = if *is_complete { "" } else { "at least " };
    let [reached, above] = [*reached, reached + above_80].map(|subjects| grouped(subjects as u64, ","));
    format!("{at_least}{reached} subjects at 100% or above, {at_least}{above} at 80% or above")
}

fn sending_line(SendingOverviewView { pending, dead, .. }: &SendingOverviewView) -> String {
    format!("{} pending, {} dead", grouped(*pending, ","), grouped(*dead, ","))
}

const HEADING: [&str; 5] = ["RAISED UTC", "SUBJECT", "METRIC", "REACHED", "NOTIFIED"];

fn row(NotifiedAlertView { alert, deliveries }: &NotifiedAlertView) -> Vec<String> {
    let at = alert.raised_at_ms;
    let notified = match deliveries.outcome {
        AlertOutcome::Notified => deliveries.notified.to_string(),
        AlertOutcome::OnTheWay => "on the way".to_owned(),
        AlertOutcome::HigherSent => "by a higher threshold".to_owned(),
        AlertOutcome::Muted => "muted".to_owned(),
        AlertOutcome::Nobody => "nobody".to_owned(),
        AlertOutcome::Unknown => "unknown".to_owned(),
    };
    vec![
        at.to_utc().map_or_else(|| at.to_string(), |at| at.format("%m-%d %H:%M").to_string()),
        alert.subject.to_string(),
        format!("{}/{}", alert.metric, alert.window),
        alert.unit.threshold(alert.threshold),
        notified,
    ]
}
