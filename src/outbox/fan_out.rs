//! One alert becomes one delivery per contact: the wrapper of `fan_out.lua`.

use std::sync::LazyLock;

use super::error::{Operation, OutboxError};
use super::{KEPT, NO_CONTACT_WAIT, millis};
use crate::contacts::Contact;
use crate::types::{Alert, Channel, ContactId, DeliveryId, Keys, UnixMs};
use crate::wire::{RedisClient, Script};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("fan_out.lua")));

/// The contact id of the delivery that waits for a contact.
pub const NO_CONTACT: &str = "none";

/// What an alert is fanned out from. It is consumed by the same script that makes the deliveries.
#[derive(Debug, Clone, Copy)]
pub enum FanOutSource<'a> {
    /// An entry of the outbox.
    Outbox {
        /// Its id.
        entry: &'a str,
    },
    /// A leased delivery: one without contact, or one whose contact was removed.
    Delivery {
        /// Its id.
        id: &'a DeliveryId,
        /// The token of its lease.
        token: &'a str,
    },
}

/// What the script answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FanOutAnswer {
    /// The source is consumed, every contact has its delivery.
    Done(FanOutResult),
    /// The outbox entry is not there: it was fanned out before.
    Gone,
    /// The delivery ended, or another worker leased it.
    Stale,
}

/// A fan-out that took place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FanOutResult {
    /// Server time.
    pub now: UnixMs,
    /// What became of the source.
    pub source: SourceEnd,
    /// Deliveries made.
    pub made: Vec<WantedDelivery>,
    /// Deliveries that had been cancelled because their contact was gone, and are pending again because it is back.
    pub reopened: Vec<WantedDelivery>,
    /// Deliveries of the partition that wait for a contact.
    pub waiting: u64,
}

/// What became of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceEnd {
    /// The outbox entry is deleted.
    Consumed,
    /// The delivery ended `cancelled`.
    Cancelled,
    /// The delivery is itself the one wanted: its lease is given back and it stays pending.
    Rescheduled,
}

/// One delivery that an alert should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedDelivery {
    /// Its id, always the same for this alert and contact.
    pub id: DeliveryId,
    /// Its channel; [`Channel::None`] when there is no contact.
    pub channel: Channel,
    /// Its contact, or [`NO_CONTACT`].
    pub contact: ContactId,
}

/// The deliveries that an alert should have: one per contact, or the one that waits for a contact.
#[must_use]
pub fn wanted(alert: &Alert, contacts: &[Contact]) -> Vec<WantedDelivery> {
    let want =
        |channel, contact: ContactId| WantedDelivery { id: DeliveryId::of(&alert.id, &contact), channel, contact };
    if contacts.is_empty() {
        return vec![want(Channel::None, ContactId::from_stored(NO_CONTACT))];
    }
    contacts.iter().map(|contact| want(contact.channel(), contact.id.clone())).collect()
}

/// Turns `alert` into one delivery for each of `contacts` and consumes `source`, in one step. Without contacts the one delivery of
/// channel `none` waits for some.
///
/// A contact that has a delivery of this alert gets none again; one whose delivery was cancelled gets that one back. Repeatable: the
/// second call is [`FanOutAnswer::Gone`] or [`FanOutAnswer::Stale`]. The argument is in `fan_out.lua`.
///
/// # Errors
///
/// [`OutboxError`]; nothing was written if Redis answered with an error.
pub async fn fan_out(
    client: &RedisClient,
    keys: &Keys,
    source: FanOutSource<'_>,
    alert: &Alert,
    contacts: &[Contact],
) -> Result<FanOutAnswer, OutboxError> {
    let wanted = wanted(alert, contacts);
    let json = serde_json::to_string(alert).expect("plain strings and numbers serialise");
    let (kind, id, token, source_key) = match source {
        FanOutSource::Outbox { entry } => ("outbox", entry, "", keys.outbox()),
        FanOutSource::Delivery { id, token } => ("delivery", id.as_str(), token, keys.delivery(id)),
    };
    let mut call = SCRIPT.call().key(keys.outbox()).key(keys.due()).key(keys.pending()).key(keys.waiting());
    call = call.key(keys.deliveries()).key(keys.totals()).key(source_key);
    call = call.arg(kind).arg(id).arg(token).arg(alert.id.as_str()).arg(json).arg(alert.subject.as_str());
    call = call.arg(millis(NO_CONTACT_WAIT)).arg(KEPT.as_secs());
    for want in &wanted {
        call = call.key(keys.delivery(&want.id));
        call = call.arg(want.id.as_str()).arg(want.channel.as_str()).arg(want.contact.as_str());
    }
    let of = || format!("alert {} of {}", alert.id, keys.stream());
    let (answer, now, end, waiting, made, reopened): (String, i64, String, u64, Vec<usize>, Vec<usize>) =
        call.run(client).await.map_err(OutboxError::redis(Operation::FanOut, of()))?;
    // Positions are Lua's: 1 for the first.
    let pick = |positions: Vec<usize>| positions.iter().filter_map(|at| wanted.get(at - 1).cloned()).collect();
    let source = match (answer.as_str(), end.as_str()) {
        ("gone", _) => return Ok(FanOutAnswer::Gone),
        ("stale", _) => return Ok(FanOutAnswer::Stale),
        ("done", "consumed") => SourceEnd::Consumed,
        ("done", "cancelled") => SourceEnd::Cancelled,
        ("done", "rescheduled") => SourceEnd::Rescheduled,
        _ => return Err(OutboxError::Answer { operation: Operation::FanOut, of: of(), answer }),
    };
    Ok(FanOutAnswer::Done(FanOutResult {
        now: UnixMs(now),
        source,
        made: pick(made),
        reopened: pick(reopened),
        waiting,
    }))
}
