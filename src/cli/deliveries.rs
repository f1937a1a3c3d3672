//! `deliveries list / show / destinations`, and the actions on deliveries.
//!
//! Read next: `act`, the actions; `rows`, the output.

use clap::{Args, Subcommand};

use super::connect::{self, CliConnection};
use super::context::CliContext;
use super::whole_number::from_one;
use crate::actions::sending::current_pause;
use crate::outbox::{DeliveryAction, Pause};
use crate::terminal::hint;
use crate::terminal::output::{self, Format, FormatArgs, print_list, say};
use crate::types::DeliveryId;
use crate::views::deliveries::DestinationView;
use crate::views::{IdPrefix, deliveries};

mod act;
mod pause;
mod rows;
mod select;

use select::{FilterArgs, find};

#[derive(Debug, Args)]
pub struct DeliveriesArgs {
    #[command(subcommand)]
    pub action: DeliveriesAction,
}

#[derive(Debug, Subcommand)]
pub enum DeliveriesAction {
    /// List deliveries, oldest first
    List(DeliveriesListArgs),
    /// Show a delivery with its contact, content and attempts
    Show(DeliveriesShowArgs),
    /// Make dead deliveries due again, with the same ids
    #[command(after_help = REPLAY_HELP)]
    Replay(act::ActionArgs),
    /// Make deliveries due now
    #[command(after_help = RETRY_HELP)]
    Retry(act::ActionArgs),
    /// End pending deliveries without sending them
    #[command(after_help = CANCEL_HELP)]
    Cancel(act::ActionArgs),
    /// Acknowledge dead deliveries, so that they no longer count as dead
    #[command(after_help = DISCARD_HELP)]
    Discard(act::ActionArgs),
    /// List the destinations with pending deliveries, and their circuits
    #[command(after_help = DESTINATIONS_HELP)]
    Destinations(FormatArgs),
    /// Stop all sending by all daemons; usage is still counted
    Pause(pause::DeliveriesPauseArgs),
    /// Continue sending after a pause
    #[command(after_help = pause::RESUME_HELP)]
    Resume(FormatArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "A delivery stays listed for 14 days after its end. The table shows the first digits of each id; `show` and `replay` \
    take them. TYPE is the content: alert, verification, digest, or the notices grant_expires, usage_notice, resolved and contact_disabled. NEXT DUE is \
    `circuit` if it waits behind an open circuit, and `contact` if its subject has no usable contact.

Examples:
  quotabell deliveries list
  quotabell deliveries list --state dead --limit 20
  quotabell deliveries list --since 6h --channel webhook
  quotabell deliveries list --destination https://example.com --error \"HTTP 503\"
  quotabell deliveries list --subject alice --json"
)]
pub struct DeliveriesListArgs {
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Only the newest N [default: all]
    #[arg(long, value_name = "N", value_parser = from_one::<u64>)]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  quotabell deliveries show 6f1ed002
  quotabell deliveries show --json delivery_6f1ed002ab5595859014ebf0951522d9 | jq '.attempt_log[]'")]
pub struct DeliveriesShowArgs {
    /// The delivery's id, or the first digits
    pub id: IdPrefix<DeliveryId>,
    #[command(flatten)]
    pub format: FormatArgs,
}

const REPLAY_HELP: &str =
    "Only dead deliveries can be replayed. The receiver sees the same webhook-id or Message-ID as before.

Examples:
  quotabell deliveries replay 6f1ed002
  quotabell deliveries replay --destination https://example.com
  quotabell deliveries replay --all";

const RETRY_HELP: &str = "A filter selects pending deliveries; with --state dead it selects dead ones, which are \
    replayed. If the circuit of a destination is \
    open, one attempt is made there now, in each partition that has such deliveries. If it succeeds, the others \
    follow. If it fails, the wait until the next attempt doubles. A delivery that is being attempted right now is left \
    alone.

Examples:
  quotabell deliveries retry 6f1ed002
  quotabell deliveries retry --destination email    # the mail server is back
  quotabell deliveries retry --subject alice --dry-run";

const CANCEL_HELP: &str = "A cancelled delivery is not sent, even if its contact comes back. A delivery that is \
    being attempted right now is left alone.

Examples:
  quotabell deliveries cancel 6f1ed002
  quotabell deliveries cancel --subject alice --dry-run
  quotabell deliveries cancel --destination https://example.com --error \"HTTP 503\"";

const DISCARD_HELP: &str =
    "Discarded deliveries stay listed for 14 days after their end, as `discarded`, and can be replayed by their id. Neither \
    `--state dead` nor quotabell_deliveries_dead shows them any more.

Examples:
  quotabell deliveries discard 6f1ed002
  quotabell deliveries discard --all
  quotabell deliveries discard --error \"HTTP 410\" --since 7d";

const DESTINATIONS_HELP: &str = "A destination is the origin of a webhook's URL, the mail server (email), or none for deliveries that wait for a contact. \
    BOUND is the maximum number of attempts at once. While CIRCUIT is open, only one attempt is made, at NEXT PROBE.

Examples:
  quotabell deliveries destinations
  quotabell deliveries destinations --json | jq 'select(.circuit == \"open\")'";

pub async fn run(args: DeliveriesArgs, context: &CliContext) -> anyhow::Result<()> {
    match args.action {
        DeliveriesAction::Replay(args) => act::run(DeliveryAction::Replay, args, context).await,
        DeliveriesAction::Retry(args) => act::run(DeliveryAction::Retry, args, context).await,
        DeliveriesAction::Cancel(args) => act::run(DeliveryAction::Cancel, args, context).await,
        DeliveriesAction::Discard(args) => act::run(DeliveryAction::Discard, args, context).await,
        DeliveriesAction::Pause(args) => pause::run(args, context).await,
        DeliveriesAction::Resume(format) => pause::run_resume(&format, context).await,
        DeliveriesAction::List(args) => run_list(args, context).await,
        DeliveriesAction::Show(args) => run_show(args, context).await,
        DeliveriesAction::Destinations(format) => run_destinations(&format, context).await,
    }
}

async fn run_list(args: DeliveriesListArgs, context: &CliContext) -> anyhow::Result<()> {
    let DeliveriesListArgs { filter, limit, format } = args;
    let redis = &connect::redis(&context.config()?).await?;
    let now = redis.server_time().await?;
    let filter = filter.into_filter(redis).await?;
    say_pause(redis).await?;
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let listed = deliveries::list_partitions(&redis.partitions, &filter, limit).await;
    let listed = redis.explained(format_args!("list deliveries of {}", redis.keys().name()), listed)?;
    print_list(&format, &listed, rows::list_table(), "no deliveries", |delivery| rows::list_row(delivery, now))?;
    if format.format() == Format::Table {
        let circuits = rows::circuits_of(&listed);
        rows::open_circuits(&circuits, redis.partitions.count(), now).iter().for_each(say);
    }
    Ok(())
}

async fn run_show(args: DeliveriesShowArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let redis = &connect::redis(&config).await?;
    let (partition, id) = find(redis, std::slice::from_ref(&args.id)).await?.remove(0);
    let found = deliveries::show(partition, &config.configured_contacts(), &id).await;
    let Some(detail) = redis.explained(format_args!("read delivery {id}"), found)? else {
        return Err(hint::failed(
            format_args!("there is no delivery {id}"),
            "`quotabell deliveries list` lists them; they stay readable for 14 days after their end",
        ));
    };
    let now = redis.server_time().await?;
    let (partitions, plans) = (redis.partitions.count(), config.plans()?);
    output::print(&args.format, &detail, |output| rows::print_detail(&detail, partitions, (now, &plans), output))
}

async fn run_destinations(format: &FormatArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let redis = &connect::redis(&config).await?;
    let now = redis.server_time().await?;
    let retried = |one: DestinationView| one.retried_for(config.retry.give_up_after);
    let listed = deliveries::list_destinations(&redis.partitions).await;
    let listed = listed.map(|all| all.into_iter().map(retried).collect::<Vec<_>>());
    let listed = redis.explained(format_args!("list destinations of {}", redis.keys().name()), listed)?;
    say_pause(redis).await?;
    let row = |one: &DestinationView| rows::destination_row(one, now);
    print_list(format, &listed, rows::destination_table(), "no delivery is pending", row)
}

/// Prints that sending is paused, if it is.
async fn say_pause(redis: &CliConnection) -> anyhow::Result<()> {
    let paused = redis.explained("read the pause of deliveries", current_pause(&redis.partitions).await)?;
    if let Some(Pause { since, reason }) = paused {
        say(format_args!("{}; `quotabell deliveries resume` ends that", pause::summary(since, reason.as_deref())));
    }
    Ok(())
}
