//! Fan-out and sending leave most of the server to the counting while that is behind.
//!
//! An alert costs the server several times as much to fan out and to send as to raise. So a storm of alerts would be
//! raised a fifth as fast as it could be, and whoever reaches a threshold behind it would wait for that, as would every
//! count. Each commit stores for how long the readings have been full, so it does not matter which daemon reads the
//! partition, and no id that a producer chose is taken for a time. Counting that stands still, for whatever reason,
//! gains nothing by waiting: deliveries then go on at full speed.

use std::time::{Duration, Instant};

use metrics::counter;
use redis::RedisResult;
use tokio_util::sync::CancellationToken;

use super::context::OutboxContext;
use crate::types::{UnixMs, meters};

/// The counting is behind when readings have been full for longer than this.
const BEHIND_AFTER: Duration = Duration::from_millis(250);
/// It is asked for this often at most.
const ASK_INTERVAL: Duration = Duration::from_millis(100);
/// Counting that has committed nothing for so long stands still, or has nothing to count.
const STANDS_STILL_AFTER: Duration = Duration::from_secs(1);
/// A loop then waits for so many times as long as its call took, ...
const WAIT_FACTOR: u32 = 3;
/// ... but no longer than this, however slow the server is.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Whether the counting of a partition is behind, as one loop knows it.
#[derive(Debug, Default)]
pub(super) struct CountingBacklog {
    asked: Option<Instant>,
    is_behind: bool,
}

impl CountingBacklog {
    /// After a call of the loop that took so long: waits while the counting is behind, or until `stop`.
    pub(super) async fn wait_for_counting(&mut self, outbox: &OutboxContext, took: Duration, stop: &CancellationToken) {
        if self.asked.is_none_or(|asked| asked.elapsed() >= ASK_INTERVAL) {
            // Where Redis does not answer, the next call says so.
            self.is_behind = ask(outbox).await.unwrap_or(false);
            self.asked = Some(Instant::now());
        }
        if self.is_behind {
            counter!(meters::WAITED_FOR_COUNTING).increment(1);
            let _ = tokio::time::timeout(wait_after(took), stop.cancelled()).await;
        }
    }
}

async fn ask(OutboxContext { client, keys, .. }: &OutboxContext) -> RedisResult<bool> {
    let mut command = redis::cmd("HMGET");
    command.arg(keys.checkpoint()).arg(&["committed_at_ms", "behind_ms"]);
    let (committed_at, behind_ms): (Option<i64>, Option<u64>) = client.query(&command).await?;
    let (Some(committed_at), Some(behind_ms)) = (committed_at, behind_ms) else { return Ok(false) };
    let committed_ago = client.server_time().await?.since(UnixMs(committed_at));
    Ok(Duration::from_millis(behind_ms) > BEHIND_AFTER && committed_ago < STANDS_STILL_AFTER)
}

fn wait_after(took: Duration) -> Duration {
    (took * WAIT_FACTOR).min(WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However slow the server is, deliveries go on.
    #[test]
    fn a_loop_waits_a_bounded_time() {
        assert_eq!(wait_after(Duration::from_millis(4)), Duration::from_millis(12));
        assert_eq!(wait_after(Duration::from_secs(4)), WAIT_MAX);
    }
}
