//! The names of the subjects for which something is set, in order, and which of them have a mute: for the console.
//!
//! They are read with SCAN when somebody first looks, and follow the changes that Redis reports after that, so that a
//! page costs the server little however many keys it has. A million names take some 60 MB.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::RedisResult;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedMutexGuard;

use super::mutes::{MuteView, in_order_of_end, mutes_of};
use super::subject_list::{ScanPosition, read_subjects, scan};
use super::{Observer, SubjectView};
use crate::subjects::watch::{ChangeFeed, SubjectChanges};
use crate::types::{Subject, UnixMs};

/// How long a page waits for names that are not read yet; after that it shows what is known.
const WAIT_MAX: Duration = Duration::from_millis(200);
/// Age at which names are read again while changes are not reported.
const UNREPORTED_AGE_MAX: Duration = Duration::from_secs(10);
/// Number of keys, or of changed subjects, that one step looks at.
const STEP: usize = 1_000;
/// Length of the pause after each step, in lengths of the step: counting needs the same server.
const PAUSE: u32 = 10;

/// The names. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct SubjectIndex {
    changes: ChangeFeed,
    /// Locked by the task that reads names.
    reading: Arc<tokio::sync::Mutex<Reading>>,
    names: Arc<Mutex<Names>>,
}

#[derive(Debug, Default)]
struct Reading {
    scan: ScanPosition,
    /// What this scan has seen: at its end, nothing else is there.
    seen: BTreeSet<Subject>,
    /// When the last scan ended.
    ended: Option<Instant>,
    /// Reported, and not read again yet.
    changed: BTreeSet<Subject>,
}

#[derive(Debug, Default)]
struct Names {
    all: BTreeSet<Subject>,
    /// When the mutes of a subject end; `None` if somebody has to end one.
    muted: BTreeMap<Subject, Vec<Option<UnixMs>>>,
}

/// A part of what is listed.
#[derive(Debug)]
pub struct IndexPart<T, C> {
    pub rows: Vec<T>,
    /// The position after which the next part begins; `None` at the end.
    pub next: Option<C>,
    /// Number of subjects in the whole list, whatever their names begin with.
    pub subjects: usize,
    /// Whether all names are read; otherwise subjects may be missing.
    pub is_complete: bool,
}

/// The position in a list of mutes: whether none of a subject's mutes has an end, the earliest end, and the subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MutePosition(bool, Option<UnixMs>, Subject);

impl SubjectIndex {
    /// An index without names. A [`crate::subjects::watch::ChangeListener`] fills `changes`.
    pub fn new(changes: ChangeFeed) -> Self {
        Self { changes, ..Self::default() }
    }

    /// Notes that a subject was changed here, so that the next look sees it even if Redis reports it later.
    pub fn note_changed(&self, subject: &Subject) {
        self.changes.note(SubjectChanges::Of(vec![subject.as_str().as_bytes().to_vec()]));
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
    ) -> RedisResult<IndexPart<SubjectView, Subject>> {
        let is_complete = self.catch_up(observer).await?;
        let (mut listed, subjects) = {
            let Names { all, .. } = &*self.names();
            let from = after.map_or(Bound::Included(beginning), |after| Bound::Excluded(after.as_str()));
            let named = all.range::<str, _>((from, Bound::Unbounded));
            let named = named.take_while(|name| name.as_str().starts_with(beginning));
            (named.take(limit + 1).cloned().collect::<Vec<Subject>>(), all.len())
        };
        let next = split_next(&mut listed, limit);
        Ok(IndexPart { rows: observer.subjects(&listed).await?, next, subjects, is_complete })
    }

    /// Reads the mutes of at most `limit` subjects after a position: those of the subject whose mute ends first come
    /// first.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection.
    pub async fn mutes(
        &self,
        observer: &Observer,
        after: Option<&MutePosition>,
        limit: usize,
    ) -> RedisResult<IndexPart<MuteView, MutePosition>> {
        let is_complete = self.catch_up(observer).await?;
        let now = observer.partitions.first().client.server_time().await?;
        let place = |(subject, ends): (&Subject, &Vec<Option<UnixMs>>)| {
            let active = ends.iter().filter(|end| end.is_none_or(|end| now < end));
            let (has_none, end) = active.map(|end| (end.is_none(), *end)).min()?;
            Some(MutePosition(has_none, end, subject.clone()))
        };
        let mut listed: Vec<MutePosition> = self.names().muted.iter().filter_map(place).collect();
        let subjects = listed.len();
        listed.sort_unstable();
        listed.retain(|place| after.is_none_or(|after| after < place));
        listed.truncate(limit + 1);
        let next = split_next(&mut listed, limit);
        let named: Vec<Subject> = listed.into_iter().map(|MutePosition(.., subject)| subject).collect();
        let rows = in_order_of_end(observer.subjects(&named).await?.iter().flat_map(mutes_of).collect());
        Ok(IndexPart { rows, next, subjects, is_complete })
    }

    /// Reads what is missing, and returns whether nothing is any more. What takes longer than a page waits goes on
    /// afterwards.
    async fn catch_up(&self, observer: &Observer) -> RedisResult<bool> {
        let caught_up = async {
            let reading = Arc::clone(&self.reading).lock_owned().await;
            let (index, observer) = (self.clone(), observer.clone());
            tokio::spawn(async move { index.read(reading, &observer).await }).await.expect("reading does not panic")
        };
        tokio::time::timeout(WAIT_MAX, caught_up).await.map_or(Ok(false), |read| read.map(|()| true))
    }

    async fn read(&self, mut reading: OwnedMutexGuard<Reading>, observer: &Observer) -> RedisResult<()> {
        loop {
            reading.note(&self.changes);
            let began = Instant::now();
            if !reading.changed.is_empty() {
                let step: Vec<Subject> = reading.changed.iter().take(STEP).cloned().collect();
                self.set(&mut reading, &step, &observer.subjects(&step).await?);
            } else if reading.scan != ScanPosition::Ended {
                let (found, next) = scan(observer.partitions.first(), reading.scan, STEP).await?;
                self.set(&mut reading, &found, &observer.subjects(&found).await?);
                reading.scan = next;
                if next == ScanPosition::Ended {
                    self.end_scan(&mut reading);
                }
            } else {
                return Ok(());
            }
            tokio::time::sleep(began.elapsed() * PAUSE).await;
        }
    }

    /// Notes which of these subjects exist, and which are muted.
    fn set(&self, reading: &mut Reading, looked_at: &[Subject], existing: &[SubjectView]) {
        let mut names = self.names();
        for subject in looked_at {
            reading.changed.remove(subject);
            reading.seen.remove(subject);
            names.all.remove(subject);
            names.muted.remove(subject);
        }
        for view in existing {
            let Ok(subject) = view.subject.parse::<Subject>() else { continue };
            let mutes = mutes_of(view);
            if !mutes.is_empty() {
                let ends = mutes.into_iter().map(|muted| muted.mute.until).collect();
                names.muted.insert(subject.clone(), ends);
            }
            if reading.scan != ScanPosition::Ended {
                reading.seen.insert(subject.clone());
            }
            names.all.insert(subject);
        }
    }

    /// Removes what this scan has not seen: it was removed while nobody reported that.
    fn end_scan(&self, reading: &mut Reading) {
        let mut names = self.names();
        names.muted.retain(|subject, _| reading.seen.contains(subject));
        names.all = std::mem::take(&mut reading.seen);
        reading.ended = Some(Instant::now());
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    /// Notes what has changed since the last look.
    fn note(&mut self, changes: &ChangeFeed) {
        match changes.take_changes() {
            SubjectChanges::Of(changed) => {
                self.changed.extend(changed.iter().filter_map(|name| Subject::parse(name).ok()));
            }
            SubjectChanges::Any if changes.is_live() => self.begin_scan(),
            // Nobody reports changes, and each page would read all names.
            SubjectChanges::Any => {
                let is_old = self.ended.is_some_and(|ended| ended.elapsed() >= UNREPORTED_AGE_MAX);
                if self.scan == ScanPosition::Ended && is_old {
                    self.begin_scan();
                }
            }
        }
    }

    fn begin_scan(&mut self) {
        self.scan = ScanPosition::default();
        self.seen.clear();
    }
}

/// Shortens a list with one row too many, and returns the last row that is left.
fn split_next<T: Clone>(listed: &mut Vec<T>, limit: usize) -> Option<T> {
    if listed.len() <= limit {
        return None;
    }
    listed.truncate(limit);
    listed.last().cloned()
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
