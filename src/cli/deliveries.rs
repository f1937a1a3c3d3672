//! `deliveries list / show / replay`: alerts on their way. Read next: `rows`, how they are printed.

use std::collections::BTreeSet;

use clap::{Args, Subcommand};

use super::connect::{self, Redis};
use super::context::CliContext;
use super::progress::{self, Counted};
use crate::outbox::replay::REPLAY_MAX;
use crate::outbox::{
    DeliveryFilter, DeliveryView, OutboxError, ReplayAnswer, Replayed, list, replay as replay_ids, show as read_one,
};
use crate::terminal::hint;
use crate::terminal::output::{Format, FormatArgs, Output, Table, say, say_empty};
use crate::types::{DeliveryId, DeliveryState, Keys, Subject};

mod rows;

use rows::{Detail, Listed, Told};

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
    List(ListArgs),
    /// Show one delivery and every attempt of it
    Show(ShowArgs),
    /// Make dead deliveries due again, with the same ids
    Replay(ReplayArgs),
}

/// Arguments of `deliveries list`.
#[derive(Debug, Args)]
#[command(after_help = "A delivery stays listed for 14 days after its end.

Examples:
  quotabell deliveries list
  quotabell deliveries list --state dead --limit 20
  quotabell deliveries list --subject alice --json")]
pub struct ListArgs {
    /// Only those in this state: pending, delivered, dead, muted, expired or cancelled
    #[arg(long, value_parser = state)]
    pub state: Option<DeliveryState>,
    /// Only this subject's
    #[arg(long)]
    pub subject: Option<Subject>,
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
  quotabell deliveries show delivery_6f1ed002ab5595859014ebf0951522d9
  quotabell deliveries show --json delivery_6f1ed002ab5595859014ebf0951522d9 | jq '.attempt_log[]'")]
pub struct ShowArgs {
    /// The delivery's id
    #[arg(value_parser = delivery_id)]
    pub id: DeliveryId,
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
  quotabell deliveries replay delivery_6f1ed002ab5595859014ebf0951522d9
  quotabell deliveries replay --all"
)]
pub struct ReplayArgs {
    /// The deliveries' ids
    #[arg(value_name = "ID", value_parser = delivery_id)]
    pub ids: Vec<DeliveryId>,
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
    let books = Books { redis: connect::redis(&config)?, keys: config.keys() };
    match args.action {
        DeliveriesAction::List(args) => run_list(args, &books).await,
        DeliveriesAction::Show(args) => run_show(args, &books).await,
        DeliveriesAction::Replay(args) => run_replay(args, &books).await,
    }
}

/// Where deliveries are read.
struct Books {
    redis: Redis,
    keys: Keys,
}

impl Books {
    /// Deliveries that pass the filter, the newest `limit` of them, oldest first.
    async fn list(&self, filter: &DeliveryFilter, limit: usize) -> anyhow::Result<Vec<DeliveryView>> {
        let mut deliveries: Vec<DeliveryView> = Vec::new();
        // What is replayed while this reads stands in the list of dead ones at another place than before.
        let mut seen = BTreeSet::new();
        let mut from = None;
        loop {
            let page = self.judged(list(self.redis.client(), &self.keys, filter, from).await)?;
            deliveries.extend(page.deliveries.into_iter().filter(|view| seen.insert(view.id.clone())));
            from = page.next;
            if from.is_none() || deliveries.len() >= limit {
                break;
            }
        }
        deliveries.truncate(limit);
        deliveries.reverse();
        Ok(deliveries)
    }

    /// Adds where Redis is, and a hint.
    fn judged<T>(&self, reply: Result<T, OutboxError>) -> anyhow::Result<T> {
        match reply {
            Err(OutboxError::Redis { operation, of, source }) => {
                self.redis.judged(format_args!("{operation} {of}"), Err(source))
            }
            reply => Ok(reply?),
        }
    }
}

async fn run_list(args: ListArgs, books: &Books) -> anyhow::Result<()> {
    let filter = DeliveryFilter { state: args.state, subject: args.subject };
    let limit = args.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let deliveries = books.list(&filter, limit).await?;
    let mut shown = deliveries.iter().map(Listed::of);
    let mut output = Output::stdout();
    match args.format.format() {
        Format::Json => shown.try_for_each(|delivery| output.json(&delivery))?,
        Format::Table if deliveries.is_empty() => say_empty("no deliveries"),
        Format::Table => {
            let rows: Vec<Vec<String>> = shown.map(Listed::row).collect();
            output.rows(&mut Table::new(&rows::LIST_HEADING), &rows)?;
        }
    }
    output.finish()
}

async fn run_show(args: ShowArgs, books: &Books) -> anyhow::Result<()> {
    let found = books.judged(read_one(books.redis.client(), &books.keys, &args.id).await)?;
    let Some(detail) = found else {
        return Err(hint::failed(
            format_args!("there is no delivery {}", args.id),
            "`quotabell deliveries list` lists them; they stay readable for 14 days after their end",
        ));
    };
    let shown = Detail::of(&detail);
    let mut output = Output::stdout();
    match args.format.format() {
        Format::Json => output.json(&shown)?,
        Format::Table => shown.print(&mut output)?,
    }
    output.finish()
}

async fn run_replay(args: ReplayArgs, books: &Books) -> anyhow::Result<()> {
    let ids = if args.all { books.dead().await? } else { each_once(args.ids) };
    if ids.is_empty() {
        say("no delivery is dead; `quotabell deliveries list` shows where they stand");
        return Ok(());
    }
    let mut output = Output::stdout();
    let mut table = Table::new(&rows::REPLAY_HEADING);
    let bar = progress::bar(ids.len() as u64, Counted::Things);
    let mut replayed = 0;
    // The server is held by one call for a few milliseconds only, and what a failing one leaves undone has been told.
    for some in ids.chunks(REPLAY_MAX) {
        let answers = books.judged(replay_ids(books.redis.client(), &books.keys, some).await)?;
        bar.inc(some.len() as u64);
        replayed += answers.iter().filter(|Replayed { answer, .. }| *answer == ReplayAnswer::Replayed).count();
        let mut told = answers.iter().map(Told::of);
        match args.format.format() {
            Format::Json => told.try_for_each(|told| output.json(&told))?,
            Format::Table => output.rows(&mut table, &told.map(Told::row).collect::<Vec<_>>())?,
        }
    }
    bar.finish_and_clear();
    output.finish()?;
    match ids.len() - replayed {
        0 => Ok(()),
        // With --all somebody else was quicker: nothing is dead any more, as was asked.
        _ if args.all => Ok(()),
        left => Err(hint::failed(
            format_args!("{left} of {} deliveries could not be replayed", ids.len()),
            "only dead deliveries can be: `quotabell deliveries list --state dead` lists them",
        )),
    }
}

impl Books {
    /// Every delivery that is dead at this moment, the oldest death first. One that dies again meanwhile is not among them, so a
    /// replay of all of them ends.
    async fn dead(&self) -> anyhow::Result<Vec<DeliveryId>> {
        let filter = DeliveryFilter { state: Some(DeliveryState::Dead), subject: None };
        Ok(self.list(&filter, usize::MAX).await?.into_iter().map(|view| view.id).collect())
    }
}

/// The same ids, each once: the second time it would be told that it is not dead.
fn each_once(ids: Vec<DeliveryId>) -> Vec<DeliveryId> {
    let mut seen = BTreeSet::new();
    ids.into_iter().filter(|id| seen.insert(id.clone())).collect()
}

fn state(text: &str) -> Result<DeliveryState, String> {
    let allowed: Vec<&str> = DeliveryState::ALL.iter().map(|state| state.as_str()).collect();
    DeliveryState::from_stored(text).ok_or_else(|| format!("a state must be one of {}", allowed.join(", ")))
}

fn delivery_id(text: &str) -> Result<DeliveryId, String> {
    let is_id = text.strip_prefix("delivery_").is_some_and(|rest| !rest.is_empty());
    if is_id { Ok(DeliveryId::from_stored(text)) } else { Err("a delivery's id begins with delivery_".to_owned()) }
}
