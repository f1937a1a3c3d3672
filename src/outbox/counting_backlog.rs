//! Fan-out and sending leave most of the server to the counting while that is behind.
//!
//! An alert costs the server several times as much to fan out and to send as to raise. So a storm of alerts would be
//! raised a fifth as fast as it could be, and whoever reaches a threshold behind it would wait for that, as would every
//! count. Whichever daemon reads the partition: what is asked stands in Redis. Counting that stands still, for whatever
//! reason, gains nothing by waiting: deliveries then go on at full speed.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use metrics::counter;
use redis::RedisResult;
use tokio_util::sync::CancellationToken;

use crate::types::{Keys, StreamId, meters};
use crate::wire::{RedisClient, Script};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("counting_backlog.lua")));

/// The counting is behind when an entry waits for longer than this.
const BEHIND_AFTER: Duration = Duration::from_millis(250);
/// It is asked for this often at most.
const ASK_INTERVAL: Duration = Duration::from_millis(100);
/// Counting that has committed nothing for so long stands still.
const STANDS_STILL_AFTER: Duration = Duration::from_secs(5);
/// A loop then waits for so many times as long as it used the server, so that a quarter of its time is left for it, ...
const WAIT_FACTOR: u32 = 3;
/// ... but no longer than this, however slow the server is.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Whether the counting of a partition is behind, as one loop knows it.
#[derive(Debug)]
pub(super) struct CountingBacklog {
    client: Arc<RedisClient>,
    keys: Keys,
    asked: Option<Instant>,
    progress: CountingProgress,
    is_behind: bool,
}

/// When the counting was seen to move.
#[derive(Debug, Default)]
struct CountingProgress {
    /// The checkpoint, and since when it has been this one.
    checkpoint: Option<(String, Instant)>,
}

/// What stands in Redis of the counting.
#[derive(Debug)]
struct CountingState {
    /// The id of the last entry that is counted.
    checkpoint: String,
    /// How long the oldest entry waits that is not, by its id and the server's clock.
    oldest_waits: Duration,
}

impl CountingBacklog {
    /// Nothing is known yet.
    pub(super) const fn new(client: Arc<RedisClient>, keys: Keys) -> Self {
        Self { client, keys, asked: None, progress: CountingProgress { checkpoint: None }, is_behind: false }
    }

    /// After the loop has used the server for so long: waits while the counting is behind, or until `stop`.
    pub(super) async fn wait_for_counting(&mut self, used: Duration, stop: &CancellationToken) {
        if self.asked.is_none_or(|asked| asked.elapsed() >= ASK_INTERVAL) {
            // Where Redis does not answer, the next call says so.
            let state = self.state().await;
            let now = Instant::now();
            self.is_behind = state.is_ok_and(|state| self.progress.is_behind(state, now));
            self.asked = Some(now);
        }
        if self.is_behind {
            counter!(meters::WAITED_FOR_COUNTING).increment(1);
            let _ = tokio::time::timeout(wait_after(used), stop.cancelled()).await;
        }
    }

    async fn state(&self) -> RedisResult<CountingState> {
        let call = SCRIPT.call().key(self.keys.stream()).key(self.keys.checkpoint());
        let (now, checkpoint, oldest): (i64, String, Option<String>) = call.run(&self.client).await?;
        let oldest_waits = oldest.and_then(|id| StreamId::parse(id.as_bytes())).map_or(Duration::ZERO, |oldest| {
            let now = u64::try_from(now).unwrap_or(0);
            Duration::from_millis(now.saturating_sub(oldest.ms))
        });
        Ok(CountingState { checkpoint, oldest_waits })
    }
}

impl CountingProgress {
    /// Whether the counting is behind and moves, by what is known `now`.
    fn is_behind(&mut self, CountingState { checkpoint, oldest_waits }: CountingState, now: Instant) -> bool {
        let since = match &self.checkpoint {
            Some((known, since)) if *known == checkpoint => *since,
            _ => now,
        };
        self.checkpoint = Some((checkpoint, since));
        oldest_waits > BEHIND_AFTER && now.duration_since(since) < STANDS_STILL_AFTER
    }
}

fn wait_after(used: Duration) -> Duration {
    (used * WAIT_FACTOR).min(WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_is_behind_while_an_entry_waits_and_others_are_counted() {
        let began = Instant::now();
        let mut progress = CountingProgress::default();
        let mut is_behind = |id: &str, waits_ms: u64, after_s: u64| {
            let oldest_waits = Duration::from_millis(waits_ms);
            let state = CountingState { checkpoint: id.to_owned(), oldest_waits };
            progress.is_behind(state, began + Duration::from_secs(after_s))
        };
        assert!(is_behind("1-1", 251, 0));
        assert!(!is_behind("1-1", 250, 1), "it has not waited for long");
        assert!(is_behind("1-1", 4251, 4), "a commit may take seconds");
        assert!(!is_behind("1-1", 5251, 5), "nothing is counted: waiting would help nobody");
        assert!(is_behind("1-2", 5251, 6), "it is counted again");
    }

    /// However slow the server is, deliveries go on.
    #[test]
    fn a_loop_has_a_quarter_of_its_time_at_least() {
        assert_eq!(wait_after(Duration::from_millis(4)), Duration::from_millis(12));
        assert_eq!(wait_after(Duration::from_secs(4)), WAIT_MAX);
    }
}
