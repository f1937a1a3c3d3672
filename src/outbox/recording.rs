//! The end of an attempt: records how its leases ended, and repeats what Redis has not accepted.
//!
//! Read next: [`super::settle_queue`], which sends the settlements of many attempts in one call.

use std::time::Duration;

use metrics::counter;
use tracing::field::display;

use super::delivery_log::{self, count_ended};
use super::delivery_worker::DeliveryWorker;
use super::error::{OutboxError, chain};
use super::lease::LeasedDelivery;
use super::notifier::Notifier;
use super::settle::SettleReply;
use super::settle_queue::EndedLease;
use crate::redis_client::ErrorKind;
use crate::redis_client::backoff::{Backoff, BackoffPolicy};
use crate::types::{DeliveryState, Notification, meters};

/// How long an outcome is kept after its lease ended if Redis stays unavailable or refuses the daemon. Longer than any
/// failover or restart; then the task ends, and the delivery is attempted again.
pub const RECORD_OUTCOME_TIMEOUT: Duration = Duration::from_secs(60 * 60);

impl<N: Notifier> DeliveryWorker<N> {
    /// Records in one step how the leases of one message ended, and logs it. Returns whether all is recorded.
    pub(super) async fn settle(&self, ends: &[EndedLease<'_>]) -> bool {
        let Some(first) = ends.first() else { return true };
        if let Some(outcome) = ends.iter().find_map(|end| end.settlement.outcome()) {
            let channel = first.leased.channel.as_str();
            counter!(meters::ATTEMPTS, "channel" => channel, "outcome" => outcome.class.as_str()).increment(1);
        }
        let settle = || self.settle_queue.settle(ends);
        let Some(answers) = self.retry_until_recorded(first.leased, settle).await else { return false };
        for (end, answer) in ends.iter().zip(&answers) {
            self.report(end, *answer);
        }
        answers.iter().all(|answer| matches!(answer, SettleReply::Done(_) | SettleReply::Repeated))
    }

    fn report(&self, EndedLease { leased, settlement, contact }: &EndedLease<'_>, answer: SettleReply) {
        // For an unreadable notification only the lease is released; the next attempt reports the problem.
        let notification = leased.notification.as_ref().ok();
        let now = match answer {
            SettleReply::Done(now) => now,
            SettleReply::Repeated => leased.clock.now(),
            SettleReply::Stale => {
                let LeasedDelivery { id, attempts, channel, subject, .. } = leased;
                let alert = notification.and_then(Notification::alert_id).map(display);
                let request = notification.and_then(Notification::request_id).map(display);
                tracing::warn!(subject, alert, request, delivery = %id, attempt = attempts, channel = channel.as_str(),
                    outcome = ?settlement.state(), "lease lost: another worker took the delivery before its outcome was recorded");
                return;
            }
            SettleReply::WrongType => {
                tracing::error!(delivery = %leased.id,
                    "outcome could not be recorded: the delivery's key holds unexpected data");
                return;
            }
        };
        if settlement.state() != DeliveryState::Pending {
            count_ended(leased.channel, settlement.state());
        }
        let Some(notification) = notification else { return };
        delivery_log::settled(leased, notification, *contact, settlement, now);
        if let Notification::Verification(request) = notification {
            self.shared.consents.settled(request, settlement);
        }
    }

    /// Repeats a repeatable call until Redis answers it, also after the end of the lease: nobody else can lease the
    /// delivery either. Within [`RECORD_OUTCOME_TIMEOUT`]; `None`: given up and logged.
    pub(super) async fn retry_until_recorded<T, F>(
        &self,
        leased: &LeasedDelivery,
        mut call: impl FnMut() -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<T, OutboxError>> + Send,
    {
        let mut backoff = Backoff::new(BackoffPolicy::RECONNECT);
        let mut waiting = None;
        let mut logged = false;
        loop {
            let error = match call().await {
                Ok(answer) => return Some(answer),
                Err(error) => error,
            };
            error.error_kind().count(error.label());
            if error.error_kind() == ErrorKind::MovedAway {
                // The daemon stops and logs the reason. The delivery was copied with its lease.
                tracing::debug!(delivery = %leased.id, %error, "outcome was not recorded: everything was moved to another deployment");
                return None;
            }
            // The operator can fix a password or a right.
            let kind = error.error_kind();
            let passing = kind.is_transient() || matches!(kind, ErrorKind::Login | ErrorKind::Denied);
            let lapsed = leased.clock.lapsed();
            let (id, error) = (&leased.id, chain(&error));
            if lapsed > RECORD_OUTCOME_TIMEOUT || (!passing && !lapsed.is_zero()) {
                tracing::error!(delivery = %id, error, "outcome could not be recorded and is given up; the delivery is attempted again");
                return None;
            }
            if !lapsed.is_zero() && !logged {
                tracing::error!(delivery = %id, error, "lease ran out before its outcome could be recorded; still trying");
                logged = true;
            } else {
                tracing::debug!(delivery = %id, error, "outcome could not be recorded; trying again");
            }
            if passing && waiting.is_none() {
                waiting = Some(self.pending_outcomes.add());
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next_delay()) => {}
                () = self.pending_outcomes.retry_requested() => {}
            }
        }
    }
}
