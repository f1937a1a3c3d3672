//! The queue of outcomes to record: outcomes that arrive during a call are sent together in the next one.

use tokio::sync::{mpsc, oneshot};

use super::config::DeliveryConfig;
use super::context::OutboxContext;
use super::error::OutboxError;
use super::lease::LeasedDelivery;
use super::settle::{SETTLE_MAX, SettleReply, SettleRequest, SettledLeases, Settlement, settle};

/// Accepts the outcomes of attempts. Each caller gets its own reply.
#[derive(Debug, Clone)]
pub(super) struct SettleQueue {
    sender: mpsc::Sender<QueuedRequest>,
}

/// Records the outcomes in the queue.
#[derive(Debug)]
pub(super) struct Settler {
    outbox: OutboxContext,
    config: DeliveryConfig,
    receiver: mpsc::Receiver<QueuedRequest>,
    /// Taken from the queue but not recorded yet.
    ends: Vec<QueuedRequest>,
}

/// A request, and the receiver of its reply.
type QueuedRequest = (SettleRequest, oneshot::Sender<Result<SettleReply, OutboxError>>);

/// A queue and the settler that empties it.
pub(super) fn settle_queue(outbox: OutboxContext, config: DeliveryConfig) -> (SettleQueue, Settler) {
    let (sender, receiver) = mpsc::channel(SETTLE_MAX);
    (SettleQueue { sender }, Settler { outbox, config, receiver, ends: Vec::new() })
}

impl SettleQueue {
    /// As [`settle`] for one lease. Never returns if the settler is gone, because the attempts are then cancelled too.
    pub(super) async fn settle(
        &self,
        leased: &LeasedDelivery,
        settlement: &Settlement,
    ) -> Result<SettleReply, OutboxError> {
        let (reply, replied) = oneshot::channel();
        let (id, channel, token) = (leased.id.clone(), leased.channel, leased.token.clone());
        let request = SettleRequest { id, channel, token, settlement: settlement.clone() };
        let _ = self.sender.send((request, reply)).await;
        match replied.await {
            Ok(reply) => reply,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Settler {
    /// Records outcomes in successive calls while the queue exists.
    pub(super) async fn run(&mut self) {
        loop {
            self.filled().await;
            self.record().await;
        }
    }

    /// Returns when there is something to record. Safe to cancel at any time.
    pub(super) async fn filled(&mut self) {
        if self.ends.is_empty() && self.receiver.recv_many(&mut self.ends, SETTLE_MAX).await == 0 {
            std::future::pending().await
        }
    }

    /// Records the waiting outcomes in one call.
    pub(super) async fn record(&mut self) {
        while self.ends.len() < SETTLE_MAX
            && let Ok(end) = self.receiver.try_recv()
        {
            self.ends.push(end);
        }
        if self.ends.is_empty() {
            return;
        }
        let requests: Vec<&SettleRequest> = self.ends.iter().map(|(request, _)| request).collect();
        let settled = settle(&self.outbox.client, &self.outbox.keys, &self.config, &requests).await;
        if let Ok(settled) = &settled {
            log_circuits(settled);
        }
        for (at, (_, reply)) in self.ends.drain(..).enumerate() {
            let answer = settled.as_ref().map(|settled| settled.answers[at]).map_err(OutboxError::clone);
            // The requesting task may have been cancelled at the end of a drain.
            let _ = reply.send(answer);
        }
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
