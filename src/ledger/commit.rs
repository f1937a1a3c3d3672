//! The wrapper of `commit.lua`: one batch, all or nothing. Read next: [`arguments`](super::arguments), what the script is told.

use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::{RedisError, RedisResult, Value};

use crate::types::{AlertId, Keys, Percent, StreamId};
use crate::wire::{RedisClient, Script, script};

use super::arguments::{Arguments, Group, groups_of};
use super::batch::Batch;
use super::naming::{Reached, alert_of, foreseen};
use super::renewal::{Life, Renewals};

/// The layout of counters and records in Redis. A daemon that knows another one does not start.
pub const FORMAT: &str = "1";
/// Counters and records live this long after their last write.
pub const COUNTER_TTL_S: u64 = 14 * 86_400;
/// The flag of an alert lives 30 hours.
pub const FLAG_TTL_S: u64 = 108_000;
/// About how many refused events are kept.
pub const REFUSED_KEPT: u64 = 100_000;
/// A batch that was read longer ago is read again, since its limits may be outdated.
pub const READ_AGE_MAX_MS: u64 = 5_000;

/// Commits batches of one partition.
#[derive(Debug)]
pub struct Committer {
    keys: Keys,
    script: Script,
    terms: Terms,
    renewals: Mutex<Renewals>,
}

/// What every commit of a daemon has in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Whether consumed entries are trimmed.
    pub trim: Trimming,
    /// How many partitions there are.
    pub partitions: u32,
    /// Of plans and windows; tells that two daemons judge differently.
    pub fingerprint: String,
}

/// Whether consumed entries are trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trimming {
    /// Yes, but never past what another group needs.
    Consumed,
    /// No.
    Never,
}

/// What the script answered.
#[derive(Debug)]
pub enum Answer {
    /// The batch is in the books.
    Committed(Committed),
    /// Another commit came first; the stored checkpoint.
    Stale(StreamId),
    /// The batch's last entry is not in the stream.
    Lost,
    /// The stream was made again, and holds entries before the checkpoint that were never read.
    Recreated,
    /// The batch was read too long ago.
    Old,
    /// These counters would pass 2^53 - 1.
    Overflow(Vec<Full>),
}

/// What a commit did.
#[derive(Debug, Default)]
pub struct Committed {
    /// Alerts that were raised.
    pub raised: Vec<Raised>,
    /// What the operator should hear.
    pub notes: Vec<Note>,
}

/// An alert that a commit raised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raised {
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
pub enum Note {
    /// This consumer group keeps consumed entries from being trimmed.
    Held(String),
    /// An optional command failed: which, and the server's words.
    Refused {
        /// `group`, `trim` or `unlink`.
        what: String,
        /// The error.
        error: String,
    },
}

/// A counter without room for a row's sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// Position of the row in the batch.
    pub row: usize,
    /// What the counter holds now.
    pub count: u64,
}

impl Committer {
    /// A committer of the partition with these keys.
    #[must_use]
    pub fn new(keys: Keys, terms: Terms) -> Self {
        Self { keys, script: Script::new(include_str!("commit.lua")), terms, renewals: Mutex::default() }
    }

    /// Applies an arranged batch ([`Batch::arrange`]), naming the alerts where thresholds are reached.
    ///
    /// Repeatable: once applied, the same batch is [`Answer::Stale`] and changes nothing. The argument is in `commit.lua`.
    ///
    /// # Errors
    ///
    /// What Redis or the connection said. A broken connection leaves open whether the batch was applied; the stored checkpoint
    /// tells. A key of another type ([`crate::wire::ErrorKind::WrongType`]) has written nothing.
    pub async fn commit(&self, client: &RedisClient, batch: &Batch) -> RedisResult<Answer> {
        let groups = groups_of(batch, &self.renewals());
        let mut named = foreseen(batch);
        // Between two tries other rows can't reach a threshold: the checkpoint guards the counters. A limit of two keeps a script
        // that misbehaves from looping.
        for _ in 0..2 {
            let arguments = Arguments { keys: &self.keys, terms: &self.terms, batch, groups: &groups, named: &named };
            let command = arguments.encode(self.script.sha1());
            let reply: Value = script::run(client, &self.script, &command).await?;
            match decode(reply, batch)? {
                Reply::Answer(answer) => {
                    if matches!(answer, Answer::Committed(_)) {
                        self.renewed(batch, &groups);
                    }
                    return Ok(answer);
                }
                Reply::Unnamed(rows) => named.extend(rows),
            }
        }
        Err(unexpected("unnamed alerts twice"))
    }

    fn renewals(&self) -> MutexGuard<'_, Renewals> {
        self.renewals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renewed(&self, batch: &Batch, groups: &[Group]) {
        let mut renewals = self.renewals();
        for group in groups.iter().filter(|group| group.life == Life::Renew) {
            renewals.renewed(&batch.pages[group.page as usize], group.bucket, batch.read_at);
        }
    }
}

enum Reply {
    Answer(Answer),
    /// Thresholds that were reached and need their alerts named.
    Unnamed(Vec<Reached>),
}

fn decode(reply: Value, batch: &Batch) -> RedisResult<Reply> {
    let parts: Vec<Value> = redis::from_redis_value(reply)?;
    let mut parts = parts.into_iter();
    let word: String = redis::from_redis_value(parts.next().unwrap_or(Value::Nil))?;
    let answer = match word.as_str() {
        "committed" => {
            let raised: Vec<u64> = redis::from_redis_value(parts.nth(1).unwrap_or(Value::Nil))?;
            let notes: Vec<String> = redis::from_redis_value(parts.next().unwrap_or(Value::Nil))?;
            Answer::Committed(Committed { raised: raised_of(&raised, batch)?, notes: notes_of(&notes) })
        }
        "stale" => {
            let id: String = redis::from_redis_value(parts.next().unwrap_or(Value::Nil))?;
            Answer::Stale(id.parse().map_err(|_| unexpected("a checkpoint that is no stream id"))?)
        }
        "lost" => Answer::Lost,
        "recreated" => Answer::Recreated,
        "old" => Answer::Old,
        "overflow" => {
            let numbers: Vec<u64> = redis::from_redis_value(Value::Array(parts.collect()))?;
            let full = |pair: &[u64]| Some(Full { row: position(pair[0])?, count: pair[1] });
            Answer::Overflow(numbers.chunks_exact(2).filter_map(full).collect())
        }
        "unnamed" => {
            let numbers: Vec<u64> = redis::from_redis_value(Value::Array(parts.collect()))?;
            let unnamed = |pair: &[u64]| Some(Reached { row: position(pair[0])?, percent: percent_of(pair[1])? });
            return Ok(Reply::Unnamed(numbers.chunks_exact(2).filter_map(unnamed).collect()));
        }
        _ => return Err(unexpected("an answer that is none of its own")),
    };
    Ok(Reply::Answer(answer))
}

/// The script counts rows from 1.
fn position(row: u64) -> Option<usize> {
    usize::try_from(row).ok()?.checked_sub(1)
}

fn percent_of(number: u64) -> Option<Percent> {
    u16::try_from(number).ok().and_then(Percent::new)
}

fn raised_of(numbers: &[u64], batch: &Batch) -> RedisResult<Vec<Raised>> {
    let one = |triple: &[u64]| {
        let (row, percent) = (position(triple[0])?, percent_of(triple[1])?);
        let id = alert_of(batch, Reached { row, percent })?.id;
        Some(Raised { id, row, percent, used: triple[2] })
    };
    numbers
        .chunks_exact(3)
        .map(|triple| one(triple).ok_or_else(|| unexpected("an alert of a row that is not in the batch")))
        .collect()
}

fn notes_of(words: &[String]) -> Vec<Note> {
    words
        .chunks_exact(2)
        .map(|pair| match pair[0].as_str() {
            "held" => Note::Held(pair[1].clone()),
            what => Note::Refused { what: what.to_owned(), error: pair[1].clone() },
        })
        .collect()
}

fn unexpected(what: &'static str) -> RedisError {
    RedisError::from((redis::ErrorKind::UnexpectedReturnType, "commit.lua answered", what.to_owned()))
}
