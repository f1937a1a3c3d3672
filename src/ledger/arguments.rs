//! The words of a commit: a batch as the keys and arguments that `commit.lua` describes. Pure.

use std::fmt::Write as _;
use std::ops::Range;

use redis::Cmd;

use crate::types::units::UNITS_MAX;
use crate::types::{Day, Keys, keys};

use super::batch::{Batch, window_of};
use super::commit::{COUNTER_TTL_S, FLAG_TTL_S, FORMAT, READ_AGE_MAX_MS, REFUSED_KEPT, Terms, Trimming};
use super::naming::{Reached, alert_of};
use super::renewal::{Life, Renewals};

/// The most subjects of one group, because Lua's unpack fails above 7,999 values.
const GROUP_ROWS_MAX: usize = 4_000;

/// Rows that share a counter hash.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) page: u32,
    pub(super) bucket: u8,
    pub(super) life: Life,
    rows: Range<usize>,
}

/// The rows by counter hash, each with whether its life is to be renewed.
pub(super) fn groups_of(batch: &Batch, renewals: &Renewals) -> Vec<Group> {
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

/// What one call of `commit.lua` is made of.
#[derive(Debug)]
pub(super) struct Arguments<'a> {
    pub(super) keys: &'a Keys,
    pub(super) terms: &'a Terms,
    pub(super) batch: &'a Batch,
    pub(super) groups: &'a [Group],
    pub(super) named: &'a [Reached],
}

impl Arguments<'_> {
    /// The EVALSHA of the script with this digest.
    pub(super) fn encode(&self, sha1: &str) -> Cmd {
        let Self { batch, groups, .. } = self;
        let (seen, past, days) = (seen_sets(batch), past_windows(batch), metric_sets(batch));
        // Only a guess of how much there will be to write.
        let words = 50 + 7 * groups.len() + 3 * batch.rows.len() + 2 * batch.ladders.len();
        let mut command = Cmd::with_capacity(words, 24 * words);
        command.arg("EVALSHA").arg(sha1).arg(5 + 2 * groups.len() + seen.len() + past.len() + days.len());
        self.name_keys(&mut command);
        for set in &seen {
            command.arg(self.keys.seen(set.window));
        }
        for window in &past {
            command.arg(self.keys.seen(*window));
        }
        for set in &days {
            command.arg(self.keys.metrics(set.day));
        }
        self.add_terms(&mut command);
        command.arg(batch.ladders.len()).arg(groups.len()).arg(self.named.len()).arg(batch.refused.len());
        command.arg(seen.len()).arg(past.len()).arg(days.len());
        self.add_ladders(&mut command);
        command.arg(self.numbers());
        for group in *groups {
            self.add_group(&mut command, group);
        }
        for name in self.named {
            if let Some(alert) = alert_of(batch, *name) {
                command.arg(format!("{}:{}", name.row + 1, name.percent)).arg(alert.id.as_str()).arg(alert.json_head());
            }
        }
        self.add_refused(&mut command);
        for set in &seen {
            command.arg(set.members.len()).arg(&set.members);
        }
        for set in &days {
            command.arg(set.metrics.len()).arg(&set.metrics);
        }
        command
    }

    fn name_keys(&self, command: &mut Cmd) {
        let keys = self.keys;
        command.arg(keys.stream()).arg(keys.checkpoint()).arg(keys.outbox()).arg(keys.refused()).arg(keys.totals());
        for group in self.groups {
            let page = &self.batch.pages[group.page as usize];
            command.arg(keys.usage(&page.metric, page.day, group.bucket));
            command.arg(keys.raised(&page.metric, page.day, group.bucket));
        }
    }

    fn add_terms(&self, command: &mut Cmd) {
        let Self { keys, terms, batch, .. } = self;
        command.arg(batch.from.to_string()).arg(batch.to.to_string()).arg(batch.entries);
        command.arg(batch.read_at.0).arg(READ_AGE_MAX_MS).arg(FORMAT).arg(terms.partitions);
        command.arg(&terms.fingerprint).arg(match terms.trim {
            Trimming::Consumed => "consumed",
            Trimming::Never => "never",
        });
        command.arg(keys::GROUP).arg(batch.counted).arg(batch.duplicates).arg(COUNTER_TTL_S).arg(FLAG_TTL_S);
        command.arg(keys.flag_prefix()).arg(REFUSED_KEPT).arg(UNITS_MAX);
    }

    fn add_ladders(&self, command: &mut Cmd) {
        for of in &self.batch.ladders {
            command.arg(of.ladder.steps.first().map_or(0, |least| least.units));
            let mut text = of.ladder.day_end.0.to_string();
            for step in &of.ladder.steps {
                // Writing to a string can't fail.
                let _ = write!(text, " {} {}", step.units, step.percent);
            }
            command.arg(text);
        }
    }

    fn add_group(&self, command: &mut Cmd, group: &Group) {
        let rows = &self.batch.rows[group.rows.clone()];
        let page = &self.batch.pages[group.page as usize];
        command.arg(page.metric.as_str()).arg(page.day.to_string()).arg(group.bucket);
        command.arg(match group.life {
            Life::Renew => 1,
            Life::Keep => 0,
        });
        command.arg(rows.len());
        for row in rows {
            command.arg(row.subject.as_str());
        }
    }

    /// Sums and ladder numbers of all rows, which are in the order of the groups.
    fn numbers(&self) -> Vec<u8> {
        let rows = &self.batch.rows;
        // 2^53 already overflows; larger sums would only lose precision in Lua.
        let sums = rows.iter().map(|row| row.sum.min(UNITS_MAX + 1));
        let ladders = rows.iter().map(|row| row.ladder.map_or(0, |ladder| u64::from(ladder) + 1));
        packed(2 * rows.len(), sums.chain(ladders))
    }

    fn add_refused(&self, command: &mut Cmd) {
        for refused in &self.batch.refused {
            command.arg(6 + refused.fields.len());
            command.arg("entry").arg(refused.entry.to_string());
            command.arg("reason").arg(refused.reason.as_str()).arg("detail").arg(&refused.detail);
            for field in &refused.fields {
                command.arg(field);
            }
        }
    }
}

struct SeenSet<'a> {
    window: u64,
    members: Vec<&'a [u8]>,
}

/// The ids to remember, by window. Windows that are past with this very commit are left out: it would remove them again.
fn seen_sets(batch: &Batch) -> Vec<SeenSet<'_>> {
    let newest = window_of(batch.to);
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
    let newest = window_of(batch.to);
    let last = window_of(batch.from);
    [last.saturating_sub(1), last].into_iter().filter(|window| *window > 0 && window + 2 <= newest).collect()
}

struct MetricSet<'a> {
    day: Day,
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

/// A list of `length` numbers in MessagePack.
fn packed(length: usize, numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(5 + 2 * length);
    let written = u32::try_from(length).map_err(std::io::Error::other).and_then(|length| {
        rmp::encode::write_array_len(&mut bytes, length)?;
        for number in numbers {
            rmp::encode::write_uint(&mut bytes, number)?;
        }
        Ok(())
    });
    written.expect("a batch has fewer rows than u32 counts, and memory takes every byte");
    bytes
}
