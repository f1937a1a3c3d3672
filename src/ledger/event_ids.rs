//! Ids of counted events: those of `stream.event_ids_window` of arrival time and some more, in memory and in Redis.
//!
//! A commit appends the ids of its events to a list in Redis as one value, 16 bytes per id. Each window of ten minutes
//! has a list. A new reader loads those that are still remembered as of the checkpoint, and newer ones, in which there
//! are some if the clock was set back. From then on it knows all counted ids, because nobody else commits.
//!
//! Their number is bounded: if more ids arrive, the oldest are forgotten early, and their number is reported.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

use foldhash::fast::RandomState;
use redis::RedisResult;
use sha2::{Digest, Sha256};

use crate::redis_client::RedisClient;
use crate::types::{Keys, Metric, StreamId, Subject, UnixMs};

/// Length of a window of arrival time.
const WINDOW_MS: i64 = 600_000;
/// A clock may be set back by a day without an effect on the ids of events.
const SET_BACK_WINDOWS: u64 = 144;
/// Number of sets over which the ids of many windows are spread in memory. A lookup asks each of them; with fewer, ids
/// would stay for longer than they must.
const GENERATIONS: u64 = 4;
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

/// How long ids are remembered: in the window in which they are counted, and in this number of windows after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RememberedWindows(u64);

/// The ids of counted events that are remembered.
#[derive(Debug)]
pub struct CountedEventIds {
    /// Maximum number of remembered ids.
    ids_max: usize,
    remembered: RememberedWindows,
    /// The newest window.
    window: u64,
    /// The ids, the oldest first. Never empty.
    generations: VecDeque<IdGeneration>,
    /// Number of ids that were forgotten early.
    forgotten: u64,
}

/// The ids that were counted in some windows, and are forgotten together.
#[derive(Debug, Default)]
struct IdGeneration {
    first_window: u64,
    last_window: u64,
    ids: Ids,
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

impl RememberedWindows {
    /// The default: ids of ten minutes.
    pub const ONE: Self = Self(1);

    /// The windows that contain this time.
    pub fn covering(time: Duration) -> Self {
        let windows = time.as_millis().div_ceil(u128::from(WINDOW_MS.unsigned_abs()));
        Self(u64::try_from(windows).unwrap_or(u64::MAX).max(1))
    }

    /// The windows whose stored ids a new reader knows: that of an arrival, those before it that are still remembered,
    /// and those up to the newest counted entry, at most [`SET_BACK_WINDOWS`]. If the server's clock was set back, the
    /// newest ids were counted in windows that have not begun again.
    pub fn around(self, arrival: UnixMs, newest: StreamId) -> RangeInclusive<u64> {
        let window = window_of(arrival);
        let newest = window_of(UnixMs(i64::try_from(newest.ms).unwrap_or(i64::MAX)));
        window.saturating_sub(self.0)..=newest.clamp(window + 1, window + SET_BACK_WINDOWS)
    }

    /// The oldest window that is needed when this one is the newest.
    pub const fn oldest(self, newest: u64) -> u64 {
        newest.saturating_sub(self.0)
    }

    /// Number of windows whose ids one generation has.
    const fn of_generation(self) -> u64 {
        self.0.div_ceil(GENERATIONS)
    }

    /// The share of a generation in the maximum number of ids.
    const fn shares(self) -> usize {
        if self.0 == 1 { 2 } else { GENERATIONS as usize + 1 }
    }
}

impl CountedEventIds {
    /// An empty set with this maximum, which remembers ids for ten minutes.
    pub fn new(ids_max: usize) -> Self {
        let generations = VecDeque::from([IdGeneration::default()]);
        Self { ids_max, remembered: RememberedWindows::ONE, window: 0, generations, forgotten: 0 }
    }

    /// The same for another time.
    #[must_use]
    pub fn remembering(self, remembered: RememberedWindows) -> Self {
        Self { remembered, ..self }
    }

    /// Reads the ids of these windows. Returns whether nobody committed meanwhile; if somebody did, the set may contain
    /// ids of events that are not counted after all.
    pub async fn read(
        &mut self,
        client: &RedisClient,
        keys: &Keys,
        windows: RangeInclusive<u64>,
        checkpoint: StreamId,
    ) -> RedisResult<bool> {
        for window in windows {
            let (mut from, mut count) = (0, SLICE_FIRST);
            loop {
                let mut pipeline = redis::pipe();
                pipeline.cmd("LRANGE").arg(keys.event_ids(window)).arg(from).arg(from + count - 1);
                pipeline.cmd("HGET").arg(keys.checkpoint()).arg("id");
                let (values, stored): (Vec<Vec<u8>>, Option<String>) = client.pipe(&pipeline).await?;
                if StreamId::from_stored(stored.as_deref()) != checkpoint {
                    return Ok(false);
                }
                // Nothing is forgotten for a window without ids.
                if !values.is_empty() {
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
        self.generations.iter().rev().any(|generation| generation.ids.contains(&id))
    }

    /// Inserts the id of a counted event.
    pub fn insert(&mut self, id: EventIdDigest) {
        let (window, share) = (self.window, self.share());
        let newest = self.newest();
        newest.ids.insert(id);
        newest.last_window = window;
        if newest.ids.len() >= share {
            self.begin_generation();
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

    /// Forgets ids that are no longer remembered in this window. An older `window` changes nothing: the clock was set
    /// back.
    fn move_to(&mut self, window: u64) {
        if window <= self.window {
            return;
        }
        self.window = window;
        let oldest = self.remembered.oldest(window);
        self.generations.retain(|generation| generation.last_window >= oldest);
        let span = self.remembered.of_generation();
        if self.generations.back().is_none_or(|newest| window >= newest.first_window + span) {
            self.begin_generation();
        }
    }

    /// Maximum number of ids of a generation.
    const fn share(&self) -> usize {
        self.ids_max / self.remembered.shares()
    }

    fn newest(&mut self) -> &mut IdGeneration {
        self.generations.back_mut().expect("there is always a generation")
    }

    /// Begins a generation. If the others leave no room for it, drops the oldest of them.
    fn begin_generation(&mut self) {
        let others_max = self.ids_max - self.share();
        while self.generations.iter().map(|generation| generation.ids.len()).sum::<usize>() > others_max {
            let oldest = self.generations.pop_front();
            self.forgotten += oldest.map_or(0, |oldest| oldest.ids.len() as u64);
        }
        let (first_window, last_window) = (self.window, self.window);
        self.generations.push_back(IdGeneration { first_window, last_window, ids: Ids::default() });
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

    /// A shipper that resends after hours must not be counted twice, and the memory must not grow for ever.
    #[test]
    fn ids_of_a_day_are_known_for_a_day_and_not_much_longer() {
        let day = RememberedWindows::covering(Duration::from_secs(86_400));
        assert_eq!(RememberedWindows::covering(Duration::from_secs(600)), RememberedWindows::ONE);
        let mut counted = CountedEventIds::new(MANY).remembering(day);
        for window in 1_000..1_600_u64 {
            assert!(counts(&mut counted, window, id(&window.to_string())));
            let oldest = window.saturating_sub(144).max(1_000);
            assert!(counted.contains(window, id(&oldest.to_string())), "{oldest} in {window}");
            assert!(counted.generations.len() <= GENERATIONS as usize + 2, "{window}");
        }
        let known = (1_000..1_600_u64).filter(|window| counted.contains(1_599, id(&window.to_string()))).count();
        assert!((145..=145 + 36).contains(&known), "{known}");
        assert!(!counted.contains(3_000, id("1599")));
        assert_eq!(counted.take_forgotten(), 0);
        let at = |window: u64| StreamId { ms: window * WINDOW_MS.unsigned_abs(), seq: 0 };
        for (newest, last) in [(0, 201), (200, 201), (260, 260), (1_000_000, 200 + SET_BACK_WINDOWS)] {
            assert_eq!(day.around(UnixMs(200 * WINDOW_MS), at(newest)), 56..=last, "{newest}");
        }
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
                assert!(counted.generations.iter().map(|generation| generation.ids.len()).sum::<usize>() <= 10);
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
