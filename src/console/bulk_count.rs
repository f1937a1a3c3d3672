//! How many deliveries an action would change, for its preview.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis::{RedisError, RedisResult};

use crate::actions::many_deliveries::DeliverySelection;
use crate::api::problem::Problem;
use crate::html::fields::Fields;
use crate::outbox::DeliveryAction;
use crate::redis_client::Partitions;
use crate::types::{DeliveryId, DeliveryState, Destination};
use crate::views::DeliveryFilter;
use crate::views::deliveries::{DeliveryScan, DestinationView, count_dead, of_ids, read_destinations};

/// Number of deliveries that may be changed before their number has to be typed.
pub(super) const UNTYPED_MAX: u64 = 100;
/// Number of deliveries after which a preview counts no further ones.
const COUNTED_MAX: usize = 5_000;
/// Time after which a preview counts no further ones.
const COUNT_TIME: Duration = Duration::from_secs(3);

/// What a preview counts.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// The action would be applied to these.
    pub(super) count: u64,
    /// Those that are being attempted.
    pub(super) leased: u64,
    /// Pending ones at the destination of dead ones that are being attempted.
    pub(super) in_flight: u64,
    /// Selected ones that the action does not accept.
    pub(super) others: u64,
    /// Whether there may be more.
    pub(super) is_cut: bool,
}

impl Counted {
    /// Maximum number of deliveries to change: above [`UNTYPED_MAX`] the number that was typed.
    pub(super) fn changed_max(&self) -> u64 {
        self.count.max(UNTYPED_MAX)
    }

    /// What the preview of this form has counted.
    pub(super) fn of_form(fields: &Fields) -> Result<Self, Problem> {
        let number = |name| Ok::<u64, Problem>(fields.parsed(name)?.unwrap_or_default());
        let (count, leased, others) = (number("count")?, number("leased")?, number("others")?);
        Ok(Self { count, leased, others, is_cut: !fields.raw("is_cut").is_empty(), in_flight: 0 })
    }
}

/// Counts those of a selection. If all that wait for a destination or all dead ones are meant, their number is known
/// without a search.
pub(super) async fn count(
    partitions: &Partitions,
    action: DeliveryAction,
    DeliverySelection { ids, filter }: &DeliverySelection,
) -> RedisResult<Counted> {
    let mut counted = Counted::default();
    let at_destination = async |destination: &Destination| {
        let mut views = Vec::new();
        for partition in partitions.iter() {
            views.extend(read_destinations(partition, std::slice::from_ref(destination)).await?);
        }
        let sum = |number: fn(&DestinationView) -> u64| views.iter().map(number).sum::<u64>();
        Ok::<_, RedisError>((sum(|view| view.waiting), sum(|view| view.in_flight)))
    };
    match (filter.state, &filter.destination) {
        _ if !ids.is_empty() || is_narrowed(filter) => {}
        (Some(DeliveryState::Pending), Some(destination)) => {
            (counted.count, counted.leased) = at_destination(destination).await?;
            return Ok(counted);
        }
        (Some(DeliveryState::Dead), None) => {
            for partition in partitions.iter() {
                counted.count += count_dead(partition, filter.until).await?;
            }
            return Ok(counted);
        }
        _ => {}
    }
    let mut found = BTreeMap::new();
    if ids.is_empty() {
        (found, counted.is_cut) = scanned(partitions, filter).await?;
    } else {
        for partition in partitions.iter() {
            let views = of_ids(partition, ids).await?.into_iter().filter(|view| action.takes().contains(&view.state));
            found.extend(views.map(|view| (view.id, view.is_leased)));
        }
        counted.others = (ids.len() - found.len()) as u64;
    }
    counted.leased = found.values().filter(|is_leased| **is_leased).count() as u64;
    counted.count = found.len() as u64 - counted.leased;
    // Those that were replayed before belong to the same destination.
    if let (Some(destination), [DeliveryState::Dead]) = (&filter.destination, action.takes()) {
        (_, counted.in_flight) = at_destination(destination).await?;
    }
    Ok(counted)
}

/// Whether it asks for more than a state, a destination and a time up to which they were there.
fn is_narrowed(filter: &DeliveryFilter) -> bool {
    let DeliveryFilter { state: _, destination: _, until: _, subject, channel, error, cause, alert, since, before } =
        filter;
    (subject.is_some() || channel.is_some() || error.is_some() || cause.is_some())
        || (alert.is_some() || since.is_some() || before.is_some())
}

/// Those that pass, with whether each is being attempted; and whether there may be more.
async fn scanned(partitions: &Partitions, filter: &DeliveryFilter) -> RedisResult<(BTreeMap<DeliveryId, bool>, bool)> {
    let (began, mut found) = (Instant::now(), BTreeMap::new());
    for partition in partitions.of_subject_or_all(filter.subject.as_ref()) {
        let mut scan = DeliveryScan::begin(partition, filter).await?;
        while let Some(ids) = scan.next().await? {
            if found.len() >= COUNTED_MAX || began.elapsed() > COUNT_TIME {
                return Ok((found, true));
            }
            match filter.state {
                // Nobody attempts them.
                Some(DeliveryState::Dead) => found.extend(ids.into_iter().map(|id| (id, false))),
                _ => found.extend(of_ids(partition, &ids).await?.into_iter().map(|view| (view.id, view.is_leased))),
            }
        }
    }
    Ok((found, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operator who types 5,005 must not cancel 19,602.
    #[test]
    fn no_more_are_changed_than_were_typed() {
        let counted = |count| Counted { count, is_cut: count > 5_000, ..Counted::default() };
        assert_eq!([5_005, 120, 3].map(|count| counted(count).changed_max()), [5_005, 120, UNTYPED_MAX]);
    }
}
