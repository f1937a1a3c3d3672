//! `grant add / list / revoke`: prepaid units, and more units for a period.
//!
//! Read next: [`crate::actions::grants`], which does the work.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::connect::{self, CliConnection};
use super::context::CliContext;
use crate::actions::grants::{self, GrantError, NewGrant};
use crate::ledger::grants::AddGrantError;
use crate::subjects::Plans;
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs, Table, or_dash, print_list, printable, say};
use crate::types::timestamp::Rfc3339;
use crate::types::{GrantId, Metric, Subject, Units, UnixMs, Window};
use crate::views::GrantView;

#[derive(Debug, Args)]
pub struct GrantArgs {
    #[command(subcommand)]
    pub action: GrantAction,
}

#[derive(Debug, Subcommand)]
pub enum GrantAction {
    /// Grant a subject units
    Add(GrantAddArgs),
    /// List the grants of a subject, with what is left of each
    List(GrantListArgs),
    /// Revoke what is left of a grant
    Revoke(GrantRevokeArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "The units raise a limit within a second: that of a total, or with --window that of the present \
        period. Usage is taken from the grant that expires first, before the limit of the plan. What is left at the \
        expiry is lost. A limit of 0/total lets only grants count.

A grant is given once by its id: repeat a command with --id as often as you like.

Examples:
  quotabell grant add acme 100000 --metric credits --id invoice-17 --expires 2027-12-01T00:00:00Z
  quotabell grant add acme 500 --window day --note \"load test\""
)]
pub struct GrantAddArgs {
    /// The subject that gets the units
    pub subject: Subject,
    /// Number of units
    pub units: Units,
    /// The metric
    #[arg(long, default_value_t)]
    pub metric: Metric,
    /// The window whose limit is raised
    #[arg(long, default_value_t = Window::Total)]
    pub window: Window,
    /// When unspent units are lost, such as 2026-12-31T00:00:00Z [default: never, or at the end of the period]
    #[arg(long, value_name = "TIME")]
    pub expires: Option<UnixMs>,
    /// Your id of the grant, such as that of the invoice [default: a new one]
    #[arg(long)]
    pub id: Option<GrantId>,
    /// What the grant is for
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "SPENT is what the grant has paid for until now. Of each metric and period the newest 1,000 are \
        listed, and every one with units left.

Examples:
  quotabell grant list acme
  quotabell grant list acme --json | jq -r 'select(.status == \"active\") | .remaining'"
)]
pub struct GrantListArgs {
    /// The subject
    pub subject: Subject,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "What the grant has paid for stays. Nothing changes if nothing is left.

Examples:
  quotabell grant revoke acme invoice-17")]
pub struct GrantRevokeArgs {
    /// The subject of the grant
    pub subject: Subject,
    /// The id of the grant
    pub grant: GrantId,
    #[command(flatten)]
    pub format: FormatArgs,
}

/// What `--json` prints of a grant that was asked for.
#[derive(Debug, Serialize)]
struct AddedView {
    subject: Subject,
    /// Whether it was added now, and not before.
    added: bool,
    #[serde(flatten)]
    grant: GrantView,
}

const HEADING: [&str; 9] = ["ID", "METRIC", "PERIOD", "STATUS", "UNITS", "SPENT", "LEFT", "EXPIRES", "NOTE"];
const MAY_SHRINK: &[&str] = &["ID", "NOTE"];

pub async fn run(args: GrantArgs, context: &CliContext) -> anyhow::Result<()> {
    match args.action {
        GrantAction::Add(args) => add(args, context).await,
        GrantAction::List(args) => list(args, context).await,
        GrantAction::Revoke(args) => revoke(args, context).await,
    }
}

async fn add(args: GrantAddArgs, context: &CliContext) -> anyhow::Result<()> {
    let (redis, plans) = connected(context).await?;
    let GrantAddArgs { subject, units, metric, window, expires, id, note, format } = args;
    let new = NewGrant { metric, units, window, expires_at: expires.map(Rfc3339), id, note };
    let added = grants::add(redis.partitions.partition_of(&subject), &plans, &subject, &new).await;
    let added = added.map_err(|error| explained(&redis, error))?;
    redis.record("addGrant", Some(&subject), added.grant.id.as_str(), 1).await;
    let view = AddedView { subject, added: added.is_new, grant: added.grant };
    output::print(&format, &view, |_| {
        let GrantView { id, units, remaining, metric, .. } = &view.grant;
        let of = plans.format_of(metric);
        let (units, remaining) = (of.counted(units.get()), of.amount(*remaining));
        say(match view.added {
            true => format!("granted {} {units} of {metric} as {id}", view.subject),
            false => format!("grant {id} of {units} of {metric} was added before, {remaining} are left"),
        });
        Ok(())
    })
}

async fn list(args: GrantListArgs, context: &CliContext) -> anyhow::Result<()> {
    let (redis, plans) = connected(context).await?;
    let partition = redis.partitions.partition_of(&args.subject);
    let read = crate::views::grants::read(partition, &plans, &args.subject).await;
    let listed = redis.explained(format_args!("read the grants of {}", args.subject), read)?;
    let table = Table::new(&HEADING).may_shrink(MAY_SHRINK);
    print_list(&args.format, &listed.grants, table, "no grants", |grant| row(grant, &plans))
}

async fn revoke(args: GrantRevokeArgs, context: &CliContext) -> anyhow::Result<()> {
    let (redis, plans) = connected(context).await?;
    let GrantRevokeArgs { subject, grant, format } = args;
    let revoked = grants::revoke(redis.partitions.partition_of(&subject), &plans, &subject, &grant).await;
    let revoked = revoked.map_err(|error| explained(&redis, error))?;
    redis.record("revokeGrant", Some(&subject), grant.as_str(), 1).await;
    output::print(&format, &revoked, |_| {
        let GrantView { id, metric, units, spent, status, .. } = &revoked;
        let of = plans.format_of(metric);
        let (units, spent) = (of.counted(units.get()), of.amount(*spent));
        say(format_args!("grant {id} is {status}: {spent} of {units} are spent"));
        Ok(())
    })
}

async fn connected(context: &CliContext) -> anyhow::Result<(CliConnection, Plans)> {
    let config = context.config()?;
    Ok((connect::redis(&config).await?, config.plans()?))
}

fn row(grant: &GrantView, plans: &Plans) -> Vec<String> {
    let GrantView { id, metric, period, status, units, spent, remaining, expires_at, note, .. } = grant;
    let note = note.as_deref().map(|note| printable(note).to_string());
    let expires_at = expires_at.map(|Rfc3339(at)| at);
    let of = plans.format_of(metric);
    vec![
        id.to_string(),
        metric.to_string(),
        period.to_string(),
        status.to_string(),
        of.amount(units.get()),
        of.amount(*spent),
        of.amount(*remaining),
        or_dash(expires_at),
        or_dash(note),
    ]
}

fn explained(redis: &CliConnection, error: GrantError) -> anyhow::Error {
    let advice = match &error {
        GrantError::Redis { subject, source } => {
            let what = format!("change the grants of {subject}");
            return redis.explained(what, Err::<(), _>(source.clone())).expect_err("an error stays an error");
        }
        GrantError::NoLimit { subject, metric, window: Window::Total } => {
            return hint::failed(
                &error,
                format!("`quotabell subject set {subject} --limit {metric}=0/total` sets one"),
            );
        }
        GrantError::NoLimit { subject, metric, window } => {
            let set = format!("`quotabell subject set {subject} --limit {metric}=UNITS/{window}` sets one");
            return hint::failed(&error, set);
        }
        GrantError::Add(AddGrantError::Conflict(_)) => "`quotabell grant list SUBJECT` shows it; choose another --id",
        GrantError::Add(AddGrantError::TooMany(_)) => "`quotabell grant list SUBJECT` shows them",
        GrantError::NotFound { .. } => "`quotabell grant list SUBJECT` lists the grants",
        GrantError::AfterPeriod { .. } | GrantError::Past { .. } => "correct --expires, or leave it out",
        GrantError::Note => "shorten --note to one line",
        GrantError::Unreadable { .. } => "`quotabell subject show SUBJECT` names them",
        GrantError::Level(_) | GrantError::Add(AddGrantError::TooManyUnits) => "`quotabell grant add --help`",
        GrantError::Contended(_) => "try again",
    };
    hint::failed(error, advice)
}
