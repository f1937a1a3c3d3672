//! A client that adds prepaid units, and repeats a call until it is answered, also calls that were answered.

use std::collections::BTreeSet;
use std::time::Duration;

use quotabell::actions::grants::{self, NewGrant};
use quotabell::ledger::grant_store;
use quotabell::redis_client::{Partition, Partitions};
use quotabell::subjects::Plans;
use quotabell::subjects::added_units::{ADDED_FIELD, AddedUnits};
use quotabell::subjects::config::PlanConfig;
use quotabell::types::{Metric, Period, Subject, Units, Window};
use tokio_util::sync::CancellationToken;

use crate::support::checker::Findings;
use crate::trial::Background;

/// Interval of new grants.
const PACE: Duration = Duration::from_millis(20);
/// Maximum time of one call; the next one shows whether it succeeded.
const CALL_MAX: Duration = Duration::from_secs(1);
/// Grants of a subject. All of them stay active, which bounds their number.
const GRANTS_OF_SUBJECT: u64 = 30;
/// Maximum number of calls for one grant when nothing fails any more.
const CALLS_MAX: u32 = 100;

/// A running client.
pub struct TopUps {
    partitions: Partitions,
    plans: Plans,
    adding: Background<u64>,
}

impl TopUps {
    /// Adds grants until stopped.
    pub fn start(partitions: Partitions) -> Self {
        let (plans, stop) = (plans(&partitions), CancellationToken::new());
        let (of_task, of_plans, stopped) = (partitions.clone(), plans.clone(), stop.clone());
        let task = tokio::spawn(async move {
            let mut paced = tokio::time::interval(PACE);
            let mut sent = 0;
            while !stopped.is_cancelled() {
                paced.tick().await;
                sent += 1;
                let mut calls_left = 1 + sent % 2;
                while calls_left > 0 && !stopped.is_cancelled() {
                    calls_left -= u64::from(add(&of_task, &of_plans, sent - 1).await.is_some());
                }
            }
            sent
        });
        Self { partitions, plans, adding: Background { stop, task } }
    }

    /// Stops it, sends every grant once more, and checks that each was given once. Returns their number, and how many
    /// were not there any more.
    pub async fn end(self, findings: &mut Findings) -> (u64, u64) {
        let Self { partitions, plans, adding } = self;
        let sent = adding.end().await;
        let mut absent = 0;
        for number in 0..sent {
            let mut is_new = None;
            for _ in 0..CALLS_MAX {
                is_new = is_new.or(add(&partitions, &plans, number).await);
                if is_new.is_some() {
                    break;
                }
            }
            absent += u64::from(is_new == Some(true));
        }
        for first in (0..sent).step_by(usize::try_from(GRANTS_OF_SUBJECT).expect("few")) {
            let expected: Vec<u64> = (first..sent.min(first + GRANTS_OF_SUBJECT)).collect();
            let subject = subject_of(first);
            let partition = partitions.partition_of(&subject);
            let Ok(stored) = grant_store::read(partition, subject.clone(), None).await else {
                findings.other.push(format!("the grants of {subject} can't be read"));
                continue;
            };
            let all = stored.grants.all();
            let listed: BTreeSet<String> = all.iter().map(|grant| grant.id.to_string()).collect();
            let ids: BTreeSet<String> = expected.iter().map(|number| id_of(*number)).collect();
            let added = added(partition, &subject).await;
            let units: u64 = expected.iter().map(|number| units_of(*number)).sum();
            if listed != ids || all.len() != expected.len() || added != Some(units) {
                findings
                    .other
                    .push(format!("{subject} has {listed:?}, which add {added:?}, expected {ids:?} and {units}"));
            }
        }
        (sent, absent)
    }
}

/// The units that are added to the limit, as everything that judges reads them.
async fn added(Partition { client, keys }: &Partition, subject: &Subject) -> Option<u64> {
    let mut command = redis::cmd("HGET");
    let stored: Option<Vec<u8>> = client.query(command.arg(keys.grants(subject)).arg(ADDED_FIELD)).await.ok()?;
    let added = AddedUnits::from_stored(stored.as_deref()).ok()?;
    Some(added.of(&Metric::default(), Period::parse("all").expect("a period")))
}

fn plans(partitions: &Partitions) -> Plans {
    let limits = [(Metric::default(), "0/total".parse().expect("a limit"))].into();
    let (thresholds, refuse_at, rate) = (Vec::new(), Default::default(), Default::default());
    let plan = PlanConfig { limits, thresholds, refuse_at, grant_notice: None, rate };
    let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("there");
    plans.by_level(partitions.first().keys.separator(), &[]).expect("no plan of a level")
}

fn subject_of(number: u64) -> Subject {
    format!("topped up {}", number / GRANTS_OF_SUBJECT).parse().expect("legal")
}

fn id_of(number: u64) -> String {
    format!("t{number}")
}

const fn units_of(number: u64) -> u64 {
    1 + number % 50
}

/// Adds a grant; returns whether it is new, or `None` without an answer.
async fn add(partitions: &Partitions, plans: &Plans, number: u64) -> Option<bool> {
    let (metric, units) = (Metric::default(), Units::new(units_of(number)).expect("in range"));
    let id = Some(id_of(number).parse().expect("legal"));
    let grant = NewGrant { metric, units, window: Window::Total, expires_at: None, id, note: None };
    let subject = subject_of(number);
    let answer =
        tokio::time::timeout(CALL_MAX, grants::add(partitions.partition_of(&subject), plans, &subject, &grant)).await;
    Some(answer.ok()?.ok()?.is_new)
}
