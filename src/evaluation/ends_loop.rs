//! Notices that alerts have ended, at the daemon that reads the partition: changed subjects within seconds, the ends of
//! periods when they come, and everything else in a search of all alerts every ten minutes.
//!
//! Works beside the commits, in slices with pauses. What it knows is in memory only: the first search after a start
//! finds the ends of the time before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::RedisResult;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::alert_ends::{EndsJudge, is_final, known_thresholds};
use super::ends_agenda::{EndsAgenda, Search};
use super::reader::ReaderState;
use crate::contacts::resolver::ContactResolver;
use crate::ledger::alert_ends::{self, AlertGroup};
use crate::ledger::batch::MetricPeriod;
use crate::ledger::ends_feed::EndsFeed;
use crate::ledger::query::metrics_of;
use crate::ledger::retention::KEPT_DAYS_MAX;
use crate::ledger::{raised_scan, usage_profiles};
use crate::redis_client::Partition;
use crate::subjects::watch::SubjectChanges;
use crate::subjects::{Plans, StoredLevels};
use crate::types::keys::BUCKETS;
use crate::types::{Day, Metric, Period, PeriodSpan, Subject, Threshold, UnixMs, Window};

/// Number of changed subjects that are looked at together.
const SUBJECTS_AT_ONCE: usize = 100;
/// Number of records after which a slice of a search ends. A bucket is read as a whole.
const RECORDS_AT_ONCE: usize = 1_000;
/// Maximum number of records and fields per second.
const RECORDS_PER_S: u32 = 10_000;
/// Minimum pause after each slice.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// The same after changed subjects: those that change meanwhile are looked at together.
const CHANGES_PAUSE: Duration = Duration::from_millis(100);
/// How often the loop looks at the clock, at the lease, and whether the counting keeps up.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The loop of one partition.
#[derive(Debug)]
pub struct EndsLoop {
    /// The partition, with a client of its own.
    pub partition: Partition,
    /// The plans.
    pub plans: Plans,
    /// Finds out who asks for ends.
    pub contacts: Arc<ContactResolver>,
    /// This daemon, as it is named in leases.
    pub daemon: String,
    /// What the commits and the changes of subjects tell.
    pub feed: EndsFeed,
    /// How long after the end of its day an event may arrive.
    pub late_max: Duration,
    /// Notified after notices were raised.
    pub new_notices: Arc<Notify>,
}

impl EndsLoop {
    /// Runs until stopped. Nothing that fails here stops the counting.
    pub async fn run(self, stop: CancellationToken) {
        let (mut agenda, mut has_failed, mut checked) = (EndsAgenda::default(), false, None);
        loop {
            let wait = match self.step(&mut agenda, &mut checked).await {
                Ok(wait) => {
                    has_failed = false;
                    wait
                }
                Err(error) => {
                    // What was taken from the agenda is found by the next search.
                    agenda.add_all();
                    if !std::mem::replace(&mut has_failed, true) {
                        let partition = self.partition.number();
                        tracing::warn!(%partition, %error, "the ends of alerts can't be noticed yet");
                    }
                    LOOK_EVERY
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.feed.changes.arrived(), if wait >= LOOK_EVERY && !has_failed => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Does some of the work, and returns when to continue.
    async fn step(&self, agenda: &mut EndsAgenda, checked: &mut Option<Instant>) -> RedisResult<Duration> {
        let Self { partition, feed: EndsFeed { changes, .. }, daemon, .. } = self;
        let now = partition.client.server_time().await?;
        if checked.is_none_or(|at: Instant| at.elapsed() >= LOOK_EVERY) {
            *checked = None;
            match ReaderState::read(partition, daemon, now).await? {
                ReaderState::Elsewhere => {
                    changes.take_changes();
                    self.feed.take_period_ends();
                    *agenda = EndsAgenda::default();
                    return Ok(LOOK_EVERY);
                }
                ReaderState::Behind => return Ok(LOOK_EVERY),
                ReaderState::UpToDate => *checked = Some(Instant::now()),
            }
        }
        match changes.take_changes() {
            SubjectChanges::Any => agenda.add_all(),
            SubjectChanges::Of(names) => {
                let subjects = names.iter().filter_map(|name| Subject::parse(name).ok());
                let own = partition.keys.partition();
                agenda.add(subjects.filter(|of| partition.keys.partition_of(of.as_str().as_bytes()) == own));
            }
        }
        agenda.learn(self.feed.take_period_ends(), Vec::new());
        agenda.advance(now);
        if agenda.begins_search() {
            self.begin_search(agenda, now).await?;
        }
        let subjects = agenda.take_subjects(SUBJECTS_AT_ONCE);
        let mut read = 0;
        if !subjects.is_empty() {
            read += self.look_at(agenda, &subjects, now).await?;
        }
        if let Some(search) = agenda.searches.pop_front() {
            read += self.search_some(agenda, search, now).await?;
        }
        let pause = Duration::from_secs(read as u64) / RECORDS_PER_S;
        tokio::time::sleep(pause.max(if subjects.is_empty() { PAUSE_MIN } else { CHANGES_PAUSE })).await;
        Ok(if agenda.is_busy() { Duration::ZERO } else { LOOK_EVERY })
    }

    /// Begins a search of all alerts that may change.
    async fn begin_search(&self, agenda: &mut EndsAgenda, now: UnixMs) -> RedisResult<()> {
        let Partition { client, keys } = &self.partition;
        let Some(today) = Day::in_utc(now) else { return Ok(()) };
        let (first, last) = (today.before(KEPT_DAYS_MAX).unwrap_or(today), today.next().unwrap_or(today));
        let kept = metrics_of(client, keys, &Period::touching(first, last)).await?;
        agenda.settled.retain(|settled| kept.contains(settled));
        let open = kept.into_iter().filter(|of| !agenda.settled.contains(of));
        agenda.searches = open.map(Search::new).collect();
        Ok(())
    }

    /// Looks at a part of a metric and period. Returns the number of records and of hashes that were counted.
    async fn search_some(&self, agenda: &mut EndsAgenda, mut search: Search, now: UnixMs) -> RedisResult<usize> {
        let erasures = usage_profiles::mark(&self.partition).await?.erasure_epoch;
        let (mut left, counted) = match search.buckets.take() {
            Some(buckets) => (buckets, 0),
            None => (raised_scan::buckets_of(&self.partition, &search.of).await?, BUCKETS.into()),
        };
        let (mut buckets, mut records): (_, usize) = (Vec::new(), 0);
        while let Some((bucket, fields)) =
            left.pop_if(|(_, fields)| records == 0 || records + *fields <= RECORDS_AT_ONCE)
        {
            buckets.push(bucket);
            records += fields;
        }
        let alerts = raised_scan::read_buckets(&self.partition, &search.of, &buckets).await?;
        let mut groups = alert_ends::groups(&search.of, alerts);
        groups.retain(|group| !is_final(group, now));
        search.is_final &= groups.is_empty();
        self.settle(agenda, groups, true, erasures, now).await?;
        if !left.is_empty() {
            search.buckets = Some(left);
            agenda.searches.push_front(search);
        } else if search.is_final && search.of.period.ends_everywhere().after(self.late_max) < now {
            agenda.settled.insert(search.of);
        }
        Ok(records + counted)
    }

    /// Looks at the present periods of subjects. Returns the number of fields that were looked up.
    async fn look_at(&self, agenda: &mut EndsAgenda, subjects: &[Subject], now: UnixMs) -> RedisResult<usize> {
        let Self { partition, plans, .. } = self;
        let erasures = usage_profiles::mark(partition).await?.erasure_epoch;
        let named: Vec<&Subject> = subjects.iter().collect();
        let stored = StoredLevels::read_each(&partition.client, &partition.keys, &named).await?;
        let mut looks: Vec<(&Subject, BTreeSet<Threshold>, Vec<Period>)> = Vec::new();
        for (subject, stored) in subjects.iter().zip(stored) {
            // An alert of a subject whose settings can't be read stays as it is until its period ends.
            let Ok(stored) = stored else { continue };
            let profile = stored.own_profile(plans);
            let current = |window| PeriodSpan::containing(window, profile.zone(), profile.billing(), now);
            let periods = Window::ALL.into_iter().filter_map(current).map(|span| span.period);
            looks.push((subject, known_thresholds(plans, Some(&profile)), periods.collect()));
        }
        let mut periods: Vec<Period> = looks.iter().flat_map(|(_, _, periods)| periods.clone()).collect();
        periods.sort_unstable();
        periods.dedup();
        let mut metrics: BTreeMap<Period, Vec<Metric>> = BTreeMap::new();
        for MetricPeriod { metric, period } in metrics_of(&partition.client, &partition.keys, &periods).await? {
            metrics.entry(period).or_default().push(metric);
        }
        let (mut groups, mut fields) = (Vec::new(), periods.len());
        for (subject, thresholds, periods) in looks {
            let asked = periods.iter().flat_map(|period| {
                let of_period = metrics.get(period).into_iter().flatten();
                of_period.map(|metric| MetricPeriod { metric: metric.clone(), period: *period })
            });
            let asked: Vec<MetricPeriod> = asked.collect();
            fields += asked.len() * (thresholds.len() + 1);
            groups.extend(alert_ends::read_each(partition, subject, &thresholds, &asked).await?);
        }
        // They are few, so all alerts of each are read.
        let mut whole = Vec::new();
        for (subject, of) in self.settle(agenda, groups, false, erasures, now).await? {
            whole.extend(alert_ends::read_whole(partition, &subject, &of).await?);
        }
        self.settle(agenda, whole, true, erasures, now).await?;
        Ok(fields)
    }

    /// Returns the quotas of which more must be read.
    async fn settle(
        &self,
        agenda: &mut EndsAgenda,
        mut groups: Vec<AlertGroup>,
        are_whole: bool,
        erasures: u64,
        now: UnixMs,
    ) -> RedisResult<Vec<(Subject, MetricPeriod)>> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        // The counts after the records: one that has changed since makes the write fail.
        alert_ends::read_counts(&self.partition, &mut groups).await?;
        let judge = EndsJudge { partition: &self.partition, plans: &self.plans, contacts: &self.contacts, are_whole };
        let settled = judge.settle(&groups, erasures, now).await?;
        if settled.notices > 0 {
            self.new_notices.notify_one();
        }
        agenda.learn(settled.period_ends, settled.watched);
        Ok(settled.partly_known)
    }
}
