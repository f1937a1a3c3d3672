//! Fan-out and sending leave most of the server to the counting while that is behind.
//!
//! An alert costs the server several times as much to fan out and to send as to raise. So a storm of alerts would be
//! raised a fifth as fast as it could be, and whoever reaches a threshold behind it would wait for that, as would every
//! count. Whichever daemon reads the partition: what is asked stands in Redis.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::counter;
use redis::{RedisResult, Value};
use tokio_util::sync::CancellationToken;

use crate::types::{Keys, StreamId, meters};
use crate::wire::RedisClient;

/// The counting is behind when an entry waits for longer than this.
const BEHIND_AFTER: Duration = Duration::from_millis(250);
/// It is asked for this often at most.
const ASK_INTERVAL: Duration = Duration::from_millis(100);
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
    is_behind: bool,
}

impl CountingBacklog {
    /// Nothing is known yet.
    pub(super) const fn new(client: Arc<RedisClient>, keys: Keys) -> Self {
        Self { client, keys, asked: None, is_behind: false }
    }

    /// After the loop has used the server for so long: waits while the counting is behind, or until `stop`.
    pub(super) async fn wait_for_counting(&mut self, used: Duration, stop: &CancellationToken) {
        if self.asked.is_none_or(|asked| asked.elapsed() >= ASK_INTERVAL) {
            // Where Redis does not answer, the next call says so.
            self.is_behind = self.oldest_waits().await.is_ok_and(|waits| waits > BEHIND_AFTER);
            self.asked = Some(Instant::now());
        }
        if self.is_behind {
            counter!(meters::WAITED_FOR_COUNTING).increment(1);
            let _ = tokio::time::timeout(wait_after(used), stop.cancelled()).await;
        }
    }

    /// How long the oldest entry waits that is not committed, by the server's clock and the entry's id.
    async fn oldest_waits(&self) -> RedisResult<Duration> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("HGET").arg(self.keys.checkpoint()).arg("id");
        pipeline.cmd("TIME");
        let (checkpoint, (seconds, micros)): (Option<String>, (u64, u64)) = self.client.pipe(&pipeline).await?;
        let after = checkpoint.map_or_else(|| "-".to_owned(), |id| format!("({id}"));
        let mut oldest = redis::cmd("XRANGE");
        oldest.arg(self.keys.stream()).arg(after).arg("+").arg("COUNT").arg(1);
        let oldest: Vec<(String, Value)> = self.client.query(&oldest).await?;
        let added = oldest.first().and_then(|(id, _)| StreamId::parse(id.as_bytes()));
        let now = seconds * 1000 + micros / 1000;
        Ok(added.map_or(Duration::ZERO, |added| Duration::from_millis(now.saturating_sub(added.ms))))
    }
}

fn wait_after(used: Duration) -> Duration {
    (used * WAIT_FACTOR).min(WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However slow the server is, deliveries go on.
    #[test]
    fn a_loop_has_a_quarter_of_its_time_at_least() {
        assert_eq!(wait_after(Duration::from_millis(4)), Duration::from_millis(12));
        assert_eq!(wait_after(Duration::from_secs(4)), WAIT_MAX);
    }
}
