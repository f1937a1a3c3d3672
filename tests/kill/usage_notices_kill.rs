//! Two real daemons that share four partitions, repeatedly killed with SIGKILL while hourly passes raise forecasts,
//! spikes and silences, beside passes of a daemon that lost its lease and does not know. Afterwards each notice was
//! raised once, its contact got it under one id, and nobody was told what was not true any more.
//! `QUOTABELL_TEST_SEED` repeats a run's choices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use quotabell::evaluation::HourlyPass;
use quotabell::ledger::usage_profiles;
use quotabell::outbox::totals;
use quotabell::redis_client::{Partition, Partitions};
use quotabell::subjects::Plans;
use quotabell::subjects::config::PlanConfig;
use quotabell::types::{Day, DaySpan, Metric, Subject, UnixMs, UsageNotice, UsageNoticeKind, keys};
use quotabell::zones::Zone;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::seed::seed_of_run;
use crate::support::daemon::{Daemon, DaemonSetup, own_address};
use crate::support::eventually::eventually;
use crate::support::raised_notices::{RaisedNotice, raised, raised_once};
use crate::support::receivers::{Answer, CaughtRequest, HttpCatcher};
use crate::support::redis_server::RedisServer;
use crate::support::streams::Streams;
use crate::support::usual_usage::{store_past, usual_until, zone_at_noon};
use crate::support::webhook_receiver::{secret, verify};

/// Number of kills. With each, subjects of every kind become due.
const KILLS: usize = 20;
/// Maximum time from there to the kill: a daemon that starts makes a pass after a second.
const KILLED_WITHIN_MS: u64 = 2_000;
/// Maximum time of a pass of the daemon without a lease, before it is cut off.
const CUT_WITHIN_MS: u64 = 500;
/// A plan for each kind, by its name.
const PLANS: [&str; 3] = [
    r#"{"limits":{"requests":"3000/day"},"forecast":{"windows":["day"]}}"#,
    r#"{"limits":{"requests":"90000/day"},"spike":2}"#,
    r#"{"limits":{"requests":"3000/day"},"silence":"1d"}"#,
];
const DAY_MS: i64 = 86_400_000;

/// What becomes of the notice of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoticeEnd {
    /// It is told.
    Delivered,
    /// Its receiver refuses it until it is not true any more.
    Expired,
    /// There is none.
    None,
}

/// A subject whose usual day is known.
#[derive(Debug, Clone)]
struct Customer {
    subject: Subject,
    kind: UsageNoticeKind,
    end: NoticeEnd,
}

/// Everything except the daemons.
struct Scene {
    partitions: Partitions,
    plans: Plans,
    zone: Zone,
    today: Day,
    port: u16,
}

/// A customer would hear twice of a forecast, a spike or a silence, or never, or of one that is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_notice_of_usage_is_told_once_while_it_is_true() {
    let mut random = StdRng::seed_from_u64(seed_of_run());
    let server = RedisServer::start();
    let streams = Streams::on(&server.url(), 4).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut receiver = receiver(Arc::clone(&is_over)).await;
    let scene = Scene::set(&streams, receiver.address().port()).await;
    let customers: Vec<Vec<Customer>> = (0..KILLS).map(customers_of).collect();

    let setup = UsageNoticeKind::ALL.iter().zip(PLANS).fold(streams.daemon(), |setup, (kind, plan)| {
        setup.env(&format!("QUOTABELL__PLANS__{}", kind.as_str().to_uppercase()), plan)
    });
    // Those who refuse are asked seldom.
    let setup = setup.env("QUOTABELL__RETRY__MAX_INTERVAL", "1s").env("QUOTABELL__DELIVERY__PROBE_MAX", "1s");
    let setups: [DaemonSetup; 2] = [(); 2].map(|()| setup.clone().at(own_address()));
    let mut daemons: Vec<Daemon> = setups.iter().map(DaemonSetup::spawn).collect();
    scene.begin(&customers.concat()).await;
    let (mut caught, mut raised_before_kills): (Vec<CaughtRequest>, usize) = (Vec::new(), 0);
    for due in &customers {
        let which = random.random_range(0..daemons.len());
        let lines = daemons[which].lines();
        scene.become_due(due).await;
        let told = daemons[which].says_again("notice raised", lines);
        let told = tokio::time::timeout(Duration::from_millis(random.random_range(0..KILLED_WITHIN_MS)), told);
        let cuts = scene.partitions.iter().map(|_| random.random_range(0..CUT_WITHIN_MS)).collect();
        let passes = scene.pass_without_lease(if random.random_bool(0.3) { cuts } else { Vec::new() });
        let _ = tokio::join!(told, passes);
        for _ in 0..random.random_range(0..300) {
            let _: String = scene.partitions.first().client.query(&redis::cmd("PING")).await.expect("redis answers");
        }
        let said = daemons[which].lines_after(0);
        raised_before_kills += said.iter().filter(|line| line.contains("notice raised")).count();
        daemons.remove(which).kill().await;
        daemons.insert(which, setups[which].spawn());
        caught.extend(std::iter::from_fn(|| receiver.try_next()));
    }
    all_is_counted(&scene.partitions).await;
    let customers = customers.concat();
    let expected = customers.iter().filter(|of| of.end != NoticeEnd::None).count();
    for daemon in daemons {
        daemon.kill().await;
    }
    // Without a daemon, so that no pass before can end after this. One pass is enough, although one that was killed may
    // have learned everything.
    scene.forget_passes().await;
    let daemons: Vec<Daemon> = setups.iter().map(DaemonSetup::spawn).collect();
    eventually("everything is raised", || {
        caught.extend(std::iter::from_fn(|| receiver.try_next()));
        async { (raised::<UsageNotice>(&scene.partitions, "usage_notice").await.len() >= expected).then_some(()) }
    })
    .await;
    for customer in customers.iter().filter(|of| of.end == NoticeEnd::Expired) {
        scene.outdate(customer).await;
    }
    all_is_counted(&scene.partitions).await;
    for daemon in daemons {
        daemon.kill().await;
    }
    // Without a daemon, so that no attempt is under way that was judged before.
    is_over.store(true, Ordering::SeqCst);
    let daemons: Vec<Daemon> = setups.iter().map(DaemonSetup::spawn).collect();
    eventually("nothing is left to send", || {
        caught.extend(std::iter::from_fn(|| receiver.try_next()));
        is_all_sent(&scene.partitions)
    })
    .await;
    for mut daemon in daemons {
        daemon.becomes_ready().await;
        daemon.drain().await;
    }
    caught.extend(std::iter::from_fn(|| receiver.try_next()));
    let raised = raised_once::<UsageNotice>(&scene.partitions, "usage_notice").await;
    compare(&customers, &raised, &caught);
    eprintln!("{} notices, {raised_before_kills} by daemons that were killed", raised.len());
    assert!(raised_before_kills > 0, "no daemon was killed after it had raised a notice");
}

/// Some customers of each kind. Those who refuse are few.
fn customers_of(round: usize) -> Vec<Customer> {
    let ends = [NoticeEnd::Delivered, NoticeEnd::None, NoticeEnd::Expired];
    let of_kind = |kind: &UsageNoticeKind| {
        let customer = |end: &NoticeEnd| Customer {
            subject: format!("{kind} {end:?} {round}").parse().expect("legal"),
            kind: *kind,
            end: *end,
        };
        ends[..if round.is_multiple_of(3) { 3 } else { 2 }].iter().map(customer).collect::<Vec<_>>()
    };
    UsageNoticeKind::ALL.iter().flat_map(of_kind).collect()
}

/// Accepts everything except the notices that must not be told, as long as they are true.
async fn receiver(is_over: Arc<AtomicBool>) -> HttpCatcher {
    let respond = move |body: &[u8]| {
        let body: Value = serde_json::from_slice(body).expect("JSON");
        let is_held = is_notice(&body) && subject_of(&body).contains("Expired") && !is_over.load(Ordering::SeqCst);
        Answer::status(if is_held { 503 } else { 204 })
    };
    HttpCatcher::start_on((Ipv4Addr::UNSPECIFIED, 0).into(), respond).await.expect("a receiver")
}

fn is_notice(body: &Value) -> bool {
    body["type"] != "quota.threshold_reached"
}

fn subject_of(body: &Value) -> &str {
    body["data"]["subject"].as_str().expect("a subject")
}

impl Scene {
    async fn set(streams: &Streams, port: u16) -> Self {
        let partitions = streams.partitions.clone();
        let now = partitions.first().client.server_time().await.expect("it tells the time");
        let zone = zone_at_noon(now);
        let today = DaySpan::containing(zone, now).expect("a day").day;
        let plan = |json: &str| serde_json::from_str::<PlanConfig>(json).expect("a plan");
        let plans = UsageNoticeKind::ALL.iter().zip(PLANS).map(|(kind, json)| (kind.as_str().to_owned(), plan(json)));
        Self { partitions, plans: Plans::new(&plans.collect(), "forecast").expect("there"), zone, today, port }
    }

    async fn now(&self) -> UnixMs {
        self.partitions.first().client.server_time().await.expect("it tells the time")
    }

    /// Stores the past of all, and waits until the daemons have counted in each partition, and made a first pass. For
    /// some days somebody has used something.
    async fn begin(&self, customers: &[Customer]) {
        self.store_history(customers).await;
        for (number, customer) in customers.iter().enumerate() {
            let of = u8::try_from(number + 1).expect("few customers");
            let url = format!("http://{}/", SocketAddr::from((Ipv4Addr::new(127, 0, 3, of), self.port)));
            let contacts = json!([{"id": "c", "channel": "webhook", "url": url, "secret": secret(1)}]).to_string();
            let fields =
                [("plan", customer.kind.as_str()), ("timezone", self.zone.name()), ("contacts", contacts.as_str())];
            let Partition { client, keys } = self.partitions.first();
            let mut command = redis::cmd("HSET");
            let () = client.query(command.arg(keys.subject(&customer.subject)).arg(&fields)).await.expect("set");
            if customer.kind == UsageNoticeKind::Silence && customer.end == NoticeEnd::None {
                self.send(&customer.subject, "units", 10).await;
            }
        }
        all_is_counted(&self.partitions).await;
        let now = self.now().await;
        for Partition { client, keys } in self.partitions.iter() {
            eventually("a first pass is made", || async {
                let made = redis::cmd("HEXISTS").arg(keys.checkpoint()).arg("profiled_ms").to_owned();
                client.query::<bool>(&made).await.expect("answered").then_some(())
            })
            .await;
            let marks = [("used_ms", now.0), ("resumed_ms", now.0 - 30 * DAY_MS)];
            let mut command = redis::cmd("HSET");
            let () = client.query(command.arg(keys.checkpoint()).arg(&marks)).await.expect("set");
        }
    }

    /// The last two weeks of customers who are silent since two days.
    async fn store_history(&self, customers: &[Customer]) {
        let (days, now) = ((2..16).filter_map(|back| self.today.before(back)), self.now().await);
        let days: Vec<Day> = days.collect();
        for partition in self.partitions.iter() {
            let is_silent = |of: &&Customer| {
                let is_here = self.partitions.partition_of(&of.subject).keys.stream() == partition.keys.stream();
                of.kind == UsageNoticeKind::Silence && is_here
            };
            let silent: Vec<Subject> = customers.iter().filter(is_silent).map(|of| of.subject.clone()).collect();
            store_past(partition, &silent, &days, now).await;
        }
    }

    /// Has these customers use what raises their notices, and makes passes due.
    async fn become_due(&self, customers: &[Customer]) {
        for Customer { subject, kind, end } in customers {
            let partition = self.partitions.partition_of(subject);
            let mark = usage_profiles::mark(partition).await.expect("read");
            let last = self.today.before(if *kind == UsageNoticeKind::Silence { 2 } else { 1 }).expect("a day");
            let (profile, bucket) = (usual_until(last), keys::bucket(subject.as_str()));
            let profiles = [(subject, &profile)];
            usage_profiles::write(partition, mark, &Metric::default(), bucket, &profiles).await.expect("written");
            match (kind, end) {
                (UsageNoticeKind::Silence, _) => {}
                (_, NoticeEnd::None) => self.send(subject, "units", 1_200).await,
                (UsageNoticeKind::Forecast, _) => self.send(subject, "units", 2_600).await,
                (UsageNoticeKind::Spike, _) => self.send(subject, "units", 9_000).await,
            }
        }
        for Partition { keys, .. } in self.partitions.iter() {
            let mut names = (0..).map(|number| format!("busy {number}").parse::<Subject>().expect("legal"));
            let is_here = |subject: &Subject| self.partitions.partition_of(subject).keys.stream() == keys.stream();
            self.send(&names.find(is_here).expect("some name is of it"), "units", 1).await;
        }
        self.forget_passes().await;
    }

    /// Makes passes due.
    async fn forget_passes(&self) {
        for Partition { client, keys } in self.partitions.iter() {
            let mut command = redis::cmd("HDEL");
            let () = client.query(command.arg(keys.checkpoint()).arg("profiled_ms")).await.expect("removed");
        }
    }

    /// Passes over the partitions, as a daemon makes them that lost its lease and does not know; each is cut off after
    /// this number of milliseconds.
    async fn pass_without_lease(&self, cut_after_ms: Vec<u64>) {
        let now = self.now().await;
        let pass = |(partition, cut_after_ms)| async move {
            let whole = async {
                let mark = usage_profiles::mark(partition).await.expect("read");
                let mut pass = HourlyPass::begin(partition, &self.plans, now, mark).await.expect("begun");
                while pass.next().await.expect("redis answers").is_some() {}
            };
            let _ = tokio::time::timeout(Duration::from_millis(cut_after_ms), whole).await;
        };
        join_all(self.partitions.iter().zip(cut_after_ms).map(pass)).await;
    }

    /// Makes a notice untrue: the limit is reached, units are given back, or something is used.
    async fn outdate(&self, Customer { subject, kind, .. }: &Customer) {
        match kind {
            UsageNoticeKind::Forecast => self.send(subject, "units", 500).await,
            UsageNoticeKind::Spike => self.send(subject, "credit", 8_000).await,
            UsageNoticeKind::Silence => self.send(subject, "units", 10).await,
        }
    }

    async fn send(&self, subject: &Subject, kind: &str, units: u64) {
        let Partition { client, keys } = self.partitions.partition_of(subject);
        let mut command = redis::cmd("XADD");
        command.arg(keys.stream()).arg("*").arg("subject").arg(subject.as_str()).arg(kind).arg(units);
        let _: String = client.query(&command).await.expect("appended");
    }
}

async fn all_is_counted(partitions: &Partitions) {
    eventually("everything is counted", || async {
        for Partition { client, keys } in partitions.iter() {
            let read = redis::cmd("HGET").arg(keys.checkpoint()).arg("entries_read").to_owned();
            let length = redis::cmd("XLEN").arg(keys.stream()).to_owned();
            let (read, length): (Option<u64>, u64) =
                (client.query(&read).await.expect("answered"), client.query(&length).await.expect("answered"));
            if read.is_none_or(|read| read < length) {
                return None;
            }
        }
        Some(())
    })
    .await;
}

async fn is_all_sent(partitions: &Partitions) -> Option<()> {
    for Partition { client, keys } in partitions.iter() {
        let totals = totals(client, keys).await.expect("answered");
        if totals.outbox > 0 || totals.pending > 0 {
            return None;
        }
    }
    Some(())
}

/// Each notice was raised for whom it is meant, and was accepted or has expired, as is recorded.
fn compare(customers: &[Customer], raised: &[RaisedNotice<UsageNotice>], caught: &[CaughtRequest]) {
    let mut accepted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for request in caught.iter().filter(|request| request.status < 300) {
        let message = verify(request, &secret(1));
        if is_notice(&message.body) {
            accepted.entry(subject_of(&message.body).to_owned()).or_default().insert(message.id);
        }
    }
    for Customer { subject, kind, end } in customers {
        let found: Vec<_> = raised.iter().filter(|of| of.notice.subject == *subject).collect();
        let ids: Vec<&String> = accepted.get(subject.as_str()).into_iter().flatten().collect();
        match (end, found.as_slice()) {
            (NoticeEnd::None, []) => assert!(ids.is_empty(), "{subject}"),
            (NoticeEnd::Delivered, [of]) => {
                assert_eq!((of.notice.kind, of.state.as_str()), (*kind, "delivered"), "{subject}");
                assert_eq!(ids, [&of.notice.id], "{subject}");
            }
            (NoticeEnd::Expired, [of]) => {
                assert_eq!((of.notice.kind, of.state.as_str()), (*kind, "expired"), "{subject}");
                assert!(ids.is_empty(), "{subject} was told what was not true any more");
            }
            (_, found) => panic!("{subject} has {} notices", found.len()),
        }
    }
    assert!(raised.iter().all(|of| customers.iter().any(|customer| customer.subject == of.notice.subject)));
}
