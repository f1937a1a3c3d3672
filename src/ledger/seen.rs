//! Ids of counted events: a window of ten to twenty minutes of arrival time, held in memory and stored by each commit.
//!
//! A commit appends the ids of its events to a list in Redis, 16 bytes each, as one value. The reader that begins reads the lists of
//! the last two windows as of the checkpoint, and knows from then on by itself which ids were counted: nobody else commits between.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use redis::RedisResult;
use sha2::{Digest, Sha256};

use crate::types::{Keys, Metric, Subject, UnixMs};
use crate::wire::RedisClient;

/// The length of a window, in time of arrival.
const WINDOW_MS: i64 = 600_000;
/// How many windows count: that of the newest arrival, and the one before.
pub const WINDOWS_HELD: u64 = 2;
/// Bytes of an id's digest.
const DIGEST_BYTES: usize = 16;

/// A digest of subject, metric and event id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenId([u8; DIGEST_BYTES]);

/// The ids that a batch adds to one window, each [`SeenId`] behind the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenIds {
    /// The window.
    pub window: u64,
    /// The digests.
    pub digests: Vec<u8>,
}

/// Takes the digest's own bytes, which are spread already.
#[derive(Debug, Default)]
pub struct DigestHasher(u64);

/// The ids that count as seen.
#[derive(Debug, Default)]
pub struct SeenWindows {
    /// The window of `newest`.
    window: u64,
    newest: Ids,
    /// Those of the window before.
    previous: Ids,
}

type Ids = HashSet<SeenId, BuildHasherDefault<DigestHasher>>;

impl SeenId {
    /// The digest of an event's id. Subject and metric hold no NUL, so no two events share one by accident.
    #[must_use]
    pub fn of(subject: &Subject, metric: &Metric, id: &[u8]) -> Self {
        let mut hash = Sha256::new();
        for part in [subject.as_str().as_bytes(), b"\0", metric.as_str().as_bytes(), b"\0", id] {
            hash.update(part);
        }
        let mut digest = [0; DIGEST_BYTES];
        digest.copy_from_slice(&hash.finalize()[..DIGEST_BYTES]);
        Self(digest)
    }
}

/// The window in which an event arrived. Arrival, and not the entry's own id: an explicit id in the future would otherwise hold the
/// window for ever.
#[must_use]
pub const fn window_of(arrival: UnixMs) -> u64 {
    (if arrival.0 < 0 { 0 } else { arrival.0 } / WINDOW_MS).unsigned_abs()
}

impl SeenWindows {
    /// Reads the ids that were stored up to an arrival: those of its window and of the one before.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said.
    pub async fn read(client: &RedisClient, keys: &Keys, arrival: UnixMs) -> RedisResult<Self> {
        let window = window_of(arrival);
        let mut pipeline = redis::pipe();
        for window in [window, window.saturating_sub(1)] {
            pipeline.cmd("LRANGE").arg(keys.seen(window)).arg(0).arg(-1);
        }
        let (newest, previous): (Vec<Vec<u8>>, Vec<Vec<u8>>) = client.pipe(&pipeline).await?;
        Ok(Self::of_lists(window, &newest, &previous))
    }

    /// The ids of a window and of the one before it, as commits have stored them.
    #[must_use]
    pub fn of_lists(window: u64, newest: &[Vec<u8>], previous: &[Vec<u8>]) -> Self {
        Self { window, newest: ids_in(newest), previous: ids_in(previous) }
    }

    /// Whether an event with this id, which arrived in `window`, was counted before.
    pub fn contains(&mut self, window: u64, id: SeenId) -> bool {
        self.move_to(window);
        self.newest.contains(&id) || self.previous.contains(&id)
    }

    /// Takes the id of an event that is counted.
    pub fn insert(&mut self, id: SeenId) {
        self.newest.insert(id);
    }

    /// The window under which an id that is inserted now is stored.
    #[must_use]
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// Forgets what is older than the window before this one. A window that lies back changes nothing: the clock was set back.
    fn move_to(&mut self, window: u64) {
        if window <= self.window {
            return;
        }
        let newest = std::mem::take(&mut self.newest);
        self.previous = if window == self.window + 1 { newest } else { Ids::default() };
        self.window = window;
    }
}

fn ids_in(values: &[Vec<u8>]) -> Ids {
    let digests = values.iter().flat_map(|value| value.chunks_exact(DIGEST_BYTES));
    digests.filter_map(|digest| digest.try_into().ok().map(SeenId)).collect()
}

impl SeenIds {
    /// No ids yet.
    #[must_use]
    pub const fn new(window: u64) -> Self {
        Self { window, digests: Vec::new() }
    }

    /// Adds one.
    pub fn push(&mut self, id: SeenId) {
        self.digests.extend_from_slice(&id.0);
    }
}

impl std::hash::Hash for SeenId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut first = [0; 8];
        first.copy_from_slice(&bytes[..8]);
        self.0 = u64::from_le_bytes(first);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SeenId {
        SeenId::of(&Subject::parse(b"alice").expect("legal"), &Metric::default(), text.as_bytes())
    }

    /// Whether the event counts.
    fn counts(seen: &mut SeenWindows, window: u64, id: SeenId) -> bool {
        let new = !seen.contains(window, id);
        seen.insert(id);
        new
    }

    /// The promise: an id counts once within ten minutes, and again after twenty at the latest.
    #[test]
    fn an_id_is_seen_in_its_window_and_the_next() {
        let mut seen = SeenWindows::default();
        let counted = [(5, true), (5, false), (6, false)];
        for (window, new) in counted {
            assert_eq!(!seen.contains(window, id("a")), new, "{window}");
            if new {
                seen.insert(id("a"));
            }
        }
        assert!(!seen.contains(7, id("a")));
        seen.insert(id("a"));
        assert!(!seen.contains(9, id("a")));
    }

    /// A server whose clock is set back must not make every id new.
    #[test]
    fn an_id_that_arrives_in_an_older_window_is_still_seen() {
        let mut seen = SeenWindows::default();
        assert!(counts(&mut seen, 9, id("a")));
        assert!(!counts(&mut seen, 3, id("a")));
        assert_eq!(seen.window(), 9);
    }

    /// Another subject's id, or another metric's, is another id.
    #[test]
    fn ids_of_others_are_others() {
        let bob = SeenId::of(&Subject::parse(b"bob").expect("legal"), &Metric::default(), b"a");
        let tokens = SeenId::of(&Subject::parse(b"alice").expect("legal"), &"tokens".parse().expect("legal"), b"a");
        assert!(id("a") != bob && id("a") != tokens && bob != tokens);
    }
}
