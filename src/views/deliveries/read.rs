//! Reads deliveries from Redis: the lists by creation and by death in slices, and one delivery with its log. Read next:
//! `ids`, which reads the slices.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use redis::{Pipeline, RedisResult};

use super::ids::{DeliveryCursor, IdSlice, cursor_after, index_of, read_ids, read_ids_of_subject, scored_of_subject};
use super::{AttemptView, DeliveryDetailView, DeliveryFilter, DeliveryView, contact_view};
use crate::contacts::Contact;
use crate::contacts::resolver::{ContactResolver, ResolvedContacts};
use crate::redis_client::{Partition, RedisClient, Scan};
use crate::types::timestamp::Rfc3339;
use crate::types::{
    AlertId, Attempt, Channel, ContactId, DeliveryId, DeliveryState, Destination, Keys, Notification, NotificationKind,
    QuotaNotification, UnixMs,
};

/// Number of deliveries that are read in one call for a list.
const DELIVERIES_READ_MAX: usize = 500;

/// The fields of a delivery in a list.
const FIELDS: [&str; 21] = [
    "type",
    "alert_id",
    "subject",
    "channel",
    "state",
    "attempts",
    "last_error",
    "created_at_ms",
    "contact_id",
    "ended_at_ms",
    "replayed_at_ms",
    "alert",
    "grant_expires",
    "usage_notice",
    "resolved",
    "verification",
    "contact_disabled",
    "discarded_at_ms",
    "destination",
    "lease_token",
    "sent_in",
];

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliverySlice {
    /// The deliveries of this slice that pass the filter, the newest first. May be empty although more follow.
    pub deliveries: Vec<DeliveryView>,
    /// The position of the next slice; `None` at the end.
    pub next: Option<DeliveryCursor>,
}

/// Reads a slice of the list with at most `limit` deliveries, the newest first (dead ones by the time of death). Starts
/// without a cursor and continues with that of the previous slice.
pub async fn list(
    partition: &Partition,
    filter: &DeliveryFilter,
    from: Option<DeliveryCursor>,
    limit: usize,
) -> RedisResult<DeliverySlice> {
    let Partition { client, keys } = partition;
    let index = index_of(keys, filter);
    // A delivery dies after it was created, so this would also bound the list of dead ones; but it may die much later.
    let before = filter.before.filter(|_| filter.state != Some(DeliveryState::Dead));
    let between = (filter.since, before);
    let count = if filter.takes_all_of_its_list() { DELIVERIES_READ_MAX.min(limit) } else { DELIVERIES_READ_MAX };
    let IdSlice { ids, scores, mut next } = match &filter.subject {
        Some(subject) => read_ids_of_subject(partition, subject, &index, between, from, count).await?,
        None => read_ids(client, &index, between, from, count).await?,
    };
    if ids.is_empty() {
        return Ok(DeliverySlice { deliveries: Vec::new(), next: None });
    }
    let mut deliveries = Vec::new();
    for (at, view) in views_of(partition, &ids).await?.into_iter().enumerate() {
        deliveries.extend(view.filter(|view| filter.takes(view)));
        if deliveries.len() == limit && at + 1 < ids.len() {
            next = Some(cursor_after(&scores[..=at], from));
            break;
        }
    }
    Ok(DeliverySlice { deliveries, next })
}

/// The number of dead deliveries of a partition; with a time, of those that died up to then.
///
/// # Errors
///
/// The failure of Redis or the connection.
pub async fn count_dead(partition: &Partition, until: Option<UnixMs>) -> RedisResult<u64> {
    let until = until.map_or_else(|| "+inf".to_owned(), |until| until.0.to_string());
    partition.client.query(redis::cmd("ZCOUNT").arg(partition.keys.dead()).arg("-inf").arg(until)).await
}

/// The deliveries of a partition with these ids that exist.
///
/// # Errors
///
/// The failure of Redis or the connection.
pub async fn of_ids(partition: &Partition, ids: &[DeliveryId]) -> RedisResult<Vec<DeliveryView>> {
    match ids {
        [] => Ok(Vec::new()),
        ids => Ok(views_of(partition, ids).await?.into_iter().flatten().collect()),
    }
}

/// Each of these deliveries; `None` for one that does not exist any more.
async fn views_of(
    Partition { client, keys }: &Partition,
    ids: &[DeliveryId],
) -> RedisResult<Vec<Option<DeliveryView>>> {
    let hashes = read_fields(client, keys, ids).await?;
    let times = read_times(client, keys, ids, &hashes).await?;
    let read = ids.iter().zip(hashes).zip(times);
    let read = read.map(|((id, fields), times)| StoredDelivery::from_fields(keys, id, fields, times));
    Ok(read.map(|stored| stored.map(|stored| stored.view)).collect())
}

/// The deliveries of a partition that pass a filter, slice by slice and in no order, for callers that change them
/// meanwhile. A delivery that exists from the first slice to the last is found even if others leave the list.
#[derive(Debug)]
pub struct DeliveryScan<'a> {
    partition: &'a Partition,
    filter: &'a DeliveryFilter,
    ids: ScannedIds,
}

/// The source of the ids.
#[derive(Debug)]
enum ScannedIds {
    /// A list.
    Of(Scan),
    /// The remaining deliveries of a subject, all of which were read at the start.
    Left(Vec<DeliveryId>),
}

impl<'a> DeliveryScan<'a> {
    /// Starts a walk.
    ///
    /// # Errors
    ///
    /// The failure of Redis or the connection.
    pub async fn begin(partition: &'a Partition, filter: &'a DeliveryFilter) -> RedisResult<Self> {
        let index = index_of(&partition.keys, filter);
        let ids = match &filter.subject {
            Some(subject) => {
                let scored = scored_of_subject(partition, subject, &index).await?;
                ScannedIds::Left(scored.into_iter().map(|(id, _)| id).collect())
            }
            None => ScannedIds::Of(Scan::sorted_set(&index)),
        };
        Ok(Self { partition, filter, ids })
    }

    /// The ids of the next slice that pass the filter; `None` at the end. A slice may be empty although more follow,
    /// and an id may occur twice.
    ///
    /// # Errors
    ///
    /// The failure of Redis or the connection; the walk ends.
    pub async fn next(&mut self) -> RedisResult<Option<Vec<DeliveryId>>> {
        let Partition { client, keys } = self.partition;
        let ids: Vec<DeliveryId> = match &mut self.ids {
            ScannedIds::Left(ids) if ids.is_empty() => return Ok(None),
            ScannedIds::Left(ids) => ids.split_off(ids.len().saturating_sub(DELIVERIES_READ_MAX)),
            ScannedIds::Of(scan) => {
                let Some(scored) = scan.next::<(String, String)>(client).await? else { return Ok(None) };
                scored.iter().map(|(id, _)| DeliveryId::from_stored(id)).collect()
            }
        };
        let hashes = read_fields(client, keys, &ids).await?;
        let passes = |(id, fields): (DeliveryId, _)| {
            let stored = StoredDelivery::from_fields(keys, &id, fields, DeliveryTimes::default())?;
            self.filter.takes(&stored.view).then_some(id)
        };
        Ok(Some(ids.into_iter().zip(hashes).filter_map(passes).collect()))
    }
}

/// The existing [`FIELDS`] of a delivery, with their values.
type DeliveryFields = HashMap<&'static str, String>;

async fn read_fields(client: &RedisClient, keys: &Keys, ids: &[DeliveryId]) -> RedisResult<Vec<DeliveryFields>> {
    let mut pipeline = Pipeline::new();
    for id in ids {
        pipeline.cmd("HMGET").arg(keys.delivery(id)).arg(&FIELDS);
    }
    let replies: Vec<[Option<String>; FIELDS.len()]> = client.pipe(&pipeline).await?;
    let named = |values| FIELDS.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?))).collect();
    Ok(replies.into_iter().map(named).collect())
}

/// Reads when deliveries are due, and when the next attempt passes the circuits of their destinations. A delivery that
/// is being attempted waits for no circuit.
async fn read_times(
    client: &RedisClient,
    keys: &Keys,
    ids: &[DeliveryId],
    hashes: &[DeliveryFields],
) -> RedisResult<Vec<DeliveryTimes>> {
    let of: Vec<Destination> = hashes.iter().map(|fields| destination_of(fields.get("destination"))).collect();
    // Many deliveries share a destination, so each destination is read once.
    let destinations: BTreeSet<&Destination> = of.iter().collect();
    // An expired lease stays until the destination is processed again, which an open circuit delays.
    let now = client.server_time().await?;
    let mut pipeline = Pipeline::new();
    for (id, destination) in ids.iter().zip(&of) {
        pipeline.cmd("ZSCORE").arg(keys.due(destination)).arg(id.as_str());
    }
    for destination in &destinations {
        pipeline.cmd("HGET").arg(format!("{}{destination}", keys.destination_prefix())).arg("probe_at_ms");
    }
    let mut dues: Vec<Option<i64>> = client.pipe(&pipeline).await?;
    let probes = dues.split_off(ids.len());
    let probes: BTreeMap<&Destination, Option<i64>> = destinations.into_iter().zip(probes).collect();
    let times = |((due, fields), destination): ((Option<i64>, &DeliveryFields), _)| {
        let is_leased = fields.contains_key("lease_token") && due.is_some_and(|end| end > now.0);
        // What is due later than the next attempt through the circuit does not wait for that.
        let waits = |probe: &i64| !is_leased && due.is_some_and(|due| due <= (*probe).max(now.0));
        DeliveryTimes { due, is_leased, next_probe: probes[destination].filter(waits) }
    };
    Ok(dues.into_iter().zip(hashes).zip(&of).map(times).collect())
}

/// Reads the newest `limit` deliveries that pass the filter and returns them oldest first. Reads slice by slice until
/// enough are found.
pub async fn list_all(partition: &Partition, filter: &DeliveryFilter, limit: usize) -> RedisResult<Vec<DeliveryView>> {
    let mut deliveries: Vec<DeliveryView> = Vec::new();
    // A delivery that is replayed during the read moves to another position in the list of dead ones.
    let mut seen = BTreeSet::new();
    let mut from = None;
    loop {
        let slice = list(partition, filter, from, usize::MAX).await?;
        deliveries.extend(slice.deliveries.into_iter().filter(|view| seen.insert(view.id.clone())));
        from = slice.next;
        if from.is_none() || deliveries.len() >= limit {
            break;
        }
    }
    deliveries.truncate(limit);
    deliveries.reverse();
    Ok(deliveries)
}

/// Reads one delivery with its attempts and its present contact, which may be one of `configured`. Returns `None` if
/// the delivery does not exist any more.
pub async fn show(
    partition: &Partition,
    configured: &[Contact],
    id: &DeliveryId,
) -> RedisResult<Option<DeliveryDetailView>> {
    let Partition { client, keys } = partition;
    let Some(mut detail) = read_detail(partition, id).await? else { return Ok(None) };
    let now = client.server_time().await?;
    let mut contacts = ResolvedContacts::default();
    if let (true, Ok(subject)) = (detail.is_to_own_contact(), detail.delivery.subject.parse()) {
        let fallback = configured.iter().filter(|contact| !contact.id.is_of_operator()).cloned().collect();
        let resolver = ContactResolver::new(keys.clone(), fallback);
        contacts = resolver.contacts_of(client, &subject).await.map_err(|error| error.source)?;
    }
    detail.contact = contact_view(&detail.delivery, &contacts, configured, now);
    Ok(Some(detail))
}

/// Like [`show()`], without the contact.
pub async fn read_detail(
    Partition { client, keys }: &Partition,
    id: &DeliveryId,
) -> RedisResult<Option<DeliveryDetailView>> {
    let mut hash: HashMap<String, String> = client.query(redis::cmd("HGETALL").arg(keys.delivery(id))).await?;
    let attempt = |(field, json): (&String, &String)| -> Option<(u64, Attempt)> {
        Some((field.strip_prefix("attempt:")?.parse().ok()?, serde_json::from_str(json).ok()?))
    };
    let log: BTreeMap<u64, Attempt> = hash.iter().filter_map(attempt).collect();
    let fields: DeliveryFields =
        FIELDS.into_iter().filter_map(|name| hash.remove(name).map(|value| (name, value))).collect();
    let times = read_times(client, keys, std::slice::from_ref(id), std::slice::from_ref(&fields)).await?;
    let stored = StoredDelivery::from_fields(keys, id, fields, times.into_iter().next().unwrap_or_default());
    let Some(StoredDelivery { view, content }) = stored else { return Ok(None) };
    let number = |field| hash.get(field).and_then(|number: &String| number.parse::<i64>().ok());
    let mut detail = DeliveryDetailView {
        delivery: view,
        alert: None,
        grant_notice: None,
        usage_notice: None,
        resolved_notice: None,
        verification: None,
        disabled_contact: None,
        contact: None,
        attempt_log: log.into_values().map(AttemptView::from).collect(),
        first_attempt: number("first_attempt_at_ms").map(UnixMs),
        paused_before: number("paused_before_ms").and_then(|ms| ms.try_into().ok()).map(Duration::from_millis),
        is_cancelled_by_operator: hash.contains_key("cancelled_by"),
        logged_address: hash.get("address").cloned(),
    };
    match content {
        Some(Notification::Alert(alert)) => detail.alert = Some(alert),
        Some(Notification::GrantExpires(notice)) => detail.grant_notice = Some(notice),
        Some(Notification::Usage(notice)) => detail.usage_notice = Some(notice),
        Some(Notification::Resolved(notice)) => detail.resolved_notice = Some(notice),
        Some(Notification::Verification(request)) => detail.verification = Some(request.into()),
        Some(Notification::ContactDisabled(notice)) => detail.disabled_contact = Some(notice.into()),
        Some(Notification::Digest(_)) | None => {}
    }
    Ok(Some(detail))
}

/// The times of a delivery in the queue of its destination, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
struct DeliveryTimes {
    due: Option<i64>,
    /// Whether it is being attempted; `due` is then the end of the lease.
    is_leased: bool,
    /// When the next probe is due, if the circuit is open and the delivery is not being attempted.
    next_probe: Option<i64>,
}

/// A delivery and what it carries.
struct StoredDelivery {
    view: DeliveryView,
    content: Option<Notification>,
}

impl StoredDelivery {
    /// A delivery from its fields; `None` if the hash is gone (14 days after the end) or is not that of a delivery.
    fn from_fields(keys: &Keys, id: &DeliveryId, mut fields: DeliveryFields, times: DeliveryTimes) -> Option<Self> {
        let mut take = |name| fields.remove(name);
        let kind = take("type");
        let kind = NotificationKind::from_stored(kind.as_deref().unwrap_or(NotificationKind::Alert.as_str()))?;
        let state = DeliveryState::from_stored(&take("state")?)?;
        let time = |text: String| text.parse().ok().map(UnixMs).map(Rfc3339);
        let of_pending = |time: Option<i64>| time.filter(|_| state == DeliveryState::Pending).map(UnixMs).map(Rfc3339);
        let next_due = of_pending(times.due);
        let content = take(kind.as_str()).and_then(|json| Notification::from_json(kind, json.as_bytes()).ok());
        let alert = if let Some(Notification::Alert(alert)) = &content { Some(alert) } else { None };
        let usage_notice = if let Some(Notification::Usage(notice)) = &content { Some(notice) } else { None };
        let quota = content.as_ref().and_then(Notification::quota);
        let view = DeliveryView {
            id: id.clone(),
            alert_id: take("alert_id").as_deref().map(AlertId::from_stored),
            subject: take("subject")?,
            channel: Channel::from_stored(&take("channel")?)?,
            state,
            attempts: take("attempts").and_then(|number| number.parse().ok()).unwrap_or(0),
            next_due,
            last_error: take("last_error"),
            r#type: kind,
            usage_notice_kind: usage_notice.map(|notice| notice.kind),
            contact_id: ContactId::from_stored(&take("contact_id").unwrap_or_default()),
            destination: destination_of(take("destination").as_ref()),
            partition: keys.partition().get(),
            metric: quota.map(|quota| quota.metric().clone()),
            threshold_percent: alert.and_then(|alert| alert.threshold.percent()),
            threshold: alert.map(|alert| alert.threshold.into()),
            period: quota.and_then(QuotaNotification::period),
            created_at: take("created_at_ms").and_then(time)?,
            ended_at: take("ended_at_ms").and_then(time),
            replayed_at: take("replayed_at_ms").and_then(time),
            is_leased: times.is_leased && next_due.is_some(),
            next_probe: of_pending(times.next_probe),
            discarded_at: take("discarded_at_ms").and_then(time),
            sent_in: take("sent_in"),
        };
        Some(Self { view, content })
    }
}

/// The destination whose queue the delivery is in.
pub(super) fn destination_of(name: Option<&String>) -> Destination {
    name.map_or_else(Destination::none, |name| Destination::from_stored(name))
}
