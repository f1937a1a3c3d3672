//! How many alerts were raised and how many deliveries died in each hour of two days.

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use crate::redis_client::Partition;
use crate::types::timestamp::Rfc3339;
use crate::types::{Alert, Keys, UnixMs};
use crate::views::Observer;
use crate::views::deliveries::partitions_with;

/// Number of hours.
pub const HOURS: usize = 48;

const HOUR_MS: i64 = 3_600_000;

/// One hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "HourOverview")]
pub struct HourOverviewView {
    pub starts_at: Rfc3339,
    /// Alerts that were raised, of the examined ones: all of them unless there are thousands.
    pub alerts: u64,
    /// Dead deliveries that died then and can still be replayed.
    pub dead: u64,
}

impl Observer {
    /// The hours up to that of `now`, the oldest first. `raised` are the alerts that are counted.
    pub(super) async fn hours(&self, raised: &[Alert], now: UnixMs) -> RedisResult<Vec<HourOverviewView>> {
        let last = now.0 - now.0.rem_euclid(HOUR_MS);
        let starts = (0..HOURS as i64).rev().map(|back| last - back * HOUR_MS);
        let mut hours: Vec<HourOverviewView> =
            starts.map(|start| HourOverviewView { starts_at: Rfc3339(UnixMs(start)), alerts: 0, dead: 0 }).collect();
        let first = hours[0].starts_at.0;
        for alert in raised {
            let hour = (alert.raised_at_ms.0 - first.0).div_euclid(HOUR_MS);
            if let Some(hour) = usize::try_from(hour).ok().and_then(|hour| hours.get_mut(hour)) {
                hour.alerts += 1;
            }
        }
        // Most partitions have no dead deliveries, and there may be 256.
        let with_dead = partitions_with(&self.partitions, Keys::dead).await?;
        if with_dead.is_empty() {
            return Ok(hours);
        }
        let mut pipeline = redis::pipe();
        for (_, Partition { keys, .. }) in with_dead {
            for HourOverviewView { starts_at: Rfc3339(start), .. } in &hours {
                pipeline.cmd("ZCOUNT").arg(keys.dead()).arg(start.0).arg(format!("({}", start.0 + HOUR_MS));
            }
        }
        let dead: Vec<u64> = self.partitions.first().client.pipe(&pipeline).await?;
        for of_partition in dead.chunks(HOURS) {
            for (hour, dead) in hours.iter_mut().zip(of_partition) {
                hour.dead += dead;
            }
        }
        Ok(hours)
    }
}
