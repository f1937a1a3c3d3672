//! Raises notices of usage: the wrapper of `usage_notices.lua`.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use metrics::counter;
use redis::RedisResult;

use super::batch::MetricPeriod;
use super::query::run;
use super::usage_profiles;
use crate::redis_client::{Partition, Script};
use crate::types::{DeploymentId, Keys, Metric, Period, Subject, UsageNotice, UsageNoticeKind, keys, meters};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("usage_notices.lua")));

/// Whether a notice was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaiseReply {
    /// It is in the outbox, once.
    Raised,
    /// It was raised before, or its limit is reached by now, or the subject is no longer silent.
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
    let (ttl_s, below) = match kind {
        UsageNoticeKind::Forecast => (window.flag_ttl_s(), limit.map(|limit| limit.to_string()).unwrap_or_default()),
        UsageNoticeKind::Spike => (window.flag_ttl_s(), String::new()),
        // As long as the profile: a silence has no period.
        UsageNoticeKind::Silence => (Some(usage_profiles::TTL_S), "1".to_owned()),
    };
    let mut call = SCRIPT.call().key(keys.checkpoint()).key(flag(keys, *kind, subject, (metric, *period)));
    call = call.key(keys.outbox()).key(counter).arg(erasure_epoch).arg(subject.as_str()).arg(id);
    let reply: String =
        call.arg(ttl_s.expect("a notice is of a period that ends")).arg(json).arg(below).run(client).await?;
    Ok(match reply.as_str() {
        "raised" => {
            counter!(meters::NOTICES_RAISED, "type" => kind.webhook_type()).increment(1);
            RaiseReply::Raised
        }
        "known" => RaiseReply::Known,
        _ => RaiseReply::Stale,
    })
}

/// The name of the deployment; `None` before the first commit.
pub async fn instance(Partition { client, keys }: &Partition) -> RedisResult<Option<DeploymentId>> {
    let name: Option<String> = client.query(redis::cmd("HGET").arg(keys.checkpoint()).arg("instance")).await?;
    Ok(name.map(|name| DeploymentId::from_stored(&name)))
}

/// The flag of a kind. There is one for the silences of a subject, whatever the day.
fn flag(keys: &Keys, kind: UsageNoticeKind, subject: &Subject, (metric, period): (&Metric, Period)) -> String {
    let period = if kind == UsageNoticeKind::Silence { Period::ALL_TIME } else { period };
    keys.notice_flag(kind, subject, metric, period)
}

/// Removes the flags of a subject among these counters and in these metrics, and returns their number. Repeatable.
pub async fn forget(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    counters: &[MetricPeriod],
    metrics: &BTreeSet<Metric>,
) -> RedisResult<u64> {
    let counters: BTreeSet<&MetricPeriod> = counters.iter().filter(|of| of.period.window().has_forecast()).collect();
    let mut pipeline = redis::pipe();
    let periods = counters.into_iter().map(|of| (&of.metric, of.period));
    let kinds = [UsageNoticeKind::Forecast, UsageNoticeKind::Spike];
    let flags = periods.flat_map(|of| kinds.map(|kind| (kind, of)));
    let silences = metrics.iter().map(|metric| (UsageNoticeKind::Silence, (metric, Period::ALL_TIME)));
    for (kind, of) in flags.chain(silences) {
        pipeline.cmd("UNLINK").arg(flag(keys, kind, subject, of));
    }
    Ok(run::<u64>(client, &pipeline).await?.into_iter().sum())
}
