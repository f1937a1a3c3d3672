//! Readings that are not completely added yet: the state that they need is read while others are added and committed.
//! Pure.
//!
//! Entries are added a few at a time, so that the next reading can be requested and a commit can be sent in between.

use std::collections::VecDeque;

use crate::redis_client::XreadReply;
use crate::types::{StreamId, UnixMs};

use super::batch_builder::{AddResult, BatchBuilder};
use super::stream_entry::StreamEntry;
use super::worker_cache::{LoadRequest, WorkerCache};

/// Maximum number of readings that wait. The server then waits until one of them is added.
const READINGS_MAX: usize = 6;
/// Maximum size of the readings that wait.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// Number of entries that are added at once.
const ADDED_AT_ONCE: usize = 512;

/// The readings, in the order of the stream.
#[derive(Debug, Default)]
pub struct ReadAhead {
    readings: VecDeque<WaitingReading>,
    /// What the entries need and nobody has requested yet.
    missing: LoadRequest,
}

/// A reading with entries that are not added yet.
#[derive(Debug)]
struct WaitingReading {
    reply: XreadReply,
    /// Number of added entries.
    added: usize,
    /// The entries that needed something at the last look.
    unready: Vec<usize>,
}

impl ReadAhead {
    /// Whether no reading waits.
    pub fn is_empty(&self) -> bool {
        self.readings.is_empty()
    }

    /// Whether no further reading should be received yet.
    pub fn is_full(&self) -> bool {
        let bytes: usize = self.readings.iter().map(|reading| reading.reply.bytes()).sum();
        self.readings.len() >= READINGS_MAX || bytes >= BYTES_MAX
    }

    /// The first entry that waits for state to be read.
    pub fn first_unready(&self) -> Option<StreamId> {
        let first = |reading: &WaitingReading| Some(reading.entries_from(*reading.unready.first()?).next()?.id);
        self.readings.iter().find_map(first)
    }

    /// Takes a reading. Its entries follow those of the last one.
    pub fn push(&mut self, reply: XreadReply, builder: &mut BatchBuilder, held: &mut WorkerCache) {
        if reply.last().is_none() {
            return;
        }
        let mut reading = WaitingReading { reply, added: 0, unready: Vec::new() };
        // Its needs can be requested together with those of others.
        if self.readings.iter().any(|reading| !reading.unready.is_empty()) {
            reading.look_through(builder, held, &mut self.missing);
        }
        self.readings.push_back(reading);
    }

    /// Adds some entries to the batch until it is full or the next entry needs something. Returns whether more can be
    /// added.
    pub fn add_some(&mut self, builder: &mut BatchBuilder, held: &mut WorkerCache) -> bool {
        let Some(reading) = self.readings.front_mut() else { return false };
        if reading.is_unready() {
            return false;
        }
        let some = reading.entries_from(reading.added).take(ADDED_AT_ONCE);
        let (added, result) = builder.add(held, some, reading.server());
        reading.added += added;
        match result {
            AddResult::Added => {}
            AddResult::Full => return false,
            AddResult::Missing => {
                if !reading.is_unready() {
                    // Nobody has looked at it yet, or its state was dropped in the meantime.
                    reading.look_through(builder, held, &mut self.missing);
                }
                // A broken one needs nothing.
                return !reading.is_unready();
            }
        }
        if reading.added == reading.reply.entries().len() {
            self.readings.pop_front();
        }
        !self.is_empty()
    }

    /// What must be read before all entries can be added, except what [`Self::take_missing`] has returned.
    pub const fn missing(&self) -> &LoadRequest {
        &self.missing
    }

    /// Takes what must be read.
    #[must_use]
    pub fn take_missing(&mut self) -> LoadRequest {
        std::mem::take(&mut self.missing)
    }

    /// Looks again at the entries that needed something, after the result of [`Self::take_missing`] was read.
    pub fn look_again(&mut self, builder: &mut BatchBuilder, held: &mut WorkerCache) {
        for reading in &mut self.readings {
            let unready = std::mem::take(&mut reading.unready);
            let needs = |at: &usize| reading.needs(*at, builder, held, &mut self.missing);
            reading.unready = unready.into_iter().filter(needs).collect();
        }
    }
}

impl WaitingReading {
    /// The server time of the reading.
    const fn server(&self) -> UnixMs {
        UnixMs(self.reply.server_ms())
    }

    /// The entries from index `at` on.
    fn entries_from(
        &self,
        at: usize,
    ) -> impl Iterator<Item = StreamEntry<impl Iterator<Item = (&[u8], &[u8])> + Clone>> {
        self.reply.entries().skip(at).map(|entry| StreamEntry {
            id: StreamId::parse(entry.id).unwrap_or(StreamId::ZERO),
            fields: entry.fields.map(|field| (field.name, field.value)),
        })
    }

    /// Whether the next entry waits for something.
    fn is_unready(&self) -> bool {
        self.unready.contains(&self.added)
    }

    /// Finds what the entries that are not added need.
    fn look_through(&mut self, builder: &mut BatchBuilder, held: &mut WorkerCache, missing: &mut LoadRequest) {
        let entries = (self.added..).zip(self.entries_from(self.added));
        let unready = entries.filter(|(_, entry)| builder.needs(held, entry, self.server(), missing));
        self.unready = unready.map(|(at, _)| at).collect();
    }

    fn needs(&self, at: usize, builder: &mut BatchBuilder, held: &mut WorkerCache, missing: &mut LoadRequest) -> bool {
        let entry = self.entries_from(at).next();
        at >= self.added && entry.is_some_and(|entry| builder.needs(held, &entry, self.server(), missing))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::events::batch_builder::BatchBounds;
    use crate::ledger::{Batch, CountedEventIds};
    use crate::subjects::{Plans, SettingsCache};
    use crate::types::{DeploymentId, Keys};

    /// Nothing is read for the entry, so no answer would cause it to be added: it would wait for the next event.
    #[test]
    fn a_broken_event_of_an_unknown_subject_waits_for_nothing() {
        let settings = SettingsCache::new(10, &Plans::without_limits());
        let mut held = WorkerCache::new(settings, CountedEventIds::new(10));
        let first = Batch::new(DeploymentId::from_stored("x"), StreamId::ZERO);
        let bounds = BatchBounds { entries: 9, cost: 9 };
        let mut builder = BatchBuilder::new(Keys::new("usage"), Duration::ZERO, first, bounds);
        let mut ahead = ReadAhead::default();
        let entry = "*2\r\n$3\r\n1-0\r\n*4\r\n$7\r\nsubject\r\n$5\r\nalice\r\n$5\r\nunits\r\n$4\r\nmany\r\n";
        let time = "*2\r\n$10\r\n1763715600\r\n$1\r\n0\r\n";
        let reply = XreadReply::parse(format!("*1\r\n*2\r\n$5\r\nusage\r\n*1\r\n{entry}{time}").into_bytes());
        ahead.push(reply.expect("a reply"), &mut builder, &mut held);
        while ahead.add_some(&mut builder, &mut held) {}
        assert_eq!((builder.entries(), ahead.is_empty(), ahead.missing().is_empty()), (1, true, true));
    }
}
