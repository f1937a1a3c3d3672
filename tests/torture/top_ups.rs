//! A client that adds prepaid units to teams, some of which expire soon, and repeats a call until it is answered, also
//! calls that were answered.

use std::collections::BTreeSet;
use std::time::Duration;

use quotabell::actions::grants::{self, GrantError, NewGrant};
use quotabell::ledger::grant_group::GrantState;
use quotabell::ledger::grant_store::{self, StoredGrants};
use quotabell::redis_client::{Partition, Partitions};
use quotabell::subjects::Plans;
use quotabell::subjects::added_units::{ADDED_FIELD, AddedUnits};
use quotabell::subjects::config::PlanConfig;
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{Metric, Period, Subject, Units, UnixMs, Window};
use tokio_util::sync::CancellationToken;

use crate::support::checker::Findings;
use crate::support::eventually::eventually;
use crate::trial::Background;

/// Interval of new grants.
const PACE: Duration = Duration::from_millis(20);
/// Maximum time of one call; the next one shows whether it succeeded.
const CALL_MAX: Duration = Duration::from_secs(1);
/// Grants of a subject. Most of them stay active, which bounds their number.
const GRANTS_OF_SUBJECT: u64 = 30;
/// One grant in this number expires.
const EXPIRES: u64 = 3;
/// Time from the planned addition of a grant to its expiry, ms: many a failover lies between them.
const LIVES_MS: u64 = 3_000;
/// Maximum time until the last expiry is made up.
const EXPIRES_WITHIN: Duration = Duration::from_secs(30);
/// Maximum number of calls for one grant when nothing fails any more.
const CALLS_MAX: u32 = 100;

/// A running client.
pub struct TopUps {
    adder: Adder,
    adding: Background<u64>,
}

/// What a call needs.
#[derive(Clone)]
struct Adder {
    partitions: Partitions,
    plans: Plans,
    /// Server time before the first grant.
    began: UnixMs,
}

/// The answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    New,
    Known,
    /// It is not there, and its expiry is past.
    TooLate,
}

impl TopUps {
    /// Adds grants until stopped.
    pub async fn start(partitions: Partitions) -> Self {
        let client = partitions.first().client.clone();
        let began = eventually("Redis tells the time", || async { client.server_time().await.ok() }).await;
        let adder = Adder { plans: plans(&partitions), partitions, began };
        let stop = CancellationToken::new();
        let (of_task, stopped) = (adder.clone(), stop.clone());
        let task = tokio::spawn(async move {
            let mut paced = tokio::time::interval(PACE);
            let mut sent = 0;
            while !stopped.is_cancelled() {
                paced.tick().await;
                sent += 1;
                let mut calls_left = 1 + sent % 2;
                while calls_left > 0 && !stopped.is_cancelled() {
                    calls_left -= u64::from(of_task.add(sent - 1).await.is_some());
                }
            }
            sent
        });
        Self { adder, adding: Background { stop, task } }
    }

    /// Stops it, sends every grant once more, and checks that each was given once and ended at its expiry. Returns
    /// their number, and how many were not there any more.
    pub async fn end(self, findings: &mut Findings) -> (u64, u64) {
        let Self { adder, adding } = self;
        let sent = adding.end().await;
        let mut absent = 0;
        for number in 0..sent {
            let mut answer = None;
            for _ in 0..CALLS_MAX {
                answer = answer.or(adder.add(number).await);
                if answer.is_some() {
                    break;
                }
            }
            absent += u64::from(answer != Some(Answer::Known));
        }
        let until = tokio::time::Instant::now() + EXPIRES_WITHIN;
        for first in (0..sent).step_by(usize::try_from(GRANTS_OF_SUBJECT).expect("few")) {
            let numbers: Vec<u64> = (first..sent.min(first + GRANTS_OF_SUBJECT)).collect();
            let subject = adder.subject_of(first);
            let agreed = tokio::time::timeout_at(until, async {
                while adder.difference(&subject, &numbers).await.is_some() {
                    tokio::task::yield_now().await;
                }
            });
            if agreed.await.is_err() {
                findings.other.extend(adder.difference(&subject, &numbers).await);
            }
        }
        (sent, absent)
    }
}

impl Adder {
    /// What is wrong with the grants of a subject: those without expiry must be there once and add all their units,
    /// those with one must have ended or be lost, and add nothing.
    async fn difference(&self, subject: &Subject, numbers: &[u64]) -> Option<String> {
        let partition = self.partitions.partition_of(subject);
        let Ok(StoredGrants { grants, .. }) = grant_store::read(partition, subject.clone(), None).await else {
            return Some(format!("the grants of {subject} can't be read"));
        };
        let all = grants.all();
        let ids = |of: &[u64]| -> BTreeSet<String> { of.iter().map(|number| id_of(*number)).collect() };
        let (expiring, lasting): (Vec<u64>, Vec<u64>) =
            numbers.iter().partition(|number| self.expires_at(**number).is_some());
        let listed = |is_ended: bool| -> Vec<String> {
            let of = all.iter().filter(|grant| (grant.state == GrantState::Expired) == is_ended);
            of.map(|grant| grant.id.to_string()).collect()
        };
        let (active, ended) = (listed(false), listed(true));
        let added = added(partition, subject).await;
        let units: u64 = lasting.iter().map(|number| units_of(*number)).sum();
        let (lasting, expiring) = (ids(&lasting), ids(&expiring));
        let is_each_once = active.iter().cloned().collect::<BTreeSet<_>>() == lasting && active.len() == lasting.len();
        let is_right = is_each_once && ended.iter().all(|id| expiring.contains(id)) && added == Some(units);
        let difference = || {
            format!(
                "{subject} has {active:?} and ended {ended:?}, which add {added:?}, expected {lasting:?} and {units}"
            )
        };
        (!is_right).then(difference)
    }

    /// A team, if subjects have levels.
    fn subject_of(&self, number: u64) -> Subject {
        let separator = self.partitions.first().keys.separator();
        format!("topped up{separator}team {}", number / GRANTS_OF_SUBJECT).parse().expect("legal")
    }

    /// Always the same for a grant.
    fn expires_at(&self, number: u64) -> Option<UnixMs> {
        let planned = number * u64::try_from(PACE.as_millis()).expect("short");
        let lives = i64::try_from(planned + LIVES_MS).expect("in range");
        number.is_multiple_of(EXPIRES).then(|| self.began.plus(lives))
    }

    /// Adds a grant; returns `None` without an answer.
    async fn add(&self, number: u64) -> Option<Answer> {
        let (metric, units) = (Metric::default(), Units::new(units_of(number)).expect("in range"));
        let id = Some(id_of(number).parse().expect("legal"));
        let expires_at = self.expires_at(number).map(Rfc3339);
        let grant = NewGrant { metric, units, window: Window::Total, expires_at, id, note: None };
        let subject = self.subject_of(number);
        let call = grants::add(self.partitions.partition_of(&subject), &self.plans, &subject, &grant);
        match tokio::time::timeout(CALL_MAX, call).await.ok()? {
            Ok(added) => Some(if added.is_new { Answer::New } else { Answer::Known }),
            Err(GrantError::Past { .. }) => Some(Answer::TooLate),
            Err(_) => None,
        }
    }
}

/// The units that are added to the limit, as everything that judges reads them.
async fn added(Partition { client, keys }: &Partition, subject: &Subject) -> Option<u64> {
    let mut command = redis::cmd("HGET");
    let stored: Option<Vec<u8>> = client.query(command.arg(keys.grants(subject)).arg(ADDED_FIELD)).await.ok()?;
    let added = AddedUnits::from_stored(stored.as_deref()).ok()?;
    Some(added.units_of(&Metric::default(), Period::parse("all").expect("a period")))
}

fn plans(partitions: &Partitions) -> Plans {
    let limits = [(Metric::default(), "0/total".parse().expect("a limit"))].into();
    let (thresholds, refuse_at, rate) = (Vec::new(), Default::default(), Default::default());
    let plan = PlanConfig { limits, thresholds, refuse_at, grant_notice: None, rate, ..PlanConfig::default() };
    let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("there");
    let separator = partitions.first().keys.separator();
    let of_levels = if separator.is_none() { vec![] } else { vec!["free".to_owned(); 2] };
    plans.by_level(separator, &of_levels).expect("there is the plan")
}

fn id_of(number: u64) -> String {
    format!("t{number}")
}

const fn units_of(number: u64) -> u64 {
    1 + number % 50
}
