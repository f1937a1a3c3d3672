//! Iterates over all counters of a metric in a period in slices, so that no call blocks the server for long. Writes
//! nothing.

use redis::RedisResult;

use super::batch::MetricPeriod;
use super::query::run;
use crate::redis_client::Partition;
use crate::types::Subject;

/// Number of hashes per call.
const HASHES_AT_ONCE: usize = 16;
/// Approximate number of counters per hash and call (COUNT).
const SCAN_COUNT: usize = 500;

/// The reply of HSCAN: the next cursor, and fields with their values.
type ScannedSlice = (u64, Vec<(Vec<u8>, String)>);

/// A scan in progress.
#[derive(Debug)]
pub struct CounterScan {
    of: MetricPeriod,
    /// Buckets that are not read to the end, each with its cursor.
    unfinished: Vec<(u8, u64)>,
}

/// A counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectCount {
    /// The subject.
    pub subject: Subject,
    /// Units.
    pub used: u64,
}

impl CounterScan {
    /// A scan of all counters of this metric and period.
    pub fn new(of: MetricPeriod) -> Self {
        Self { of, unfinished: (0..=u8::MAX).map(|bucket| (bucket, 0)).collect() }
    }

    /// The next counters; `None` at the end. A subject may occur twice if its hash changes meanwhile.
    pub async fn next(&mut self, Partition { client, keys }: &Partition) -> RedisResult<Option<Vec<SubjectCount>>> {
        if self.unfinished.is_empty() {
            return Ok(None);
        }
        let MetricPeriod { metric, period } = &self.of;
        let mut scanned = self.unfinished.split_off(self.unfinished.len().saturating_sub(HASHES_AT_ONCE));
        let mut slices = redis::pipe();
        for (bucket, cursor) in &scanned {
            slices.cmd("HSCAN").arg(keys.usage(metric, *period, *bucket)).arg(*cursor).arg("COUNT").arg(SCAN_COUNT);
        }
        let slices: Vec<ScannedSlice> = run(client, &slices).await?;
        let mut counts = Vec::new();
        for ((_, cursor), (next, fields)) in scanned.iter_mut().zip(slices) {
            *cursor = next;
            counts.extend(fields.into_iter().filter_map(|(subject, used)| {
                Some(SubjectCount { subject: Subject::parse(&subject).ok()?, used: used.parse().ok()? })
            }));
        }
        self.unfinished.extend(scanned.into_iter().filter(|(_, cursor)| *cursor != 0));
        Ok(Some(counts))
    }
}
