//! `refused`: the events that could not be counted, and why.

use std::collections::VecDeque;

use clap::{Args, Subcommand};

use super::connect;
use super::context::CliContext;
use super::whole_number::from_one;
use crate::terminal::output::{Format, FormatArgs, Output, Table, say_empty};
use crate::types::Subject;
use crate::views::RefusedEventView;
use crate::views::refused::{MergedRefusedEvents, REFUSED_READ_MAX};

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without a command, as `quotabell refused list`.

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
    let what = format!("read the refused events of {}", redis.keys().name());
    let newest = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut events = match limit {
        // Of one subject there may be as many as wanted only further back.
        Some(limit) if subject.is_none() => {
            redis.explained(&what, MergedRefusedEvents::newest(&redis.partitions, limit).await)?
        }
        _ => MergedRefusedEvents::all(&redis.partitions),
    };
    // Of the newest of each partition, the oldest are not among the newest of all.
    let mut kept = VecDeque::new();
    let mut output = Output::stdout();
    let mut table = Table::new(&["ENTRY", "REASON", "DETAIL", "FIELDS"]).may_shrink(&[2, 3]);
    let mut empty = true;
    loop {
        let event = redis.explained(&what, events.next().await)?;
        let is_end = event.is_none();
        kept.extend(event.filter(|event| subject.as_ref().is_none_or(|subject| event.is_of(subject))));
        if newest.is_some_and(|newest| kept.len() > newest) {
            kept.pop_front();
        }
        if is_end || newest.is_none() && kept.len() >= REFUSED_READ_MAX {
            empty &= kept.is_empty();
            output.list(format.format(), &mut table, kept.make_contiguous(), row)?;
            kept.clear();
        }
        if is_end {
            break;
        }
    }
    if empty && format.format() == Format::Table {
        say_empty("no refused events");
    }
    output.finish()
}

fn row(event: &RefusedEventView) -> Vec<String> {
    let RefusedEventView { entry, reason, detail, fields, .. } = event;
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    vec![entry.clone(), reason.clone(), detail.clone(), fields.join(" ")]
}
