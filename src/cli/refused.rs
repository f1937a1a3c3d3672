//! `refused`: the events that could not be counted, and why.

use clap::{Args, Subcommand};

use super::connect;
use super::context::CliContext;
use super::whole_number::from_one;
use crate::terminal::output::{FormatArgs, Table, or_dash, print_list};
use crate::types::Subject;
use crate::views::refused;
use crate::views::refused::RefusedEventView;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without a command, the same as `quotabell refused list`.

Examples:
  quotabell refused
  quotabell refused --limit 20"
)]
pub struct RefusedArgs {
    #[command(subcommand)]
    pub action: Option<RefusedAction>,
    #[command(flatten)]
    pub list: RefusedListArgs,
}

#[derive(Debug, Subcommand)]
pub enum RefusedAction {
    /// List refused events, oldest first
    #[command(after_help = "The last 100000 or so are kept.

Examples:
  quotabell refused list --limit 20
  quotabell refused list --subject alice
  quotabell refused list --json | jq -r .reason | sort | uniq -c")]
    List(RefusedListArgs),
}

#[derive(Debug, Args)]
pub struct RefusedListArgs {
    /// Only the newest N [default: all]
    #[arg(long, value_name = "N", value_parser = from_one::<u64>)]
    pub limit: Option<u64>,
    /// Only events of this subject
    #[arg(long)]
    pub subject: Option<Subject>,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub async fn run(args: RefusedArgs, context: &CliContext) -> anyhow::Result<()> {
    let RefusedListArgs { limit, subject, format } = args.action.map_or(args.list, |RefusedAction::List(list)| list);
    let config = context.config()?;
    let redis = connect::redis(&config).await?;
    let count = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let listed = refused::newest(&redis.partitions, subject.as_ref(), count).await;
    let listed = redis.explained(format_args!("read the refused events of {}", redis.keys().name()), listed)?;
    let table = Table::new(&["TIME UTC", "ENTRY", "REASON", "DETAIL", "FIELDS"]).may_shrink(&["DETAIL", "FIELDS"]);
    print_list(&format, &listed, table, "no refused events", row)
}

fn row(event: &RefusedEventView) -> Vec<String> {
    let RefusedEventView { entry, reason, detail, fields, refused_at, .. } = event;
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let refused_at = or_dash(refused_at.map(|at| at.0.to_string()));
    vec![refused_at, entry.clone(), reason.clone(), detail.clone(), fields.join(" ")]
}
