//! Ids of counted events: the last ten to twenty minutes of arrival time, in memory and in Redis.
//!
//! A commit appends the ids of its events to a list in Redis as one value, 16 bytes per id. A new reader loads the
//! lists of the last two windows as of the checkpoint, or of the next one if the clock was set back. From then on it
//! knows all counted ids, because nobody else commits.
//!
//! Their number is bounded: if more ids arrive, the oldest are forgotten early, and their number is reported.

use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;

use foldhash::fast::RandomState;
use redis::RedisResult;
use sha2::{Digest, Sha256};

use crate::redis_client::RedisClient;
use crate::types::{Keys, Metric, StreamId, Subject, UnixMs};

/// Length of a window of arrival time.
const WINDOW_MS: i64 = 600_000;
/// Number of windows in use: the current one and the previous one.
pub const WINDOWS_HELD: u64 = 2;
/// Approximate bytes of a list per read; its values have 16 bytes to 720 KB.
const SLICE_BYTES: usize = 4 << 20;
/// Number of values in the first slice of a list, while their size is unknown.
const SLICE_FIRST: usize = 4;
/// Maximum number of values in a slice.
const SLICE_MAX: usize = 20_000;
/// Bytes of an id's digest.
const DIGEST_BYTES: usize = 16;

/// A digest of subject, metric and event id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventIdDigest([u8; DIGEST_BYTES]);

/// The ids that a batch adds, by window: concatenated [`EventIdDigest`]s.
pub type NewEventIds = BTreeMap<u64, Vec<u8>>;

/// The ids of counted events that are remembered.
#[derive(Debug)]
pub struct CountedEventIds {
    /// Maximum number of remembered ids.
    ids_max: usize,
    /// The window of `newest`.
    window: u64,
    newest: Ids,
    /// The ids of `previous_window`.
    previous: Ids,
    /// The previous window, or the current one if more than half of the maximum arrived in it.
    previous_window: u64,
    /// Number of ids that were forgotten early.
    forgotten: u64,
}

type Ids = HashSet<EventIdDigest, RandomState>;

impl EventIdDigest {
    /// The digest of an event's id. Subject and metric contain no NUL, so different events have different inputs.
    pub fn derive(subject: &Subject, metric: &Metric, id: &[u8]) -> Self {
        let mut hash = Sha256::new();
        for part in [subject.as_str().as_bytes(), b"\0", metric.as_str().as_bytes(), b"\0", id] {
            hash.update(part);
        }
        let mut digest = [0; DIGEST_BYTES];
        digest.copy_from_slice(&hash.finalize()[..DIGEST_BYTES]);
        Self(digest)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The window of an event's arrival. The entry's own id is not used, because an explicit id in the future would keep
/// its window forever.
pub const fn window_of(arrival: UnixMs) -> u64 {
    (if arrival.0 < 0 { 0 } else { arrival.0 } / WINDOW_MS).unsigned_abs()
}

/// The windows whose stored ids a new reader knows: that of an arrival and its neighbors. If the server's clock was set
/// back, the newest ids were counted in a window that has not begun again.
pub fn windows_of(arrival: UnixMs) -> RangeInclusive<u64> {
    let window = window_of(arrival);
    window.saturating_sub(1)..=window + 1
}

impl CountedEventIds {
    /// An empty set with this maximum.
    pub fn new(ids_max: usize) -> Self {
        let (newest, previous) = (Ids::default(), Ids::default());
        Self { ids_max, window: 0, newest, previous, previous_window: 0, forgotten: 0 }
    }

    /// Reads the ids that were stored for [`windows_of`] an arrival. Returns whether nobody
    /// committed meanwhile; if somebody did, the set may contain ids of events that are not counted after all.
    pub async fn read(
        &mut self,
        client: &RedisClient,
        keys: &Keys,
        arrival: UnixMs,
        checkpoint: StreamId,
    ) -> RedisResult<bool> {
        for window in windows_of(arrival) {
            let (mut from, mut count) = (0, SLICE_FIRST);
            loop {
                let mut pipeline = redis::pipe();
                pipeline.cmd("LRANGE").arg(keys.event_ids(window)).arg(from).arg(from + count - 1);
                pipeline.cmd("HGET").arg(keys.checkpoint()).arg("id");
                let (values, stored): (Vec<Vec<u8>>, Option<String>) = client.pipe(&pipeline).await?;
                if StreamId::from_stored(stored.as_deref()) != checkpoint {
                    return Ok(false);
                }
                // Nothing is forgotten for a window that has not begun.
                if window <= window_of(arrival) || !values.is_empty() {
                    self.insert_stored(window, &values);
                }
                if values.len() < count {
                    break;
                }
                from += count;
                let bytes: usize = values.iter().map(Vec::len).sum();
                count = (count * SLICE_BYTES / bytes.max(1)).clamp(1, SLICE_MAX);
            }
        }
        Ok(true)
    }

    /// Inserts stored ids of a window; call it for the older windows first.
    pub fn insert_stored(&mut self, window: u64, values: &[Vec<u8>]) {
        self.move_to(window);
        let digests = values.iter().flat_map(|value| value.chunks_exact(DIGEST_BYTES));
        for id in digests.filter_map(|digest| digest.try_into().ok().map(EventIdDigest)) {
            self.insert(id);
        }
    }

    /// Whether an event with this id, which arrived in `window`, was counted before.
    pub fn contains(&mut self, window: u64, id: EventIdDigest) -> bool {
        self.move_to(window);
        self.newest.contains(&id) || self.previous.contains(&id)
    }

    /// Inserts the id of a counted event.
    pub fn insert(&mut self, id: EventIdDigest) {
        self.newest.insert(id);
        // Drops half of the ids at a time, so that at least half of the maximum is remembered.
        if self.newest.len() >= self.ids_max / 2 {
            self.forgotten += self.previous.len() as u64;
            self.previous = std::mem::take(&mut self.newest);
            self.previous_window = self.window;
        }
    }

    /// Returns the number of ids that were forgotten early since the last call.
    pub const fn take_forgotten(&mut self) -> u64 {
        std::mem::replace(&mut self.forgotten, 0)
    }

    /// The window under which an inserted id is stored.
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// Forgets ids older than the previous window. An older `window` changes nothing: the clock was set back.
    fn move_to(&mut self, window: u64) {
        if window <= self.window {
            return;
        }
        let newest = std::mem::take(&mut self.newest);
        if window == self.window + 1 {
            if self.previous_window == self.window {
                self.forgotten += self.previous.len() as u64;
            }
            self.previous = newest;
        } else {
            self.previous = Ids::default();
        }
        (self.window, self.previous_window) = (window, window - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More ids than any test uses.
    const MANY: usize = 1_000;

    fn id(text: &str) -> EventIdDigest {
        EventIdDigest::derive(&Subject::parse(b"alice").expect("legal"), &Metric::default(), text.as_bytes())
    }

    /// Whether the event is counted.
    fn counts(counted: &mut CountedEventIds, window: u64, id: EventIdDigest) -> bool {
        let new = !counted.contains(window, id);
        counted.insert(id);
        new
    }

    /// The promise: an id counts once within ten minutes, and again after twenty at the latest.
    #[test]
    fn an_id_is_known_in_its_window_and_the_next() {
        let mut counted = CountedEventIds::new(MANY);
        let arrivals = [(5, true), (5, false), (6, false)];
        for (window, new) in arrivals {
            assert_eq!(!counted.contains(window, id("a")), new, "{window}");
            if new {
                counted.insert(id("a"));
            }
        }
        assert!(!counted.contains(7, id("a")));
        counted.insert(id("a"));
        assert!(!counted.contains(9, id("a")));
    }

    /// If the server's clock is set back, known ids must stay known.
    #[test]
    fn an_id_that_arrives_in_an_older_window_is_still_known() {
        let mut counted = CountedEventIds::new(MANY);
        assert!(counts(&mut counted, 9, id("a")));
        assert!(!counts(&mut counted, 3, id("a")));
        assert_eq!(counted.window(), 9);
    }

    /// A producer of endless new ids must not exhaust the memory; the newest ids stay, and forgetting is reported.
    #[test]
    fn the_oldest_are_forgotten_where_more_come_than_may_be_held() {
        let mut counted = CountedEventIds::new(10);
        // Number of ids in each of three windows.
        for (window, ids) in [(7, 0..4_u64), (8, 4..23), (9, 23..25)] {
            for n in ids {
                assert!(counts(&mut counted, window, id(&n.to_string())), "{n}");
                assert!(counted.newest.len() + counted.previous.len() <= 10);
                for newer in n.saturating_sub(3)..=n {
                    assert!(counted.contains(window, id(&newer.to_string())), "{newer} of {n}");
                }
            }
        }
        let held = (0..25).filter(|n| counted.contains(9, id(&n.to_string()))).count() as u64;
        assert_eq!((counted.take_forgotten(), counted.take_forgotten()), (25 - held, 0));
    }

    /// An id of another subject or metric is another id.
    #[test]
    fn ids_of_others_are_others() {
        let bob = EventIdDigest::derive(&Subject::parse(b"bob").expect("legal"), &Metric::default(), b"a");
        let tokens =
            EventIdDigest::derive(&Subject::parse(b"alice").expect("legal"), &"tokens".parse().expect("legal"), b"a");
        assert!(id("a") != bob && id("a") != tokens && bob != tokens);
    }
}
