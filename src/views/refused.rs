//! The events that could not be counted, and why.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use redis::RedisResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Cursor;
use crate::redis_client::{Partition, Partitions};
use crate::types::text::escaped_bytes;
use crate::types::timestamp::Rfc3339;
use crate::types::{StreamId, Subject, UnixMs};

/// Number of entries per read: at most 16 fields of 1 KiB each, so a reply is below 16 MB.
const REFUSED_READ_MAX: usize = 500;
/// Number of newest refused events, over all partitions, among which those of one subject are counted.
const LOOKED_AT_MAX: usize = 500;

/// Number of events of one reason that are shown.
const SAMPLES_MAX: usize = 3;
/// Number of refused events in a slice.
pub const GROUPED_MAX: usize = 2 * REFUSED_READ_MAX;

/// Refused events in one slice, by reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RefusedReasonList")]
pub struct RefusedReasonsView {
    /// The most frequent reason first, within the slice.
    pub reasons: Vec<RefusedReasonView>,
    /// Number of refused events in the slice.
    pub examined: usize,
    /// What `after` takes to get the next slice; null at the end.
    pub next: Option<String>,
}

/// The events that were refused for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RefusedReason")]
pub struct RefusedReasonView {
    pub reason: String,
    #[schemars(range(min = 1))]
    pub count: usize,
    pub newest_at: Option<Rfc3339>,
    /// The newest of them.
    #[schemars(length(min = 1, max = SAMPLES_MAX))]
    pub samples: Vec<RefusedEventView>,
}

/// The position of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RefusedCursor {
    partition: usize,
    /// The last entry before the position.
    before: Option<String>,
}

/// Groups the next slice of about `max` refused events: partition by partition, the newest of each first. Only those
/// that were refused at `since` or later.
pub async fn by_reason(
    partitions: &Partitions,
    from: RefusedCursor,
    since: Option<UnixMs>,
    max: usize,
) -> RedisResult<RefusedReasonsView> {
    let at_once = max.min(REFUSED_READ_MAX);
    let mut cursor = from;
    let mut events = Vec::new();
    while let Some(Partition { client, keys }) = partitions.iter().nth(cursor.partition) {
        if events.len() >= max {
            break;
        }
        let mut command = redis::cmd("XREVRANGE");
        command.arg(keys.refused()).arg(cursor.before.as_ref().map_or("+".to_owned(), |id| format!("({id}")));
        command.arg(since.map_or_else(|| "-".to_owned(), |since| since.0.to_string()));
        let entries: Vec<RawEntry> = client.query(command.arg("COUNT").arg(at_once)).await?;
        events.extend(entries.iter().map(|entry| RefusedEventView::from_entry(keys.stream(), entry)));
        cursor = match entries.last() {
            Some((last, _)) if entries.len() == at_once => RefusedCursor { before: Some(last.clone()), ..cursor },
            _ => RefusedCursor { partition: cursor.partition + 1, before: None },
        };
    }
    let examined = events.len();
    let is_over = cursor.partition >= partitions.count() as usize;
    let next = (!is_over).then(|| Cursor(cursor).to_string());
    Ok(RefusedReasonsView { reasons: grouped(events), examined, next })
}

fn grouped(mut events: Vec<RefusedEventView>) -> Vec<RefusedReasonView> {
    events.sort_by_key(|event| Reverse(event.refused_at));
    let mut reasons: BTreeMap<String, RefusedReasonView> = BTreeMap::new();
    for event in events {
        let (reason, newest_at) = (event.reason.clone(), event.refused_at);
        let group = reasons.entry(reason.clone());
        let group = group.or_insert_with(|| RefusedReasonView { reason, count: 0, newest_at, samples: Vec::new() });
        group.count += 1;
        if group.samples.len() < SAMPLES_MAX {
            group.samples.push(event);
        }
    }
    let mut reasons: Vec<RefusedReasonView> = reasons.into_values().collect();
    reasons.sort_by_key(|reason| Reverse(reason.count));
    reasons
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RefusedEvent")]
pub struct RefusedEventView {
    /// The id of the usage event's entry in the stream.
    pub entry: String,
    pub stream: String,
    /// Which rule it broke.
    pub reason: String,
    /// What exactly was wrong.
    pub detail: String,
    /// The event's own fields; of a repeated one the first, which is the one that was judged.
    pub fields: BTreeMap<String, String>,
    pub refused_at: Option<Rfc3339>,
}

/// An entry of XREVRANGE: its id, then names and values in turn.
type RawEntry = (String, Vec<Vec<u8>>);

/// The newest `count` refused events of all partitions, or of one subject if it is given, oldest first.
pub async fn newest(
    partitions: &Partitions,
    subject: Option<&Subject>,
    count: usize,
) -> RedisResult<Vec<RefusedEventView>> {
    let mut events = Vec::new();
    for partition in partitions.iter() {
        events.extend(newest_of_partition(partition, subject, count).await?);
    }
    events.sort_by_key(|event| event.refused_at);
    events.drain(..events.len().saturating_sub(count));
    Ok(events)
}

async fn newest_of_partition(
    Partition { client, keys }: &Partition,
    subject: Option<&Subject>,
    count: usize,
) -> RedisResult<Vec<RefusedEventView>> {
    let mut events: Vec<RefusedEventView> = Vec::new();
    let mut to = "+".to_owned();
    loop {
        let mut command = redis::cmd("XREVRANGE");
        command.arg(keys.refused()).arg(&to).arg("-").arg("COUNT").arg(REFUSED_READ_MAX);
        let entries: Vec<RawEntry> = client.query(&command).await?;
        let slice = entries.iter().map(|entry| RefusedEventView::from_entry(keys.stream(), entry));
        events.extend(slice.filter(|event| subject.is_none_or(|subject| event.is_of(subject))));
        match entries.last() {
            Some((last, _)) if entries.len() == REFUSED_READ_MAX && events.len() < count => to = format!("({last}"),
            _ => break,
        }
    }
    events.truncate(count);
    events.reverse();
    Ok(events)
}

/// Number of a subject's events among the newest refused ones. An event in the wrong partition is found where it was
/// appended.
pub async fn count_newest_of(partitions: &Partitions, subject: &Subject) -> RedisResult<usize> {
    let of_each = (LOOKED_AT_MAX / partitions.count() as usize).max(1);
    let mut count = 0;
    for partition in partitions.iter() {
        let events = newest_of_partition(partition, None, of_each).await?;
        count += events.iter().filter(|event| event.is_of(subject)).count();
    }
    Ok(count)
}

impl RefusedEventView {
    /// Whether the event names this subject.
    pub fn is_of(&self, subject: &Subject) -> bool {
        self.fields.get("subject").is_some_and(|named| named == subject.as_str())
    }

    /// The three fields of quotabell come first; a field of the event may have the same name.
    fn from_entry(stream: &str, (id, values): &RawEntry) -> Self {
        let mut pairs = values.chunks_exact(2).map(|pair| (escaped_bytes(&pair[0]), escaped_bytes(&pair[1])));
        let mut own = |_name| pairs.next().map(|(_, value)| value).unwrap_or_default();
        let (entry, reason, detail) = (own("entry"), own("reason"), own("detail"));
        let mut fields = BTreeMap::new();
        for (name, value) in pairs {
            if let Entry::Vacant(vacant) = fields.entry(name) {
                vacant.insert(value);
            }
        }
        let refused_at =
            StreamId::parse(id.as_bytes()).and_then(|id| i64::try_from(id.ms).ok()).map(|ms| Rfc3339(UnixMs(ms)));
        let stream = stream.to_owned();
        Self { entry, stream, reason, detail, fields, refused_at }
    }
}
