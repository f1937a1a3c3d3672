//! Reads what the children of a subject used, beside the records of the alerts that it may raise.

use futures_util::future::join_all;
use redis::{RedisError, RedisResult, Value};

use crate::ledger::batch::MetricPeriod;
use crate::ledger::children;
use crate::ledger::counter_scan::SubjectCount;
use crate::redis_client::Partition;
use crate::types::{RaisedRecord, Subject};

/// Number of subjects whose children are read at once.
const AT_ONCE: usize = 16;

/// A counter that has reached thresholds, of a subject that may have children.
#[derive(Debug, Clone)]
pub(super) struct ParentCounter {
    /// The subject.
    pub(super) subject: Subject,
    /// Metric and period.
    pub(super) of: MetricPeriod,
    /// The units of each threshold whose record is read, if it is reached.
    pub(super) reached: Vec<Option<u64>>,
}

/// The counts of the children of each counter, as committed; empty for a subject without children. `None` where they
/// were not read: `records`, the replies with the records of the counters, show that no alert will be raised, or
/// reading failed. An alert without them is better than a late one, so an error is logged.
pub(super) async fn read(
    partition: &Partition,
    counters: &[Option<ParentCounter>],
    records: &[RedisResult<Value>],
) -> Vec<Option<Vec<SubjectCount>>> {
    let counts = async |(counter, record): (&Option<ParentCounter>, &RedisResult<Value>)| match (counter, record) {
        (Some(counter), Ok(record)) if counter.may_raise(record) => {
            let ParentCounter { subject, of, .. } = counter;
            let counts = children::counts(partition, subject, of).await;
            let failed = |error: &RedisError| {
                tracing::warn!(%subject, %error, "an alert does not name the largest children: their counts can't be read");
            };
            counts.inspect_err(failed).ok()
        }
        (None, _) => Some(Vec::new()),
        _ => None,
    };
    let mut all = Vec::with_capacity(counters.len());
    let pairs: Vec<_> = counters.iter().zip(records).collect();
    for some in pairs.chunks(AT_ONCE) {
        all.extend(join_all(some.iter().copied().map(counts)).await);
    }
    all.resize(counters.len(), None);
    all
}

impl ParentCounter {
    /// Whether a reached threshold has no record, or one under a lower limit.
    fn may_raise(&self, records: &Value) -> bool {
        let Value::Array(records) = records else { return false };
        self.reached.iter().zip(records).any(|(reached, record)| match (reached, record) {
            (None, _) => false,
            (Some(_), Value::Nil) => true,
            (Some(units), Value::BulkString(json)) => {
                serde_json::from_slice(json).is_ok_and(|record: RaisedRecord| record.alert.threshold_units < *units)
            }
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channels::Sample;
    use crate::types::{Threshold, UnixMs};

    /// A start finds thousands of counters above thresholds that were raised long ago: reading the children of each
    /// would delay the first commits.
    #[test]
    fn children_are_read_only_for_what_may_be_raised() {
        let alert = Sample::example().alert("80".parse::<Threshold>().expect("legal"), UnixMs(1));
        let (subject, units) = (alert.subject.clone(), alert.threshold_units);
        let of = MetricPeriod { metric: alert.metric.clone(), period: alert.period };
        let counter = |reached: &[Option<u64>]| ParentCounter {
            subject: subject.clone(),
            of: of.clone(),
            reached: reached.to_vec(),
        };
        let json = serde_json::to_vec(&RaisedRecord::after(None, alert.clone())).expect("JSON");
        let raised = Value::Array(vec![Value::BulkString(json), Value::Nil]);
        assert!(!counter(&[Some(units), None]).may_raise(&raised), "raised before");
        assert!(counter(&[Some(units + 1), None]).may_raise(&raised), "under a lower limit");
        assert!(counter(&[Some(units), Some(units)]).may_raise(&raised), "the second one is new");
        assert!(!counter(&[Some(units)]).may_raise(&Value::Nil));
    }
}
