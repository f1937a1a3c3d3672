//! `deliveries replay / retry / cancel / discard`: applies an action to one or many deliveries.

use clap::Args;
use serde_json::json;

use super::rows::{self, OpenCircuits};
use super::select::{FilterArgs, find};
use crate::actions::deliveries::{act, subject_of};
use crate::cli::connect::{self, CliConnection};
use crate::cli::context::CliContext;
use crate::outbox::action::ACTION_MAX;
use crate::outbox::{ActionReply, DeliveryAction, OutboxError};
use crate::redis_client::Partition;
use crate::terminal::hint;
use crate::terminal::output::{Format, FormatArgs, Output, Table, pluralize, say};
use crate::types::{DeliveryId, DeliveryState};
use crate::views::deliveries::DeliveryScan;
use crate::views::{DeliveryFilter, IdPrefix};

/// The deliveries, and the form of the output.
#[derive(Debug, Args)]
pub struct ActionArgs {
    /// The deliveries' ids, or the first digits
    #[arg(value_name = "ID")]
    pub ids: Vec<IdPrefix<DeliveryId>>,
    /// All deliveries in a suitable state
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Only print the number of matches
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub async fn run(action: DeliveryAction, args: ActionArgs, context: &CliContext) -> anyhow::Result<()> {
    let ActionArgs { ids, all, filter, dry_run, format } = args;
    check_arguments(action, &ids, all, &filter)?;
    let redis = connect::redis(&context.config()?).await?;
    let mut run = Run {
        redis: &redis,
        action,
        dry_run,
        format: format.format(),
        output: Output::stdout(),
        table: Table::new(&rows::ACTION_HEADING),
        counts: Counts::default(),
        circuits: OpenCircuits::new(),
    };
    let mut only = None;
    if ids.is_empty() {
        let state = filter.state.or_else(|| action.takes().first().copied());
        let filter = DeliveryFilter { state, ..filter.into_filter(&redis).await? };
        run.take_filtered(&filter).await?;
    } else {
        let found = find(&redis, &ids).await?;
        for deliveries in found.chunk_by(|(a, _), (b, _)| a.number() == b.number()) {
            let ids: Vec<DeliveryId> = deliveries.iter().map(|(_, id)| id.clone()).collect();
            run.take(deliveries[0].0, &ids).await?;
        }
        only = <[_; 1]>::try_from(found).ok().map(|[only]| only);
    }
    let Counts { asked, done } = run.finish().await?;
    if done > 0 {
        let (subject, target) = match &only {
            // What was done is recorded even if the subject can't be read.
            Some((_, id)) => (subject_of(&redis.partitions, id).await.unwrap_or_default(), id.as_str()),
            None => (None, ""),
        };
        redis.record(&format!("{}Delivery", action.as_str()), subject.as_ref(), target, done).await;
    }
    match asked - done {
        // With a filter, a delivery may have changed meanwhile; that is no failure.
        _ if dry_run || ids.is_empty() => Ok(()),
        0 => Ok(()),
        left => Err(hint::failed(
            format_args!("{left} of {} could not be {}", pluralize(asked, "delivery", "deliveries"), action.done()),
            match action {
                DeliveryAction::Replay | DeliveryAction::Discard => {
                    "only dead deliveries are accepted: `quotabell deliveries list --state dead` lists them"
                }
                DeliveryAction::Retry | DeliveryAction::Cancel => {
                    "if an attempt is under way, try again in a moment; a delivery that has ended stays as it is"
                }
            },
        )),
    }
}

/// Number of selected and of changed deliveries.
#[derive(Debug, Default)]
struct Counts {
    asked: usize,
    done: usize,
}

/// One action on many deliveries. Each result is printed at once, so that a failing call does not hide what was done
/// before it.
struct Run<'a> {
    redis: &'a CliConnection,
    action: DeliveryAction,
    dry_run: bool,
    format: Format,
    output: Output,
    table: Table,
    counts: Counts,
    /// The open circuits for which changed deliveries wait, and when the next attempt passes each of them.
    circuits: OpenCircuits,
}

impl Run<'_> {
    /// Processes the deliveries that pass the filter slice by slice, so that memory does not grow with their number.
    async fn take_filtered(&mut self, filter: &DeliveryFilter) -> anyhow::Result<()> {
        for partition in self.redis.partitions.of_subject_or_all(filter.subject.as_ref()) {
            let what = format!("list deliveries of {}", partition.keys.stream());
            let mut scan = self.redis.explained(&what, DeliveryScan::begin(partition, filter).await)?;
            while let Some(ids) = self.redis.explained(&what, scan.next().await)? {
                self.take(partition, &ids).await?;
            }
        }
        Ok(())
    }

    /// Processes deliveries of one partition. One call blocks the server for a few milliseconds only.
    async fn take(&mut self, partition: &Partition, ids: &[DeliveryId]) -> anyhow::Result<()> {
        self.counts.asked += ids.len();
        for ids in ids.chunks(ACTION_MAX).filter(|_| !self.dry_run) {
            let changed = match act(partition, self.action, ids).await {
                Err(OutboxError::Redis { operation, of, source }) => {
                    self.redis.explained(format_args!("{operation} {of}"), Err(source))?
                }
                changed => changed?,
            };
            self.counts.done += changed.iter().filter(|one| one.reply == ActionReply::Done).count();
            let behind = changed.iter().filter_map(|one| one.behind.clone());
            self.circuits.extend(behind.filter_map(|one| Some(((one.destination, one.partition), one.next_probe?.0))));
            self.output.list(self.format, &mut self.table, &changed, rows::action_row)?;
        }
        Ok(())
    }

    async fn finish(mut self) -> anyhow::Result<Counts> {
        let (action, asked) = (self.action, self.counts.asked);
        match self.format {
            Format::Json if self.dry_run => {
                self.output.json(&json!({"action": action.as_str(), "deliveries": asked}))?;
            }
            Format::Table if self.dry_run => {
                let many = pluralize(asked, "delivery", "deliveries");
                self.output.line(format_args!("{many} would be {}", action.done()))?;
            }
            _ if asked == 0 => say(match action.takes() {
                [DeliveryState::Dead] => "no delivery is dead; `quotabell deliveries list` shows where they stand",
                _ => "no delivery fits; `quotabell deliveries list` shows where they stand",
            }),
            _ => {}
        }
        self.output.finish()?;
        if self.format == Format::Table && !self.circuits.is_empty() {
            // The first attempt through each circuit is made now.
            let now = self.redis.server_time().await?;
            if self.action == DeliveryAction::Retry {
                self.circuits.values_mut().for_each(|probe| *probe = now);
            }
            let partitions = self.redis.partitions.count();
            rows::open_circuits(&self.circuits, partitions, now).iter().for_each(say);
            say("waiting deliveries follow once an attempt succeeds; each failed attempt delays the next one further");
        }
        Ok(self.counts)
    }
}

/// Refuses calls without ids or a filter: a forgotten filter would select all deliveries.
fn check_arguments(
    action: DeliveryAction,
    ids: &[IdPrefix<DeliveryId>],
    all: bool,
    filter: &FilterArgs,
) -> anyhow::Result<()> {
    let name = action.as_str();
    let is_filtered = all || *filter != FilterArgs::default();
    if ids.is_empty() != is_filtered {
        let problem = match is_filtered {
            true => "ids can't be combined with a filter",
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
