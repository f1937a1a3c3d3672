//! Gauges that are read from Redis at each scrape, so that nothing is counted twice or becomes stale.

use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;

use crate::ledger::query::lag;
use crate::outbox::totals;
use crate::types::{Keys, meters};
use crate::wire::RedisClient;

use super::ready::Readiness;

/// A scrape must not hang when Redis does.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Reads gauges from Redis.
#[derive(Debug)]
pub struct Gauges {
    keys: Keys,
    client: Arc<RedisClient>,
}

impl Gauges {
    /// Gauges of the partition with these keys.
    #[must_use]
    pub const fn new(keys: Keys, client: Arc<RedisClient>) -> Self {
        Self { keys, client }
    }

    /// Sets every gauge. Where Redis does not answer in time the gauges keep their last values and `quotabell_ready` is 0.
    pub async fn refresh(&self, readiness: &Readiness) {
        let ready = readiness.check().await.is_ok();
        gauge!(meters::READY).set(if ready { 1.0 } else { 0.0 });
        if tokio::time::timeout(TIMEOUT, self.read()).await.is_err() {
            tracing::debug!("metrics: Redis did not answer in time");
        }
    }

    async fn read(&self) {
        let client = &self.client;
        if let Ok(entries) = lag(client, &self.keys).await {
            gauge!(meters::LAG).set(entries as f64);
        }
        if let Ok(totals) = totals(client, &self.keys).await {
            let age_ms = totals.oldest_pending.map_or(0, |oldest| (totals.now.0 - oldest.0).max(0));
            gauge!(meters::OLDEST_PENDING).set(age_ms as f64 / 1000.0);
            gauge!(meters::PENDING).set(totals.pending as f64);
            gauge!(meters::WAITING).set(totals.waiting as f64);
            gauge!(meters::DEAD).set(totals.dead_kept as f64);
            gauge!(meters::OUTBOX).set(totals.outbox as f64);
        }
    }
}
