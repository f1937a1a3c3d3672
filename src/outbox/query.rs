//! What people ask about deliveries: lists by creation, one with its attempts. Reads only, and never scans the keyspace.

use std::collections::HashMap;

use redis::Pipeline;

use super::error::{Operation, OutboxError};
use crate::types::{
    AlertId, Attempt, Channel, ContactId, DeliveryId, DeliveryState, Keys, Notification, NotificationKind, Subject,
    UnixMs,
};
use crate::wire::RedisClient;

/// Deliveries read in one call.
pub const PAGE: usize = 500;

/// The fields of a delivery that a list shows, in the order in which [`view_of`] takes them.
const VIEW_FIELDS: [&str; 8] =
    ["type", "alert_id", "subject", "channel", "state", "attempts", "last_error", "created_at_ms"];

/// One delivery as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryView {
    /// The id.
    pub id: DeliveryId,
    /// The type of the notification on its way.
    pub kind: NotificationKind,
    /// The alert, if it is one.
    pub alert_id: Option<AlertId>,
    /// Whom it is about.
    pub subject: String,
    /// The channel.
    pub channel: Channel,
    /// Where it stands.
    pub state: DeliveryState,
    /// Attempts so far.
    pub attempts: u32,
    /// When the next attempt is due; while one is running, when its lease ends. `None` once it has ended.
    pub next_due: Option<UnixMs>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// When it was made.
    pub created_at: UnixMs,
}

/// One delivery with its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryDetail {
    /// As in a list.
    pub view: DeliveryView,
    /// The contact, or [`super::fan_out::NO_CONTACT`].
    pub contact: ContactId,
    /// What is told; `None` where the stored text can't be read.
    pub notification: Option<Notification>,
    /// Its attempts, the oldest first; the newest hundred are kept.
    pub attempt_log: Vec<Attempt>,
}

/// Which deliveries to list.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    /// Only those in this state.
    pub state: Option<DeliveryState>,
    /// Only those of this subject.
    pub subject: Option<Subject>,
}

/// Where a list goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryCursor {
    /// The time of the last id that was looked at.
    at: i64,
    /// Ids of that very time that were looked at.
    seen: usize,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryPage {
    /// Those of this page that pass the filter, the newest first. May be empty although more follow.
    pub deliveries: Vec<DeliveryView>,
    /// Where to go on; `None` at the end.
    pub next: Option<DeliveryCursor>,
}

/// Reads a page of deliveries, the newest first (dead ones by the time of death). Begin with no cursor, go on with the page's own.
///
/// # Errors
///
/// [`OutboxError`].
pub async fn list(
    client: &RedisClient,
    keys: &Keys,
    filter: &DeliveryFilter,
    from: Option<DeliveryCursor>,
) -> Result<DeliveryPage, OutboxError> {
    let of = || format!("deliveries of {}", keys.stream());
    let index = match filter.state {
        Some(DeliveryState::Pending) => keys.pending(),
        Some(DeliveryState::Dead) => keys.dead(),
        _ => keys.deliveries(),
    };
    let mut command = redis::cmd("ZREVRANGEBYSCORE");
    command.arg(index).arg(from.map_or_else(|| "+inf".to_owned(), |cursor| cursor.at.to_string())).arg("-inf");
    command.arg("WITHSCORES").arg("LIMIT").arg(from.map_or(0, |cursor| cursor.seen)).arg(PAGE);
    let ids: Vec<Scored> = client
        .query::<Vec<(String, i64)>>(&command)
        .await
        .map_err(OutboxError::redis(Operation::Query, of()))?
        .into_iter()
        .map(|(id, at)| Scored { id: DeliveryId::from_stored(&id), at })
        .collect();
    if ids.is_empty() {
        return Ok(DeliveryPage { deliveries: Vec::new(), next: None });
    }
    let mut pipeline = Pipeline::new();
    for Scored { id, .. } in &ids {
        pipeline.cmd("HMGET").arg(keys.delivery(id)).arg(&VIEW_FIELDS);
        pipeline.cmd("ZSCORE").arg(keys.due()).arg(id.as_str());
    }
    let replies: Vec<redis::Value> =
        client.pipe(&pipeline).await.map_err(OutboxError::redis(Operation::Query, of()))?;
    let mut deliveries = Vec::new();
    for (Scored { id, .. }, reply) in ids.iter().zip(replies.chunks_exact(2)) {
        let parsed = |error| OutboxError::redis(Operation::Query, of())(redis::RedisError::from(error));
        let fields: Vec<Option<String>> = redis::from_redis_value_ref(&reply[0]).map_err(parsed)?;
        let due: Option<i64> = redis::from_redis_value_ref(&reply[1]).map_err(parsed)?;
        if let Some(view) = view_of(id, &fields, due)
            && filter.state.is_none_or(|state| state == view.state)
            && filter.subject.as_ref().is_none_or(|subject| subject.as_str() == view.subject)
        {
            deliveries.push(view);
        }
    }
    Ok(DeliveryPage { deliveries, next: (ids.len() == PAGE).then(|| cursor_after(&ids, from)) })
}

/// An id and its time in the index.
struct Scored {
    id: DeliveryId,
    at: i64,
}

/// Many deliveries may be made in one millisecond, so the cursor also counts how many of its millisecond were seen.
fn cursor_after(ids: &[Scored], from: Option<DeliveryCursor>) -> DeliveryCursor {
    let at = ids.last().map_or(0, |last| last.at);
    let seen = ids.iter().filter(|scored| scored.at == at).count();
    let before = from.filter(|cursor| cursor.at == at).map_or(0, |cursor| cursor.seen);
    DeliveryCursor { at, seen: seen + before }
}

/// A delivery from its fields; `None` when the hash is gone (14 days after the end) or is no delivery of ours.
fn view_of(id: &DeliveryId, fields: &[Option<String>], due: Option<i64>) -> Option<DeliveryView> {
    let [kind, alert_id, subject, channel, state, attempts, last_error, created] = fields else { return None };
    let state = DeliveryState::from_stored(state.as_deref()?)?;
    Some(DeliveryView {
        id: id.clone(),
        kind: NotificationKind::from_stored(kind.as_deref().unwrap_or("alert"))?,
        alert_id: alert_id.as_deref().map(AlertId::from_stored),
        subject: subject.clone()?,
        channel: Channel::from_stored(channel.as_deref()?)?,
        state,
        attempts: attempts.as_deref().and_then(|number| number.parse().ok()).unwrap_or(0),
        next_due: due.map(UnixMs).filter(|_| state == DeliveryState::Pending),
        last_error: last_error.clone(),
        created_at: UnixMs(created.as_deref()?.parse().ok()?),
    })
}

/// Reads one delivery with its attempts; `None` when there is no such delivery (any more).
///
/// # Errors
///
/// [`OutboxError`].
pub async fn show(client: &RedisClient, keys: &Keys, id: &DeliveryId) -> Result<Option<DeliveryDetail>, OutboxError> {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("HGETALL").arg(keys.delivery(id));
    pipeline.cmd("ZSCORE").arg(keys.due()).arg(id.as_str());
    let (mut hash, due): (HashMap<String, String>, Option<i64>) =
        client.pipe(&pipeline).await.map_err(OutboxError::redis(Operation::Query, format!("delivery {id}")))?;
    let mut log: Vec<Logged> = hash.iter().filter_map(|(field, json)| logged(field, json)).collect();
    log.sort_by_key(|logged| logged.number);
    let contact = ContactId::from_stored(hash.get("contact_id").map_or("", String::as_str));
    let notification = notification_of(&hash);
    let fields: Vec<Option<String>> = VIEW_FIELDS.iter().map(|field| hash.remove(*field)).collect();
    let attempt_log = log.into_iter().map(|logged| logged.attempt).collect();
    Ok(view_of(id, &fields, due).map(|view| DeliveryDetail { view, contact, notification, attempt_log }))
}

/// The notification of a delivery: it lies in the field that its type names.
fn notification_of(hash: &HashMap<String, String>) -> Option<Notification> {
    let kind = NotificationKind::from_stored(hash.get("type").map_or("alert", String::as_str))?;
    Notification::from_json(kind, hash.get(kind.as_str())?.as_bytes()).ok()
}

struct Logged {
    number: u64,
    attempt: Attempt,
}

fn logged(field: &str, json: &str) -> Option<Logged> {
    let number = field.strip_prefix("attempt:")?.parse().ok()?;
    Some(Logged { number, attempt: serde_json::from_str(json).ok()? })
}

/// The server's clock.
pub(super) async fn server_time(client: &RedisClient) -> Result<UnixMs, OutboxError> {
    let clock = client.query(&redis::cmd("TIME")).await;
    clock.map(unix_ms).map_err(OutboxError::redis(Operation::Query, "the server's clock"))
}

/// TIME answers with seconds and microseconds.
fn unix_ms((seconds, micros): (i64, i64)) -> UnixMs {
    UnixMs(seconds * 1000 + micros / 1000)
}
