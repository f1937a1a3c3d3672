//! `deliveries list / show / replay`: alerts on their way.

use clap::{Args, Subcommand};

use super::output::FormatArgs;
use super::{Surroundings, hint};
use crate::types::{DeliveryId, DeliveryState, Subject};

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
pub async fn run(args: DeliveriesArgs, surroundings: &Surroundings) -> anyhow::Result<()> {
    surroundings.config()?;
    let verb = match args.action {
        DeliveriesAction::List(_) => "list",
        DeliveriesAction::Show(_) => "show",
        DeliveriesAction::Replay(_) => "replay",
    };
    Err(hint::failed(format_args!("deliveries {verb}: not built yet"), "`quotabell refused list` works already"))
}

fn state(text: &str) -> Result<DeliveryState, String> {
    let allowed: Vec<&str> = DeliveryState::ALL.iter().map(|state| state.as_str()).collect();
    DeliveryState::from_stored(text).ok_or_else(|| format!("a state must be one of {}", allowed.join(", ")))
}

fn delivery_id(text: &str) -> Result<DeliveryId, String> {
    let is_id = text.strip_prefix("delivery_").is_some_and(|rest| !rest.is_empty());
    if is_id { Ok(DeliveryId::from_stored(text)) } else { Err("a delivery's id begins with delivery_".to_owned()) }
}
