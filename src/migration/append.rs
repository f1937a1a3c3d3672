//! Copies stream entries in their order, each once.

use std::sync::LazyLock;

use redis::RedisResult;

use crate::events::parse::{FIELDS_MAX, SOURCE_ARRIVAL};
use crate::redis_client::{Partition, Partitions, Script};
use crate::types::text_form::text_enum;
use crate::types::{Keys, PartitionNumber, StreamId};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("append.lua")));

/// Number of entries per read and per append.
const ENTRIES_AT_ONCE: usize = 500;

text_enum! {
    /// A stream of a partition.
    pub enum CopiedStream {
        /// Usage events that are not counted yet.
        Usage = "usage",
        /// Alerts and notices that are not fanned out yet.
        Outbox = "outbox",
        /// Refused events.
        Refused = "refused",
        /// The log of actions.
        Actions = "actions",
    }
}

/// An entry in the form of XRANGE.
pub(super) type Entry = (String, Vec<Vec<u8>>);

/// An entry of the source, in the form for its partition of the target.
#[derive(Debug, Clone)]
pub(super) struct PartitionedEntry {
    pub(super) partition: u32,
    /// Its id in the source.
    pub(super) id: String,
    /// Fields and values in turn.
    pub(super) values: Vec<Vec<u8>>,
}

impl CopiedStream {
    pub(super) fn key(self, keys: &Keys) -> String {
        match self {
            Self::Usage => keys.stream().to_owned(),
            Self::Outbox => keys.outbox(),
            Self::Refused => keys.refused(),
            Self::Actions => keys.actions(),
        }
    }

    /// The entry after which copying starts, if events up to `counted` are counted.
    pub(super) const fn begin(self, counted: StreamId) -> StreamId {
        match self {
            Self::Usage => counted,
            Self::Outbox | Self::Refused | Self::Actions => StreamId::ZERO,
        }
    }

    /// The subject of an entry. An entry without a subject goes to the first partition, which refuses it.
    fn subject_of(self, values: &[Vec<u8>]) -> Vec<u8> {
        let field = |name: &str| {
            let mut pairs = values.chunks_exact(2);
            pairs.find(|pair| pair[0] == name.as_bytes()).map(|pair| pair[1].clone()).unwrap_or_default()
        };
        match self {
            Self::Usage | Self::Refused => field("subject"),
            // The log is in the first partition, as what has no subject.
            Self::Actions => Vec::new(),
            // The field is named by the type of its notification, and each type has a subject.
            Self::Outbox => {
                let subject_in = |json: &[u8]| {
                    let notification: serde_json::Value = serde_json::from_slice(json).ok()?;
                    notification["subject"].as_str().map(Vec::from)
                };
                values.chunks_exact(2).find_map(|pair| subject_in(&pair[1])).unwrap_or_default()
            }
        }
    }

    /// The next entries after `after`; none at the end of the stream.
    pub(super) async fn entries(self, from: &Partition, after: &str) -> RedisResult<Vec<Entry>> {
        let mut read = redis::cmd("XRANGE");
        read.arg(self.key(&from.keys)).arg(format!("({after}")).arg("+").arg("COUNT").arg(ENTRIES_AT_ONCE);
        from.client.query(&read).await
    }

    /// The next entries after `after`, in their form for the target, each with the number of its partition, and the id
    /// of the last one. `None` at the end of the stream.
    pub(super) async fn next(
        self,
        from: &Partition,
        after: &str,
        partitions: u32,
    ) -> RedisResult<Option<(String, Vec<PartitionedEntry>)>> {
        let entries = self.entries(from, after).await?;
        let Some((last, _)) = entries.last() else { return Ok(None) };
        let last = last.clone();
        let divided = entries.into_iter().map(|(id, mut values)| {
            let partition =
                PartitionNumber::of_subject(&self.subject_of(&values), from.keys.separator(), partitions).get();
            // One field more than allowed, so that the target refuses the event as the source would.
            values.truncate(2 * (FIELDS_MAX + 1));
            if matches!(self, Self::Usage | Self::Actions) {
                add_arrival(&id, &mut values);
            }
            PartitionedEntry { partition, id, values }
        });
        Ok(Some((last, divided.collect())))
    }

    /// Copies the entries after `after`. Returns the number of appended entries.
    pub(super) async fn copy(self, from: &Partition, after: StreamId, to: &Partitions) -> RedisResult<u64> {
        let mut after = after.to_string();
        let mut appended = 0;
        while let Some((last, entries)) = self.next(from, &after, to.count()).await? {
            after = last;
            let mut parts: Vec<Vec<PartitionedEntry>> = vec![Vec::new(); to.iter().len()];
            entries.into_iter().for_each(|entry| parts[entry.partition as usize].push(entry));
            for (target, entries) in to.iter().zip(parts) {
                if !entries.is_empty() {
                    appended += self.append(target, &from.keys, entries).await?;
                }
            }
        }
        Ok(appended)
    }

    /// The field of a target's checkpoint that stores the last copied entry of a source.
    pub(super) fn copied_field(self, source: &Keys) -> String {
        format!("copied:{self}:{}", source.stream())
    }

    /// Whether a checkpoint's field stores the progress of a different stream.
    pub(super) fn is_field_of_another(self, field: &str) -> bool {
        field.strip_prefix("copied:").is_some_and(|rest| !rest.starts_with(&format!("{self}:")))
    }

    async fn append(self, to: &Partition, source: &Keys, entries: Vec<PartitionedEntry>) -> RedisResult<u64> {
        let mut call = SCRIPT.call().key(self.key(&to.keys)).key(to.keys.checkpoint());
        call = call.arg(self.copied_field(source));
        for PartitionedEntry { id, values, .. } in entries {
            call = call.arg(id).arg(values.len()).arg(values);
        }
        call.run(&to.client).await
    }
}

/// Adds the arrival time at the source, which decides where an event counts and whether it is late, and when an action
/// was done. A second migration keeps the first arrival.
fn add_arrival(id: &str, values: &mut Vec<Vec<u8>>) {
    let has_arrival = values.chunks_exact(2).any(|pair| pair[0] == SOURCE_ARRIVAL.as_bytes());
    if let (false, Ok(StreamId { ms, .. })) = (has_arrival, id.parse()) {
        values.extend([SOURCE_ARRIVAL.into(), ms.to_string().into_bytes()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::parse::RawEvent;

    fn values(pairs: &[&str]) -> Vec<Vec<u8>> {
        pairs.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    /// Without it an event sent before midnight would count for the day of the copy.
    #[test]
    fn an_event_keeps_its_time() {
        let mut plain = values(&["subject", "alice"]);
        add_arrival("1795250000000-7", &mut plain);
        assert_eq!(plain, values(&["subject", "alice", SOURCE_ARRIVAL, "1795250000000"]));
        let mut own = plain.clone();
        add_arrival("1795250009999-0", &mut own);
        assert_eq!(own, plain, "a second migration keeps the first arrival");
    }

    /// The source counts an event with the maximum number of fields.
    #[test]
    fn an_event_of_as_many_fields_as_are_allowed_is_not_refused() {
        for (fields, is_allowed) in [(FIELDS_MAX, true), (FIELDS_MAX + 1, false)] {
            let mut full = vec![values(&["x", "y"]); fields].concat();
            add_arrival("1795250000000-7", &mut full);
            let pairs = full.chunks_exact(2).map(|pair| (&pair[0][..], &pair[1][..]));
            assert_eq!(RawEvent::from_fields(pairs).check_fields().is_ok(), is_allowed, "{fields}");
        }
    }

    /// An entry in the wrong partition would never be found.
    #[test]
    fn the_subject_is_found_in_each_stream() {
        assert_eq!(CopiedStream::Usage.subject_of(&values(&["units", "2", "subject", "a"])), b"a");
        assert_eq!(CopiedStream::Outbox.subject_of(&values(&["alert", r#"{"subject":"b"}"#])), b"b");
        assert_eq!(CopiedStream::Outbox.subject_of(&values(&["grant_expires", r#"{"subject":"c"}"#])), b"c");
        assert_eq!(CopiedStream::Outbox.subject_of(&values(&["alert", "{"])), b"");
        assert_eq!(CopiedStream::Refused.subject_of(&values(&["reason", "bad_units"])), b"");
    }
}
