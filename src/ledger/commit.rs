//! The wrapper of `commit.lua`: one batch, all or nothing.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use redis::{Cmd, RedisError, RedisResult, Value};

use crate::types::units::UNITS_MAX;
use crate::types::{Alert, AlertId, Keys, Percent, StreamId, UnixMs, keys};
use crate::wire::{Link, Script, script};

use super::batch::Batch;
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
/// The most subjects of one group, because Lua's unpack fails above 7,999 values.
const GROUP_ROWS_MAX: usize = 4_000;

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

/// A threshold that was reached and needs its alert named.
#[derive(Debug, Clone, Copy)]
struct Unnamed {
    row: usize,
    percent: Percent,
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
    /// tells. A key of another type ([`crate::wire::Fault::WrongType`]) has written nothing.
    pub async fn commit(&self, link: &Link, batch: &Batch) -> RedisResult<Answer> {
        let groups = self.groups_of(batch);
        let mut named = foreseen(batch);
        // Between two tries other rows can't reach a threshold: the checkpoint guards the counters. A limit of two keeps a script
        // that misbehaves from looping.
        for _ in 0..2 {
            let command = self.encode(batch, &groups, &named);
            let reply: Value = script::run(link, &self.script, &command).await?;
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

    /// The rows by counter hash, each with whether its life is to be renewed.
    fn groups_of(&self, batch: &Batch) -> Vec<Group> {
        let renewals = self.renewals.lock().unwrap_or_else(PoisonError::into_inner);
        let mut groups: Vec<Group> = Vec::with_capacity(usize::from(keys::BUCKETS));
        for (at, row) in batch.rows.iter().enumerate() {
            match groups.last_mut() {
                Some(group)
                    if group.page == row.page && group.bucket == row.bucket && group.rows.len() < GROUP_ROWS_MAX =>
                {
                    group.rows.end = at + 1;
                }
                _ => {
                    let life = renewals.life(&batch.pages[row.page as usize], row.bucket, batch.read_at);
                    groups.push(Group { page: row.page, bucket: row.bucket, rows: at..at + 1, life });
                }
            }
        }
        groups
    }

    fn renewed(&self, batch: &Batch, groups: &[Group]) {
        let mut renewals = self.renewals.lock().unwrap_or_else(PoisonError::into_inner);
        for group in groups.iter().filter(|group| group.life == Life::Renew) {
            renewals.renewed(&batch.pages[group.page as usize], group.bucket, batch.read_at);
        }
    }

    /// The EVALSHA of this batch; the order of its arguments is described in `commit.lua`.
    fn encode(&self, batch: &Batch, groups: &[Group], named: &[Unnamed]) -> Cmd {
        let seen = seen_sets(batch);
        let past = past_windows(batch);
        let days = metric_sets(batch);

        let words = 50 + 7 * groups.len() + 3 * batch.rows.len() + 2 * batch.ladders.len();
        let mut command = Cmd::with_capacity(words, 24 * words);
        command.arg("EVALSHA").arg(self.script.sha1()).arg(5 + 2 * groups.len() + seen.len() + past.len() + days.len());
        command.arg(self.keys.stream()).arg(self.keys.checkpoint()).arg(self.keys.outbox());
        command.arg(self.keys.refused()).arg(self.keys.totals());
        for group in groups {
            let page = &batch.pages[group.page as usize];
            command.arg(self.keys.usage(&page.metric, page.day, group.bucket));
            command.arg(self.keys.raised(&page.metric, page.day, group.bucket));
        }
        for set in &seen {
            command.arg(self.keys.seen(set.window));
        }
        for window in &past {
            command.arg(self.keys.seen(*window));
        }
        for set in &days {
            command.arg(self.keys.metrics(set.day));
        }

        command.arg(batch.from.to_string()).arg(batch.to.to_string()).arg(batch.entries);
        command.arg(batch.read_at.0).arg(READ_AGE_MAX_MS).arg(FORMAT).arg(self.terms.partitions);
        command.arg(&self.terms.fingerprint).arg(match self.terms.trim {
            Trimming::Consumed => "consumed",
            Trimming::Never => "never",
        });
        command.arg(keys::GROUP).arg(batch.counted).arg(batch.duplicates).arg(COUNTER_TTL_S).arg(FLAG_TTL_S);
        command.arg(self.keys.flag_prefix()).arg(REFUSED_KEPT).arg(UNITS_MAX);
        command.arg(batch.ladders.len()).arg(groups.len()).arg(named.len()).arg(batch.refused.len());
        command.arg(seen.len()).arg(past.len()).arg(days.len());

        for of in &batch.ladders {
            command.arg(of.ladder.steps.first().map_or(0, |least| least.units));
            let mut text = of.ladder.day_end.0.to_string();
            for step in &of.ladder.steps {
                // Writing to a string can't fail.
                let _ = write!(text, " {} {}", step.units, step.percent);
            }
            command.arg(text);
        }
        for group in groups {
            let rows = &batch.rows[group.rows.clone()];
            let page = &batch.pages[group.page as usize];
            command.arg(page.metric.as_str()).arg(page.day.to_string()).arg(group.bucket);
            command.arg(match group.life {
                Life::Renew => 1,
                Life::Keep => 0,
            });
            command.arg(rows.len());
            for row in rows {
                command.arg(row.subject.as_str());
            }
            for row in rows {
                // 2^53 already overflows; larger sums would only lose precision in Lua.
                command.arg(row.sum.min(UNITS_MAX + 1));
            }
            for row in rows {
                command.arg(row.ladder.map_or(0, |ladder| ladder + 1));
            }
        }
        for name in named {
            if let Some(alert) = alert_of(batch, *name) {
                command.arg(format!("{}:{}", name.row + 1, name.percent)).arg(alert.id.as_str()).arg(alert.json_head());
            }
        }
        for refused in &batch.refused {
            command.arg(6 + refused.fields.len());
            command.arg("entry").arg(refused.entry.to_string());
            command.arg("reason").arg(refused.reason.as_str()).arg("detail").arg(&refused.detail);
            for field in &refused.fields {
                command.arg(field);
            }
        }
        for set in &seen {
            command.arg(set.members.len());
            for member in &set.members {
                command.arg(member);
            }
        }
        for set in &days {
            command.arg(set.metrics.len());
            for metric in &set.metrics {
                command.arg(*metric);
            }
        }
        command
    }
}

/// Rows that share a counter hash.
struct Group {
    page: u32,
    bucket: u8,
    rows: Range<usize>,
    life: Life,
}

/// The thresholds that rows will reach if their counters stand where the reader believes. Naming these with the first call saves a
/// second one; the script judges by the counters themselves.
fn foreseen(batch: &Batch) -> Vec<Unnamed> {
    let mut foreseen = Vec::new();
    for (at, row) in batch.rows.iter().enumerate() {
        let Some(of) = row.ladder.and_then(|ladder| batch.ladders.get(ladder as usize)) else { continue };
        let reached = row.believed..=row.believed.saturating_add(row.sum);
        let steps =
            of.ladder.steps.iter().filter(|step| step.units > *reached.start() && reached.contains(&step.units));
        foreseen.extend(steps.map(|step| Unnamed { row: at, percent: step.percent }));
    }
    foreseen
}

struct SeenSet<'a> {
    window: u64,
    members: Vec<&'a [u8]>,
}

/// The ids to remember, by window. Windows that are past with this very commit are left out: it would remove them again.
fn seen_sets(batch: &Batch) -> Vec<SeenSet<'_>> {
    let newest = super::batch::window_of(batch.to);
    let mut sets: Vec<SeenSet<'_>> = Vec::new();
    for id in batch.seen.iter().filter(|id| id.window + 2 > newest) {
        match sets.iter_mut().find(|set| set.window == id.window) {
            Some(set) => set.members.push(&id.member),
            None => sets.push(SeenSet { window: id.window, members: vec![&id.member] }),
        }
    }
    sets
}

/// Windows that exist and lie two or more behind the batch's last entry. Earlier commits have removed all but the checkpoint's
/// own window and the one before it.
fn past_windows(batch: &Batch) -> Vec<u64> {
    let newest = super::batch::window_of(batch.to);
    let last = super::batch::window_of(batch.from);
    [last.saturating_sub(1), last].into_iter().filter(|window| *window > 0 && window + 2 <= newest).collect()
}

struct MetricSet<'a> {
    day: crate::types::Day,
    metrics: Vec<&'a str>,
}

fn metric_sets(batch: &Batch) -> Vec<MetricSet<'_>> {
    let mut sets: Vec<MetricSet<'_>> = Vec::new();
    // Only pages with a row: a page whose events were all refused has no counter. Rows are sorted by page.
    let mut used: Vec<u32> = batch.rows.iter().map(|row| row.page).collect();
    used.dedup();
    for page in used.into_iter().map(|page| &batch.pages[page as usize]) {
        match sets.iter_mut().find(|set| set.day == page.day) {
            Some(set) => set.metrics.push(page.metric.as_str()),
            None => sets.push(MetricSet { day: page.day, metrics: vec![page.metric.as_str()] }),
        }
    }
    sets
}

/// The alert that a row raises at a threshold; count and time are added by the script.
fn alert_of(batch: &Batch, of: Unnamed) -> Option<Alert> {
    let row = batch.rows.get(of.row)?;
    let page = &batch.pages[row.page as usize];
    let ladder = batch.ladders.get(row.ladder? as usize)?;
    Some(Alert {
        id: AlertId::of(&row.subject, &page.metric, of.percent, page.day),
        subject: row.subject.clone(),
        metric: page.metric.clone(),
        threshold_percent: of.percent,
        limit: ladder.limit,
        plan: ladder.plan.to_string(),
        day: page.day,
        timezone: ladder.timezone.to_owned(),
        resets_at_ms: ladder.ladder.day_end,
        used: 0,
        raised_at_ms: UnixMs(0),
    })
}

enum Reply {
    Answer(Answer),
    Unnamed(Vec<Unnamed>),
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
            let unnamed = |pair: &[u64]| Some(Unnamed { row: position(pair[0])?, percent: percent_of(pair[1])? });
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
        let id = alert_of(batch, Unnamed { row, percent })?.id;
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
