//! Reads the state that entries wait for while others are added and committed: settings of subjects, metrics of days,
//! counters, and alert records, all in one round trip.
//!
//! The settings determine which counters an event needs, so the entries of a new subject wait for two round trips.

use std::sync::Arc;

use redis::{RedisResult, Value};
use tokio_util::task::AbortOnDropHandle;

use crate::ledger::counter_scan::SubjectCount;
use crate::ledger::read_totals::{
    Replies, ask_checkpoint, ask_counters, ask_metrics, ask_records, checkpoint_from, counters_from, metrics_from,
    next_of, records_from,
};
use crate::redis_client::{Partition, RedisClient};
use crate::subjects::Plans;
use crate::subjects::watch::{ChangeFeed, SubjectChanges};
use crate::types::{Keys, StreamId};

use super::batch_builder::BatchBuilder;
use super::largest_children;
use super::read_ahead::ReadAhead;
use super::report::WorkerReport;
use super::session_error::SessionError;
use super::worker_cache::{LoadRequest, ReadRecords, WorkerCache};

/// How often settings that change during a load are read again. After that, the next load reads them.
const READ_AGAIN_MAX: u32 = 3;
/// Maximum number of round trips that an entry waits for. Above it, something changes all the time.
const READS_MAX: u32 = 8;

/// Loads the state that the batch needs and the cache does not hold, one load at a time.
#[derive(Debug)]
pub(super) struct StateLoader {
    keys: Keys,
    plans: Plans,
    changes: ChangeFeed,
    under_way: Option<UnderWay>,
    /// The first entry that waits, and the number of round trips made for it.
    first: Option<StreamId>,
    reads: u32,
}

/// The replies to the pipeline, and the counts of the children of each counter whose records are read; `None` where
/// they were not read.
type LoadReplies = (RedisResult<Vec<RedisResult<Value>>>, Vec<Option<Vec<SubjectCount>>>);

#[derive(Debug)]
struct UnderWay {
    missing: LoadRequest,
    /// The batch that was being built when the load began.
    batch: u64,
    /// Whether a commit was running at that moment.
    beside_commit: bool,
    replies: AbortOnDropHandle<LoadReplies>,
}

/// A load that has its answers.
#[derive(Debug)]
pub(super) struct FinishedRead {
    missing: LoadRequest,
    replies: RedisResult<Vec<RedisResult<Value>>>,
    /// The counts of the children of each counter whose records are read; `None` where they were not read.
    children: Vec<Option<Vec<SubjectCount>>>,
}

impl StateLoader {
    /// Creates a loader with these plans; `changes` tells which subjects have changed.
    pub(super) const fn new(keys: Keys, plans: Plans, changes: ChangeFeed) -> Self {
        Self { keys, plans, changes, under_way: None, first: None, reads: 0 }
    }

    /// Begins a load, unless nothing is missing or a load is running.
    ///
    /// # Errors
    ///
    /// The same entry has waited for too many loads, so something changes all the time.
    pub(super) fn begin(
        &mut self,
        client: &Arc<RedisClient>,
        ahead: &mut ReadAhead,
        held: &WorkerCache,
        builder: &BatchBuilder,
        beside_commit: bool,
    ) -> Result<(), SessionError> {
        if self.under_way.is_some() || ahead.missing().is_empty() && builder.is_ready(held) {
            return Ok(());
        }
        let mut missing = LoadRequest { records: builder.reached(held), ..ahead.take_missing() };
        held.sort_and_dedup(&mut missing);
        let first = ahead.first_unready();
        self.reads = if first.is_some() && first == self.first { self.reads + 1 } else { 1 };
        self.first = first;
        if self.reads > READS_MAX {
            return Err(SessionError::Again("settings changed while they were read"));
        }
        let mut pipeline = redis::pipe();
        pipeline.ignore_errors();
        held.cache.ask(&mut pipeline, &self.keys, &missing.settings);
        pipeline.cmd("EXISTS").arg(self.keys.grants_due());
        ask_metrics(&mut pipeline, &self.keys, &missing.days);
        ask_counters(&mut pipeline, &self.keys, &held.counter_queries(&missing));
        ask_records(&mut pipeline, &self.keys, &held.record_queries(&missing));
        ask_checkpoint(&mut pipeline, &self.keys);
        let partition = Partition { client: Arc::clone(client), keys: self.keys.clone() };
        let parents = held.parent_counters(&missing, self.keys.separator());
        let replies = AbortOnDropHandle::new(tokio::spawn(async move {
            let replies: RedisResult<Vec<RedisResult<Value>>> = partition.client.pipe(&pipeline).await;
            // The records are before the checkpoint, which is last.
            let first = |all: &[_]| all.len().checked_sub(parents.len() + 1);
            let records = replies.as_ref().ok().and_then(|all| all.get(first(all)?..));
            let children = largest_children::read(&partition, &parents, records.unwrap_or_default()).await;
            (replies, children)
        }));
        self.under_way = Some(UnderWay { missing, batch: builder.number(), beside_commit, replies });
        Ok(())
    }

    /// Whether a load is running and its replies may be older than the commit before the present batch. They must be
    /// applied before the batch is closed, because after that nothing may be built on them.
    pub(super) fn is_older_than(&self, builder: &BatchBuilder) -> bool {
        self.under_way.as_ref().is_some_and(|read| read.beside_commit || read.batch != builder.number())
    }

    /// Keeps the subjects of the running load in the cache.
    pub(super) fn touch(&self, held: &mut WorkerCache, builder: &BatchBuilder) {
        if let Some(UnderWay { missing, .. }) = &self.under_way {
            held.touch(missing, builder.number());
        }
    }

    /// Waits for the replies; forever if no load is running. Cancel-safe.
    pub(super) async fn finished(&mut self) -> FinishedRead {
        let Some(UnderWay { replies, .. }) = &mut self.under_way else { return std::future::pending().await };
        let (replies, children) = replies.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        let missing = self.under_way.take().map_or_else(LoadRequest::default, |under_way| under_way.missing);
        FinishedRead { missing, replies, children }
    }

    /// Stores what was read, and looks again at the entries that waited for it.
    ///
    /// # Errors
    ///
    /// A failure of Redis, or a commit of another worker in the meantime: no batch may be built on what was read.
    pub(super) fn apply_read(
        &self,
        FinishedRead { missing, replies, children }: FinishedRead,
        ahead: &mut ReadAhead,
        held: &mut WorkerCache,
        builder: &mut BatchBuilder,
        report: &WorkerReport,
    ) -> Result<(), SessionError> {
        let redis = |operation| move |source| SessionError::Redis { operation, source };
        let mut replies: Replies = replies.map_err(redis("read settings and counters"))?.into_iter();
        let unreadable = held.cache.apply_replies(&self.plans, &missing.settings, &mut replies);
        report.unreadable(&unreadable.map_err(redis("read the settings of subjects"))?);
        if next_of(&mut replies).map_err(redis("read whether subjects have grants"))? {
            held.cache.ask_grants();
        }
        let metrics = metrics_from(&mut replies, &missing.days).map_err(redis("read the metrics of a day"))?;
        let totals = counters_from(&mut replies, &self.keys, &held.counter_queries(&missing));
        let totals = totals.map_err(redis("read counters"))?;
        let records = records_from(&mut replies, &self.keys, &held.record_queries(&missing));
        let records = records.map_err(redis("read what was raised"))?;
        let checkpoint = checkpoint_from(&mut replies).map_err(redis("read the checkpoint"))?;
        if !builder.follows(checkpoint) {
            return Err(SessionError::Again("another worker committed while counters were read"));
        }
        held.day_metrics.insert(&missing.days, metrics);
        held.take_totals(&missing, &totals, builder.oldest_batch_in_use());
        let read = missing.records.into_iter().zip(records).zip(children);
        let read = read.map(|((request, records), children)| ReadRecords { request, records, children });
        builder.take_records(held, read.collect());
        // A change that came too late for one load is noticed after it. A producer that changes a subject all the time
        // must not stop the counting, so after some tries the change is left to the next load. That load comes well
        // within the second that a change may take.
        if self.reads <= READ_AGAIN_MAX && self.changes.is_live() {
            self.take_changes(held, report);
        }
        ahead.look_again(builder, held);
        Ok(())
    }

    /// Applies changed settings.
    pub(super) fn take_changes(&self, held: &mut WorkerCache, report: &WorkerReport) {
        let changes = self.changes.take_changes();
        match &changes {
            SubjectChanges::Any => held.cache.changed_all(),
            SubjectChanges::Of(subjects) => subjects.iter().for_each(|subject| held.cache.changed(subject)),
        }
        if self.under_way.is_some() {
            // Settings that are being read may be older than these changes.
            self.changes.note(changes);
        }
        report.cached(held.cache.len());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::events::CountingStatus;
    use crate::events::batch_builder::BatchBounds;
    use crate::ledger::{Batch, CountedEventIds};
    use crate::subjects::SettingsCache;
    use crate::types::{DeploymentId, Subject};

    const BOUNDS: BatchBounds = BatchBounds { entries: 9, cost: 9 };

    fn fixture() -> (StateLoader, WorkerCache, BatchBuilder) {
        let (keys, changes) = (Keys::new("usage"), ChangeFeed::default());
        changes.listening(true);
        let plans = Plans::without_limits();
        let held = WorkerCache::new(SettingsCache::new(10, &plans), CountedEventIds::new(10));
        let first = Batch::new(DeploymentId::from_stored("x"), StreamId::ZERO);
        let builder = BatchBuilder::new(keys.clone(), Duration::ZERO, first, BOUNDS);
        (StateLoader::new(keys, plans, changes), held, builder)
    }

    fn under_way(builder: &BatchBuilder, beside_commit: bool, settings: &[u32]) -> UnderWay {
        let unknown = || Ok(Value::Array(Vec::new()));
        let replies =
            tokio::spawn(
                async move { (Ok(vec![unknown(), unknown(), Ok(Value::Int(0)), Ok(Value::Nil)]), Vec::new()) },
            );
        UnderWay {
            missing: LoadRequest { settings: settings.to_vec(), ..LoadRequest::default() },
            batch: builder.number(),
            beside_commit,
            replies: AbortOnDropHandle::new(replies),
        }
    }

    /// Settings that were read before a change and arrive after it would otherwise stay forever.
    #[tokio::test]
    async fn settings_that_changed_on_their_way_are_read_again() {
        let (mut loader, mut held, mut builder) = fixture();
        let subjects = ["alice", "bob"].map(|name| held.cache.add(Subject::parse(name.as_bytes()).expect("legal")));
        let mut ahead = ReadAhead::default();
        let report = WorkerReport::new(loader.keys.partition(), Default::default(), CountingStatus::default());
        loader.take_changes(&mut held, &report);
        loader.under_way = Some(under_way(&builder, false, &subjects));
        loader.changes.note(SubjectChanges::Of(vec![b"alice".to_vec()]));
        loader.take_changes(&mut held, &report);
        let done = loader.finished().await;
        loader.apply_read(done, &mut ahead, &mut held, &mut builder, &report).expect("answered");
        let is_held = subjects.map(|subject_index| held.cache.subject(subject_index).profile().is_some());
        assert_eq!(is_held, [false, true]);
    }

    /// After the next commit, the load's result could not be told from one that another worker's commit has outdated,
    /// so the session would start again.
    #[tokio::test]
    async fn a_load_from_before_the_last_commit_is_taken_before_the_batch_is_closed() {
        let (mut loader, mut held, mut builder) = fixture();
        assert!(!loader.is_older_than(&builder), "none is under way");
        loader.under_way = Some(under_way(&builder, false, &[]));
        assert!(!loader.is_older_than(&builder), "it began after the commit that this batch follows");
        loader.under_way = Some(under_way(&builder, true, &[]));
        assert!(loader.is_older_than(&builder), "that commit was still under way");
        loader.under_way = Some(under_way(&builder, false, &[]));
        drop(builder.finish(&mut held, BOUNDS));
        assert!(loader.is_older_than(&builder), "the batch it began beside is closed");
    }
}
