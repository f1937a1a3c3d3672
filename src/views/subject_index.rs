//! The names of the subjects for which something is set, in order, and which of them have a mute: for the console.
//!
//! They are read with SCAN when somebody first looks, and follow the changes that Redis reports after that, so that a
//! page costs the server little however many keys it has. A million names take some 60 MB.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::RedisResult;

use super::mutes::{MuteView, in_order_of_end, mutes_of};
use super::subject_list::{ScanPosition, read_subjects, scan};
use super::{Observer, SubjectView};
use crate::subjects::watch::{ChangeFeed, SubjectChanges};
use crate::types::Subject;

/// How long a page waits for names that are not read yet; after that it shows what is known.
const WAIT_MAX: Duration = Duration::from_millis(200);
/// Age at which names are read again while changes are not reported.
const UNREPORTED_AGE_MAX: Duration = Duration::from_secs(10);
/// Length of the pause after each step, in lengths of the step: counting needs the same server.
const PAUSE: u32 = 3;
/// Number of keys, or of changed subjects, that one step looks at.
const STEP: usize = 1_000;

/// The names. Each page reads on where the one before stopped.
#[derive(Debug, Default)]
pub struct SubjectIndex {
    changes: ChangeFeed,
    reading: tokio::sync::Mutex<Reading>,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Reading {
    scan: ScanPosition,
    /// When the last scan ended.
    ended: Option<Instant>,
    /// Reported, and not read again yet.
    changed: BTreeSet<Subject>,
}

#[derive(Debug, Default)]
struct Names {
    all: BTreeSet<Subject>,
    muted: BTreeSet<Subject>,
}

/// A part of what is listed.
#[derive(Debug)]
pub struct IndexPart<T> {
    pub rows: Vec<T>,
    /// The subject after which the next part begins; `None` at the end.
    pub next: Option<Subject>,
    /// Number of subjects in all parts.
    pub subjects: usize,
    /// Whether all names are read; otherwise subjects may be missing.
    pub is_complete: bool,
}

impl SubjectIndex {
    /// An index without names. A [`crate::subjects::watch::ChangeListener`] fills `changes`.
    pub fn new(changes: ChangeFeed) -> Self {
        Self { changes, ..Self::default() }
    }

    /// Reads at most `limit` subjects whose names begin so, after one of them.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection.
    pub async fn subjects(
        &self,
        observer: &Observer,
        beginning: &str,
        after: Option<&Subject>,
        limit: usize,
    ) -> RedisResult<IndexPart<SubjectView>> {
        self.part(observer, after, limit, |names| &names.all, beginning).await
    }

    /// Reads the mutes of at most `limit` subjects after one of them: the earliest end first, and those without an end
    /// last.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection.
    pub async fn mutes(
        &self,
        observer: &Observer,
        after: Option<&Subject>,
        limit: usize,
    ) -> RedisResult<IndexPart<MuteView>> {
        let IndexPart { rows, next, subjects, is_complete } =
            self.part(observer, after, limit, |names| &names.muted, "").await?;
        Ok(IndexPart { rows: in_order_of_end(rows.iter().flat_map(mutes_of).collect()), next, subjects, is_complete })
    }

    async fn part(
        &self,
        observer: &Observer,
        after: Option<&Subject>,
        limit: usize,
        of: fn(&Names) -> &BTreeSet<Subject>,
        beginning: &str,
    ) -> RedisResult<IndexPart<SubjectView>> {
        let is_complete = match tokio::time::timeout(WAIT_MAX, self.catch_up(observer)).await {
            Ok(read) => read.map(|()| true)?,
            Err(_) => false,
        };
        let (mut listed, subjects) = {
            let names = self.names();
            let from = after.map_or(Bound::Included(beginning), |after| Bound::Excluded(after.as_str()));
            let named = of(&names).range::<str, _>((from, Bound::Unbounded));
            let named = named.take_while(|name| name.as_str().starts_with(beginning));
            (named.take(limit + 1).cloned().collect::<Vec<Subject>>(), of(&names).len())
        };
        let next = (listed.len() > limit).then(|| listed.pop()).and_then(|_| listed.last().cloned());
        let rows = observer.subjects(&listed).await?;
        Ok(IndexPart { rows, next, subjects, is_complete })
    }

    /// Reads what is missing. If it is dropped before the end, what was read stays.
    async fn catch_up(&self, observer: &Observer) -> RedisResult<()> {
        let mut reading = self.reading.lock().await;
        match self.changes.take_changes() {
            SubjectChanges::Of(changed) => {
                reading.changed.extend(changed.iter().filter_map(|name| Subject::parse(name).ok()));
            }
            SubjectChanges::Any if self.changes.is_live() => reading.scan = ScanPosition::default(),
            // Nobody reports changes, and each page would read all names.
            SubjectChanges::Any => {
                if reading.ended.is_some_and(|ended| ended.elapsed() >= UNREPORTED_AGE_MAX) {
                    (reading.scan, reading.ended) = (ScanPosition::default(), None);
                }
            }
        }
        while !reading.changed.is_empty() {
            let step: Vec<Subject> = reading.changed.iter().take(STEP).cloned().collect();
            self.set(&step, &observer.subjects(&step).await?);
            reading.changed.retain(|subject| !step.contains(subject));
        }
        let first = observer.partitions.first();
        while reading.scan != ScanPosition::Ended {
            let began = Instant::now();
            let (found, next) = scan(first, reading.scan, STEP).await?;
            self.set(&found, &observer.subjects(&found).await?);
            reading.scan = next;
            reading.ended = Some(Instant::now());
            tokio::time::sleep(began.elapsed() * PAUSE).await;
        }
        Ok(())
    }

    /// Notes which of these subjects exist, and which are muted.
    fn set(&self, looked_at: &[Subject], existing: &[SubjectView]) {
        let mut names = self.names();
        for subject in looked_at {
            names.all.remove(subject);
            names.muted.remove(subject);
        }
        for view in existing {
            let Ok(subject) = view.subject.parse::<Subject>() else { continue };
            if !mutes_of(view).is_empty() {
                names.muted.insert(subject.clone());
            }
            names.all.insert(subject);
        }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer {
    async fn subjects(&self, subjects: &[Subject]) -> RedisResult<Vec<SubjectView>> {
        let first = self.partitions.first();
        if subjects.is_empty() {
            return Ok(Vec::new());
        }
        read_subjects(&first.client, &first.keys, &self.plans, subjects).await
    }
}
