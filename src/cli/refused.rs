//! `refused list`: the events that could not be counted, and why.

use clap::{Args, Subcommand};

use super::connect;
use super::context::CliContext;
use crate::terminal::output::{Format, FormatArgs, Output, Table, say_empty};
use crate::views::RefusedEventView;
use crate::views::refused::{self, RefusedCursor};

/// Arguments of `refused`.
#[derive(Debug, Args)]
pub struct RefusedArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: RefusedAction,
}

/// What to do with refused events.
#[derive(Debug, Subcommand)]
pub enum RefusedAction {
    /// List refused events, oldest first
    #[command(after_help = "The last 100000 or so are kept.

Examples:
  quotabell refused list --limit 20
  quotabell refused list --json | jq -r .reason | sort | uniq -c")]
    List {
        /// Only the newest N [default: all]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
        /// How to print.
        #[command(flatten)]
        format: FormatArgs,
    },
}

/// Lists refused events.
///
/// # Errors
///
/// A bad configuration, Redis, or stdout.
pub async fn run(args: RefusedArgs, context: &CliContext) -> anyhow::Result<()> {
    let RefusedAction::List { limit, format } = args.action;
    let config = context.config()?;
    let keys = config.keys();
    let redis = connect::redis(&config).await?;
    let what = format!("read {}", keys.refused());
    let mut from = match limit {
        Some(limit) => redis.judged(&what, RefusedCursor::newest(redis.client(), &keys, limit).await)?,
        None => Some(RefusedCursor::oldest()),
    };
    let mut output = Output::stdout();
    let mut table = Table::new(&["ENTRY", "REASON", "DETAIL", "FIELDS"]).may_shrink(&[2, 3]);
    let mut empty = true;
    while let Some(cursor) = from {
        let slice = redis.judged(&what, refused::list(redis.client(), &keys, &cursor).await)?;
        empty &= slice.events.is_empty();
        match format.format() {
            Format::Json => slice.events.iter().try_for_each(|event| output.json(event))?,
            Format::Table if slice.events.is_empty() => {}
            Format::Table => output.rows(&mut table, &slice.events.into_iter().map(row).collect::<Vec<_>>())?,
        }
        from = slice.next;
    }
    if empty && format.format() == Format::Table {
        say_empty("no refused events");
    }
    output.finish()
}

fn row(event: RefusedEventView) -> Vec<String> {
    let fields: Vec<String> = event.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    vec![event.entry, event.reason, event.detail, fields.join(" ")]
}
