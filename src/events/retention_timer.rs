//! RetentionTimer days that are over, now and then, between commits.

use std::time::{Duration, Instant};

use crate::ledger::Batch;
use crate::ledger::retention::Retention;
use crate::types::{StreamId, UnixMs};
use crate::wire::RedisClient;

/// How often days that are over are looked for.
const EVERY: Duration = Duration::from_secs(60);

/// When to look for days that are over.
#[derive(Debug)]
pub(super) struct RetentionTimer {
    retention: Retention,
    due: Instant,
}

impl RetentionTimer {
    /// The first look is due at once.
    pub(super) fn new(retention: Retention) -> Self {
        Self { retention, due: Instant::now() }
    }

    /// A batch was committed.
    pub(super) fn committed(&mut self, batch: &Batch) {
        self.retention.written(batch.metric_days.iter().map(|metric_day| metric_day.day));
    }

    /// Shortens the life of days that are over, if it is time to: all entries up to `at` are counted, and it is `now` on the server.
    /// What fails is tried again; counters expire by themselves anyway.
    pub(super) async fn look(&mut self, client: &RedisClient, at: StreamId, now: UnixMs) {
        if Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + EVERY;
        match self.retention.close_days(client, at, now).await {
            Ok(days) => {
                if !days.is_empty() {
                    // There may be more of them.
                    self.due = Instant::now();
                }
                for day in days {
                    tracing::debug!(%day, "the day is over everywhere: its counters live 48 h");
                }
            }
            Err(error) => tracing::debug!(%error, "days that are over could not be closed yet"),
        }
    }
}
