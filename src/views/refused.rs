//! The events that could not be counted, and why.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use redis::RedisResult;
use serde::Serialize;

use super::Rfc3339;
use crate::redis_client::{Partition, Partitions};
use crate::types::text::escaped_bytes;
use crate::types::{StreamId, Subject, UnixMs};

/// Entries of one read: at most 16 fields of 1 KiB each, so a reply stays below 16 MB.
pub const REFUSED_READ_MAX: usize = 500;
/// Among so many of the newest those of one subject are counted, in all partitions together.
const LOOKED_AT_MAX: u64 = 500;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    pub refused_at_ms: Option<UnixMs>,
}

/// An entry as XRANGE gives it: id, then names and values in turn.
type RawEntry = (String, Vec<Vec<u8>>);

/// The refused events of every partition in the order of time, read slice by slice.
#[derive(Debug)]
pub struct MergedRefusedEvents<'a> {
    lists: Vec<PartitionRefusedEvents<'a>>,
}

#[derive(Debug)]
struct PartitionRefusedEvents<'a> {
    partition: &'a Partition,
    /// Those that were read and not given yet.
    events: VecDeque<RefusedEventView>,
    /// Where the list goes on, as XRANGE takes it; `None` at the end.
    next: Option<String>,
}

impl<'a> MergedRefusedEvents<'a> {
    pub fn all(partitions: &'a Partitions) -> Self {
        let list = |partition| PartitionRefusedEvents {
            partition,
            events: VecDeque::new(),
            next: Some(StreamId::ZERO.to_string()),
        };
        Self { lists: partitions.iter().map(list).collect() }
    }

    /// The newest `count` of each partition, among which are the newest of all.
    pub async fn newest(partitions: &'a Partitions, count: u64) -> RedisResult<Self> {
        let mut newest = Self::all(partitions);
        for list in &mut newest.lists {
            list.next = start_of_newest(list.partition, count).await?;
        }
        Ok(newest)
    }

    /// The next event; `None` at the end.
    pub async fn next(&mut self) -> RedisResult<Option<RefusedEventView>> {
        for list in &mut self.lists {
            while list.events.is_empty()
                && let Some(from) = list.next.take()
            {
                list.read(&from).await?;
            }
        }
        let first = |list: &&mut PartitionRefusedEvents<'_>| list.events.front().map(|event| event.refused_at_ms);
        let oldest = self.lists.iter_mut().filter(|list| !list.events.is_empty()).min_by_key(first);
        Ok(oldest.and_then(|list| list.events.pop_front()))
    }
}

impl PartitionRefusedEvents<'_> {
    /// Reads the next [`REFUSED_READ_MAX`] events.
    async fn read(&mut self, from: &str) -> RedisResult<()> {
        let Partition { client, keys } = self.partition;
        let mut command = redis::cmd("XRANGE");
        command.arg(keys.refused()).arg(from).arg("+").arg("COUNT").arg(REFUSED_READ_MAX);
        let entries: Vec<RawEntry> = client.query(&command).await?;
        // An exclusive start: the next slice begins after the last entry of this one.
        let last = entries.last().filter(|_| entries.len() == REFUSED_READ_MAX);
        self.next = last.map(|(last, _)| format!("({last}"));
        self.events.extend(entries.iter().map(|entry| RefusedEventView::from_entry(keys.stream(), entry)));
        Ok(())
    }
}

/// Where the newest `count` events begin; `None` where there are none. Ids alone would do, but XREVRANGE always sends
/// the fields too, so this reads in slices like the listing itself.
async fn start_of_newest(Partition { client, keys }: &Partition, count: u64) -> RedisResult<Option<String>> {
    let mut to = "+".to_owned();
    let mut oldest = None;
    let mut wanted = count;
    while wanted > 0 {
        let count = wanted.min(REFUSED_READ_MAX as u64);
        let mut command = redis::cmd("XREVRANGE");
        command.arg(keys.refused()).arg(&to).arg("-").arg("COUNT").arg(count);
        let entries: Vec<RawEntry> = client.query(&command).await?;
        let full = entries.len() as u64 == count;
        let Some((last, _)) = entries.into_iter().next_back() else { break };
        to = format!("({last}");
        oldest = Some(last);
        if !full {
            break;
        }
        wanted -= count;
    }
    Ok(oldest)
}

/// How many of the newest refused events are of a subject. An event in the wrong partition lies
/// where it was appended.
pub async fn count_newest_of(partitions: &Partitions, subject: &Subject) -> RedisResult<u64> {
    let of_each = (LOOKED_AT_MAX / u64::from(partitions.count())).max(1);
    let mut newest = MergedRefusedEvents::newest(partitions, of_each).await?;
    let mut count = 0;
    while let Some(event) = newest.next().await? {
        count += u64::from(event.is_of(subject));
    }
    Ok(count)
}

impl RefusedEventView {
    /// Whether the event names this subject.
    pub fn is_of(&self, subject: &Subject) -> bool {
        self.fields.get("subject").is_some_and(|named| named == subject.as_str())
    }

    /// Our three fields stand first; a field of the event itself may bear one of their names.
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
        let refused_at = StreamId::parse(id.as_bytes()).and_then(|id| i64::try_from(id.ms).ok()).map(UnixMs);
        let stream = stream.to_owned();
        Self { entry, stream, reason, detail, fields, refused_at: refused_at.map(Rfc3339), refused_at_ms: refused_at }
    }
}
