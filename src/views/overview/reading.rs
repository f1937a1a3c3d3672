//! Reads what an overview shows: a bounded number of calls, whatever the number of subjects and deliveries.

use std::collections::{BTreeMap, BTreeSet};

use redis::RedisResult;

use super::problems::{FailingReceiver, OverviewFacts};
use super::{
    CountingOverviewView, CountingState, NEAREST, NEAREST_REACHED, NEWEST_ALERTS, NearOverviewView, OverviewView,
    SendingOverviewView, verdict,
};
use crate::outbox::{OutboxError, Totals, read_pause, totals};
use crate::redis_client::Partition;
use crate::types::timestamp::Rfc3339;
use crate::types::{Destination, Subject, UnixMs};
use crate::views::Observer;
use crate::views::alert_list::{NotifiedAlertFilter, NotifiedAlertView};
use crate::views::alert_outcomes::{AlertDeliveriesView, AlertOutcome, AlertOutcomes};
use crate::views::deliveries::{
    CircuitState, DestinationView, RefusingQueue, dead_causes, read_destinations, refusing_queues,
};
use crate::views::near::NearReading;
use crate::views::near_ranking::{NearFilter, NearRanking, NearRow};
use crate::views::refused::{self, RefusedCursor};

/// Number of newest alerts whose deliveries are read.
const JUDGED: usize = 200;
/// Maximum number of receivers with an open circuit, and of others that failed last time, of one partition.
const FAILING_MAX: usize = 20;
/// Number of receivers of one partition of which these others are searched: many only wait, for a digest say.
const UNHEALTHY_MAX: usize = 100;
/// Number of attempts that must have failed in a row: a receiver that is being changed may fail for a moment.
const FAILURES_MIN: u64 = 3;
/// Maximum number of subjects without contact that are named.
const WAITING_NAMED: usize = 10;
/// Refused events of the last day need attention.
const REFUSED_SINCE_MS: i64 = 86_400_000;
/// Number of them that are read: each view of the overview reads them again.
const REFUSED_MAX: usize = 200;

/// Why an overview could not be read.
#[derive(Debug, thiserror::Error)]
pub enum OverviewError {
    #[error(transparent)]
    Redis(#[from] redis::RedisError),
    #[error(transparent)]
    Totals(#[from] OutboxError),
}

impl Observer {
    /// Reads the overview, with so many recorded alerts for those near to a limit.
    ///
    /// # Errors
    ///
    /// The failure of Redis or the connection, or a key of another type.
    pub async fn overview(&self, reading: NearReading) -> Result<OverviewView, OverviewError> {
        let first = self.partitions.first();
        let system = self.system().await?;
        let now = system.read_at.0;
        let totals = self.totals().await?;
        let (mut raised, _) = self.raised(&NotifiedAlertFilter::default(), None, now).await?;
        let hours = self.hours(&raised, now).await?;
        raised.truncate(JUDGED);
        let AlertOutcomes { deliveries, disabled } = self.outcomes(&raised.iter().collect::<Vec<_>>()).await?;
        let muted_alerts = deliveries.iter().filter(|of| of.outcome == AlertOutcome::Muted).count();
        let is_unheard = |of: &AlertDeliveriesView| of.outcome == AlertOutcome::Nobody && !of.waits_for_contact();
        let unheard = raised.iter().zip(&deliveries).filter(|(_, of)| is_unheard(of));
        let unheard: Vec<&Subject> = unheard.map(|(alert, _)| &alert.subject).collect();
        let facts = OverviewFacts {
            now,
            system,
            pause: read_pause(&first.client, &first.keys).await?,
            failing: self.failing().await?,
            dead: totals.dead_kept,
            dead_causes: dead_causes(&self.partitions, None).await?.causes,
            waiting: totals.waiting,
            waiting_subjects: self.waiting_subjects().await?,
            unheard: unheard.len(),
            not_notified: unheard.into_iter().collect::<BTreeSet<_>>().into_iter().cloned().collect(),
            judged: raised.len(),
            disabled: disabled
                .into_iter()
                .flat_map(|(subject, contacts)| contacts.into_iter().map(move |contact| (subject.clone(), contact)))
                .collect(),
            refused: refused::by_reason(
                &self.partitions,
                RefusedCursor::default(),
                Some(now.plus(-REFUSED_SINCE_MS)),
                REFUSED_MAX,
            )
            .await?,
        };
        let (near, nearest) = self.nearest(reading, now).await?;
        let problems = facts.problems();
        let counting = counting(&facts, totals.counted);
        let newest = raised.into_iter().zip(deliveries).take(NEWEST_ALERTS);
        Ok(OverviewView {
            verdict: verdict(problems.len(), &counting),
            problems,
            counting,
            sending: sending(&totals),
            near,
            nearest: self.near_views(&nearest).await?,
            muted_alerts,
            hours,
            newest_alerts: newest.map(|(alert, deliveries)| NotifiedAlertView { alert, deliveries }).collect(),
            read_at: Rfc3339(now),
        })
    }

    /// The beginning of the ranking of those below a limit, and of those that have reached it.
    async fn nearest(&self, reading: NearReading, now: UnixMs) -> RedisResult<(NearOverviewView, Vec<NearRow>)> {
        let ranking = self.ranking(&NearFilter::default(), reading, true, now).await?;
        let NearRanking { above_80, reached, examined, is_complete, began, .. } = *ranking;
        let near = NearOverviewView { above_80, reached, examined, is_complete, ranked_at: Rfc3339(began) };
        let rows = ranking.rows_after(None, now);
        let below = rows.clone().filter(|row| row.is_below()).take(NEAREST);
        let nearest = below.chain(rows.filter(|row| !row.is_below()).take(NEAREST_REACHED));
        let mut nearest = nearest.cloned().collect();
        self.retain_counted(&mut nearest).await?;
        Ok((near, nearest))
    }

    async fn totals(&self) -> Result<Totals, OutboxError> {
        let mut all = Totals::default();
        for Partition { client, keys } in self.partitions.iter() {
            all.add(&totals(client, keys).await?);
        }
        Ok(all)
    }

    /// The destinations that have failed some times in a row and those that refuse deliveries, each once over all
    /// partitions.
    async fn failing(&self) -> RedisResult<Vec<FailingReceiver>> {
        let mut failing: BTreeMap<Destination, FailingReceiver> = BTreeMap::new();
        let mut add = |view: DestinationView| match failing.get_mut(&view.destination) {
            Some(known) => known.add(view),
            None => drop(failing.insert(view.destination.clone(), FailingReceiver(view))),
        };
        for partition in self.partitions.iter() {
            let Partition { client, keys } = partition;
            let mut pipeline = redis::pipe();
            pipeline.cmd("ZRANGE").arg(keys.circuits()).arg(0).arg(FAILING_MAX - 1);
            // Those that are due last, as after failures.
            pipeline.cmd("ZRANGE").arg(keys.destinations_unhealthy()).arg(0).arg(UNHEALTHY_MAX - 1).arg("REV");
            let names: [Vec<String>; 2] = client.pipe(&pipeline).await?;
            let names: BTreeSet<Destination> =
                names.iter().flatten().map(|name| Destination::from_stored(name)).collect();
            let views = read_destinations(partition, &names.into_iter().collect::<Vec<_>>()).await?;
            let (open, closed): (Vec<_>, Vec<_>) =
                views.into_iter().partition(|view| view.circuit == CircuitState::Open);
            let failing = closed.into_iter().filter(|view| view.failures >= Some(FAILURES_MIN)).take(FAILING_MAX);
            open.into_iter().chain(failing).for_each(|view| add(view.retried_for(self.give_up_after)));
        }
        for RefusingQueue { partition, destination, error } in refusing_queues(&self.partitions).await? {
            let views = read_destinations(partition, std::slice::from_ref(&destination)).await?;
            views.into_iter().for_each(|view| add(DestinationView { last_error: Some(error.clone()), ..view }));
        }
        Ok(failing.into_values().collect())
    }

    /// Some of the subjects whose alerts wait for a contact.
    async fn waiting_subjects(&self) -> RedisResult<Vec<String>> {
        let mut subjects = BTreeSet::new();
        for Partition { client, keys } in self.partitions.iter() {
            let mut command = redis::cmd("ZRANGE");
            command.arg(keys.waiting()).arg(0).arg(WAITING_NAMED - 1);
            let members: Vec<String> = client.query(&command).await?;
            subjects.extend(members.iter().filter_map(|member| Some(member.split_once('\0')?.0.to_owned())));
        }
        Ok(subjects.into_iter().take(WAITING_NAMED).collect())
    }
}

fn counting(facts: &OverviewFacts, counted: u64) -> CountingOverviewView {
    let partitions = &facts.system.partitions;
    let state = match () {
        () if !facts.unread().is_empty() => CountingState::Stopped,
        () if !facts.late().is_empty() => CountingState::Behind,
        () => CountingState::UpToDate,
    };
    CountingOverviewView {
        state,
        lag: partitions.iter().map(|partition| partition.lag).sum(),
        oldest_arrived_at: partitions.iter().filter_map(|partition| partition.oldest_arrived_at).min(),
        counted,
        daemons: facts.system.daemons.len(),
        partitions: partitions.len(),
    }
}

fn sending(totals: &Totals) -> SendingOverviewView {
    SendingOverviewView {
        pending: totals.pending,
        oldest_pending_at: totals.oldest_pending.map(Rfc3339),
        without_contact: totals.waiting,
        dead: totals.dead_kept,
        outbox: totals.outbox,
        is_paused: totals.is_paused,
    }
}
