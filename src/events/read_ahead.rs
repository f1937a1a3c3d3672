//! Entries that were read and are not added yet: what they need is read while others are added and committed. Pure.
//!
//! The reply that held them is gone when they are added, so their bytes are copied, one behind the other.

use std::collections::VecDeque;

use crate::types::{StreamId, UnixMs};

use super::batch_builder::{AddResult, BatchBuilder, ReadEntry};
use super::held_state::{HeldState, Missing};

/// So many readings wait at most. Then the server waits until some of them are added.
const READINGS_MAX: usize = 3;
/// Bytes of a length.
const LENGTH: usize = size_of::<u32>();

/// The readings, in the order of the stream.
#[derive(Debug, Default)]
pub struct ReadAhead {
    readings: VecDeque<WaitingReading>,
    /// What the entries need, as far as nobody has asked for it yet.
    missing: Missing,
    /// Whether the entries of the last reading that was looked through needed anything.
    had_missing: bool,
}

/// A reading of which some entries are not added yet.
#[derive(Debug, Default)]
struct WaitingReading {
    /// When it was read.
    server: UnixMs,
    bytes: Vec<u8>,
    entries: Vec<WaitingEntry>,
    /// How many were added.
    added: usize,
    /// Those that needed something when they were looked at last.
    unready: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct WaitingEntry {
    id: StreamId,
    /// Where its fields end, which is where those of the next begin.
    end: usize,
}

/// The fields of one entry.
#[derive(Debug, Clone)]
struct WaitingFields<'a>(&'a [u8]);

impl ReadAhead {
    /// Forgets all of them.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.readings.is_empty()
    }

    /// Whether no further reading is to be received yet.
    pub fn is_full(&self) -> bool {
        self.readings.len() >= READINGS_MAX
    }

    /// The first entry that waits for something to be read.
    pub fn first_unready(&self) -> Option<StreamId> {
        let first = |reading: &WaitingReading| reading.unready.first().map(|at| reading.entries[*at].id);
        self.readings.iter().find_map(first)
    }

    /// Takes the entries of a reading, which came at `server`: adds them to the batch as far as it goes, and keeps the
    /// others.
    pub fn take<'a, F>(
        &mut self,
        entries: impl Iterator<Item = ReadEntry<F>> + Clone,
        server: UnixMs,
        builder: &mut BatchBuilder,
        held: &mut HeldState,
    ) where
        F: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        let (added, result) = match self.is_empty() {
            true => builder.add(held, entries.clone(), server),
            false => (0, AddResult::Full),
        };
        if result == AddResult::Added {
            return;
        }
        let mut reading = WaitingReading { server, ..WaitingReading::default() };
        entries.skip(added).for_each(|entry| reading.push(&entry));
        if result == AddResult::Missing || self.had_missing {
            self.had_missing = reading.look_through(builder, held, &mut self.missing);
        }
        if !reading.entries.is_empty() {
            self.readings.push_back(reading);
        }
    }

    /// Adds entries to the batch until it is full, or one needs something that is not held.
    pub fn add_up(&mut self, builder: &mut BatchBuilder, held: &mut HeldState) {
        while let Some(reading) = self.readings.front_mut() {
            let (added, result) = builder.add(held, reading.iter_from(reading.added), reading.server);
            reading.added += added;
            match result {
                AddResult::Added => drop(self.readings.pop_front()),
                AddResult::Full => return,
                AddResult::Missing => {
                    // What it needs was let go, or has changed, since it was looked through.
                    let is_known = reading.unready.contains(&reading.added);
                    if is_known || reading.look_through(builder, held, &mut self.missing) {
                        return;
                    }
                }
            }
        }
    }

    /// What is to be read before all entries can be added, but for what was taken by [`Self::take_missing`].
    pub const fn missing(&self) -> &Missing {
        &self.missing
    }

    /// Takes what is to be read.
    #[must_use]
    pub fn take_missing(&mut self) -> Missing {
        std::mem::take(&mut self.missing)
    }

    /// What was taken by [`Self::take_missing`] is held: looks what the entries that needed something need now.
    pub fn look_again(&mut self, builder: &mut BatchBuilder, held: &mut HeldState) {
        for reading in &mut self.readings {
            let unready = std::mem::take(&mut reading.unready);
            let needs = |at: &usize| reading.needs(*at, builder, held, &mut self.missing);
            reading.unready = unready.into_iter().filter(needs).collect();
        }
    }
}

impl WaitingReading {
    fn push<'a, F>(&mut self, entry: &ReadEntry<F>)
    where
        F: Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    {
        for part in entry.fields.clone().flat_map(|(name, value)| [name, value]) {
            let length = u32::try_from(part.len()).expect("the reader bounds entries");
            self.bytes.extend_from_slice(&length.to_le_bytes());
            self.bytes.extend_from_slice(part);
        }
        self.entries.push(WaitingEntry { id: entry.id, end: self.bytes.len() });
    }

    /// The entries from the one at `at` on.
    fn iter_from(&self, at: usize) -> impl Iterator<Item = ReadEntry<WaitingFields<'_>>> {
        let start = at.checked_sub(1).map_or(0, |before| self.entries[before].end);
        self.entries[at..].iter().scan(start, |start, entry| {
            let fields = WaitingFields(&self.bytes[*start..entry.end]);
            *start = entry.end;
            Some(ReadEntry { id: entry.id, fields })
        })
    }

    /// Finds what the entries that are not added need. Whether they need anything.
    fn look_through(&mut self, builder: &mut BatchBuilder, held: &mut HeldState, missing: &mut Missing) -> bool {
        let entries = (self.added..).zip(self.iter_from(self.added));
        let unready = entries.filter(|(_, entry)| builder.needs(held, entry, self.server, missing));
        self.unready = unready.map(|(at, _)| at).collect();
        !self.unready.is_empty()
    }

    fn needs(&self, at: usize, builder: &mut BatchBuilder, held: &mut HeldState, missing: &mut Missing) -> bool {
        let entry = self.iter_from(at).next();
        at >= self.added && entry.is_some_and(|entry| builder.needs(held, &entry, self.server, missing))
    }
}

impl<'a> Iterator for WaitingFields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let mut part = || {
            let (length, rest) = self.0.split_first_chunk::<LENGTH>()?;
            let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            self.0 = rest;
            Some(part)
        };
        Some((part()?, part()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field that came back otherwise would be counted, or refused, as another event than the producer sent.
    #[test]
    fn entries_come_back_as_they_were() {
        let mut waiting = WaitingReading::default();
        let entries: [&[(&[u8], &[u8])]; 3] =
            [&[(b"subject", b"alice"), (b"", b"")], &[], &[(b"units", b"5"), (b"\0\xff", &[7; 300])]];
        for (ms, fields) in (1..).zip(entries) {
            waiting.push(&ReadEntry { id: StreamId { ms, seq: 0 }, fields: fields.iter().copied() });
        }
        let from = |at| -> Vec<(u64, Vec<_>)> {
            waiting.iter_from(at).map(|entry| (entry.id.ms, entry.fields.collect())).collect()
        };
        let expected = [(1, entries[0].to_vec()), (2, Vec::new()), (3, entries[2].to_vec())];
        assert_eq!(from(0), expected);
        assert_eq!(from(2), expected[2..]);
        assert_eq!(from(3), []);
    }
}
