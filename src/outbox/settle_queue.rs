//! The queue of settlements and repeated fan-outs of a dispatcher. All that arrive during a call to Redis are sent
//! together in the next call, so thousands of deliveries that wait for one contact cost few calls.

use tokio::sync::{mpsc, oneshot};

use super::config::DeliveryConfig;
use super::context::OutboxContext;
use super::error::OutboxError;
use super::fan_out::{FanOutReply, FanOutRequest, FanOutSource, fan_out};
use super::fan_out_loop::chunks;
use super::lease::LeasedDelivery;
use super::recipients::Recipients;
use super::settle::{SETTLE_MAX, SettleReply, SettleRequest, SettledLeases, Settlement, settle};
use crate::contacts::{Contact, logged_address};
use crate::types::Notification;

/// Accepts settlements, and fan-outs of leased deliveries. Each caller gets its own reply.
#[derive(Debug, Clone)]
pub(super) struct SettleQueue {
    sender: mpsc::Sender<QueuedCall>,
}

/// Sends the settlements and fan-outs in the queue to Redis.
#[derive(Debug)]
pub(super) struct Settler {
    outbox: OutboxContext,
    config: DeliveryConfig,
    receiver: mpsc::Receiver<QueuedCall>,
    /// Taken from the queue, and not sent yet.
    settlements: Vec<(Vec<SettleRequest>, ReplyTo<Vec<SettleReply>>)>,
    fan_outs: Vec<(Box<QueuedFanOut>, ReplyTo<FanOutReply>)>,
}

/// Sends the reply to the task that waits for it.
type ReplyTo<T> = oneshot::Sender<Result<T, OutboxError>>;

/// A lease and how it ends.
#[derive(Debug, Clone)]
pub(super) struct EndedLease<'a> {
    pub(super) leased: &'a LeasedDelivery,
    pub(super) settlement: Settlement,
    /// The contact of the attempt, if one took place.
    pub(super) contact: Option<&'a Contact>,
}

#[derive(Debug)]
enum QueuedCall {
    Settle(Vec<SettleRequest>, ReplyTo<Vec<SettleReply>>),
    FanOut(Box<QueuedFanOut>, ReplyTo<FanOutReply>),
}

#[derive(Debug)]
struct QueuedFanOut {
    leased: LeasedDelivery,
    recipients: Recipients,
}

/// A queue and its settler.
pub(super) fn settle_queue(outbox: OutboxContext, config: DeliveryConfig) -> (SettleQueue, Settler) {
    let (sender, receiver) = mpsc::channel(SETTLE_MAX);
    (SettleQueue { sender }, Settler { outbox, config, receiver, settlements: Vec::new(), fan_outs: Vec::new() })
}

impl SettleQueue {
    /// Like [`settle`] for the leases of one message.
    pub(super) async fn settle(&self, ends: &[EndedLease<'_>]) -> Result<Vec<SettleReply>, OutboxError> {
        let requests = ends.iter().map(EndedLease::as_request).collect();
        self.call(|reply| QueuedCall::Settle(requests, reply)).await
    }

    /// Like [`fan_out`] for one leased delivery, which must carry a notification about a quota.
    pub(super) async fn fan_out(
        &self,
        leased: &LeasedDelivery,
        recipients: &Recipients,
    ) -> Result<FanOutReply, OutboxError> {
        let queued = Box::new(QueuedFanOut { leased: leased.clone(), recipients: recipients.clone() });
        self.call(|reply| QueuedCall::FanOut(queued, reply)).await
    }

    /// Never returns if the settler is gone, because the attempts are then cancelled too.
    async fn call<T>(&self, call: impl FnOnce(ReplyTo<T>) -> QueuedCall) -> Result<T, OutboxError> {
        let (reply, replied) = oneshot::channel();
        let _ = self.sender.send(call(reply)).await;
        match replied.await {
            Ok(reply) => reply,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Settler {
    /// Sends what is in the queue, in successive calls, while the queue exists.
    pub(super) async fn run(&mut self) {
        loop {
            self.filled().await;
            self.record().await;
        }
    }

    /// Returns when a settlement or a fan-out waits. Safe to cancel at any time.
    pub(super) async fn filled(&mut self) {
        if self.settlements.is_empty() && self.fan_outs.is_empty() {
            match self.receiver.recv().await {
                Some(call) => self.take(call),
                None => std::future::pending().await,
            }
        }
    }

    /// Sends the waiting settlements in one call, then the waiting fan-outs.
    pub(super) async fn record(&mut self) {
        let count = |settler: &Self| settler.settlements.iter().map(|(requests, _)| requests.len()).sum::<usize>();
        while count(self) + self.fan_outs.len() < SETTLE_MAX
            && let Ok(call) = self.receiver.try_recv()
        {
            self.take(call);
        }
        let OutboxContext { client, keys, .. } = &self.outbox;
        if !self.settlements.is_empty() {
            // The leases of one message are in one call, so that they end together.
            let requests: Vec<&SettleRequest> = self.settlements.iter().flat_map(|(requests, _)| requests).collect();
            let settled = settle(client, keys, &self.config, &requests).await;
            if let Ok(settled) = &settled {
                log_circuits(settled);
            }
            let mut from = 0;
            for (requests, reply) in self.settlements.drain(..) {
                let own = from..from + requests.len();
                from = own.end;
                let answer = settled.as_ref().map(|settled| settled.answers[own].to_vec()).map_err(OutboxError::clone);
                // The end of a drain may have cancelled the task that waits for the reply.
                let _ = reply.send(answer);
            }
        }
        let requests: Vec<FanOutRequest<'_>> = self.fan_outs.iter().map(|(queued, _)| queued.as_request()).collect();
        let mut answers = Vec::with_capacity(requests.len());
        for requests in chunks(&requests) {
            match fan_out(client, keys, requests).await {
                Ok(some) => answers.extend(some.into_iter().map(Ok)),
                Err(error) => answers.extend(requests.iter().map(|_| Err(error.clone()))),
            }
        }
        for ((_, reply), answer) in self.fan_outs.drain(..).zip(answers) {
            let _ = reply.send(answer);
        }
    }

    fn take(&mut self, call: QueuedCall) {
        match call {
            QueuedCall::Settle(requests, reply) => self.settlements.push((requests, reply)),
            QueuedCall::FanOut(queued, reply) => self.fan_outs.push((queued, reply)),
        }
    }
}

impl EndedLease<'_> {
    fn as_request(&self) -> SettleRequest {
        let Self { leased: LeasedDelivery { id, channel, token, set, .. }, settlement, contact } = self;
        SettleRequest {
            id: id.clone(),
            channel: *channel,
            token: token.clone(),
            settlement: settlement.clone(),
            inherited: contact.and_then(|contact| contact.inherited.clone()),
            address: contact.filter(|_| settlement.outcome().is_some()).map(logged_address),
            message_id: set.as_ref().map(|set| set.message_id.clone()),
        }
    }
}

impl QueuedFanOut {
    fn as_request(&self) -> FanOutRequest<'_> {
        let Self { leased: LeasedDelivery { id, token, notification, json, .. }, recipients } = self;
        let notification = notification.as_ref().ok().and_then(Notification::quota);
        let notification = notification.expect("only notifications about quotas are fanned out");
        FanOutRequest { source: FanOutSource::Delivery { id, token }, notification, json, recipients }
    }
}

/// Logs a changed circuit once, instead of each delivery behind it. A destination is an origin without the path of the
/// URL, which may be a secret.
fn log_circuits(settled: &SettledLeases) {
    let SettledLeases { circuits_opened, circuits_closed, .. } = settled;
    for destination in circuits_opened {
        tracing::warn!(
            %destination,
            "circuit open: attempts at this destination failed several times in a row; its deliveries wait, and one is tried at growing intervals"
        );
    }
    for destination in circuits_closed {
        tracing::info!(%destination, "circuit closed: this destination answers again");
    }
}
