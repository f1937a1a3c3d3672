//! One leased delivery: look its contact up, have the attempt made, settle. The task that the dispatcher spawns.

use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, histogram};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::{OutboxError, chain};
use super::fan_out::{Fanned, FannedOut, Source, SourceEnd, fan_out};
use super::lease::Leased;
use super::settle::{Settled, Settlement, settle};
use super::unsettled::Unsettled;
use super::{NO_CONTACT_WAIT, fan_out_loop};
use crate::contacts::Contact;
use crate::contacts::book::{ContactBook, Contacts, Found};
use crate::sender::{Due, Sender, Verdict};
use crate::types::{Alert, Channel, DeliveryState, Keys, UnixMs, meters};
use crate::wire::RedisClient;
use crate::wire::backoff::{Backoff, BackoffPolicy};

/// How long an outcome is kept for a Redis that does not come back, after its lease ran out. Longer than any failover or restart;
/// then the task ends, and the delivery is attempted again.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// What makes an attempt. The sender in the daemon, a double in tests.
pub trait Attempting: Send + Sync + 'static {
    /// The deadline of one attempt on this channel; [`Attempting::send`] keeps it.
    fn timeout(&self, channel: Channel) -> Duration;

    /// Makes one attempt and says what comes next. Records nothing.
    fn send(&self, due: Due<'_>) -> impl Future<Output = Verdict> + Send;
}

impl Attempting for Sender {
    fn timeout(&self, channel: Channel) -> Duration {
        Self::timeout(self, channel)
    }

    async fn send(&self, due: Due<'_>) -> Verdict {
        Self::send(self, due).await
    }
}

/// What every task of a dispatcher shares.
#[derive(Debug)]
pub(super) struct Worker<A> {
    pub(super) client: Arc<RedisClient>,
    pub(super) keys: Keys,
    pub(super) contacts: Arc<ContactBook>,
    pub(super) sender: Arc<A>,
    pub(super) new_deliveries: Arc<Notify>,
    pub(super) unsettled: Unsettled,
    pub(super) stop: CancellationToken,
}

/// How long a lease is still ours, by a clock that can't jump.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// Before the call that leased: the lease began then or later, so we never believe in it for too long.
    pub(super) called: Instant,
    /// How long it lasts.
    pub(super) length: Duration,
    /// When the answer came, and what the server's clock had said.
    pub(super) answered: Instant,
    pub(super) server_now: UnixMs,
}

impl Held {
    fn remaining(&self) -> Duration {
        self.length.saturating_sub(self.called.elapsed())
    }

    /// The latest moment at which an attempt may start that takes as long as this; `None` when that is past.
    fn start_by(&self, timeout: Duration) -> Option<Instant> {
        self.remaining().checked_sub(timeout).map(|left| Instant::now() + left)
    }

    /// How long ago it ran out.
    fn lapsed(&self) -> Duration {
        self.called.elapsed().saturating_sub(self.length)
    }

    /// Server time now, as far as we can tell without asking.
    fn now(&self) -> UnixMs {
        self.server_now.plus(i64::try_from(self.answered.elapsed().as_millis()).unwrap_or(i64::MAX))
    }
}

impl<A: Attempting> Worker<A> {
    /// Works one leased delivery off. Whatever happens, either its lease is settled or it runs out.
    pub(super) async fn work(&self, leased: Leased, held: Held) {
        let alert = match &leased.alert {
            Ok(alert) => alert,
            Err(why) => {
                let Leased { id, subject, .. } = &leased;
                tracing::error!(subject, delivery = %id, why, "the alert of a delivery is unreadable; the delivery ends dead");
                let unsendable = Settlement::Unsendable("the stored alert is unreadable".to_owned());
                self.surely(&leased, held, || self.settle(&leased, &unsendable)).await;
                return;
            }
        };
        let contacts = match self.contacts.contacts_of(&self.client, &alert.subject).await {
            Ok(contacts) => contacts,
            Err(error) => {
                tracing::warn!(subject = %alert.subject, delivery = %leased.id, error = chain(&error), "no attempt: contacts can't be read");
                return self
                    .end(&leased, alert, held, Settlement::Released(BackoffPolicy::RECONNECT.max_interval))
                    .await;
            }
        };
        match chosen(&leased, &contacts) {
            Chosen::Send(contact) => self.attempt(&leased, alert, &contact, held).await,
            Chosen::FanOut => self.fan_out_again(&leased, alert, &contacts, held).await,
            Chosen::Wait => self.end(&leased, alert, held, Settlement::Released(NO_CONTACT_WAIT)).await,
        }
    }

    async fn attempt(&self, leased: &Leased, alert: &Alert, contact: &Contact, held: Held) {
        // An attempt that outlives its lease could overlap with another worker's.
        let start_by = held.start_by(self.sender.timeout(leased.channel)).filter(|_| !self.stop.is_cancelled());
        let Some(start_by) = start_by else {
            return self.end(leased, alert, held, Settlement::Released(Duration::ZERO)).await;
        };
        let due = Due {
            delivery: &leased.id,
            alert,
            contact,
            attempts: leased.attempts,
            attempt: leased.attempt,
            first_attempt: leased.first_attempt,
            now: held.now(),
            start_by,
        };
        let settlement = match tokio::time::timeout(held.remaining(), self.sender.send(due)).await {
            Ok(verdict) => {
                if let Verdict::Throttled(_) = verdict {
                    counter!(meters::THROTTLED, "channel" => leased.channel.as_str()).increment(1);
                }
                settlement_of(verdict)
            }
            Err(_) => {
                let Leased { id, attempts, channel, .. } = leased;
                tracing::error!(subject = %alert.subject, alert = %alert.id, delivery = %id, attempt = attempts, channel = channel.as_str(),
                    "attempt did not keep its deadline and is given up; the delivery is attempted again");
                return;
            }
        };
        self.end(leased, alert, held, settlement).await;
    }

    /// The contact is gone, or the delivery waits for one: what the contacts are now decides.
    async fn fan_out_again(&self, leased: &Leased, alert: &Alert, contacts: &Contacts, held: Held) {
        let source = Source::Delivery { id: &leased.id, token: &leased.token };
        let call = || fan_out(&self.client, &self.keys, source, alert, &contacts.readable);
        let Some(FannedOut::Done(fanned)) = self.surely(leased, held, call).await else {
            tracing::debug!(delivery = %leased.id, "not fanned out again: the lease was lost, or an earlier call came through");
            return;
        };
        self.say_fanned(leased, alert, &fanned);
    }

    fn say_fanned(&self, leased: &Leased, alert: &Alert, fanned: &Fanned) {
        if fanned.source == SourceEnd::Cancelled {
            let Leased { id, attempts, channel, .. } = leased;
            ended(*channel, DeliveryState::Cancelled);
            tracing::info!(subject = %alert.subject, alert = %alert.id, delivery = %id, attempt = attempts, channel = channel.as_str(),
                "delivery cancelled: the contacts changed");
        }
        fan_out_loop::announce(alert, fanned);
        if !(fanned.made.is_empty() && fanned.reopened.is_empty()) {
            self.new_deliveries.notify_one();
        }
    }

    /// Settles, and says what happened.
    async fn end(&self, leased: &Leased, alert: &Alert, held: Held, settlement: Settlement) {
        if let Some(outcome) = settlement.outcome() {
            counter!(meters::ATTEMPTS, "channel" => leased.channel.as_str(), "outcome" => outcome.class.as_str())
                .increment(1);
        }
        match self.surely(leased, held, || self.settle(leased, &settlement)).await {
            Some(Settled::Done(now)) => say_settled(leased, alert, &settlement, now),
            Some(Settled::Repeated) => say_settled(leased, alert, &settlement, held.now()),
            Some(Settled::Stale) => {
                let Leased { id, attempts, channel, .. } = leased;
                tracing::warn!(subject = %alert.subject, alert = %alert.id, delivery = %id, attempt = attempts, channel = channel.as_str(),
                    outcome = ?settlement.state(), "lease lost: another worker took the delivery before its outcome was recorded");
            }
            None => {}
        }
    }

    fn settle<'a>(
        &'a self,
        leased: &'a Leased,
        settlement: &'a Settlement,
    ) -> impl Future<Output = Result<Settled, OutboxError>> + Send + 'a {
        settle(&self.client, &self.keys, &leased.id, &leased.token, settlement)
    }

    /// Repeats a call that is safe to repeat until Redis answers it. While Redis is away nobody else can take the delivery either, so
    /// this goes on after the lease ran out, within [`PATIENCE`]. `None`: given up, said loudly.
    async fn surely<T, F>(&self, leased: &Leased, held: Held, mut call: impl FnMut() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, OutboxError>> + Send,
    {
        let mut retries = Backoff::new(BackoffPolicy::RECONNECT);
        let mut waiting = None;
        let mut told = false;
        loop {
            let error = match call().await {
                Ok(answer) => return Some(answer),
                Err(error) => error,
            };
            counter!(meters::REDIS_ERRORS, "operation" => error.label()).increment(1);
            let passing = error.error_kind().is_transient();
            let lapsed = held.lapsed();
            let (id, error) = (&leased.id, chain(&error));
            if lapsed > PATIENCE || (!passing && !lapsed.is_zero()) {
                tracing::error!(delivery = %id, error, "outcome could not be recorded and is given up; the delivery is attempted again");
                return None;
            }
            if !lapsed.is_zero() && !told {
                tracing::error!(delivery = %id, error, "lease ran out before its outcome could be recorded; still trying");
                told = true;
            } else {
                tracing::debug!(delivery = %id, error, "outcome could not be recorded; trying again");
            }
            if passing && waiting.is_none() {
                waiting = Some(self.unsettled.enter());
            }
            tokio::select! {
                () = tokio::time::sleep(retries.next_delay()) => {}
                () = self.unsettled.hurried() => {}
            }
        }
    }
}

/// What is to be done with a leased delivery.
#[derive(Debug, PartialEq, Eq)]
enum Chosen {
    /// Attempt it to this contact.
    Send(Contact),
    /// Its contact is gone or none was known: fan out to those that are there now.
    FanOut,
    /// Its contact may be among those that can't be read: wait until that is mended.
    Wait,
}

/// Pure: decides by the contacts as they are now.
fn chosen(leased: &Leased, contacts: &Contacts) -> Chosen {
    if leased.channel == Channel::None {
        return Chosen::FanOut;
    }
    match contacts.find(&leased.contact) {
        Found::Contact(contact) if contact.channel() == leased.channel => Chosen::Send(contact),
        // Under its id the contact now stands for another channel, and the lease is as long as the old one needs: fanning out again
        // stores the new one and makes the delivery due.
        Found::Contact(_) | Found::Removed => Chosen::FanOut,
        Found::Unreadable => Chosen::Wait,
    }
}

fn settlement_of(verdict: Verdict) -> Settlement {
    match verdict {
        Verdict::Delivered(outcome) => Settlement::Delivered(outcome),
        Verdict::Retry(outcome, wait) => Settlement::Retry(outcome, wait),
        Verdict::Dead(outcome) => Settlement::Dead(outcome),
        Verdict::Throttled(wait) | Verdict::Postponed(wait) => Settlement::Released(wait),
        Verdict::Muted => Settlement::Muted,
        Verdict::Expired => Settlement::Expired,
    }
}

fn ended(channel: Channel, state: DeliveryState) {
    counter!(meters::ENDED, "channel" => channel.as_str(), "state" => state.as_str()).increment(1);
}

/// One event per outcome, and the metrics.
fn say_settled(leased: &Leased, alert: &Alert, settlement: &Settlement, now: UnixMs) {
    let Leased { id: delivery, attempts: attempt, channel, .. } = leased;
    let (subject, alert_id, channel_name) = (&alert.subject, &alert.id, channel.as_str());
    let state = settlement.state();
    if state != DeliveryState::Pending {
        ended(*channel, state);
    }
    match settlement {
        Settlement::Delivered(outcome) => {
            let seconds = (now.0 - alert.raised_at_ms.0).max(0) as f64 / 1000.0;
            histogram!(meters::DELIVERED_SECONDS, "channel" => channel_name).record(seconds);
            // A u128 would stand in JSON as text.
            let took_ms = u64::try_from(outcome.took.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(%subject, alert = %alert_id, %delivery, attempt, channel = channel_name, status = outcome.status, took_ms, "delivered");
        }
        Settlement::Retry(outcome, wait) => {
            let (status, error) = (outcome.status, outcome.error.as_deref().unwrap_or_default());
            tracing::warn!(%subject, alert = %alert_id, %delivery, attempt, channel = channel_name, status, error, retry_in = ?wait, "attempt failed");
        }
        Settlement::Dead(outcome) => {
            let (status, error) = (outcome.status, outcome.error.as_deref().unwrap_or_default());
            tracing::error!(%subject, alert = %alert_id, %delivery, attempt, channel = channel_name, status, error, "delivery is dead; it can be replayed");
        }
        Settlement::Released(wait) => {
            tracing::debug!(%subject, alert = %alert_id, %delivery, attempt, channel = channel_name, due_in = ?wait, "lease given back");
        }
        Settlement::Muted | Settlement::Expired | Settlement::Cancelled | Settlement::Unsendable(_) => {
            tracing::info!(%subject, alert = %alert_id, %delivery, attempt, channel = channel_name, %state, "delivery ended without an attempt");
        }
    }
}
