//! Seeded histories of workers that read, add, commit and forget, on an in-memory model of the store: replies are lost,
//! commits arrive late or twice, batches become old, a failover loses a tail, several workers assume that they read.
//! Subjects form trees. Some are prepaid: another side adds grants, which expire at any moment, and the clock steps
//! back. The same seeds also run on a real server.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use quotabell::events::batch_builder::BatchBounds;
use quotabell::ledger::CommitReply;
use quotabell::ledger::grant_group::{Grant, GrantState};
use quotabell::ledger::grant_store::{GrantReply, UsageOf};
use quotabell::subjects::config::PlanConfig;
use quotabell::subjects::{Plans, Profile};
use quotabell::types::timestamp::Rfc3339;
use quotabell::types::{Metric, StreamId, Subject, Units, UnixMs};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::grant_model::{GrantModel, LogItem, prepaid_customers, prepaid_event, total_of_requests};
use crate::simulated_grants::PendingChange;
use crate::simulated_store::{Entry, MemoryStore, SentBatch, ServerStore, Store, keys};
use crate::simulated_worker::{Decision, Late, Profiles, SimulatedWorker};
use crate::support::checker::{Findings, Stored};
use crate::support::stream_model::{Customer, StreamModel};
use crate::support::traffic::{FREE_LIMIT, Traffic};

const WORKERS: usize = 3;
/// Number of histories per run; `QUOTABELL_TEST_HISTORIES=100` gives a million steps.
const HISTORIES: u64 = 4;
const STEPS: u64 = 10_000;
/// Older than a batch may be, ms.
const PAUSE_MS: i64 = 6_000;
/// Maximum step of the clock backwards, ms.
const STEP_BACK_MAX_MS: i64 = 3_000;

/// Number of situations in the histories.
#[derive(Debug, Default)]
struct Met {
    steps: u64,
    committed: u64,
    stale: u64,
    lost: u64,
    old: u64,
    drift: u64,
    arrived_late: u64,
    alerts: u64,
    overflows: u64,
    children: u64,
    grants_due: u64,
    granted: u64,
    expired: u64,
    noticed: u64,
    settled_late: u64,
}

/// One history.
struct SimulatedHistory<S> {
    random: StdRng,
    store: S,
    workers: Vec<SimulatedWorker>,
    /// The worker that holds the lease.
    holder: usize,
    traffic: Traffic,
    prepaid: Vec<Customer>,
    profiles: Profiles,
    /// What workers had sent when their session ended, and may still arrive.
    late: Vec<Late>,
    /// A grant that another side adds, and that is not written yet.
    adding: Option<PendingChange>,
    /// The last expiry of an added grant, which others share.
    last_expiry: Option<UnixMs>,
    met: Met,
}

fn plans() -> Plans {
    let limit: (Metric, _) = (Metric::default(), Units::new(FREE_LIMIT).expect("in range").into());
    let thresholds = ["80", "100"].map(|text| text.parse().expect("legal")).to_vec();
    let plan = PlanConfig { limits: [limit].into(), thresholds, ..PlanConfig::default() };
    let plans = Plans::new(&BTreeMap::from([("free".to_owned(), plan)]), "free").expect("there");
    plans.by_level(keys().separator(), &[]).expect("no plan of a level")
}

impl<S: Store> SimulatedHistory<S> {
    fn new(seed: u64, store: S) -> Self {
        let (traffic, prepaid) = (Traffic::of_trees(seed), prepaid_customers());
        let plans = plans();
        let mut profiles: HashMap<String, Profile> = HashMap::new();
        for customer in traffic.customers.iter().chain(&prepaid).filter(|customer| customer.known) {
            let words: Vec<Vec<u8>> = customer.settings().into_iter().map(String::into_bytes).collect();
            let pairs = words.chunks_exact(2).filter(|pair| !pair[1].is_empty());
            let fields: Vec<_> = pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect();
            let depth = keys().separator().depth(&customer.subject);
            let (profile, unreadable) = Profile::read(&fields, &plans, depth, None);
            assert!(unreadable.is_empty(), "{unreadable:?}");
            profiles.insert(customer.subject.clone(), profile);
        }
        let profiles = Rc::new(profiles);
        let workers = (0..WORKERS).map(|_| SimulatedWorker::new(&plans, Rc::clone(&profiles))).collect();
        let random = StdRng::seed_from_u64(seed ^ 9);
        let (late, met) = (Vec::new(), Met::default());
        let (adding, last_expiry) = (None, None);
        Self { random, store, workers, holder: 0, traffic, prepaid, profiles, late, adding, last_expiry, met }
    }

    fn bounds(&mut self) -> BatchBounds {
        BatchBounds { entries: self.random.random_range(1..60), cost: self.random.random_range(1..80) }
    }

    /// Runs one random event.
    async fn step(&mut self) {
        self.met.steps += 1;
        match self.random.random_range(0..207) {
            // Producers pause from time to time, so that workers catch up.
            0..40 if !(self.met.steps / 200).is_multiple_of(3) => self.append().await,
            40..60 => self.store.pass(self.random.random_range(0..30)),
            60 => self.store.pass(self.random.random_range(0..400_000)),
            61 => self.holder = self.random.random_range(0..WORKERS),
            62 | 64 => self.store.replicate(),
            63 if self.random.random_bool(0.6) => self.fail_over().await,
            66 if self.random.random_bool(0.2) => self.store.drift_once(),
            65 => {
                let killed = self.random.random_range(0..WORKERS);
                self.late.extend(self.workers[killed].end());
            }
            67..70 => self.arrive_late().await,
            200..204 => self.add_grant().await,
            204 => self.store.pass(-self.random.random_range(0..STEP_BACK_MAX_MS)),
            205 => self.leave().await,
            206 => self.catch_up(self.holder).await,
            70..100 => self.deliver().await,
            number => {
                let anybody = (100..115).contains(&number);
                let worker = if anybody { self.random.random_range(0..WORKERS) } else { self.holder };
                for _ in 0..self.random.random_range(1..=2) {
                    self.decide(worker).await;
                }
            }
        }
    }

    async fn append(&mut self) {
        let now = self.store.now().await.0;
        let mut events = Vec::new();
        for _ in 0..self.random.random_range(1..10) {
            events.push(match self.random.random_bool(0.3) {
                true => prepaid_event(self.random.random_range(0..usize::MAX), self.random.random_range(1..6)),
                false => self.traffic.event(now),
            });
        }
        self.store.append(&events).await;
    }

    /// No worker runs for a while, in which events arrive and grants expire.
    async fn leave(&mut self) {
        for worker in &mut self.workers {
            self.late.extend(worker.end());
        }
        for _ in 0..self.random.random_range(1..5) {
            self.store.pass(self.random.random_range(0..20_000));
            self.append().await;
        }
    }

    /// Another side computes a new grant, or writes the one that it has computed.
    async fn add_grant(&mut self) {
        if self.adding.is_none() {
            let name = &self.prepaid[self.random.random_range(0..self.prepaid.len())].subject;
            let subject: Subject = name.parse().expect("legal");
            let grant = self.new_grant().await;
            self.adding = self.addition(&subject, grant).await;
            if self.random.random_bool(0.5) {
                return;
            }
        }
        let Some(mut change) = self.adding.take() else { return };
        // A reply that was lost makes that side repeat the call.
        for _ in 0..self.random.random_range(1..=2) {
            while self.store.change_grants(&change).await == GrantReply::Changed {
                let LogItem::Added(subject, grant) = change.item else { panic!("it adds a grant") };
                match self.addition(&subject, *grant).await {
                    Some(again) => change = again,
                    None => return,
                }
            }
        }
    }

    async fn addition(&mut self, subject: &Subject, grant: Grant) -> Option<PendingChange> {
        let (now, before) = (self.store.now().await, self.store.grants(subject).await);
        PendingChange::addition(before, grant, &self.profiles[subject.as_str()], now)
    }

    async fn new_grant(&mut self) -> Grant {
        let now = self.store.now().await;
        let expires_at = match self.random.random_range(0..6) {
            0 => None,
            1 => Some(now.plus(self.random.random_range(1..100))),
            2 => Some(now.plus(self.random.random_range(1..3_000))),
            3 => self.last_expiry.filter(|at| *at > now),
            // Histories last for hours, with workers that are often minutes behind.
            _ => Some(now.plus(self.random.random_range(1..5_000_000))),
        };
        self.last_expiry = expires_at.or(self.last_expiry);
        let notice_at = expires_at.filter(|_| self.random.random_bool(0.5));
        let notice_at = notice_at.map(|at| at.plus(-self.random.random_range(0..4_000_000)).max(now));
        self.met.granted += 1;
        let (metric, period) = total_of_requests();
        Grant {
            id: format!("g{}", self.met.granted).parse().expect("legal"),
            metric,
            period,
            units: Units::new(self.random.random_range(1..600)).expect("in range"),
            spent: 0,
            state: GrantState::Active,
            expires_at: expires_at.map(Rfc3339),
            notice_at: notice_at.map(Rfc3339),
            note: None,
            added_at: Rfc3339(now),
            ended_at: None,
        }
    }

    /// Another server takes over with its data. Connections to the old one end, so no read continues; but each worker
    /// commits the entries that it has added, as after any failed read, and that commit may reach the new server.
    async fn fail_over(&mut self) {
        self.store.fail_over();
        for worker in &mut self.workers {
            let in_flight = worker.sent();
            if in_flight.is_none() {
                worker.make_ready(&mut self.store).await;
            }
            if worker.decisions().contains(&Decision::Commit) {
                worker.commit(BatchBounds { entries: 1, cost: 1 });
            }
            self.late.extend(in_flight.map(|sent| Late::Commit(Box::new(sent))));
            self.late.extend(worker.end());
        }
        // Some arrive before anybody reads there.
        for _ in 0..self.random.random_range(0..=self.late.len()) {
            self.arrive_late().await;
        }
    }

    /// A worker runs one of its possible actions.
    async fn decide(&mut self, worker: usize) {
        let bounds = self.bounds();
        let at = &mut self.workers[worker];
        if !at.is_in_session() {
            return at.begin(&mut self.store, bounds).await;
        }
        let decisions = at.decisions();
        if decisions.is_empty() {
            return;
        }
        match decisions[self.random.random_range(0..decisions.len())] {
            Decision::Read => {
                let now = self.store.now().await;
                // A worker that is paused after a read does not know that time has passed.
                let pause_ms = if self.random.random_range(0..15) == 0 { PAUSE_MS } else { 0 };
                let customers = &self.traffic.customers;
                let changed = self.random.random_bool(0.2);
                let changed = changed.then(|| customers[self.random.random_range(0..customers.len())].subject.clone());
                let count = self.random.random_range(1..40);
                at.read(&mut self.store, count, now.plus(-pause_ms), changed.as_deref()).await;
            }
            Decision::Add => at.add(),
            Decision::ReadMissing => at.read_missing(&mut self.store).await,
            Decision::TakeMissing => at.take_missing(),
            Decision::Commit => at.commit(bounds),
            Decision::Hear => drop(at.hear()),
            Decision::Settle => at.settle(&mut self.store).await,
        }
    }

    /// Delivers a commit to the store, and in most cases its reply.
    async fn deliver(&mut self) {
        let worker = self.random.random_range(0..WORKERS);
        let Some(batch) = self.workers[worker].sent() else { return };
        match self.random.random_range(0..40) {
            // Never arrives.
            0 => drop(self.workers[worker].end()),
            // Arrives after its worker has restarted.
            1 => {
                self.late.extend(self.workers[worker].end());
                self.late.push(Late::Commit(Box::new(batch)));
            }
            // Arrives, but its reply is lost.
            2 => {
                self.arrive(&batch).await;
                self.workers[worker].end();
            }
            // Arrives twice, and the worker gets the second reply.
            3 => {
                self.arrive(&batch).await;
                let answer = self.arrive(&batch).await;
                self.workers[worker].answered(answer);
            }
            _ => {
                let answer = self.arrive(&batch).await;
                self.workers[worker].answered(answer);
            }
        }
    }

    async fn arrive_late(&mut self) {
        if !self.late.is_empty() {
            match self.late.swap_remove(self.random.random_range(0..self.late.len())) {
                Late::Commit(sent) => drop(self.arrive(&sent).await),
                Late::Settlement(change) => {
                    let reply = self.store.change_grants(&change).await;
                    self.met.settled_late += u64::from(reply == GrantReply::Written);
                }
            }
            self.met.arrived_late += 1;
        }
    }

    async fn arrive(&mut self, sent: &SentBatch) -> CommitReply {
        let answer = self.store.commit(sent).await;
        match &answer {
            CommitReply::Committed { .. } => self.met.committed += 1,
            CommitReply::Stale(_) => self.met.stale += 1,
            CommitReply::Lost => self.met.lost += 1,
            CommitReply::Old => self.met.old += 1,
            CommitReply::Drift(_) => self.met.drift += 1,
            CommitReply::GrantsDue => self.met.grants_due += 1,
            CommitReply::Recreated | CommitReply::Replaced => panic!("nobody made the stream again or named a server"),
        }
        answer
    }

    /// Without further faults: one worker continues until everything is counted. What is late arrives first.
    async fn drain(&mut self) {
        while !self.late.is_empty() {
            self.arrive_late().await;
        }
        self.catch_up(0).await;
    }

    /// A worker that nobody disturbs counts everything, and settles what is due.
    async fn catch_up(&mut self, worker: usize) {
        let worker = &mut self.workers[worker];
        self.late.extend(worker.end());
        let bounds = BatchBounds { entries: 50, cost: 50 };
        loop {
            if !worker.is_in_session() {
                worker.begin(&mut self.store, bounds).await;
            }
            let now = self.store.now().await;
            let is_empty = worker.read(&mut self.store, 100, now, None).await == 0;
            worker.settle_all(&mut self.store).await;
            if is_empty && worker.is_in_session() {
                return;
            }
            while worker.is_in_session() {
                worker.make_ready(&mut self.store).await;
                if worker.decisions().contains(&Decision::Settle) {
                    worker.settle_all(&mut self.store).await;
                    continue;
                }
                if !worker.decisions().contains(&Decision::Commit) {
                    break;
                }
                worker.commit(bounds);
                if let Some(batch) = worker.sent() {
                    let answer = self.store.commit(&batch).await;
                    worker.answered(answer);
                }
                worker.hear();
            }
        }
    }

    /// Checks all stored data against the remaining stream up to the checkpoint.
    async fn check(&mut self) -> Findings {
        let checkpoint = self.store.start().await.checkpoint;
        let entries: Vec<Entry> = self.store.read(StreamId::ZERO, usize::MAX >> 1).await;
        let mut left = entries.iter().take_while(|entry| entry.id <= checkpoint);
        let customers = [&self.traffic.customers[..], &self.prepaid].concat();
        let mut model = StreamModel::new(&customers, FREE_LIMIT).with_separator('/');
        let (mut grants, mut findings) = (GrantModel::default(), Findings::default());
        for item in self.store.log() {
            match item {
                LogItem::Counted(counted) => {
                    for arrived in counted {
                        let Some(entry) = left.next().filter(|entry| entry.id == arrived.id) else {
                            findings.other.push(format!("{arrived:?} is counted and is not next in the stream"));
                            continue;
                        };
                        let fields = entry.fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
                        model.enter_arrived(&entry.id.to_string(), arrived.arrival.0, fields);
                        grants.enter(&entry.fields, arrived.arrival);
                    }
                }
                LogItem::Added(subject, grant) => grants.add(subject, (**grant).clone()),
                LogItem::Settled { subject, until, now } => grants.pass(subject, *until, *now),
            }
        }
        findings.lost.extend(left.map(|entry| format!("{} is behind the checkpoint and not counted", entry.id)));
        let stored = self.store.stored().await;
        self.met.alerts = stored.records.len() as u64;
        self.met.children = stored.children.len() as u64;
        self.met.overflows = model.refused.values().filter(|reason| **reason == "counter_overflow").count() as u64;
        findings.judge(&keys(), &stored, &model);
        self.check_grants(&mut grants, &stored).await;
        findings.other.extend(self.store.faults().iter().cloned().chain(grants.faults));
        findings
    }

    /// Compares grants, notices and the levels of prepaid subjects with the model.
    async fn check_grants(&mut self, model: &mut GrantModel, stored: &Stored) {
        self.met.expired = 0;
        for customer in &self.prepaid {
            let subject = customer.subject.parse().expect("legal");
            let found = self.store.grants(&subject).await;
            let mut settled = found.grants.clone();
            settled.settle(&UsageOf { used: &found.used, profile: &self.profiles[subject.as_str()] });
            self.met.expired += settled.all().iter().filter(|grant| grant.state == GrantState::Expired).count() as u64;
            model.compare(&subject, &settled);
        }
        let notices = self.store.notices().await;
        self.met.noticed = notices.len() as u64;
        model.compare_notices(&notices);
        let totals: HashMap<&str, u64> = stored
            .counts
            .iter()
            .filter(|(counter, _)| counter.period == "all")
            .map(|(counter, units)| (counter.subject.as_str(), *units))
            .collect();
        model.compare_levels(|level| totals.get(level).copied().unwrap_or(0));
    }
}

/// Runs a history of `steps` steps, with checks of the stored data in between.
async fn play(seed: u64, steps: u64, store: impl Store) -> Met {
    let mut run = SimulatedHistory::new(seed, store);
    let mut looks = 0;
    while run.met.steps < steps {
        run.step().await;
        if run.met.steps > looks * steps / 4 {
            looks += 1;
            expect_none(seed, "midway", &run.check().await);
        }
    }
    run.drain().await;
    expect_none(seed, "at the end", &run.check().await);
    run.met
}

fn expect_none(seed: u64, when: &str, findings: &Findings) {
    let shown: Vec<&String> = findings.all().take(10).collect();
    assert!(findings.is_clean(), "QUOTABELL_TEST_SEED={seed}, {when}:\n{shown:#?}");
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn first_seed() -> u64 {
    number_from("QUOTABELL_TEST_SEED").unwrap_or_else(rand::random)
}

impl Met {
    fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.committed += other.committed;
        self.stale += other.stale;
        self.lost += other.lost;
        self.old += other.old;
        self.drift += other.drift;
        self.arrived_late += other.arrived_late;
        self.alerts += other.alerts;
        self.overflows += other.overflows;
        self.children += other.children;
        self.grants_due += other.grants_due;
        self.granted += other.granted;
        self.expired += other.expired;
        self.noticed += other.noticed;
        self.settled_late += other.settled_late;
    }
}

/// The worker must count, forget and raise correctly for any order of events, including orders that real runs never
/// have.
#[tokio::test]
async fn any_order_of_decisions_counts_and_raises_what_the_stream_says() {
    let histories = number_from("QUOTABELL_TEST_HISTORIES").unwrap_or(HISTORIES);
    let (first, mut met) = (first_seed(), Met::default());
    for history in 0..histories {
        met.add(&play(first.wrapping_add(history), STEPS, MemoryStore::new()).await);
    }
    println!("seeds from {first}: {met:?}");
    // A failover between a read and its commit is rare, so a short run may have no lost batches.
    let each = [met.stale, met.old, met.drift, met.arrived_late, met.grants_due, met.noticed, met.children];
    assert!(met.committed > met.steps / 200 && met.alerts > 10 * histories, "{met:?}");
    assert!(met.overflows > 0 && met.expired > 10 * histories, "{met:?}");
    assert!(each.iter().all(|count| *count > 0), "{met:?}");
}

/// A model of the store proves nothing unless the real store behaves the same.
#[tokio::test]
async fn the_same_histories_are_right_on_a_real_server() {
    let (first, mut met) = (first_seed(), Met::default());
    for history in 0..5 {
        met.add(&play(first.wrapping_add(history), 4_000, ServerStore::start()).await);
    }
    println!("seeds from {first}: {met:?}");
    assert!(met.stale > 0 && met.old > 0 && met.alerts > 20, "{met:?}");
}
