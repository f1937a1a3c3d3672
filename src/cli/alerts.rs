//! `alerts`: the raised alerts.

use anyhow::ensure;
use clap::{Args, Subcommand};

use super::alerts_export::{self, AlertsExportArgs};
use super::connect;
use super::context::CliContext;
use super::since::Since;
use super::whole_number::from_one;
use crate::ledger::retention::kept_until;
use crate::terminal::output::{FormatArgs, Table, print_list};
use crate::types::{Alert, AlertState, MetricFormat, Period, Subject};
use crate::views::alerts::{self, AlertFilter};
use crate::views::short_id;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Lists alerts of every window, oldest first. An alert that was raised again under a higher limit is \
        listed each time. REACHED names those that have ended; --json has when and why. Without --period and --since, lists those of today and yesterday in any time zone. Alerts \
        are kept for 48 h after their period has ended in every time zone, those of a total as long as the subject.

Examples:
  quotabell alerts
  quotabell alerts --since 6h
  quotabell alerts --period 2026-11-21 --subject alice
  quotabell alerts --period 2026-11-21T14Z
  quotabell alerts --json | jq -r .subject"
)]
pub struct AlertsArgs {
    #[command(subcommand)]
    pub action: Option<AlertsAction>,
    /// Only this period, such as 2026-11-21T14Z, 2026-11-21, 2026-W47, 2026-11 or 2026-11-15M [default: today's and
    /// yesterday's]
    #[arg(long, visible_alias = "day")]
    pub period: Option<Period>,
    /// Only those raised since then: a duration, such as 6h, a date (midnight in UTC) or a time, such as
    /// 2026-11-21T08:37:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    /// Only alerts of this subject
    #[arg(long)]
    pub subject: Option<Subject>,
    /// Only the newest N [default: all]
    #[arg(long, value_name = "N", value_parser = from_one::<u64>)]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Subcommand)]
pub enum AlertsAction {
    /// Print the log of alerts: each with what raised it and how its deliveries ended
    Export(AlertsExportArgs),
}

pub async fn run(args: AlertsArgs, context: &CliContext) -> anyhow::Result<()> {
    if let Some(AlertsAction::Export(args)) = args.action {
        return alerts_export::run(args, context).await;
    }
    let config = context.config()?;
    let redis = connect::redis(&config).await?;
    let now = redis.server_time().await?;
    let since = args.since.map(|since| since.before(now));
    let periods = match (args.period, since) {
        (Some(period), _) => vec![period],
        (None, Some(_)) => alerts::kept_periods(now),
        (None, None) => alerts::recent_periods(now),
    };
    ensure!(!periods.is_empty(), "the server's clock shows {now}, which is in no day");
    let gone = args.period.is_some_and(|period| kept_until(period, config.stream.late_max) <= now);
    let nothing = if gone { "the alerts of that period are no longer kept" } else { "no alerts" };
    let filter = AlertFilter { subject: args.subject, since };
    let listed = alerts::of_partitions(&redis.partitions, &periods, &filter, now).await;
    let mut listed = redis.explained("read alerts", listed)?;
    if args.period.is_none() && since.is_none() {
        // The period of a total holds all of its alerts.
        listed.retain(|alert| alert.period.has_end() || alert.raised_at_ms >= now.plus(-TWO_DAYS_MS));
    }
    if let Some(limit) = args.limit {
        let surplus = listed.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        listed.drain(..surplus);
    }
    let plans = config.plans()?;
    plans.add_units(&mut listed);
    let row = |alert: &Alert| row(alert, &plans.format_of(&alert.metric));
    let table = Table::new(&HEADING).may_shrink(&["SUBJECT", "METRIC"]);
    print_list(&args.format, &listed, table, nothing, row)
}

/// The age of a total's alerts that are listed with those of today and yesterday.
const TWO_DAYS_MS: i64 = 2 * 86_400_000;

const HEADING: [&str; 8] = ["RAISED UTC", "SUBJECT", "METRIC", "REACHED", "USED", "LIMIT", "PERIOD", "ID"];

fn row(alert: &Alert, format: &MetricFormat) -> Vec<String> {
    vec![
        raised_at(alert),
        alert.subject.to_string(),
        alert.metric.to_string(),
        reached(alert, format),
        format.amount(alert.used),
        format.amount(alert.limit),
        alert.period.to_string(),
        short_id(alert.id.as_str()).to_owned(),
    ]
}

/// The threshold, and whether the alert has ended.
pub(super) fn reached(alert: &Alert, format: &MetricFormat) -> String {
    let label = format.threshold(alert.threshold);
    let has_ended = alert.status.is_some_and(|status| status.state == AlertState::Ended);
    if has_ended { format!("{label} {}", AlertState::Ended) } else { label }
}

/// Month, day and minute; the period beside it has the year, except that of a total.
fn raised_at(alert: &Alert) -> String {
    let (at, form) = (alert.raised_at_ms, if alert.period.has_end() { "%m-%d %H:%M" } else { "%Y-%m-%d %H:%M" });
    at.to_utc().map_or_else(|| at.to_string(), |at| at.format(form).to_string())
}
