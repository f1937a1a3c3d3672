//! The wrapper of `audit.lua`: detects entries, or a whole stream, that somebody removed before the daemon read them.

use std::sync::LazyLock;

use redis::{RedisResult, Value};

use crate::redis_client::{RedisClient, Script};
use crate::types::keys::GROUP;
use crate::types::{Keys, StreamId};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("audit.lua")));

/// The result of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditFinding {
    /// All entries that were ever added have been read.
    Even,
    /// Unread entries exist, so nothing can be compared yet.
    Unread,
    /// The stored checkpoint differs from the reader's.
    Stale(StreamId),
    /// This number of entries was removed before the daemon read them.
    Gap(u64),
    /// This number of entries appeared at or before the checkpoint. The daemon has not read them.
    Returned(u64),
    /// The stream's count is lower than the number of entries read, by this number.
    Rewound(u64),
    /// The stream was recreated with ids that are at least partly lower; the checkpoint now points to its beginning.
    Recreated,
}

/// Compares stream and checkpoint after the reader found nothing behind `at`. If there are unread entries, it only
/// checks whether entries returned, and counts at most `read_max` of the entries that were read. Repeatable.
pub async fn audit(client: &RedisClient, keys: &Keys, at: StreamId, read_max: u32) -> RedisResult<AuditFinding> {
    let call = SCRIPT.call().key(keys.stream()).key(keys.checkpoint());
    let reply: Vec<Value> = call.arg(at.to_string()).arg(GROUP).arg(read_max).run(client).await?;
    let mut reply = reply.into_iter();
    let word: String = redis::from_redis_value(reply.next().unwrap_or(Value::Nil))?;
    let mut number = || -> RedisResult<u64> { Ok(redis::from_redis_value(reply.next().unwrap_or(Value::Nil))?) };
    Ok(match word.as_str() {
        "gap" => AuditFinding::Gap(number()?),
        "returned" => AuditFinding::Returned(number()?),
        "rewound" => AuditFinding::Rewound(number()?),
        "unread" => AuditFinding::Unread,
        "recreated" => AuditFinding::Recreated,
        "stale" => {
            let id: String = redis::from_redis_value(reply.next().unwrap_or(Value::Nil))?;
            AuditFinding::Stale(id.parse().unwrap_or(StreamId::ZERO))
        }
        _ => AuditFinding::Even,
    })
}
