//! Notifications of the outbox become one delivery per contact: the wrapper of `fan_out.lua`.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{RedisResult, Value};

use super::error::{Operation, OutboxError};
use super::message_group::groups_of_each;
use super::recipients::Recipients;
use super::{ENDED_DELIVERY_TTL, expires_at, millis, schedule};
use crate::channels::destination;
use crate::redis_client::{RedisClient, Script};
use crate::types::text_form::text_enum;
use crate::types::{Alert, Channel, ContactId, DeliveryId, Destination, Keys, QuotaNotification, UnixMs};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| schedule::script(include_str!("fan_out.lua")));

/// The contact id of a delivery that waits for a contact.
pub const NO_CONTACT: &str = "none";

/// The source of a fan-out. The script that creates the deliveries consumes it.
#[derive(Debug, Clone, Copy)]
pub enum FanOutSource<'a> {
    /// An entry of the outbox.
    Outbox {
        /// Its id.
        entry: &'a str,
    },
    /// A leased delivery that has no contact, or no longer has one.
    Delivery {
        /// Its id.
        id: &'a DeliveryId,
        /// The token of its lease.
        token: &'a str,
    },
    /// A leased delivery that is not consumed: its lease is settled afterwards.
    StaysLeased {
        /// Its id.
        id: &'a DeliveryId,
        /// The token of its lease.
        token: &'a str,
    },
}

/// The script's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FanOutReply {
    /// The source is consumed, and every contact has its delivery.
    Done(FanOutResult),
    /// The outbox entry does not exist: it was fanned out before.
    Gone,
    /// The delivery has ended, or another worker leased it.
    Stale,
    /// The key of a delivery has another type: nothing was written, and the source stays.
    WrongType,
}

/// A completed fan-out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FanOutResult {
    /// Server time.
    pub now: UnixMs,
    /// What happened to the source.
    pub source: SourceDisposition,
    /// Number of wanted deliveries: none if no contact's filter accepts the notification.
    pub wanted: usize,
    /// The created deliveries.
    pub made: Vec<WantedDelivery>,
    /// Deliveries that were cancelled because their contact was gone, and are pending again because it is back.
    pub reopened: Vec<WantedDelivery>,
    /// Deliveries of the partition that wait for a contact.
    pub waiting: u64,
}

text_enum! {
    /// What happened to the source.
    pub enum SourceDisposition {
        /// The outbox entry is deleted.
        Consumed = "consumed",
        /// The delivery ended `cancelled`.
        Cancelled = "cancelled",
        /// The delivery is itself wanted: its lease is released and it stays pending.
        Rescheduled = "rescheduled",
        /// It was not changed.
        Kept = "kept",
    }
}

/// A delivery that a notification should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedDelivery {
    /// Its id, always the same for this notification and contact.
    pub id: DeliveryId,
    /// Its channel; [`Channel::None`] without a contact.
    pub channel: Channel,
    /// Its contact, or [`NO_CONTACT`].
    pub contact: ContactId,
    /// Its queue.
    pub destination: Destination,
}

/// The deliveries that a notification should have: one per recipient, and possibly one that waits for a contact.
fn wanted(notification: QuotaNotification<'_>, recipients: &Recipients) -> Vec<WantedDelivery> {
    let want = |channel, contact: ContactId, destination| WantedDelivery {
        id: DeliveryId::of_notification(notification.id(), &contact),
        channel,
        contact,
        destination,
    };
    let told =
        recipients.contacts.iter().map(|contact| want(contact.channel(), contact.id.clone(), destination(contact)));
    let waits = recipients.waits.then(|| want(Channel::None, ContactId::from_stored(NO_CONTACT), Destination::none()));
    told.chain(waits).collect()
}

/// A notification to fan out.
#[derive(Debug, Clone, Copy)]
pub struct FanOutRequest<'a> {
    /// The source.
    pub source: FanOutSource<'a>,
    /// The notification.
    pub notification: QuotaNotification<'a>,
    /// Its JSON as written by the script that raised it; each delivery contains it. If the source is a delivery, the
    /// script copies what is stored there.
    pub json: &'a [u8],
    /// The recipients.
    pub recipients: &'a Recipients,
}

/// Turns notifications into one delivery per recipient and consumes their sources, in one step. If the subject has no
/// contact, one delivery of channel `none` waits until somebody wakes it, or until the notification expires.
///
/// A contact with a delivery of a notification gets no second one; a cancelled delivery is restored. Repeatable: the
/// second call returns [`FanOutReply::Gone`] or [`FanOutReply::Stale`]. `fan_out.lua` explains why.
///
/// # Errors
///
/// [`OutboxError`]; nothing was written if Redis answered with an error.
pub async fn fan_out(
    client: &RedisClient,
    keys: &Keys,
    requests: &[FanOutRequest<'_>],
) -> Result<Vec<FanOutReply>, OutboxError> {
    let mut call = schedule::call(&SCRIPT, keys).key(keys.outbox()).key(keys.checkpoint());
    call = call.arg(ENDED_DELIVERY_TTL.as_secs());
    let mut wanted_of_each = Vec::with_capacity(requests.len());
    let groups = groups_of_each(requests.iter().map(|request| (request.notification, request.recipients)));
    for (FanOutRequest { source, notification, json, recipients }, groups) in requests.iter().zip(groups) {
        let (from, id, token) = match source {
            FanOutSource::Outbox { entry } => ("outbox", *entry, ""),
            FanOutSource::Delivery { id, token } => ("delivery", id.as_str(), *token),
            FanOutSource::StaysLeased { id, token } => ("kept", id.as_str(), *token),
        };
        let wanted = wanted(*notification, recipients);
        call = call.arg(from).arg(id).arg(token).arg(notification.kind().as_str()).arg(notification.id()).arg(*json);
        call = call.arg(logged(source, *notification, json, &wanted));
        call = call.arg(notification.subject().as_str()).arg(expires_at(*notification).0).arg(wanted.len());
        // What waits for a contact has no group.
        let groups = groups.iter().map(Option::as_ref).chain([None]);
        for (want, group) in wanted.iter().zip(groups) {
            call = call.arg(want.id.as_str()).arg(want.channel.as_str());
            call = call.arg(want.contact.as_str()).arg(want.destination.as_str());
            let (name, wait) = group.map_or(("", Duration::ZERO), |group| (&group.name, group.wait));
            call = call.arg(name).arg(millis(wait));
        }
        wanted_of_each.push(wanted);
    }
    let of = || match requests {
        [FanOutRequest { notification, .. }] => {
            format!("{} {} of {}", notification.kind(), notification.id(), keys.stream())
        }
        _ => format!("{} notifications of {}", requests.len(), keys.stream()),
    };
    let reply: Vec<Value> = call.run(client).await.map_err(OutboxError::redis(Operation::FanOut, of()))?;
    let answers = answers_of(reply, wanted_of_each).map_err(OutboxError::redis(Operation::FanOut, of()))?;
    answers.ok_or_else(|| OutboxError::answer(Operation::FanOut, of(), "another number of answers, or other words"))
}

/// What the log of alerts gets when a notification leaves the outbox: an alert without the names of subjects below its
/// own, which an erasure could not find there, or a notice that somebody is told.
fn logged(
    source: &FanOutSource<'_>,
    notification: QuotaNotification<'_>,
    json: &[u8],
    wanted: &[WantedDelivery],
) -> Vec<u8> {
    match (source, notification) {
        (FanOutSource::Outbox { .. }, QuotaNotification::Alert(alert)) => {
            let alert = Alert { largest: Vec::new(), ..alert.clone() };
            serde_json::to_vec(&alert).expect("an alert is JSON")
        }
        (FanOutSource::Outbox { .. }, _) if !wanted.is_empty() => json.to_vec(),
        _ => Vec::new(),
    }
}

/// The script's replies for all notifications; `None` if the script and this wrapper do not match.
fn answers_of(reply: Vec<Value>, wanted: Vec<Vec<WantedDelivery>>) -> RedisResult<Option<Vec<FanOutReply>>> {
    let mut reply = reply.into_iter();
    let (Some(now), Some(waiting)) = (reply.next(), reply.next()) else { return Ok(None) };
    let (now, waiting) = (UnixMs(redis::from_redis_value(now)?), redis::from_redis_value(waiting)?);
    let mut answers = Vec::with_capacity(wanted.len());
    for (answer, wanted) in reply.zip(&wanted) {
        let answer: Vec<Value> = redis::from_redis_value(answer)?;
        let word: String = answer.first().map(redis::from_redis_value_ref).transpose()?.unwrap_or_default();
        answers.push(match (word.as_str(), answer.as_slice()) {
            ("gone", _) => FanOutReply::Gone,
            ("stale", _) => FanOutReply::Stale,
            ("wrong_type", _) => FanOutReply::WrongType,
            ("done", [_, end, made, reopened]) => {
                // Lua counts positions from 1.
                let pick = |positions: &Value| -> RedisResult<Vec<WantedDelivery>> {
                    let positions: Vec<usize> = redis::from_redis_value_ref(positions)?;
                    Ok(positions.iter().filter_map(|at| wanted.get(at - 1).cloned()).collect())
                };
                let end: String = redis::from_redis_value_ref(end)?;
                let Some(source) = SourceDisposition::from_stored(&end) else { return Ok(None) };
                FanOutReply::Done(FanOutResult {
                    now,
                    source,
                    wanted: wanted.len(),
                    made: pick(made)?,
                    reopened: pick(reopened)?,
                    waiting,
                })
            }
            _ => return Ok(None),
        });
    }
    Ok((answers.len() == wanted.len()).then_some(answers))
}
