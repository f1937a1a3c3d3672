//! Selects deliveries by ids or by a filter.

use std::convert::Infallible;

use clap::Args;

use crate::cli::connect::CliConnection;
use crate::cli::since::Since;
use crate::redis_client::Partition;
use crate::terminal::hint;
use crate::types::{AlertId, Channel, DeliveryId, DeliveryState, Destination, Subject};
use crate::views::{DeliveryFilter, IdPrefix, deliveries};

#[derive(Debug, Default, PartialEq, Eq, Args)]
pub struct FilterArgs {
    /// Only those in this state: pending, delivered, dead, muted, expired or cancelled
    #[arg(long)]
    pub state: Option<DeliveryState>,
    /// Only those of this subject
    #[arg(long)]
    pub subject: Option<Subject>,
    /// Only those of this channel. The help names every channel.
    #[arg(long, help = channel_help())]
    pub channel: Option<Channel>,
    /// Only those to this destination. The help is written out: as a comment, the URL would have to be marked as a
    /// link.
    #[arg(
        long,
        value_name = "NAME",
        value_parser = |text: &str| Ok::<_, Infallible>(Destination::from_stored(text)),
        help = "Only those to this destination: an origin such as https://example.com, or email"
    )]
    pub destination: Option<Destination>,
    /// Only those whose last error contains this text
    #[arg(long, value_name = "TEXT")]
    pub error: Option<String>,
    /// Only those of this alert: its id, or the first digits
    #[arg(long, value_name = "ID")]
    pub alert: Option<IdPrefix<AlertId>>,
    /// Only those created since then: a duration, such as 6h, a date (midnight in UTC) or a time, such as
    /// 2026-11-21T08:37:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    /// Only those created before then: a duration, such as 6h, a date or a time
    #[arg(long, value_name = "TIME")]
    pub before: Option<Since>,
}

impl FilterArgs {
    /// The filter, with times by the server's clock.
    pub(super) async fn into_filter(self, redis: &CliConnection) -> anyhow::Result<DeliveryFilter> {
        let Self { state, subject, channel, destination, error, alert, since, before } = self;
        let now = redis.server_time().await?;
        let [since, before] = [since, before].map(|time| time.map(|time| time.before(now)));
        let others = DeliveryFilter::default();
        Ok(DeliveryFilter { state, subject, channel, destination, error, alert, since, before, ..others })
    }
}

/// The selected deliveries without duplicates, and their partitions. A prefix without matches gives a delivery that
/// does not exist, in the first partition.
pub(super) async fn find<'a>(
    redis: &'a CliConnection,
    prefixes: &[IdPrefix<DeliveryId>],
) -> anyhow::Result<Vec<(&'a Partition, DeliveryId)>> {
    let found = deliveries::find(&redis.partitions, prefixes).await;
    let found = redis.explained(format_args!("look for deliveries of {}", redis.keys().name()), found)?;
    let mut deliveries: Vec<(&Partition, DeliveryId)> = Vec::new();
    for (prefix, mut matches) in prefixes.iter().zip(found) {
        if matches.len() > 1 {
            return Err(ambiguous(prefix, &matches));
        }
        let absent = || (redis.partitions.first(), DeliveryId::from_stored(&prefix.to_string()));
        let delivery = matches.pop().unwrap_or_else(absent);
        if deliveries.iter().all(|(_, id)| *id != delivery.1) {
            deliveries.push(delivery);
        }
    }
    Ok(deliveries)
}

/// Maximum number of ids in an error.
const NAMED_MAX: usize = 10;

fn ambiguous(prefix: &IdPrefix<DeliveryId>, several: &[(&Partition, DeliveryId)]) -> anyhow::Error {
    let named: Vec<&str> = several.iter().take(NAMED_MAX).map(|(_, id)| id.as_str()).collect();
    let more = several.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    hint::usage(
        format_args!("{} deliveries begin with {}: {}{more}", several.len(), prefix, named.join(", ")),
        "give more digits",
    )
}

fn channel_help() -> String {
    let sending = Channel::SENDING.map(Channel::as_str).join(", ");
    format!("Only those of this channel: {sending}, or none for those that wait for a contact")
}
