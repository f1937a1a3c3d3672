//! A notification for one contact only: the wrapper of `enqueue.lua`.

use std::sync::LazyLock;

use super::error::{Operation, OutboxError};
use super::lease::LeasedDelivery;
use super::schedule;
use crate::channels::destination;
use crate::contacts::Contact;
use crate::redis_client::{RedisClient, Script};
use crate::types::{Keys, Notification, Subject};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| schedule::script(include_str!("enqueue.lua")));

/// A notification for one contact.
#[derive(Debug, Clone, Copy)]
pub struct NewDelivery<'a> {
    /// The notification.
    pub notification: &'a Notification,
    /// The contact. Its channel sets the length of the lease, its address selects the queue.
    pub contact: &'a Contact,
}

/// Whether a delivery was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueReply {
    /// It is pending and due now. Notify the dispatcher.
    Made,
    /// An earlier call created it; it may have ended since.
    Exists,
    /// The delivery that caused the notification has ended, was erased, or is leased by another worker.
    Stale,
}

/// Creates the only delivery of a notification to one contact (pending, due now, and in the totals) in one step.
///
/// Repeatable: the id follows from notification and contact ([`Notification::delivery_to`]), and an existing delivery
/// is not changed. Refused when memory is full.
///
/// # Errors
///
/// [`OutboxError`]; nothing was written if Redis answered with an error.
pub async fn enqueue(client: &RedisClient, keys: &Keys, new: NewDelivery<'_>) -> Result<EnqueueReply, OutboxError> {
    call(client, keys, new, ("", "")).await
}

/// Like [`enqueue`], but only while the delivery that caused the notification has this lease. Otherwise a new delivery
/// could name a subject that was erased meanwhile.
pub(super) async fn enqueue_while_leased(
    client: &RedisClient,
    keys: &Keys,
    new: NewDelivery<'_>,
    LeasedDelivery { id, token, .. }: &LeasedDelivery,
) -> Result<EnqueueReply, OutboxError> {
    call(client, keys, new, (id.as_str(), token)).await
}

async fn call(
    client: &RedisClient,
    keys: &Keys,
    NewDelivery { notification, contact }: NewDelivery<'_>,
    (source, token): (&str, &str),
) -> Result<EnqueueReply, OutboxError> {
    let id = notification.delivery_to(&contact.id);
    let mut call = schedule::call(&SCRIPT, keys).key(keys.delivery(&id)).key(keys.checkpoint());
    call = call.arg(id.as_str()).arg(notification.kind().as_str());
    call = call.arg(notification.to_json()).arg(notification.subject().map_or("", Subject::as_str));
    call = call.arg(contact.channel().as_str()).arg(contact.id.as_str()).arg(destination(contact).as_str());
    call = call.arg(source).arg(token);
    let of = || format!("delivery {id} of {}", keys.stream());
    let answer: String = call.run(client).await.map_err(OutboxError::redis(Operation::Enqueue, of()))?;
    match answer.as_str() {
        "made" => Ok(EnqueueReply::Made),
        "exists" => Ok(EnqueueReply::Exists),
        "stale" => Ok(EnqueueReply::Stale),
        _ => Err(OutboxError::answer(Operation::Enqueue, of(), answer)),
    }
}
