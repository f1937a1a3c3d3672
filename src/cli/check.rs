//! `check`: may a subject use something now? Sends the same query as API nodes, directly to Redis.

use clap::Args;

use super::connect;
use super::context::CliContext;
use super::subject_settings;
use crate::ledger::decision::{CheckResponse, LevelRateResponse, LimitResponse, RateResponse};
use crate::ledger::{CheckDecision, CheckError, CheckRequest, check};
use crate::redis_client::ServerClock;
use crate::terminal::hint::{self, failed};
use crate::terminal::output::{self, FormatArgs, Output, Table, or_dash, say};
use crate::types::{EventId, Metric, MetricFormat, Subject, Units};

#[derive(Debug, Args)]
#[command(after_help = "Judges each limit of the subject and the rate of its plan, like POST /v1/check. An admitted \
        request takes from the rate. Limits are judged by committed counts.

Exit codes: 0 it may proceed; 1 it may not, or Redis does not answer, or the subject's settings can't be read (check.on_error applies to the daemon only)

Examples:
  quotabell check alice
  quotabell check alice --metric tokens.in --units 350
  quotabell check alice --record --id order-7
  quotabell check alice --json | jq '.limits[] | {window, remaining}'")]
pub struct CheckArgs {
    /// The subject
    pub subject: Subject,
    /// The metric: [a-z0-9_.-]{1,64} [default: requests]
    #[arg(long)]
    pub metric: Option<Metric>,
    /// The units, 1 to 9007199254740991 [default: 1]
    #[arg(long)]
    pub units: Option<Units>,
    /// Also append the usage event, if the subject may proceed
    #[arg(long)]
    pub record: bool,
    /// The event's id, up to 128 bytes; an id counts once [default: one is made]
    #[arg(long, requires = "record")]
    pub id: Option<EventId>,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub async fn run(args: CheckArgs, context: &CliContext) -> anyhow::Result<()> {
    let CheckArgs { subject, metric, units, record, id, format } = args;
    let config = context.config()?;
    let plans = config.plans()?;
    let path = config.subjects.separator.check(subject.as_str());
    path.map_err(|error| hint::usage(error.to_string(), "subjects.separator decides how ids are divided"))?;
    let redis = connect::redis(&config).await?;
    let stored = subject_settings::read_levels(&redis, &subject).await?;
    let (levels, unreadable) = stored.settings(&plans);
    for (level, error) in unreadable {
        subject_settings::warn(&level, &[error]);
    }
    if !levels.iter().all(|level| level.profile.has_known_limits()) {
        // The daemon may still have earlier values, or follow check.on_error. A guess of this command would be taken
        // for the daemon's answer.
        return Err(failed(
            format_args!("nothing is judged: settings of subject {:?} can't be read", subject.as_str()),
            "fix the field (subject set, or the program that writes it); until then the daemon uses the last good value, or check.on_error",
        ));
    }
    let record = record.then(|| id.unwrap_or_else(|| EventId::numbered(rand::random())));
    let (metric, units) = (metric.unwrap_or_default(), units.unwrap_or(Units::ONE));
    let request = CheckRequest { subject, metric, units, record, traceparent: None };
    let partition = redis.partitions.partition_of(&request.subject);
    let decision = match check(partition, &ServerClock::default(), &request, &levels).await {
        Err(CheckError::Redis(error)) => {
            redis.explained(format_args!("check {} of {}", request.metric, request.subject), Err(error))?
        }
        judged => judged?,
    };
    let shown = plans.format_of(&request.metric);
    let response = CheckResponse::new(&request, &decision, &shown);
    output::print(&format, &response, |output| print(&response, (&request.metric, &shown), output))?;
    if response.allowed { Ok(()) } else { Err(refused(&request, &decision, &shown)) }
}

fn refused(request: &CheckRequest, decision: &CheckDecision, format: &MetricFormat) -> anyhow::Error {
    let hint = match decision.never_fits() {
        true => "ask for less, or raise the limit (subject set --limit) or the plan's rate".to_owned(),
        false => format!("it may help to ask again in {} s", decision.retry_after_s()),
    };
    failed(decision.refusal(request, format), hint)
}

fn print(
    response: &CheckResponse,
    (metric, format): (&Metric, &MetricFormat),
    output: &mut Output,
) -> anyhow::Result<()> {
    let mut pairs = vec![
        ("subject", response.subject.clone()),
        ("metric", format.labelled(metric)),
        ("allowed", yes_or_no(response.allowed).to_owned()),
    ];
    if let (Some(recorded), Some(id)) = (response.recorded, &response.event_id) {
        pairs.push(("recorded", yes_or_no(recorded).to_owned()));
        pairs.push(("event id", id.to_string()));
    }
    output.pairs(&pairs)?;
    let rate = response.rate.iter().map(|rate| rate_row("rate".to_owned(), rate, format));
    let above = |above: &LevelRateResponse| rate_row(format!("rate of {}", above.subject), &above.rate, format);
    let above = response.rates_above.iter().map(above);
    let limits = response.limits.iter().map(|limit| limit_row(limit, &response.subject, format));
    let rows: Vec<Vec<String>> = rate.chain(above).chain(limits).collect();
    if rows.is_empty() {
        say(format_args!("{} has neither a limit nor a rate of {}", response.subject, response.metric));
        return Ok(());
    }
    output.line("")?;
    output.rows(&mut Table::new(&["", "PERIOD", "USED", "LIMIT", "REMAINING", "RESET"]), &rows)
}

fn rate_row(name: String, rate: &RateResponse, format: &MetricFormat) -> Vec<String> {
    let RateResponse { limit, remaining, reset_s } = rate;
    let unknown = || "-".to_owned();
    let [limit, remaining] = [limit.get(), *remaining].map(|units| format.amount(units));
    vec![name, unknown(), unknown(), limit, remaining, format!("{reset_s} s")]
}

fn limit_row(limit: &LimitResponse, asked: &str, format: &MetricFormat) -> Vec<String> {
    let LimitResponse { subject, window, period, limit, used, remaining, reset_s } = limit;
    let name = if subject.as_str() == asked { window.to_string() } else { format!("{window} of {subject}") };
    let amounts = [*used, limit.get(), *remaining].map(|units| format.amount(units));
    [name, period.to_string()]
        .into_iter()
        .chain(amounts)
        .chain([or_dash(reset_s.map(|reset_s| format!("{reset_s} s")))])
        .collect()
}

const fn yes_or_no(truth: bool) -> &'static str {
    if truth { "yes" } else { "no" }
}
