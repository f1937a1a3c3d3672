//! Seeded histories of workers that read, add, commit and forget, on an in-memory model of the store: replies are lost,
//! commits arrive late or twice, batches become old, a failover loses a tail, several workers assume that they read.
//! The same seeds also run on a real server.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use quotabell::events::batch_builder::BatchBounds;
use quotabell::ledger::{Batch, CommitReply};
use quotabell::subjects::RefuseAt;
use quotabell::subjects::config::PlanConfig;
use quotabell::subjects::rates::RateConfig;
use quotabell::subjects::{Plans, Profile};
use quotabell::types::{Keys, Metric, StreamId, Units};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::simulated_store::{Entry, MemoryStore, ServerStore, Store};
use crate::simulated_worker::{Decision, SimulatedWorker};
use crate::support::checker::Findings;
use crate::support::stream_model::StreamModel;
use crate::support::traffic::{FREE_LIMIT, Traffic};

const WORKERS: usize = 3;
/// Number of histories per run; `QUOTABELL_TEST_HISTORIES=100` gives a million steps.
const HISTORIES: u64 = 4;
const STEPS: u64 = 10_000;
/// Older than a batch may be, ms.
const PAUSE_MS: i64 = 6_000;

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
}

/// One history.
struct SimulatedHistory<S> {
    random: StdRng,
    store: S,
    workers: Vec<SimulatedWorker>,
    /// The worker that holds the lease.
    holder: usize,
    traffic: Traffic,
    /// Commits that their workers gave up and that may still arrive.
    late: Vec<Batch>,
    met: Met,
}

fn plans() -> Plans {
    let limit: (Metric, _) = (Metric::default(), Units::new(FREE_LIMIT).expect("in range").into());
    let thresholds = ["80", "100"].map(|text| text.parse().expect("legal")).to_vec();
    let plan = PlanConfig {
        limits: [limit].into(),
        thresholds,
        refuse_at: RefuseAt::default(),
        grant_notice: None,
        rate: RateConfig::default(),
    };
    Plans::new(&BTreeMap::from([("free".to_owned(), plan)]), "free").expect("there")
}

impl<S: Store> SimulatedHistory<S> {
    fn new(seed: u64, store: S) -> Self {
        let traffic = Traffic::new(seed);
        let plans = plans();
        let mut profiles: HashMap<String, Profile> = HashMap::new();
        for customer in traffic.customers.iter().filter(|customer| customer.known) {
            let words: Vec<Vec<u8>> = customer.settings().into_iter().map(String::into_bytes).collect();
            let fields: Vec<_> = words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
            let (profile, unreadable) = Profile::read(&fields, &plans, 0, None);
            assert!(unreadable.is_empty(), "{unreadable:?}");
            profiles.insert(customer.subject.clone(), profile);
        }
        let profiles = Rc::new(profiles);
        let workers = (0..WORKERS).map(|_| SimulatedWorker::new(&plans, Rc::clone(&profiles))).collect();
        let random = StdRng::seed_from_u64(seed ^ 9);
        Self { random, store, workers, holder: 0, traffic, late: Vec::new(), met: Met::default() }
    }

    fn bounds(&mut self) -> BatchBounds {
        BatchBounds { entries: self.random.random_range(1..60), cost: self.random.random_range(1..80) }
    }

    /// Runs one random event.
    async fn step(&mut self) {
        self.met.steps += 1;
        match self.random.random_range(0..200) {
            // Producers pause from time to time, so that workers catch up.
            0..40 if !(self.met.steps / 200).is_multiple_of(3) => {
                let now = self.store.now().await.0;
                let events: Vec<_> = (0..self.random.random_range(1..10)).map(|_| self.traffic.event(now)).collect();
                self.store.append(&events).await;
            }
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
            self.late.extend(in_flight);
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
                self.workers[worker].end();
                self.late.push(batch);
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
            let batch = self.late.swap_remove(self.random.random_range(0..self.late.len()));
            self.arrive(&batch).await;
            self.met.arrived_late += 1;
        }
    }

    async fn arrive(&mut self, batch: &Batch) -> CommitReply {
        let answer = self.store.commit(batch).await;
        match &answer {
            CommitReply::Committed { .. } => self.met.committed += 1,
            CommitReply::Stale(_) => self.met.stale += 1,
            CommitReply::Lost => self.met.lost += 1,
            CommitReply::Old => self.met.old += 1,
            CommitReply::Drift(_) => self.met.drift += 1,
            CommitReply::Recreated | CommitReply::Replaced | CommitReply::GrantsDue => {
                panic!("nobody made the stream again, named a server or has grants")
            }
        }
        answer
    }

    /// Without further faults: one worker continues until everything is counted. Late commits arrive first.
    async fn drain(&mut self) {
        while !self.late.is_empty() {
            self.arrive_late().await;
        }
        let worker = &mut self.workers[0];
        worker.end();
        let bounds = BatchBounds { entries: 50, cost: 50 };
        loop {
            if !worker.is_in_session() {
                worker.begin(&mut self.store, bounds).await;
            }
            let now = self.store.now().await;
            if worker.read(&mut self.store, 100, now, None).await == 0 {
                return;
            }
            while worker.is_in_session() {
                worker.make_ready(&mut self.store).await;
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
        let mut model = StreamModel::new(&self.traffic.customers, FREE_LIMIT);
        for entry in entries.iter().filter(|entry| entry.id <= checkpoint) {
            let fields = entry.fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
            model.enter(&entry.id.to_string(), fields);
        }
        let stored = self.store.stored().await;
        self.met.alerts = stored.records.len() as u64;
        self.met.overflows = model.refused.values().filter(|reason| **reason == "counter_overflow").count() as u64;
        let mut findings = Findings::default();
        findings.judge(&Keys::new("usage"), &stored, &model);
        findings.other.extend(self.store.faults().iter().cloned());
        findings
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
    let each = [met.stale, met.old, met.drift, met.arrived_late];
    assert!(met.committed > met.steps / 200 && met.alerts > 10 * histories, "{met:?}");
    assert!(met.overflows > 0, "{met:?}");
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
