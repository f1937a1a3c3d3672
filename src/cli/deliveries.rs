//! `deliveries list / show / replay`: notifications on their way. Read next: `rows`, how they are printed.

use std::collections::BTreeSet;

use clap::{Args, Subcommand};

use super::connect::{self, Redis};
use super::context::CliContext;
use super::since::Since;
use crate::contacts::Contact;
use crate::outbox::replay::REPLAY_MAX;
use crate::outbox::{OutboxError, ReplayAnswer, Replayed, replay};
use crate::terminal::hint;
use crate::terminal::output::{Format, FormatArgs, Output, Table, say, say_empty};
use crate::types::{Channel, DeliveryId, DeliveryState, Subject};
use crate::views::deliveries::{self, DeliveryFilter};
use crate::views::{AlertIdPrefix, DeliveryIdMatches, DeliveryIdPrefix};
use crate::wire::Partition;

mod rows;

use rows::ReplayView;

/// Arguments of `deliveries`.
#[derive(Debug, Args)]
pub struct DeliveriesArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: DeliveriesAction,
}

/// What to do with deliveries.
#[derive(Debug, Subcommand)]
pub enum DeliveriesAction {
    /// List deliveries, oldest first
    List(DeliveriesListArgs),
    /// Show one delivery: to whom, about what, and every attempt
    Show(DeliveriesShowArgs),
    /// Make dead deliveries due again, with the same ids
    Replay(DeliveriesReplayArgs),
}

/// Arguments of `deliveries list`.
#[derive(Debug, Args)]
#[command(
    after_help = "A delivery stays listed for 14 days after its end. The table shows the first digits of each id; `show` and `replay` \
    take them.

Examples:
  quotabell deliveries list
  quotabell deliveries list --state dead --limit 20
  quotabell deliveries list --since 6h --channel webhook
  quotabell deliveries list --subject alice --json"
)]
pub struct DeliveriesListArgs {
    /// Only those in this state: pending, delivered, dead, muted, expired or cancelled
    #[arg(long, value_parser = state)]
    pub state: Option<DeliveryState>,
    /// Only this subject's
    #[arg(long)]
    pub subject: Option<Subject>,
    /// Only those of this channel: email, webhook, or none for those that wait for a contact
    #[arg(long, value_parser = channel)]
    pub channel: Option<Channel>,
    /// Only those of this alert: its id, or the first digits of it
    #[arg(long, value_name = "ID")]
    pub alert: Option<AlertIdPrefix>,
    /// Only those made since: a duration back, as 6h, or a time, as 2026-11-21T08:37:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    /// Only the newest N [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Arguments of `deliveries show`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  quotabell deliveries show 6f1ed002
  quotabell deliveries show --json delivery_6f1ed002ab5595859014ebf0951522d9 | jq '.attempt_log[]'")]
pub struct DeliveriesShowArgs {
    /// The delivery's id, or the first digits of it
    pub id: DeliveryIdPrefix,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Arguments of `deliveries replay`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("which").required(true).args(["ids", "all"]),
    after_help = "Only dead deliveries can be replayed. The receiver sees the same webhook-id or Message-ID as before.

Examples:
  quotabell deliveries replay 6f1ed002
  quotabell deliveries replay --all"
)]
pub struct DeliveriesReplayArgs {
    /// The deliveries' ids, or the first digits of them
    #[arg(value_name = "ID")]
    pub ids: Vec<DeliveryIdPrefix>,
    /// Every dead delivery
    #[arg(long)]
    pub all: bool,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Lists, shows or replays deliveries.
///
/// # Errors
///
/// A bad configuration, an id that is not there, a delivery that is not dead, Redis, or stdout.
pub async fn run(args: DeliveriesArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let redis = connect::redis(&config).await?;
    match args.action {
        DeliveriesAction::List(args) => run_list(args, &redis).await,
        DeliveriesAction::Show(args) => run_show(args, &redis, &config.configured_contacts()).await,
        DeliveriesAction::Replay(args) => run_replay(args, &redis).await,
    }
}

async fn run_list(args: DeliveriesListArgs, redis: &Redis) -> anyhow::Result<()> {
    let DeliveriesListArgs { state, subject, channel, alert, since, limit, format } = args;
    let now = redis.server_time().await?;
    let since = since.map(|since| since.before(now));
    let filter = DeliveryFilter { state, subject, channel, alert, since };
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let listed = deliveries::list_partitions(redis.partitions(), &filter, limit).await;
    let listed = redis.judged(format_args!("list deliveries of {}", redis.keys().name()), listed)?;
    let mut output = Output::stdout();
    match format.format() {
        Format::Json => listed.iter().try_for_each(|delivery| output.json(delivery))?,
        Format::Table if listed.is_empty() => say_empty("no deliveries"),
        Format::Table => {
            let rows: Vec<Vec<String>> = listed.iter().map(|delivery| rows::list_row(delivery, now)).collect();
            output.rows(&mut rows::list_table(), &rows)?;
        }
    }
    output.finish()
}

async fn run_show(args: DeliveriesShowArgs, redis: &Redis, configured: &[Contact]) -> anyhow::Result<()> {
    let ids = find(redis, std::slice::from_ref(&args.id)).await?;
    let id = ids.into_iter().next().unwrap_or_else(|| args.id.as_id());
    let what = format!("read delivery {id}");
    let partition = redis.judged(&what, deliveries::partition_of(redis.partitions(), &id).await)?;
    let found = deliveries::show(&partition.client, &partition.keys, configured, &id).await;
    let Some(detail) = redis.judged(&what, found)? else {
        return Err(hint::failed(
            format_args!("there is no delivery {id}"),
            "`quotabell deliveries list` lists them; they stay readable for 14 days after their end",
        ));
    };
    let mut output = Output::stdout();
    match args.format.format() {
        Format::Json => output.json(&detail)?,
        Format::Table => rows::print_detail(&detail, &mut output)?,
    }
    output.finish()
}

async fn run_replay(args: DeliveriesReplayArgs, redis: &Redis) -> anyhow::Result<()> {
    let dead = if args.all { dead(redis).await? } else { by_partition(redis, find(redis, &args.ids).await?).await? };
    let asked: usize = dead.iter().map(|(_, ids)| ids.len()).sum();
    if asked == 0 {
        say("no delivery is dead; `quotabell deliveries list` shows where they stand");
        return Ok(());
    }
    let mut output = Output::stdout();
    let mut table = Table::new(&rows::REPLAY_HEADING);
    let mut replayed = 0;
    // The server is held by one call for a few milliseconds only, and what a failing one leaves undone has been told.
    let chunks = dead.iter().flat_map(|(partition, ids)| ids.chunks(REPLAY_MAX).map(move |ids| (*partition, ids)));
    for (partition, some) in chunks {
        let answers = match replay(&partition.client, &partition.keys, some).await {
            Err(OutboxError::Redis { operation, of, source }) => {
                redis.judged(format_args!("{operation} {of}"), Err(source))?
            }
            answers => answers?,
        };
        replayed += answers.iter().filter(|Replayed { answer, .. }| *answer == ReplayAnswer::Replayed).count();
        let mut views = answers.iter().map(ReplayView::of);
        match args.format.format() {
            Format::Json => views.try_for_each(|view| output.json(&view))?,
            Format::Table => output.rows(&mut table, &views.map(ReplayView::row).collect::<Vec<_>>())?,
        }
    }
    output.finish()?;
    match asked - replayed {
        0 => Ok(()),
        // With --all somebody else was quicker: nothing is dead any more, as was asked.
        _ if args.all => Ok(()),
        left => Err(hint::failed(
            format_args!("{left} of {asked} deliveries could not be replayed"),
            "only dead deliveries can be: `quotabell deliveries list --state dead` lists them",
        )),
    }
}

/// Every delivery that is dead at this moment, by partition, the oldest death first. One that dies again meanwhile is not among them, so
/// a replay of all of them ends.
async fn dead(redis: &Redis) -> anyhow::Result<Vec<(&Partition, Vec<DeliveryId>)>> {
    let filter = DeliveryFilter { state: Some(DeliveryState::Dead), ..DeliveryFilter::default() };
    let mut dead = Vec::new();
    for partition in redis.partitions().iter() {
        let Partition { client, keys } = partition;
        let listed = deliveries::list_all(client, keys, &filter, usize::MAX).await;
        let listed = redis.judged(format_args!("list dead deliveries of {}", keys.stream()), listed)?;
        dead.push((partition, listed.into_iter().map(|view| view.id).collect()));
    }
    Ok(dead)
}

/// The same deliveries with the partitions in which they lie, in their order.
async fn by_partition(redis: &Redis, ids: Vec<DeliveryId>) -> anyhow::Result<Vec<(&Partition, Vec<DeliveryId>)>> {
    let mut of: Vec<(&Partition, Vec<DeliveryId>)> = Vec::new();
    for id in ids {
        let found = deliveries::partition_of(redis.partitions(), &id).await;
        let partition = redis.judged(format_args!("look for delivery {id}"), found)?;
        match of.last_mut() {
            Some((last, ids)) if last.number() == partition.number() => ids.push(id),
            _ => of.push((partition, vec![id])),
        }
    }
    Ok(of)
}

/// The ids that are meant, each once: the second time it would be told that it is not dead. Digits that no id begins with are left
/// as they are: the answer to them is that there is no such delivery.
async fn find(redis: &Redis, prefixes: &[DeliveryIdPrefix]) -> anyhow::Result<Vec<DeliveryId>> {
    let found = deliveries::find_ids_in_partitions(redis.partitions(), prefixes).await;
    let found = redis.judged(format_args!("look for deliveries of {}", redis.keys().name()), found)?;
    let mut ids = Vec::new();
    let mut seen = BTreeSet::new();
    for (prefix, matches) in prefixes.iter().zip(found) {
        let id = match matches {
            DeliveryIdMatches::One(id) => id,
            DeliveryIdMatches::None => prefix.as_id(),
            DeliveryIdMatches::Several(several) => return Err(ambiguous(prefix, &several)),
        };
        if seen.insert(id.clone()) {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// The most ids that an error names.
const NAMED_MAX: usize = 10;

fn ambiguous(prefix: &DeliveryIdPrefix, several: &[DeliveryId]) -> anyhow::Error {
    let named: Vec<&str> = several.iter().take(NAMED_MAX).map(DeliveryId::as_str).collect();
    let more = several.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    hint::usage(
        format_args!("{} deliveries begin with {}: {}{more}", several.len(), prefix.as_id(), named.join(", ")),
        "give more digits",
    )
}

fn state(text: &str) -> Result<DeliveryState, String> {
    let allowed: Vec<&str> = DeliveryState::ALL.iter().map(|state| state.as_str()).collect();
    DeliveryState::from_stored(text).ok_or_else(|| format!("a state must be one of {}", allowed.join(", ")))
}

fn channel(text: &str) -> Result<Channel, String> {
    Channel::from_stored(text).ok_or_else(|| "a channel must be email, webhook or none".to_owned())
}
