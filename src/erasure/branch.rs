//! The subjects of a branch: everything below a subject of which something may be stored.
//!
//! Lists of children name what was used lately. Other subjects are found by their settings and grants, and by the
//! counters of long windows, which outlive the lists.

use std::collections::BTreeSet;

use redis::RedisResult;

use crate::ledger::batch::MetricPeriod;
use crate::ledger::children;
use crate::ledger::counter_scan::CounterScan;
use crate::ledger::grants_due;
use crate::ledger::query;
use crate::redis_client::{Partition, Partitions};
use crate::types::text::glob_literal;
use crate::types::{Period, Subject, UnixMs, Window};
use crate::views::alerts;

/// Approximate number of keys that one SCAN looks at.
const SCAN_COUNT: usize = 1_000;

/// All subjects below this one; none if subjects are flat. Reads every counter of quarters, years and totals.
pub async fn below(partitions: &Partitions, subject: &Subject) -> RedisResult<BTreeSet<Subject>> {
    let partition = partitions.partition_of(subject);
    let Partition { client, keys } = partition;
    let mut found = BTreeSet::new();
    if keys.separator().is_none() {
        return Ok(found);
    }
    let is_below = |name: &Subject| keys.separator().is_below(name.as_str(), subject.as_str());
    let mut open = vec![subject.clone()];
    while let Some(level) = open.pop() {
        for child in children::all_names(partition, &level).await? {
            if is_below(&child) && found.insert(child.clone()) {
                open.push(child);
            }
        }
    }
    let pattern = format!("{}*", glob_literal(&keys.subject(subject)));
    let prefix = keys.subject_prefix().len();
    for server in client.primaries().await? {
        let mut cursor = 0_u64;
        loop {
            let mut command = redis::cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            let (next, slice): (u64, Vec<Vec<u8>>) = server.query(&command).await?;
            let names = slice.iter().filter_map(|key| Subject::parse(key.get(prefix..)?).ok());
            found.extend(names.filter(is_below));
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
    }
    found.extend(grants_due::all_subjects(partition).await?.into_iter().filter(is_below));
    let now = client.server_time().await?;
    for of in long_counters(partition, now).await? {
        let mut scan = CounterScan::new(of);
        while let Some(counts) = scan.next(partition).await? {
            found.extend(counts.into_iter().map(|count| count.subject).filter(is_below));
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
