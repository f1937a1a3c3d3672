//! `deliveries replay / retry / cancel / discard`: what an operator does with deliveries, one or many.

use clap::Args;
use serde::Serialize;

use super::rows::{self, ActionView};
use super::select::{FilterArgs, by_partition, find};
use crate::cli::connect::{self, Redis};
use crate::cli::context::CliContext;
use crate::outbox::action::ACTION_MAX;
use crate::outbox::{ActionAnswer, DeliveryAction, OutboxError, act};
use crate::terminal::hint;
use crate::terminal::output::{Format, FormatArgs, Output, Table, say};
use crate::types::{DeliveryId, DeliveryState};
use crate::views::{DeliveryFilter, DeliveryIdPrefix, deliveries};
use crate::wire::Partition;

/// Which deliveries, and how to print.
#[derive(Debug, Args)]
pub struct ActionArgs {
    /// The deliveries' ids, or the first digits of them
    #[arg(value_name = "ID")]
    pub ids: Vec<DeliveryIdPrefix>,
    /// Every one in a state that fits
    #[arg(long)]
    pub all: bool,
    /// Those that pass a filter.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Only print how many that would be
    #[arg(long)]
    pub dry_run: bool,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// What `--dry-run --json` prints.
#[derive(Debug, Serialize)]
struct DryRun {
    action: &'static str,
    deliveries: usize,
}

/// The ids of one partition.
type Selected<'a> = Vec<(&'a Partition, Vec<DeliveryId>)>;

/// Does it with the deliveries that are meant.
///
/// # Errors
///
/// Ids beside a filter, or neither; an id with which it can't be done; a bad configuration, Redis, or stdout.
pub async fn run(action: DeliveryAction, args: ActionArgs, context: &CliContext) -> anyhow::Result<()> {
    let ActionArgs { ids, all, filter, dry_run, format } = args;
    judge(action, &ids, all, &filter)?;
    let redis = connect::redis(&context.config()?).await?;
    let are_named = !ids.is_empty();
    let selected = match are_named {
        true => by_partition(&redis, find(&redis, &ids).await?).await?,
        false => {
            let state = filter.state.or_else(|| action.takes().first().copied());
            let filter = DeliveryFilter { state, ..filter.into_filter(&redis).await? };
            of_filter(&redis, &filter).await?
        }
    };
    let asked: usize = selected.iter().map(|(_, ids)| ids.len()).sum();
    let mut output = Output::stdout();
    if dry_run {
        match format.format() {
            Format::Json => output.json(&DryRun { action: action.as_str(), deliveries: asked })?,
            Format::Table => output.line(format_args!("{asked} deliveries would be {}", action.done()))?,
        }
        return output.finish();
    }
    if asked == 0 {
        say(match action.takes() {
            [DeliveryState::Dead] => "no delivery is dead; `quotabell deliveries list` shows where they stand",
            _ => "no delivery fits; `quotabell deliveries list` shows where they stand",
        });
        return Ok(());
    }
    let mut table = Table::new(&rows::ACTION_HEADING);
    let mut done = 0;
    // The server is held by one call for a few milliseconds only, and what a failing one leaves undone has been told.
    let chunks = selected.iter().flat_map(|(partition, ids)| ids.chunks(ACTION_MAX).map(move |ids| (*partition, ids)));
    for (partition, some) in chunks {
        let results = match act(&partition.client, &partition.keys, action, some).await {
            Err(OutboxError::Redis { operation, of, source }) => {
                redis.judged(format_args!("{operation} {of}"), Err(source))?
            }
            results => results?,
        };
        done += results.iter().filter(|result| result.answer == ActionAnswer::Done).count();
        let mut views = results.iter().map(|result| ActionView::of(action, result));
        match format.format() {
            Format::Json => views.try_for_each(|view| output.json(&view))?,
            Format::Table => output.rows(&mut table, &views.map(ActionView::row).collect::<Vec<_>>())?,
        }
    }
    output.finish()?;
    match asked - done {
        0 => Ok(()),
        // Of a filter somebody else was quicker, or an attempt is under way: nothing else was asked for.
        _ if !are_named => Ok(()),
        left => Err(hint::failed(
            format_args!("{left} of {asked} deliveries could not be {}", action.done()),
            match action {
                DeliveryAction::Replay | DeliveryAction::Discard => {
                    "only dead deliveries can be: `quotabell deliveries list --state dead` lists them"
                }
                DeliveryAction::Retry | DeliveryAction::Cancel => {
                    "one that is being attempted right now can be in a moment, one that has ended can't"
                }
            },
        )),
    }
}

/// What is asked must be plain: a filter that was forgotten would take all of them.
fn judge(action: DeliveryAction, ids: &[DeliveryIdPrefix], all: bool, filter: &FilterArgs) -> anyhow::Result<()> {
    let name = action.as_str();
    let is_filtered = all || !filter.is_empty();
    if ids.is_empty() != is_filtered {
        let problem = match is_filtered {
            true => "ids stand beside a filter, one of them is allowed",
            false => "neither ids nor a filter are named",
        };
        let advice =
            format!("name ids, or --all, --destination, --subject and the like: `quotabell deliveries {name} --help`");
        return Err(hint::usage(problem, advice));
    }
    match filter.state.filter(|state| !action.takes().contains(state)) {
        None => Ok(()),
        Some(state) => {
            let takes: Vec<&str> = action.takes().iter().map(|state| state.as_str()).collect();
            Err(hint::usage(
                format_args!("--state {state}: only {} deliveries can be {}", takes.join(" and "), action.done()),
                "`quotabell deliveries list` shows where they stand",
            ))
        }
    }
}

/// The deliveries that pass at this moment, by partition, the oldest first. One that comes into that state meanwhile is not among them,
/// so this ends.
async fn of_filter<'a>(redis: &'a Redis, filter: &DeliveryFilter) -> anyhow::Result<Selected<'a>> {
    let mut selected = Vec::new();
    for partition in redis.partitions().iter() {
        let Partition { client, keys } = partition;
        let listed = deliveries::list_all(client, keys, filter, usize::MAX).await;
        let listed = redis.judged(format_args!("list deliveries of {}", keys.stream()), listed)?;
        selected.push((partition, listed.into_iter().map(|view| view.id).collect()));
    }
    Ok(selected)
}
