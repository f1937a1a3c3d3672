//! The log of alerts: what was raised and how each delivery ended, for the months after their own data has expired.
//!
//! `fan_out.lua` and `schedule.lua` append the entries, in the same step as what they tell. Here: their retention and
//! erasure.

use std::collections::HashMap;
use std::time::Duration;

use redis::RedisResult;
use tokio_util::sync::CancellationToken;

use crate::redis_client::{Partition, Partitions};
use crate::types::{Branch, DeliveryId, DeliveryState, Month, UnixMs};

/// Maximum of `history.alerts_days`: five years.
pub const ALERTS_DAYS_MAX: u32 = 1_830;
/// Number of months that may have a log: those of the longest retention, and the present one.
const MONTHS_MAX: u32 = ALERTS_DAYS_MAX / 30 + 1;
/// How often the retention is set.
const SET_EVERY: Duration = Duration::from_secs(3_600);
/// Number of entries per read: an entry has less than 4 KiB.
const ENTRIES_AT_ONCE: usize = 1_000;
/// Number of reads in which the end of a delivery is searched.
const READS_MAX: usize = 5;
const DAY_MS: i64 = 86_400_000;

/// The months that may have a log, the oldest first.
pub fn months(now: UnixMs) -> Vec<Month> {
    let present = Month::containing(now);
    (0..MONTHS_MAX).rev().filter_map(|back| present?.before(back)).collect()
}

/// Sets the retention of all months once an hour, until stopped: the scripts that append do not know it.
pub async fn keep_retention(partitions: Partitions, days: u32, stop: CancellationToken) {
    loop {
        for partition in partitions.iter() {
            if let Err(error) = set_retention(partition, days).await {
                tracing::debug!(%error, "the retention of the log of alerts could not be set yet");
            }
        }
        if stop.run_until_cancelled(tokio::time::sleep(SET_EVERY)).await.is_none() {
            return;
        }
    }
}

async fn set_retention(Partition { client, keys }: &Partition, days: u32) -> RedisResult<()> {
    let mut pipeline = redis::pipe();
    for month in months(client.server_time().await?) {
        let until = month.end().plus(i64::from(days) * DAY_MS);
        pipeline.cmd("PEXPIREAT").arg(keys.alert_log(month)).arg(until.0).ignore();
    }
    client.pipe(&pipeline).await
}

/// Removes the entries of a branch. Repeatable. Returns the number of removed entries.
///
/// # Errors
///
/// The error of Redis or of the connection; some entries may already be removed.
pub async fn forget_in_log(Partition { client, keys }: &Partition, branch: &Branch) -> RedisResult<u64> {
    let logs: Vec<String> =
        months(client.server_time().await?).into_iter().map(|month| keys.alert_log(month)).collect();
    let mut pipeline = redis::pipe();
    for log in &logs {
        pipeline.cmd("EXISTS").arg(log);
    }
    let exist: Vec<bool> = client.pipe(&pipeline).await?;
    let mut removed = 0;
    for (log, _) in logs.iter().zip(exist).filter(|(_, exists)| *exists) {
        removed += client.remove_entries(log, ENTRIES_AT_ONCE, |values| branch.is_named_by(values)).await?;
    }
    Ok(removed)
}

/// Whether the delivery of an alert that was raised then ended `delivered`, by the first entries since. Its hash may
/// have expired.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn was_delivered(
    Partition { client, keys }: &Partition,
    delivery: &DeliveryId,
    raised: UnixMs,
    now: UnixMs,
) -> RedisResult<bool> {
    let (mut from, mut reads) = (raised.0.to_string(), 0);
    for month in months(now).into_iter().filter(|month| month.end() > raised) {
        while reads < READS_MAX {
            let mut command = redis::cmd("XRANGE");
            command.arg(keys.alert_log(month)).arg(&from).arg("+").arg("COUNT").arg(ENTRIES_AT_ONCE);
            let entries: Vec<(String, HashMap<String, String>)> = client.query(&command).await?;
            let Some((last, _)) = entries.last() else { break };
            reads += 1;
            from = format!("({last}");
            let is_it = |fields: &HashMap<String, String>| {
                fields.get("delivery").is_some_and(|id| id == delivery.as_str())
                    && fields.get("state").is_some_and(|state| state == DeliveryState::Delivered.as_str())
            };
            if entries.iter().any(|(_, fields)| is_it(fields)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
