//! Repeated fan-outs, each requested by the task of its delivery: requests that arrive during a call are sent together
//! in the next one. So thousands that waited for one contact cost few calls.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::context::OutboxContext;
use super::error::OutboxError;
use super::fan_out::{FanOutReply, FanOutRequest, FanOutSource, fan_out};
use super::fan_out_loop::chunks;
use super::lease::LeasedDelivery;
use super::recipients::Recipients;
use crate::types::Alert;

/// Maximum number of alerts that one caller fans out with its own: others wait meanwhile.
const AT_ONCE_MAX: usize = 100;

/// Alerts that wait for a call. One task makes the call for all of them.
#[derive(Debug, Default)]
pub(super) struct FanOutQueue {
    waiting: Mutex<Vec<QueuedFanOut>>,
    /// Held by the task that makes the call.
    calling: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct QueuedFanOut {
    leased: LeasedDelivery,
    alert: Alert,
    recipients: Recipients,
    answer: oneshot::Sender<Result<FanOutReply, OutboxError>>,
}

impl FanOutQueue {
    /// As [`fan_out`] for one leased delivery. Repeatable.
    ///
    /// # Errors
    ///
    /// [`OutboxError`] of the shared call.
    pub(super) async fn fan_out(
        &self,
        outbox: &OutboxContext,
        leased: &LeasedDelivery,
        alert: &Alert,
        recipients: &Recipients,
    ) -> Result<FanOutReply, OutboxError> {
        loop {
            let (answer, mut answered) = oneshot::channel();
            let (leased, alert, recipients) = (leased.clone(), alert.clone(), recipients.clone());
            self.waiting().push(QueuedFanOut { leased, alert, recipients, answer });
            loop {
                let _calling = self.calling.lock().await;
                match answered.try_recv() {
                    Ok(answer) => return answer,
                    // The task that made the call was cancelled during it.
                    Err(TryRecvError::Closed) => break,
                    Err(TryRecvError::Empty) => self.fan_out_waiting(outbox).await,
                }
            }
        }
    }

    /// Fans out the waiting alerts, the first one first.
    async fn fan_out_waiting(&self, OutboxContext { client, keys, .. }: &OutboxContext) {
        let queued: Vec<QueuedFanOut> = {
            let mut waiting = self.waiting();
            let count = waiting.len().min(AT_ONCE_MAX);
            waiting.drain(..count).collect()
        };
        let mut answers = Vec::with_capacity(queued.len());
        let requests: Vec<FanOutRequest<'_>> = queued.iter().map(QueuedFanOut::as_request).collect();
        for requests in chunks(&requests) {
            match fan_out(client, keys, requests).await {
                Ok(some) => answers.extend(some.into_iter().map(Ok)),
                Err(error) => answers.extend(requests.iter().map(|_| Err(error.clone()))),
            }
        }
        for (queued, answer) in queued.into_iter().zip(answers) {
            // The requesting task may have been cancelled at the end of a drain.
            let _ = queued.answer.send(answer);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<QueuedFanOut>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueuedFanOut {
    fn as_request(&self) -> FanOutRequest<'_> {
        let Self { leased: LeasedDelivery { id, token, json, .. }, alert, recipients, .. } = self;
        FanOutRequest { source: FanOutSource::Delivery { id, token }, alert, json, recipients }
    }
}
