//! `alerts export`: the log of alerts, for the month in which an invoice is disputed.

use clap::Args;

use super::connect;
use super::context::CliContext;
use super::since::Since;
use crate::terminal::hint;
use crate::terminal::output::Output;
use crate::types::Subject;
use crate::views::alert_log::{LogFilter, LogReader};

#[derive(Debug, Args)]
#[command(
    after_help = "Prints one JSON object a line, in each partition the newest first: `alert` as it was raised, its `state`, and the \
    `deliveries` with their ends; for a notice `type`, `notice` and `deliveries`. Deliveries that have not ended are \
    missing. An entry is kept for history.alerts_days (400 by default) after its month.

Examples:
  quotabell alerts export --since 2026-10-01 --until 2026-11-01
  quotabell alerts export --since 30d --subject alice | jq -r '.deliveries[].state'"
)]
pub struct AlertsExportArgs {
    /// Only alerts and notices raised since then: a duration, such as 30d, a date (midnight in UTC) or a time, such as
    /// 2026-10-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Since,
    /// Only alerts and notices raised before then: a duration, a date or a time [default: now]
    #[arg(long, value_name = "TIME")]
    pub until: Option<Since>,
    /// Only alerts and notices of this subject
    #[arg(long)]
    pub subject: Option<Subject>,
}

pub async fn run(args: AlertsExportArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let plans = config.plans()?;
    let redis = connect::redis(&config).await?;
    let now = redis.server_time().await?;
    let since = args.since.before(now);
    // An alert of this moment is exported too.
    let until = args.until.map_or(now.plus(1), |until| until.before(now));
    if until <= since {
        return Err(hint::usage(format_args!("--until {until} is not after --since {since}"), "swap them"));
    }
    let filter = LogFilter { since, until, subject: args.subject };
    let mut output = Output::stdout();
    for partition in redis.partitions.of_subject_or_all(filter.subject.as_ref()) {
        let action = || format!("read the log of alerts of {}", partition.keys.stream());
        let reader = LogReader::begin(partition.clone(), filter.clone(), plans.clone()).await;
        let mut reader = redis.explained(action(), reader)?;
        while let Some(logged) = redis.explained(action(), reader.next().await)? {
            logged.iter().try_for_each(|one| output.json(one))?;
        }
    }
    output.finish()
}
