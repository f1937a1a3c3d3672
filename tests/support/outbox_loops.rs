//! The fan-out loop and the dispatcher of an outbox, with a fake notifier.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quotabell::contacts::Contact;
use quotabell::contacts::resolver::ContactResolver;
use quotabell::outbox::{
    AttemptRequest, DeliverySet, DispatcherConfig, FanOutLoop, MultiplePolicy, Notifier, OutboxContext, OutboxError,
    Settlement, Slots, Verdict,
};
use quotabell::types::{Alert, Channel, DeliveryId, OutcomeClass};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::eventually::WAIT_MAX;
use super::notifier::NoConsentRequests;
use super::outbox::{GIVE_UP_AFTER, Outbox, alert, delivery_config, json, outcome, subject, until};

/// What the fake does with an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FakeAttempt {
    Deliver,
    /// Fails and is due again at once.
    Retry,
    Die,
    Mute,
    /// The cap is exhausted; due again at once.
    Throttle,
    /// The state of the cap is unknown; due again at once.
    Postpone,
    Panic,
    /// Delivers after the gate is opened.
    Gate,
    /// Fails after the gate is opened, and is due again at once.
    FailAtGate,
}

/// One attempt as the receiver saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenAttempt {
    pub delivery: DeliveryId,
    pub address: String,
    pub attempt: u32,
}

/// A fake notifier: acts according to delivery and attempt, and records the attempts.
pub struct FakeNotifier {
    act: Box<dyn Fn(&AttemptRequest<'_>) -> FakeAttempt + Send + Sync>,
    /// Which deliveries of a set wait for an hour.
    waits: fn(&AttemptRequest<'_>) -> bool,
    seen: Mutex<Vec<SeenAttempt>>,
    pub running: AtomicU64,
    pub most_running: AtomicU64,
    gate: Semaphore,
}

impl FakeNotifier {
    pub fn new(act: impl Fn(&AttemptRequest<'_>) -> FakeAttempt + Send + Sync + 'static) -> Arc<Self> {
        Self::holding_back(|_| false, act)
    }

    pub fn holding_back(
        waits: fn(&AttemptRequest<'_>) -> bool,
        act: impl Fn(&AttemptRequest<'_>) -> FakeAttempt + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            act: Box::new(act),
            waits,
            seen: Mutex::default(),
            running: AtomicU64::new(0),
            most_running: AtomicU64::new(0),
            gate: Semaphore::new(0),
        })
    }

    pub fn seen(&self) -> Vec<SeenAttempt> {
        self.seen.lock().expect("no test holds it in a panic").clone()
    }

    pub fn open(&self) {
        self.let_end(1000);
    }

    /// Lets this number of [`FakeAttempt::Gate`] attempts complete.
    pub fn let_end(&self, attempts: usize) {
        self.gate.add_permits(attempts);
    }
}

impl Notifier for FakeNotifier {
    fn timeout(&self, _: Channel) -> Duration {
        Duration::from_millis(100)
    }

    async fn attempt(&self, due: AttemptRequest<'_>) -> Settlement {
        let seen = SeenAttempt {
            delivery: due.delivery.clone(),
            address: due.contact.address().to_owned(),
            attempt: due.attempt_since_replay,
        };
        self.seen.lock().expect("no test holds it in a panic").push(seen);
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_running.fetch_max(running, Ordering::SeqCst);
        let act = (self.act)(&due);
        if matches!(act, FakeAttempt::Gate | FakeAttempt::FailAtGate) {
            self.gate.acquire().await.expect("never closed").forget();
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        match act {
            FakeAttempt::Deliver | FakeAttempt::Gate => Settlement::Delivered(outcome(OutcomeClass::Delivered)),
            FakeAttempt::Retry | FakeAttempt::FailAtGate => {
                Settlement::Retry(outcome(OutcomeClass::Transient), Duration::ZERO)
            }
            FakeAttempt::Die => Settlement::Dead(outcome(OutcomeClass::Permanent)),
            FakeAttempt::Mute => Settlement::Muted(String::new()),
            FakeAttempt::Throttle => Settlement::Throttled(Duration::ZERO),
            FakeAttempt::Postpone => Settlement::Released(Duration::ZERO),
            FakeAttempt::Panic => panic!("the double panics as told"),
        }
    }

    async fn hold_back(&self, set: Option<&DeliverySet>, requests: &[AttemptRequest<'_>]) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for request in requests {
            let waits =
                (set.is_some() && (self.waits)(request)).then_some(Settlement::Released(Duration::from_secs(3600)));
            verdicts.push(waits.map_or(Ok(None), Err));
        }
        verdicts
    }

    async fn attempt_set(&self, _: &DeliverySet, requests: &[AttemptRequest<'_>]) -> Vec<Settlement> {
        let mut settlements = Vec::new();
        for request in requests {
            settlements.push(self.attempt(*request).await);
        }
        settlements
    }
}

/// Running loops and the token that stops them.
pub struct Loops {
    pub stop: CancellationToken,
    pub new_alerts: Arc<Notify>,
    pub new_deliveries: Arc<Notify>,
    pub fan_out: JoinHandle<Result<(), OutboxError>>,
    pub dispatcher: JoinHandle<Result<(), OutboxError>>,
}

/// Differences from the daemon's settings.
pub struct Setting {
    pub fallback: Vec<Contact>,
    pub on_multiple: MultiplePolicy,
    pub concurrency: u32,
    pub lease_margin: Duration,
    /// The user of Redis and its password, `name:password`; else the default user.
    pub user: Option<&'static str>,
}

impl Default for Setting {
    fn default() -> Self {
        let lease_margin = Duration::from_secs(30);
        Self { fallback: Vec::new(), on_multiple: MultiplePolicy::Each, concurrency: 16, lease_margin, user: None }
    }
}

impl Loops {
    pub fn start(outbox: &Outbox, notifier: &Arc<FakeNotifier>, setting: Setting) -> Self {
        let contacts = Arc::new(ContactResolver::new(outbox.keys.clone(), setting.fallback));
        let (stop, new_alerts, new_deliveries) = (CancellationToken::new(), Arc::default(), Arc::new(Notify::new()));
        let context = OutboxContext {
            // Each process has its own client.
            client: setting.user.map_or_else(|| Arc::new(outbox.server.client()), |user| outbox.client_of(user)),
            keys: outbox.keys.clone(),
            contacts,
            on_multiple: setting.on_multiple,
            new_deliveries: Arc::clone(&new_deliveries),
        };
        let fan_out = FanOutLoop::new(context.clone(), Arc::clone(&new_alerts));
        let dispatcher = DispatcherConfig {
            outbox: context,
            notifier: Arc::clone(notifier),
            consents: Arc::new(NoConsentRequests),
            slots: Slots::new(&delivery_config(setting.concurrency)),
            config: delivery_config(setting.concurrency),
            give_up_after: GIVE_UP_AFTER,
            lease_margin: setting.lease_margin,
        };
        let fan_out = tokio::spawn(fan_out.run(stop.clone()));
        let dispatcher = tokio::spawn(dispatcher.run(stop.clone()));
        Self { stop, new_alerts, new_deliveries, fan_out, dispatcher }
    }

    /// Stops both and waits for the drain, which must complete.
    pub async fn drain(self) {
        self.stop.cancel();
        self.drain_after_stop().await;
    }

    /// Waits for the stop (by anybody) and for the drain.
    pub async fn drain_after_stop(self) {
        for ended in [self.fan_out, self.dispatcher] {
            let ended = tokio::time::timeout(WAIT_MAX, ended).await.expect("the drain ends");
            ended.expect("no panic").expect("no fatal error");
        }
    }
}

pub async fn until_ended(outbox: &Outbox, deliveries: u64) {
    until("all deliveries ended", || async {
        let totals = outbox.totals().await;
        totals.made == deliveries && totals.pending == 0 && totals.outbox == 0
    })
    .await;
    outbox.assert_balanced().await;
}

/// One alert of a subject with these contacts, in the outbox.
pub async fn raised(outbox: &Outbox, name: &str, contacts: &[Contact]) -> Alert {
    let subject = subject(name);
    if !contacts.is_empty() {
        outbox.set_contacts(&subject, &json(contacts)).await;
    }
    let alert = alert(&subject, 80);
    outbox.raise(&alert).await;
    alert
}
