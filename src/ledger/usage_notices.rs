//! Raises notices of usage: the wrapper of `usage_notices.lua`.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use redis::RedisResult;

use super::batch::MetricPeriod;
use super::query::run;
use crate::redis_client::{Partition, Script};
use crate::types::{DeploymentId, Subject, UsageNotice, UsageNoticeKind, keys};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("usage_notices.lua")));

/// Whether a notice was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaiseReply {
    /// It is in the outbox, once.
    Raised,
    /// It was raised before, or its limit is reached by now.
    Known,
    /// A subject was erased since the counter was read: nothing is raised.
    Stale,
}

/// Raises a notice unless it was raised before, given the number of erasures before its counter was read. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection; also if the partition was moved to another deployment.
pub async fn raise(
    Partition { client, keys }: &Partition,
    erasure_epoch: u64,
    notice: &UsageNotice,
) -> RedisResult<RaiseReply> {
    let UsageNotice { id, kind, subject, metric, window, period, limit, .. } = notice;
    let counter = keys.usage(metric, *period, keys::bucket(subject.as_str()));
    let json = serde_json::to_string(notice).expect("plain strings and numbers serialize");
    let mut call = SCRIPT.call().key(keys.checkpoint()).key(keys.notice_flag(*kind, subject, metric, *period));
    call = call.key(keys.outbox()).key(counter).arg(erasure_epoch).arg(subject.as_str()).arg(id);
    call = call.arg(window.flag_ttl_s().expect("a notice is of a period that ends")).arg(json);
    let reply: String = match kind {
        UsageNoticeKind::Forecast => call.arg(limit.map(|limit| limit.to_string()).unwrap_or_default()),
        UsageNoticeKind::Spike => call.arg(""),
    }
    .run(client)
    .await?;
    Ok(match reply.as_str() {
        "raised" => RaiseReply::Raised,
        "known" => RaiseReply::Known,
        _ => RaiseReply::Stale,
    })
}

/// The name of the deployment; `None` before the first commit.
pub async fn instance(Partition { client, keys }: &Partition) -> RedisResult<Option<DeploymentId>> {
    let name: Option<String> = client.query(redis::cmd("HGET").arg(keys.checkpoint()).arg("instance")).await?;
    Ok(name.map(|name| DeploymentId::from_stored(&name)))
}

/// Removes the flags of a subject among these counters, and returns their number. Repeatable.
pub async fn forget(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    counters: &[MetricPeriod],
) -> RedisResult<u64> {
    let counters: BTreeSet<&MetricPeriod> = counters.iter().filter(|of| of.period.window().has_forecast()).collect();
    let mut pipeline = redis::pipe();
    for MetricPeriod { metric, period } in counters {
        for kind in UsageNoticeKind::ALL {
            pipeline.cmd("UNLINK").arg(keys.notice_flag(kind, subject, metric, *period));
        }
    }
    Ok(run::<u64>(client, &pipeline).await?.into_iter().sum())
}
