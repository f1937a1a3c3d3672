//! What the loop of ends has to look at, in memory: rebuilt by the first search after a start.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::{Duration, Instant};

use crate::ledger::batch::MetricPeriod;
use crate::types::{Subject, UnixMs};

/// How often all alerts are looked at: an HSET may have been missed.
const SEARCH_EVERY: Duration = Duration::from_secs(600);
/// Minimum time between two searches.
const SEARCH_PAUSE: Duration = Duration::from_secs(10);
/// How often ended alerts that a new crossing would open again are looked at.
const WATCH_EVERY: Duration = Duration::from_secs(5);
/// Number of their subjects that are looked at together.
const WATCHED_AT_ONCE: usize = 200;
/// Maximum number of subjects in memory; beyond it everything is searched.
const SUBJECTS_MAX: usize = 10_000;

/// The agenda of one partition.
#[derive(Debug, Default)]
pub(super) struct EndsAgenda {
    /// Subjects that changed.
    subjects: BTreeSet<Subject>,
    /// Subjects to look at again and again: those with ended alerts in periods that go on.
    watched: BTreeSet<Subject>,
    /// The watched subject that was looked at last; the first ones follow after the last ones.
    watched_last: Option<Subject>,
    /// When watched subjects were looked at last.
    watched_at: Option<Instant>,
    /// When periods with open alerts end.
    period_ends: BTreeSet<(UnixMs, MetricPeriod)>,
    /// Metrics and periods to search.
    pub(super) searches: VecDeque<Search>,
    /// When the last search of everything began.
    searched: Option<Instant>,
    /// Whether one is wanted now.
    is_search_wanted: bool,
    /// Metrics and periods in which nothing can change any more.
    pub(super) settled: BTreeSet<MetricPeriod>,
}

/// A metric and period whose alerts are searched.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) of: MetricPeriod,
    /// The buckets that are left with the numbers of their fields; `None` before they are known.
    pub(super) buckets: Option<Vec<(u8, usize)>>,
    /// Whether everything that was found is final.
    pub(super) is_final: bool,
}

impl Search {
    pub(super) const fn new(of: MetricPeriod) -> Self {
        Self { of, buckets: None, is_final: true }
    }
}

impl EndsAgenda {
    /// Adds subjects that changed.
    pub(super) fn add(&mut self, subjects: impl IntoIterator<Item = Subject>) {
        self.subjects.extend(subjects);
        if self.subjects.len() > SUBJECTS_MAX {
            self.subjects.clear();
            self.is_search_wanted = true;
        }
    }

    /// Any subject may have changed.
    pub(super) const fn add_all(&mut self) {
        self.is_search_wanted = true;
    }

    /// Adds when periods with open alerts end, and subjects to look at again.
    pub(super) fn learn(
        &mut self,
        period_ends: impl IntoIterator<Item = (UnixMs, MetricPeriod)>,
        watched: Vec<Subject>,
    ) {
        self.period_ends.extend(period_ends);
        self.watched.extend(watched);
        while self.watched.len() > SUBJECTS_MAX {
            self.watched.pop_first();
        }
    }

    /// Whether a search of everything begins now.
    pub(super) fn begins_search(&mut self) -> bool {
        let begins = self.searches.is_empty()
            && self
                .searched
                .is_none_or(|at| at.elapsed() >= SEARCH_EVERY || self.is_search_wanted && at.elapsed() >= SEARCH_PAUSE);
        if begins {
            (self.searched, self.is_search_wanted) = (Some(Instant::now()), false);
        }
        begins
    }

    /// Moves what is due at `now` to the subjects and searches.
    pub(super) fn advance(&mut self, now: UnixMs) {
        while let Some((_, of)) = self.period_ends.first().filter(|(end, _)| *end <= now).cloned() {
            self.period_ends.pop_first();
            self.searches.push_front(Search::new(of));
        }
        if self.watched_at.is_some_and(|at| at.elapsed() < WATCH_EVERY) {
            return;
        }
        let from = self.watched_last.take().map_or(Bound::Unbounded, Bound::Excluded);
        let due: Vec<Subject> = self.watched.range((from, Bound::Unbounded)).take(WATCHED_AT_ONCE).cloned().collect();
        (self.watched_last, self.watched_at) = (due.last().cloned(), Some(Instant::now()));
        for subject in due {
            self.watched.remove(&subject);
            self.subjects.insert(subject);
        }
    }

    /// Takes some of the subjects.
    pub(super) fn take_subjects(&mut self, max: usize) -> Vec<Subject> {
        std::iter::from_fn(|| self.subjects.pop_first()).take(max).collect()
    }

    /// Whether something is left to do now.
    pub(super) fn is_busy(&self) -> bool {
        !self.subjects.is_empty() || !self.searches.is_empty()
    }
}
