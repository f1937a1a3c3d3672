//! The wrapper of `audit.lua`: whether somebody removed entries, or the whole stream, behind our back.

use redis::{RedisResult, Value};

use crate::redis_client::{RedisClient, Script};
use crate::types::{Keys, StreamId, keys};

/// Audits one partition.
#[derive(Debug)]
pub struct Audit {
    keys: Keys,
    script: Script,
}

/// What the audit found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditFinding {
    /// All entries that were ever added have been read.
    Even,
    /// Not at the end: nothing can be said yet.
    Unread,
    /// The checkpoint is another one than the reader's.
    Stale(StreamId),
    /// So many entries were removed before they were read.
    Gap(u64),
    /// So many entries lie at or before the checkpoint that were not there before: they were never read.
    Returned(u64),
    /// The stream counts so many entries fewer than were read.
    Rewound(u64),
    /// The stream was made again with lower ids, at least some: the checkpoint has been set to its beginning.
    Recreated,
}

impl Audit {
    /// An audit of the partition with these keys.
    pub fn new(keys: Keys) -> Self {
        Self { keys, script: Script::with_prelude(include_str!("audit.lua")) }
    }

    /// Compares stream and checkpoint, when the reader has found nothing after `at`. Where there are unread entries all
    /// the same, it looks only whether entries returned, and counts up to `read_max` of those that were read.
    /// Repeatable.
    pub async fn run(&self, client: &RedisClient, at: StreamId, read_max: u32) -> RedisResult<AuditFinding> {
        let call = self.script.call().key(self.keys.stream()).key(self.keys.checkpoint());
        let reply: Vec<Value> = call.arg(at.to_string()).arg(keys::GROUP).arg(read_max).run(client).await?;
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
}
