//! The days of a subject that rules look back at.

use std::collections::BTreeMap;

use redis::RedisResult;

use crate::ledger::daily_usage;
use crate::redis_client::Partition;
use crate::types::{Day, Metric, Subject};

/// Days before today whose counters may not be archived yet.
const COUNTED_DAYS: u64 = 3;

/// The known days of a subject, with today.
pub(super) async fn days_of(
    partition: &Partition,
    subject: &Subject,
    metric: &Metric,
    today: Day,
) -> RedisResult<BTreeMap<Day, u64>> {
    let counted: Vec<Day> = (0..=COUNTED_DAYS).filter_map(|back| today.before(back)).collect();
    Ok(daily_usage::read_each(partition, &[(subject, metric)], &counted).await?.pop().unwrap_or_default())
}
