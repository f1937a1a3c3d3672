//! `check`: may a subject use something now? The question of API nodes, asked of Redis itself.

use clap::Args;

use super::connect;
use super::context::CliContext;
use crate::ledger::decision::{CheckResponse, LimitFigures, RateFigures, whole_seconds};
use crate::ledger::{CheckDecision, CheckError, CheckRequest, CheckScript};
use crate::subjects::{Plans, Profile};
use crate::terminal::hint::failed;
use crate::terminal::output::{Format, FormatArgs, Output, Table, say};
use crate::types::{EventId, Metric, Subject, Units};
use crate::views::subject;
use crate::wire::Partition;

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(
    after_help = "Asks what POST /v1/check asks: whether each limit of the subject and the rate of its plan have room. What is admitted \
    is taken from the rate, so asking costs something. The figures of limits are what has been committed.

Exit codes: 0 it may proceed, 1 it may not, or nothing can be judged because Redis does not answer or the subject's settings can't be \
    read: check.on_error is for the daemon alone

Examples:
  quotabell check alice
  quotabell check alice --metric tokens.in --units 350
  quotabell check alice --record --id order-7
  quotabell check alice --json | jq '.limits[] | {window, remaining}'"
)]
pub struct CheckArgs {
    /// Who
    pub subject: Subject,
    /// Of what: [a-z0-9_.-]{1,64} [default: requests]
    #[arg(long)]
    pub metric: Option<Metric>,
    /// How much, 1 to 9007199254740991 [default: 1]
    #[arg(long)]
    pub units: Option<Units>,
    /// Append the usage event too, if it may
    #[arg(long)]
    pub record: bool,
    /// The event's id, up to 128 bytes: the same one is not counted twice [default: one is made]
    #[arg(long, requires = "record")]
    pub id: Option<EventId>,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Asks, and prints the answer.
///
/// # Errors
///
/// A refusal; a bad configuration, Redis, or stdout.
pub async fn run(args: CheckArgs, context: &CliContext) -> anyhow::Result<()> {
    let CheckArgs { subject, metric, units, record, id, format } = args;
    let config = context.config()?;
    let plans = Plans::new(&config.plans, &config.default_plan)?;
    let redis = connect::redis(&config).await?;
    let fields = subject::read_fields(redis.client(), redis.keys(), &subject).await;
    let fields = redis.judged(format_args!("read subject {subject}"), fields)?;
    let (profile, unreadable) = Profile::read(&fields, &plans, None);
    for error in &unreadable {
        say(format_args!("warning: subject {:?}: {error}", subject.as_str()));
    }
    if !profile.is_judged() {
        // The daemon may still have good values, or follows check.on_error; a guess of ours would be taken for its answer.
        return Err(failed(
            format_args!("nothing is judged: settings of subject {:?} can't be read", subject.as_str()),
            "mend the field (subject set, or whoever writes it); the daemon follows its last good value, or check.on_error",
        ));
    }
    let record = record.then(|| id.unwrap_or_else(|| EventId::numbered(rand::random())));
    let question =
        CheckRequest { subject, metric: metric.unwrap_or_default(), units: units.unwrap_or(Units::ONE), record };
    let Partition { client, keys } = redis.partitions().of(&question.subject);
    let judged = CheckScript::new(keys.clone()).judge(client, &question, &profile).await;
    let judgement = match judged {
        Err(CheckError::Redis(error)) => {
            redis.judged(format_args!("check {} of {}", question.metric, question.subject), Err(error))?
        }
        judged => judged?,
    };
    let written = CheckResponse::new(&question, &judgement);
    let mut output = Output::stdout();
    match format.format() {
        Format::Json => output.json(&written)?,
        Format::Table => print(&written, &mut output)?,
    }
    output.finish()?;
    if written.allowed { Ok(()) } else { Err(refused(&question, &judgement)) }
}

fn refused(question: &CheckRequest, judgement: &CheckDecision) -> anyhow::Error {
    let CheckRequest { subject, metric, units, .. } = question;
    if judgement.never_fits() {
        let message = format_args!("{subject} asks for {units} of {metric}, more than the whole limit");
        return failed(message, "ask for less, or raise the limit (subject set --limit) or the plan's rate");
    }
    let wait = whole_seconds(judgement.retry_after().unwrap_or_default()).max(1);
    failed(
        format_args!("{subject} may not use {units} of {metric} now"),
        format_args!("it may help to ask again in {wait} s"),
    )
}

fn print(written: &CheckResponse, output: &mut Output) -> anyhow::Result<()> {
    let mut pairs = vec![
        ("subject", written.subject.clone()),
        ("metric", written.metric.clone()),
        ("allowed", yes_or_no(written.allowed).to_owned()),
    ];
    if let (Some(recorded), Some(id)) = (written.recorded, &written.event_id) {
        pairs.push(("recorded", yes_or_no(recorded).to_owned()));
        pairs.push(("event id", id.to_string()));
    }
    output.pairs(&pairs)?;
    let rate = written.rate.iter().map(rate_row);
    let rows: Vec<Vec<String>> = rate.chain(written.limits.iter().map(limit_row)).collect();
    if rows.is_empty() {
        say(format_args!("{} has neither a limit nor a rate of {}", written.subject, written.metric));
        return Ok(());
    }
    output.line("")?;
    output.rows(&mut Table::new(&["", "PERIOD", "USED", "LIMIT", "REMAINING", "RESET"]), &rows)
}

fn rate_row(rate: &RateFigures) -> Vec<String> {
    let RateFigures { limit, remaining, reset_s } = rate;
    let unknown = || "-".to_owned();
    vec!["rate".to_owned(), unknown(), unknown(), limit.to_string(), remaining.to_string(), format!("{reset_s} s")]
}

fn limit_row(figures: &LimitFigures) -> Vec<String> {
    let LimitFigures { window, period, limit, used, remaining, reset_s } = figures;
    let cells = [window.to_string(), period.to_string(), used.to_string(), limit.to_string(), remaining.to_string()];
    cells.into_iter().chain([format!("{reset_s} s")]).collect()
}

const fn yes_or_no(truth: bool) -> &'static str {
    if truth { "yes" } else { "no" }
}
