//! The wrapper of `commit.lua`: one batch, all or nothing. Read next: [`arguments`](super::arguments), what the script is told.

use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::{RedisError, RedisResult, Value};

use crate::types::{AlertId, Keys, Percent, StreamId};
use crate::wire::{RedisClient, Script, script};

use super::arguments::{Arguments, Group, groups_of};
use super::batch::Batch;
use super::commit_settings::CommitSettings;
use super::naming::{ReachedThreshold, alert_of, foreseen};
use super::ttl_refresh::{TtlRefresh, TtlRefreshes};

/// Commits batches of one partition.
#[derive(Debug)]
pub struct Committer {
    keys: Keys,
    script: Script,
    settings: CommitSettings,
    ttl_refreshes: Mutex<TtlRefreshes>,
}

/// What the script answered.
#[derive(Debug)]
pub enum CommitOutcome {
    /// The batch is in the books.
    Committed(CommitSummary),
    /// Another commit came first; the stored checkpoint.
    Stale(StreamId),
    /// The batch's last entry is not in the stream.
    Lost,
    /// The stream was made again, and holds entries before the checkpoint that were never read.
    Recreated,
    /// The batch was read too long ago.
    Old,
    /// These counters would pass 2^53 - 1.
    Overflow(Vec<FullCounter>),
}

/// What a commit did.
#[derive(Debug, Default)]
pub struct CommitSummary {
    /// Alerts that were raised.
    pub raised: Vec<RaisedAlert>,
    /// What the operator should hear.
    pub notes: Vec<CommitWarning>,
}

/// An alert that a commit raised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaisedAlert {
    /// Its id.
    pub id: AlertId,
    /// Position of the row in the batch.
    pub row: usize,
    /// The threshold.
    pub percent: Percent,
    /// The count.
    pub used: u64,
}

/// Something beside the commit that did not go as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitWarning {
    /// This consumer group keeps consumed entries from being trimmed.
    TrimHeld(String),
    /// An optional command failed: which, and the server's words.
    CommandRefused {
        /// `group`, `trim` or `unlink`.
        what: String,
        /// The error.
        error: String,
    },
}

/// A counter without room for a row's sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FullCounter {
    /// Position of the row in the batch.
    pub row: usize,
    /// What the counter holds now.
    pub count: u64,
}

impl Committer {
    /// A committer of the partition with these keys.
    #[must_use]
    pub fn new(keys: Keys, settings: CommitSettings) -> Self {
        Self { keys, script: Script::new(include_str!("commit.lua")), settings, ttl_refreshes: Mutex::default() }
    }

    /// Applies an arranged batch ([`Batch::arrange`]), naming the alerts where thresholds are reached.
    ///
    /// Repeatable: once applied, the same batch is [`CommitOutcome::Stale`] and changes nothing. The argument is in `commit.lua`.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said. A broken connection leaves open whether the batch was applied; the stored checkpoint
    /// tells. A key of another type ([`crate::wire::ErrorKind::WrongType`]) has written nothing.
    pub async fn commit(&self, client: &RedisClient, batch: &Batch) -> RedisResult<CommitOutcome> {
        let groups = groups_of(batch, &self.ttl_refreshes());
        let mut named = foreseen(batch);
        // Between two tries other rows can't reach a threshold: the checkpoint guards the counters. A limit of two keeps a script
        // that misbehaves from looping.
        for _ in 0..2 {
            let arguments =
                Arguments { keys: &self.keys, settings: &self.settings, batch, groups: &groups, named: &named };
            let command = arguments.encode(self.script.sha1());
            let reply: Value = script::run(client, &self.script, &command).await?;
            match decode(reply, batch)? {
                CommitReply::Outcome(answer) => {
                    if matches!(answer, CommitOutcome::Committed(_)) {
                        self.ttl_refreshed(batch, &groups);
                    }
                    return Ok(answer);
                }
                CommitReply::Unnamed(rows) => named.extend(rows),
            }
        }
        Err(unexpected("unnamed alerts twice"))
    }

    fn ttl_refreshes(&self) -> MutexGuard<'_, TtlRefreshes> {
        self.ttl_refreshes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ttl_refreshed(&self, batch: &Batch, groups: &[Group]) {
        let mut refreshes = self.ttl_refreshes();
        for group in groups.iter().filter(|group| group.ttl_refresh == TtlRefresh::Due) {
            refreshes.refreshed(&batch.metric_days[group.metric_day as usize], group.bucket, batch.read_at);
        }
    }
}

enum CommitReply {
    Outcome(CommitOutcome),
    /// Thresholds that were reached and need their alerts named.
    Unnamed(Vec<ReachedThreshold>),
}

fn decode(reply: Value, batch: &Batch) -> RedisResult<CommitReply> {
    let parts: Vec<Value> = redis::from_redis_value(reply)?;
    let mut parts = parts.into_iter();
    let word: String = redis::from_redis_value(parts.next().unwrap_or(Value::Nil))?;
    let answer = match word.as_str() {
        "committed" => {
            let raised: Vec<u64> = redis::from_redis_value(parts.nth(1).unwrap_or(Value::Nil))?;
            let notes: Vec<String> = redis::from_redis_value(parts.next().unwrap_or(Value::Nil))?;
            CommitOutcome::Committed(CommitSummary { raised: raised_of(&raised, batch)?, notes: notes_of(&notes) })
        }
        "stale" => {
            let id: String = redis::from_redis_value(parts.next().unwrap_or(Value::Nil))?;
            CommitOutcome::Stale(id.parse().map_err(|_| unexpected("a checkpoint that is no stream id"))?)
        }
        "lost" => CommitOutcome::Lost,
        "recreated" => CommitOutcome::Recreated,
        "old" => CommitOutcome::Old,
        "overflow" => {
            let numbers: Vec<u64> = redis::from_redis_value(Value::Array(parts.collect()))?;
            let full = |pair: &[u64]| Some(FullCounter { row: position(pair[0])?, count: pair[1] });
            CommitOutcome::Overflow(numbers.chunks_exact(2).filter_map(full).collect())
        }
        "unnamed" => {
            let numbers: Vec<u64> = redis::from_redis_value(Value::Array(parts.collect()))?;
            let unnamed =
                |pair: &[u64]| Some(ReachedThreshold { row: position(pair[0])?, percent: percent_of(pair[1])? });
            return Ok(CommitReply::Unnamed(numbers.chunks_exact(2).filter_map(unnamed).collect()));
        }
        _ => return Err(unexpected("an answer that is none of its own")),
    };
    Ok(CommitReply::Outcome(answer))
}

/// The script counts rows from 1.
fn position(row: u64) -> Option<usize> {
    usize::try_from(row).ok()?.checked_sub(1)
}

fn percent_of(number: u64) -> Option<Percent> {
    u16::try_from(number).ok().and_then(Percent::new)
}

fn raised_of(numbers: &[u64], batch: &Batch) -> RedisResult<Vec<RaisedAlert>> {
    let one = |triple: &[u64]| {
        let (row, percent) = (position(triple[0])?, percent_of(triple[1])?);
        let id = alert_of(batch, ReachedThreshold { row, percent })?.id;
        Some(RaisedAlert { id, row, percent, used: triple[2] })
    };
    numbers
        .chunks_exact(3)
        .map(|triple| one(triple).ok_or_else(|| unexpected("an alert of a row that is not in the batch")))
        .collect()
}

fn notes_of(words: &[String]) -> Vec<CommitWarning> {
    words
        .chunks_exact(2)
        .map(|pair| match pair[0].as_str() {
            "held" => CommitWarning::TrimHeld(pair[1].clone()),
            what => CommitWarning::CommandRefused { what: what.to_owned(), error: pair[1].clone() },
        })
        .collect()
}

fn unexpected(what: &'static str) -> RedisError {
    RedisError::from((redis::ErrorKind::UnexpectedReturnType, "commit.lua answered", what.to_owned()))
}
