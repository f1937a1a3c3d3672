//! When grants must be looked at: the wrapper of `grants_due.lua`, and what needs no script.

use std::sync::LazyLock;

use redis::RedisResult;

use crate::redis_client::{Partition, Script};
use crate::types::{Subject, UnixMs};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("grants_due.lua")));

/// Number of subjects whose grants are looked at together.
const DUE_AT_ONCE: usize = 100;

/// When grants of a partition must be looked at next; `None` for never.
///
/// # Errors
///
/// The error of Redis.
pub async fn next(Partition { client, keys }: &Partition) -> RedisResult<Option<UnixMs>> {
    let mut command = redis::cmd("ZRANGE");
    command.arg(keys.grants_due()).arg(0).arg(0).arg("WITHSCORES");
    let first: Vec<String> = client.query(&command).await?;
    Ok(first.get(1).and_then(|score| time_of(score)))
}

/// The time in a score of the subjects with grants.
pub(super) fn time_of(score: &str) -> Option<UnixMs> {
    // Whole milliseconds are exact in a score.
    let ms = score.parse::<f64>().ok().filter(|ms| ms.is_finite())?;
    Some(UnixMs(ms as i64))
}

/// Some of the subjects of which grants are due until this time, the first one first; none if nothing is due.
///
/// # Errors
///
/// The error of Redis.
pub async fn some_subjects(partition: &Partition, until: UnixMs) -> RedisResult<Vec<Subject>> {
    let Partition { client, keys } = partition;
    let mut command = redis::cmd("ZRANGE");
    command.arg(keys.grants_due()).arg("-inf").arg(until.0).arg("BYSCORE").arg("LIMIT").arg(0).arg(DUE_AT_ONCE);
    loop {
        let names: Vec<Vec<u8>> = client.query(&command).await?;
        let (legal, foreign): (Vec<_>, Vec<_>) =
            names.iter().map(|name| Subject::parse(name).map_err(|_| name)).partition(Result::is_ok);
        let foreign: Vec<&Vec<u8>> = foreign.into_iter().filter_map(Result::err).collect();
        if !foreign.is_empty() {
            let key = keys.grants_due();
            tracing::warn!(key, "names that are no subjects are removed: somebody else wrote them");
            let () = client.query(redis::cmd("ZREM").arg(key).arg(&foreign)).await?;
        }
        if !legal.is_empty() || foreign.is_empty() {
            return Ok(legal.into_iter().flatten().collect());
        }
    }
}

/// All subjects with grants.
///
/// # Errors
///
/// The error of Redis.
pub async fn all_subjects(Partition { client, keys }: &Partition) -> RedisResult<Vec<Subject>> {
    let names: Vec<Vec<u8>> = client.query(redis::cmd("ZRANGE").arg(keys.grants_due()).arg(0).arg(-1)).await?;
    Ok(names.iter().filter_map(|name| Subject::parse(name).ok()).collect())
}

/// Looks at a subject's grants later, because they can't be read now. Repeatable.
///
/// # Errors
///
/// The error of Redis.
pub async fn postpone(Partition { client, keys }: &Partition, subject: &Subject, until: UnixMs) -> RedisResult<()> {
    let call = SCRIPT.call().key(keys.grants_due()).key(keys.grants(subject));
    call.arg(subject.as_str()).arg(until.0).run::<u64>(client).await.map(drop)
}

/// Removes all grants of a subject that are in this partition, and returns their number. Repeatable.
///
/// # Errors
///
/// The error of Redis; the grants may be removed.
pub async fn forget(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<u64> {
    let call = SCRIPT.call().key(keys.grants_due()).key(keys.grants_here(subject));
    call.arg(subject.as_str()).arg("removed").run(client).await
}
