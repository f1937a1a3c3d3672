//! `actions`: who did what.

use clap::Args;

use super::connect;
use super::context::CliContext;
use super::whole_number::from_one;
use crate::terminal::output::{FormatArgs, Table, or_dash, print_list, printable};
use crate::types::text::grouped;
use crate::views::actions::{self, ActionView};

#[derive(Debug, Args)]
#[command(
    after_help = "Lists changes over HTTP, with the name of the token, and by commands, with the name of the system's \
    user, newest first. The newest 10000 are kept; changes of a subject until it is erased.

Examples:
  quotabell actions
  quotabell actions --limit 1000 --json | jq -r 'select(.action == \"eraseSubject\")'"
)]
pub struct ActionsArgs {
    /// Only the newest N
    #[arg(long, value_name = "N", default_value = "100", value_parser = from_one::<u64>)]
    pub limit: u64,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub async fn run(args: ActionsArgs, context: &CliContext) -> anyhow::Result<()> {
    let redis = connect::redis(&context.config()?).await?;
    let count = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let read = actions::newest(&redis.partitions, None, count).await;
    let (listed, _) = redis.explained("read the log of actions", read)?;
    let table =
        Table::new(&["TIME UTC", "BY", "ACTION", "SUBJECT", "TARGET", "COUNT"]).may_shrink(&["SUBJECT", "TARGET"]);
    print_list(&args.format, &listed, table, "no actions", row)
}

fn row(view: &ActionView) -> Vec<String> {
    let text = |text: Option<&String>| or_dash(text.map(|text| printable(text).to_string()));
    let ActionView { at, by, action, subject, target, count } = view;
    vec![
        at.0.to_string(),
        printable(by).to_string(),
        printable(action).to_string(),
        text(subject.as_ref()),
        text(target.as_ref()),
        grouped(count, ","),
    ]
}
