//! Grants as they were added before anything was used, also such as have expired since.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use quotabell::ledger::batch::MetricPeriod;
pub use quotabell::ledger::grant_group::{Grant, GrantState};
use quotabell::ledger::grant_store::{self, GrantChange, GrantReply};
use quotabell::ledger::grants::CurrentUsage;
use quotabell::redis_client::Partition;
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{LimitUnits, Metric, Period, Units, UnixMs};

/// Somebody who used nothing before, with a base of 0.
pub struct Nothing;

impl CurrentUsage for Nothing {
    fn used(&self, _: &MetricPeriod) -> u64 {
        0
    }

    fn base(&self, _: &MetricPeriod) -> Option<LimitUnits> {
        Some(LimitUnits::default())
    }
}

/// A prepaid grant of requests without expiry.
pub fn prepaid(id: &str, units: u64) -> Grant {
    Grant {
        id: id.parse().expect("legal"),
        metric: Metric::default(),
        period: Period::parse("all").expect("a period"),
        units: Units::new(units).expect("in range"),
        spent: 0,
        state: GrantState::Active,
        expires_at: None,
        notice_at: None,
        note: None,
        added_at: Rfc3339(UnixMs(0)),
        ended_at: None,
    }
}

/// Writes grants of a subject of this partition.
pub async fn give(partition: &Partition, subject: &str, given: impl IntoIterator<Item = Grant>) {
    let before = grant_store::read(partition, subject.parse().expect("legal"), None).await.expect("read");
    let mut after = before.grants.clone();
    for grant in given {
        assert_eq!(after.add(grant, &Nothing, UnixMs(0)), Ok(true));
    }
    let change = GrantChange { before: &before, after: &after, checkpoint: None, notices: &[] };
    assert_eq!(grant_store::write(partition, change).await.expect("written"), GrantReply::Written);
}
