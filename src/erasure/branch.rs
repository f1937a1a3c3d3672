//! The subjects of a branch: everything below a subject of which something may be stored.
//!
//! Lists of children name what was used lately. Other subjects are found by the keys that name them, by their grants
//! and by the counters of long windows, which outlive the lists, and by their history.

use std::collections::BTreeSet;

use redis::RedisResult;

use crate::ledger::batch::MetricPeriod;
use crate::ledger::children;
use crate::ledger::counter_scan::CounterScan;
use crate::ledger::daily_usage::archived_metrics;
use crate::ledger::grants_due;
use crate::ledger::query;
use crate::redis_client::{Partition, Partitions, Scan};
use crate::types::text::glob_literal;
use crate::types::{Period, Subject, UnixMs, Window};
use crate::views::alerts;

/// All subjects below this one; none if subjects are flat. Reads every counter of quarters, years and totals, and looks
/// at every key.
pub async fn below(partitions: &Partitions, subject: &Subject) -> RedisResult<BTreeSet<Subject>> {
    let separator = partitions.first().keys.separator();
    let mut found = BTreeSet::new();
    if separator.is_none() {
        return Ok(found);
    }
    let is_below = |name: &Subject| separator.is_below(name.as_str(), subject.as_str());
    let below = format!("{}*", glob_literal(&format!("{subject}{separator}")));
    for partition in partitions.iter() {
        let mut open = vec![subject.clone()];
        while let Some(level) = open.pop() {
            for child in children::all_names(partition, &level).await? {
                if is_below(&child) && found.insert(child.clone()) {
                    open.push(child);
                }
            }
        }
        let now = partition.client.server_time().await?;
        for of in long_counters(partition, now).await? {
            let mut scan = CounterScan::new(of);
            while let Some(counts) = scan.next(partition).await? {
                found.extend(counts.into_iter().map(|count| count.subject).filter(is_below));
            }
        }
        let Partition { client, keys } = partition;
        for metric in archived_metrics(client, keys).await? {
            for bucket in 0..=u8::MAX {
                let mut scan = Scan::hash(&keys.history(&metric, bucket)).matching(&below);
                while let Some(days) = scan.next::<(Vec<u8>, Vec<u8>)>(client).await? {
                    found.extend(days.iter().filter_map(|(name, _)| Subject::parse(name).ok()));
                }
            }
        }
    }
    for partition in partitions.iter() {
        found.extend(grants_due::all_subjects(partition).await?.into_iter().filter(is_below));
    }
    for server in partitions.first().client.primaries().await? {
        let mut scan = Scan::keys(format!("*{below}"));
        while let Some(keys) = scan.next::<Vec<u8>>(&server).await? {
            let keys = keys.iter().filter_map(|key| str::from_utf8(key).ok());
            let named = keys.flat_map(|key| partitions.iter().find_map(|of| of.keys.subject_of(key)));
            found.extend(named.filter_map(|name| Subject::parse(name.as_bytes()).ok()).filter(is_below));
        }
    }
    Ok(found)
}

/// The counters that outlive the lists of children.
async fn long_counters(Partition { client, keys }: &Partition, now: UnixMs) -> RedisResult<Vec<MetricPeriod>> {
    let is_long = |period: &Period| matches!(period.window(), Window::Quarter | Window::Year | Window::Total);
    let periods: Vec<Period> = alerts::kept_periods(now).into_iter().filter(is_long).collect();
    query::metrics_of(client, keys, &periods).await
}
