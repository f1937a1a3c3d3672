//! Two real daemons that share eight partitions, repeatedly killed with SIGKILL while grants are added and expire at
//! three levels. Afterwards each grant is there once, and has paid for exactly the usage that arrived before it
//! expired; and each notice was raised once, with what was left at its place in the stream. `QUOTABELL_TEST_SEED`
//! repeats a run's events and choices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quotabell::actions::grants::{self, NewGrant};
use quotabell::ledger::grant_group::{GrantState, LISTED_MAX};
use quotabell::ledger::{grant_store, grants_due};
use quotabell::outbox::totals;
use quotabell::redis_client::Partitions;
use quotabell::subjects::Plans;
use quotabell::subjects::config::PlanConfig;
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{GrantId, GrantNotice, Metric, Period, Separator, Subject, Units, UnixMs, Window, keys};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio_util::sync::CancellationToken;

use crate::seed::seed_of_run;
use crate::support::daemon::{Daemon, DaemonSetup, own_address};
use crate::support::eventually::eventually;
use crate::support::raised_notices::raised_once;
use crate::support::redis_server::RedisServer;
use crate::support::streams::Streams;

/// When the first grants expire, after the first one is added.
const FIRST_AFTER_MS: i64 = 6_000;
/// Number of kills.
const KILLS: u32 = 40;
/// Organizations, of one team with one key each.
const ORGANIZATIONS: usize = 16;
/// Grants of each level that expire during the run, one after the other.
const EXPIRING: usize = 12;
/// Between the expiry of one grant and that of the next one.
const EXPIRY_STEP_MS: i64 = 700;
/// Grants of each level that expire long after the run, with a notice during it.
const NOTICED: usize = 3;
/// How long before their expiry the notice is raised.
const NOTICE_BEFORE: Duration = Duration::from_secs(3_600);
/// Between two notices.
const NOTICE_STEP_MS: i64 = 2_500;

/// A grant that was added before the first event.
#[derive(Debug, Clone)]
struct ExpectedGrant {
    id: GrantId,
    units: u64,
    expires_at: Option<UnixMs>,
    /// When its notice is due; `None` if it has none.
    notice_at: Option<UnixMs>,
    spent: u64,
}

/// What a notice says of a grant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NoticeFacts {
    subject: Subject,
    grant: GrantId,
    remaining: u64,
    used: u64,
}

/// A plain map of everything that was sent, in the order of the streams.
#[derive(Debug, Default)]
struct Expected {
    grants: BTreeMap<Subject, Vec<ExpectedGrant>>,
    used: BTreeMap<Subject, u64>,
    events: u64,
    notices: Vec<NoticeFacts>,
}

impl Expected {
    /// An event that arrived at this time: its units are taken from the grant that expires first.
    fn count(&mut self, levels: impl IntoIterator<Item = Subject>, arrival: UnixMs, units: u64) {
        self.events += 1;
        for level in levels {
            self.note(&level, arrival);
            *self.used.entry(level.clone()).or_default() += units;
            let mut left = units;
            for grant in self.grants.get_mut(&level).into_iter().flatten() {
                if grant.expires_at.is_none_or(|at| at > arrival) {
                    let taken = left.min(grant.units - grant.spent);
                    (grant.spent, left) = (grant.spent + taken, left - taken);
                }
            }
        }
    }

    /// The notices of a subject that are due before an event of this time.
    fn note(&mut self, subject: &Subject, arrival: UnixMs) {
        let used = self.used.get(subject).copied().unwrap_or(0);
        for grant in self.grants.get_mut(subject).into_iter().flatten() {
            if grant.notice_at.take_if(|at| *at <= arrival).is_some() && grant.spent < grant.units {
                let (subject, grant_id) = (subject.clone(), grant.id.clone());
                let remaining = grant.units - grant.spent;
                self.notices.push(NoticeFacts { subject, grant: grant_id, remaining, used });
            }
        }
    }

    /// The notices that are due after the last event.
    fn end(&mut self) {
        for subject in self.grants.keys().cloned().collect::<Vec<_>>() {
            self.note(&subject, UnixMs(i64::MAX));
        }
        self.notices.sort();
    }
}

/// A crash between two steps of an expiry would lose units that a customer has bought, or give them twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_are_given_once_and_pay_for_what_came_before_their_expiry() {
    let mut random = StdRng::seed_from_u64(seed_of_run());
    let server = RedisServer::start();
    let streams = Streams::of_trees(&server.url(), 8).await;
    let (partitions, plans) = (streams.partitions.clone(), plans(None));
    let mut expected = give(&partitions, &mut random).await;
    let last_notice = expected.grants.values().flatten().filter_map(|grant| grant.notice_at).max().expect("some");

    let at = |()| {
        let setup = streams.daemon().env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":"0/total"}"#);
        setup.at(own_address())
    };
    let setups: [DaemonSetup; 2] = [(); 2].map(at);
    let mut daemons: Vec<Daemon> = setups.iter().map(DaemonSetup::spawn).collect();
    let stop = CancellationToken::new();
    let added = top_up(&partitions, &plans, &stop);
    for _ in 0..KILLS {
        for _ in 0..random.random_range(1..12) {
            send(&partitions, &mut expected, &mut random).await;
        }
        for _ in 0..random.random_range(0..2500) {
            let _: String = partitions.first().client.query(&redis::cmd("PING")).await.expect("redis answers");
        }
        let which = random.random_range(0..daemons.len());
        // On a busy machine daemons that are killed before they are ready would never count anything.
        if random.random_bool(0.5) {
            daemons[which].becomes_ready().await;
        }
        daemons.remove(which).kill().await;
        daemons.insert(which, setups[which].spawn());
    }
    stop.cancel();
    let added = added.await.expect("all are added");
    expected.used.insert(top_up_subject(), added);
    all_is_counted(&partitions, &expected).await;
    expected.end();
    all_are_over(&partitions, last_notice).await;
    for mut daemon in daemons {
        // The other daemon may have counted all before the last one that was started is ready.
        daemon.becomes_ready().await;
        daemon.drain().await;
    }
    compare(&partitions, &expected, last_notice.after(NOTICE_BEFORE / 2)).await;
    compare_notices(&partitions, &expected).await;
    let of_top_ups = partitions.partition_of(&top_up_subject());
    let grants = grant_store::read(of_top_ups, top_up_subject(), None).await.expect("read").grants;
    assert_eq!(grants.all().len(), LISTED_MAX.min(added as usize), "each id once");
    assert_eq!(grants.added().units_of(&Metric::default(), total()), added);
    eprintln!("{} events, {added} top-ups, {} notices", expected.events, expected.notices.len());
    let of_used = expected.notices.iter().filter(|notice| notice.used > 0).count();
    assert!(of_used > ORGANIZATIONS, "too little was used before the notices");
    assert!(expected.events > 1_000 && added > 5, "too little happened");
}

/// The plans of a platform that adds grants with or without a notice.
fn plans(grant_notice: Option<Duration>) -> Plans {
    let limits = [(Metric::default(), "0/total".parse().expect("a limit"))].into();
    let (thresholds, refuse_at, rate) = (Vec::new(), Default::default(), Default::default());
    let plan = PlanConfig { limits, thresholds, refuse_at, grant_notice, rate, ..PlanConfig::default() };
    let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("there");
    plans.by_level(slash(), &["free", "free", "free"].map(str::to_owned)).expect("there")
}

fn slash() -> Separator {
    "/".parse().expect("a separator")
}

fn total() -> Period {
    Period::parse("all").expect("a period")
}

fn subject(name: &str) -> Subject {
    name.parse().expect("legal")
}

fn top_up_subject() -> Subject {
    subject("topped up")
}

fn new(id: &str, units: u64, expires_at: Option<UnixMs>) -> NewGrant {
    let (metric, units) = (Metric::default(), Units::new(units).expect("in range"));
    let id = Some(id.parse().expect("legal"));
    NewGrant { metric, units, window: Window::Total, expires_at: expires_at.map(Rfc3339), id, note: None }
}

/// Grants each level units that expire during the run, units with a notice during the run, and units that last.
async fn give(partitions: &Partitions, random: &mut StdRng) -> Expected {
    let now = partitions.first().client.server_time().await.expect("it tells the time");
    let (without, with) = (plans(None), plans(Some(NOTICE_BEFORE)));
    let (mut expected, mut adding) = (Expected::default(), Vec::new());
    for number in 0..ORGANIZATIONS {
        let names = [format!("org-{number}"), format!("org-{number}/team"), format!("org-{number}/team/key")];
        for level in names.map(|name| subject(&name)) {
            let (mut grants, mut asked) = (Vec::new(), Vec::new());
            for which in 0..=EXPIRING + NOTICED {
                let some = random.random_range(0..300);
                let expires = now.plus(FIRST_AFTER_MS + EXPIRY_STEP_MS * which as i64 + some);
                let noticed = now.plus(FIRST_AFTER_MS + NOTICE_STEP_MS * (which as i64 - EXPIRING as i64) + some);
                let (expires_at, notice_at) = match which {
                    0..EXPIRING => (Some(expires), None),
                    _ if which < EXPIRING + NOTICED => (Some(noticed.after(NOTICE_BEFORE)), Some(noticed)),
                    _ => (None, None),
                };
                let units = random.random_range(1..60);
                let (name, plans) = (format!("g{which}"), if notice_at.is_some() { &with } else { &without });
                asked.push((new(&name, units, expires_at), plans));
                let id = name.parse().expect("legal");
                grants.push(ExpectedGrant { id, units, expires_at, notice_at, spent: 0 });
            }
            expected.grants.insert(level.clone(), grants);
            adding.push(async move {
                let partition = partitions.partition_of(&level);
                for (grant, plans) in &asked {
                    assert!(grants::add(partition, plans, &level, grant).await.expect("added").is_new, "{level}");
                }
            });
        }
    }
    // All levels at once: the first grants expire in seconds.
    futures_util::future::join_all(adding).await;
    expected
}

/// Sends some events to one stream, and counts them by the time in their ids.
async fn send(partitions: &Partitions, expected: &mut Expected, random: &mut StdRng) {
    let mut pipeline = redis::pipe();
    let mut sent = Vec::new();
    for _ in 0..random.random_range(1..40) {
        let organization = random.random_range(0..ORGANIZATIONS);
        let depth = random.random_range(0..3);
        let name = format!("org-{organization}{}", ["", "/team", "/team/key"][depth]);
        let (subject, units) = (subject(&name), random.random_range(1..4_u64));
        let stream = partitions.partition_of(&subject).keys.stream().to_owned();
        pipeline.cmd("XADD").arg(stream).arg("*").arg("subject").arg(subject.as_str()).arg("units").arg(units);
        sent.push((subject, units));
    }
    let ids: Vec<String> = partitions.first().client.pipe(&pipeline).await.expect("appended");
    for (id, (subject, units)) in ids.iter().zip(sent) {
        let ms = id.split('-').next().and_then(|ms| ms.parse().ok()).expect("a stream id");
        let above = slash().ancestors(&subject);
        expected.count(above.into_iter().chain([subject]), UnixMs(ms), units);
    }
}

/// Adds grants of one unit to one subject until told to stop, each from two sides at once. Returns their number.
fn top_up(partitions: &Partitions, plans: &Plans, stop: &CancellationToken) -> tokio::task::JoinHandle<u64> {
    let (partitions, plans, stop) = (partitions.clone(), Arc::new(plans.clone()), stop.clone());
    tokio::spawn(async move {
        let (subject, mut added) = (top_up_subject(), 0);
        let partition = partitions.partition_of(&subject);
        while !stop.is_cancelled() {
            let grant = new(&format!("t{added}"), 1, None);
            let (one, other) = tokio::join!(
                grants::add(partition, &plans, &subject, &grant),
                grants::add(partition, &plans, &subject, &grant)
            );
            let new = [one, other].map(|answer| answer.expect("added").is_new);
            assert_ne!(new[0], new[1], "given once");
            let event = redis::cmd("XADD")
                .arg(partition.keys.stream())
                .arg("*")
                .arg("subject")
                .arg(subject.as_str())
                .to_owned();
            let _: String = partition.client.query(&event).await.expect("appended");
            added += 1;
            // At most 32 grants may be active, so each waits until an earlier one is spent. Without a bound: the kills
            // decide when somebody counts, and after the last one everything must be counted.
            let key = partition.keys.usage(&Metric::default(), total(), keys::bucket(subject.as_str()));
            let count = redis::cmd("HGET").arg(key).arg(subject.as_str()).to_owned();
            while !stop.is_cancelled() {
                let count: Option<u64> = partition.client.query(&count).await.expect("answered");
                if count.unwrap_or(0) + 16 > added {
                    break;
                }
            }
        }
        added
    })
}

async fn all_is_counted(partitions: &Partitions, expected: &Expected) {
    eventually("everything is counted", || async {
        for (subject, used) in &expected.used {
            let partition = partitions.partition_of(subject);
            let key = partition.keys.usage(&Metric::default(), total(), keys::bucket(subject.as_str()));
            let count: Option<u64> =
                partition.client.query(redis::cmd("HGET").arg(key).arg(subject.as_str())).await.expect("answered");
            let count = count.unwrap_or(0);
            assert!(count <= *used, "{subject} has {count}, sent were {used}");
            if count < *used {
                return None;
            }
        }
        Some(())
    })
    .await;
}

/// Waits until everything that was due during the run is done. The next expiries are those of the notices, much later.
async fn all_are_over(partitions: &Partitions, last_notice: UnixMs) {
    eventually("every grant that expires has expired, and every notice is fanned out", || async {
        for partition in partitions.iter() {
            let due = grants_due::next(partition).await.expect("answered");
            let outbox = totals(&partition.client, &partition.keys).await.expect("answered").outbox;
            if due.is_some_and(|due| due <= last_notice.after(NOTICE_BEFORE / 2)) || outbox > 0 {
                return None;
            }
        }
        Some(())
    })
    .await;
}

async fn compare(partitions: &Partitions, expected: &Expected, last_expiry: UnixMs) {
    for (level, grants) in &expected.grants {
        let stored = grant_store::read(partitions.partition_of(level), level.clone(), None).await.expect("read").grants;
        let mut added = 0;
        assert_eq!(stored.all().len(), grants.len(), "{level}");
        for grant in grants {
            let found = stored.find(&grant.id).expect("listed");
            let has_expired = grant.expires_at.is_some_and(|at| at <= last_expiry);
            if has_expired {
                // What lasts is settled at the next change.
                assert_eq!((found.spent, found.state), (grant.spent, GrantState::Expired), "{level} {}", grant.id);
                assert_eq!(found.ended_at.map(|at| at.0), grant.expires_at);
            }
            added += if has_expired { grant.spent } else { grant.units };
        }
        assert_eq!(stored.added().units_of(&Metric::default(), total()), added, "{level}");
    }
}

/// Each notice is in the outbox or has its delivery, and none was raised twice.
async fn compare_notices(partitions: &Partitions, expected: &Expected) {
    let facts = |GrantNotice { subject, grant, remaining, used, .. }| NoticeFacts { subject, grant, remaining, used };
    let found = raised_once(partitions, "grant_expires").await;
    let mut found: Vec<NoticeFacts> = found.into_iter().map(|raised| facts(raised.notice)).collect();
    found.sort();
    assert_eq!(found, expected.notices);
}
