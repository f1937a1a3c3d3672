//! Arguments of a commit: encodes a batch as the keys and arguments that `commit.lua` describes. Pure.

use std::fmt::Write as _;
use std::ops::Range;

use redis::Cmd;

use crate::types::units::UNITS_MAX;
use crate::types::{Day, Keys, keys};

use super::batch::{Batch, window_of};
use super::commit_settings::{COUNTER_TTL_S, CommitSettings, FLAG_TTL_S, FORMAT, READ_AGE_MAX_MS, REFUSED_KEPT};
use super::naming::{ReachedThreshold, alert_of};
use super::ttl_refresh::{TtlRefresh, TtlRefreshes};

/// The most subjects of one group, because Lua's unpack fails above 7,999 values.
const GROUP_ROWS_MAX: usize = 4_000;

/// Rows that share a counter hash.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) metric_day: u32,
    pub(super) bucket: u8,
    pub(super) ttl_refresh: TtlRefresh,
    rows: Range<usize>,
}

/// The rows by counter hash, each with whether its TTL is to be refreshed.
pub(super) fn groups_of(batch: &Batch, refreshes: &TtlRefreshes) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::with_capacity(usize::from(keys::BUCKETS));
    for (at, row) in batch.rows.iter().enumerate() {
        match groups.last_mut() {
            Some(group)
                if group.metric_day == row.metric_day
                    && group.bucket == row.bucket
                    && group.rows.len() < GROUP_ROWS_MAX =>
            {
                group.rows.end = at + 1;
            }
            _ => {
                let ttl_refresh = refreshes.due(&batch.metric_days[row.metric_day as usize], row.bucket, batch.read_at);
                groups.push(Group { metric_day: row.metric_day, bucket: row.bucket, rows: at..at + 1, ttl_refresh });
            }
        }
    }
    groups
}

/// What one call of `commit.lua` is made of.
#[derive(Debug)]
pub(super) struct Arguments<'a> {
    pub(super) keys: &'a Keys,
    pub(super) settings: &'a CommitSettings,
    pub(super) batch: &'a Batch,
    pub(super) groups: &'a [Group],
    pub(super) named: &'a [ReachedThreshold],
}

impl Arguments<'_> {
    /// The EVALSHA of the script with this digest.
    pub(super) fn encode(&self, sha1: &str) -> Cmd {
        let Self { batch, groups, .. } = self;
        let (seen, past, days) = (seen_sets(batch), past_windows(batch), metric_sets(batch));
        // Only a guess of how much there will be to write.
        let words = 50 + 7 * groups.len() + 3 * batch.rows.len() + 2 * batch.limits.len();
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
        self.add_settings(&mut command);
        command.arg(batch.limits.len()).arg(groups.len()).arg(self.named.len()).arg(batch.refused.len());
        command.arg(seen.len()).arg(past.len()).arg(days.len());
        self.add_limits(&mut command);
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
            let metric_day = &self.batch.metric_days[group.metric_day as usize];
            command.arg(keys.usage(&metric_day.metric, metric_day.day, group.bucket));
            command.arg(keys.raised(&metric_day.metric, metric_day.day, group.bucket));
        }
    }

    fn add_settings(&self, command: &mut Cmd) {
        let Self { keys, settings, batch, .. } = self;
        command.arg(batch.from.to_string()).arg(batch.to.to_string()).arg(batch.entries);
        command.arg(batch.read_at.0).arg(READ_AGE_MAX_MS).arg(FORMAT).arg(settings.partitions);
        command.arg(&settings.fingerprint).arg(settings.trim.as_str());
        command.arg(keys::GROUP).arg(batch.counted).arg(batch.duplicates).arg(COUNTER_TTL_S).arg(FLAG_TTL_S);
        command.arg(keys.flag_prefix()).arg(REFUSED_KEPT).arg(UNITS_MAX);
    }

    fn add_limits(&self, command: &mut Cmd) {
        for limit in &self.batch.limits {
            command.arg(limit.thresholds.ascending.first().map_or(0, |lowest| lowest.units));
            let mut text = limit.thresholds.day_end.0.to_string();
            for threshold in &limit.thresholds.ascending {
                // Writing to a string can't fail.
                let _ = write!(text, " {} {}", threshold.units, threshold.percent);
            }
            command.arg(text);
        }
    }

    fn add_group(&self, command: &mut Cmd, group: &Group) {
        let rows = &self.batch.rows[group.rows.clone()];
        let metric_day = &self.batch.metric_days[group.metric_day as usize];
        command.arg(metric_day.metric.as_str()).arg(metric_day.day.to_string()).arg(group.bucket);
        command.arg(match group.ttl_refresh {
            TtlRefresh::Due => 1,
            TtlRefresh::Recent => 0,
        });
        command.arg(rows.len());
        for row in rows {
            command.arg(row.subject.as_str());
        }
    }

    /// Sums and limit numbers of all rows, which are in the order of the groups.
    fn numbers(&self) -> Vec<u8> {
        let rows = &self.batch.rows;
        // 2^53 already overflows; larger sums would only lose precision in Lua.
        let sums = rows.iter().map(|row| row.sum.min(UNITS_MAX + 1));
        let limits = rows.iter().map(|row| row.limit.map_or(0, |limit| u64::from(limit) + 1));
        packed(2 * rows.len(), sums.chain(limits))
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
    // Only those with a row: a metric and day whose events were all refused has no counter. Rows are sorted by metric and day.
    let mut used: Vec<u32> = batch.rows.iter().map(|row| row.metric_day).collect();
    used.dedup();
    for metric_day in used.into_iter().map(|metric_day| &batch.metric_days[metric_day as usize]) {
        match sets.iter_mut().find(|set| set.day == metric_day.day) {
            Some(set) => set.metrics.push(metric_day.metric.as_str()),
            None => sets.push(MetricSet { day: metric_day.day, metrics: vec![metric_day.metric.as_str()] }),
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
