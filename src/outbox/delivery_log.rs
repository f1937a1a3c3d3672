//! Logs and counts what happens to deliveries: fan-outs and recorded settlements.

use metrics::{counter, histogram};
use tracing::field::display;

use super::fan_out::{FanOutResult, SourceDisposition};
use super::lease::LeasedDelivery;
use super::settle::Settlement;
use crate::contacts::Contact;
use crate::types::{Channel, DeliveryState, Notification, ONCE_A_MINUTE, QuotaNotification, UnixMs, meters};

/// The result of a fan-out: one event per delivery, and the metric.
pub(super) fn fanned_out(notification: QuotaNotification<'_>, result: &FanOutResult) {
    let subject = notification.subject();
    let (alert, notice) = (notification.alert_id().map(display), notification.notice_id());
    for made in &result.made {
        counter!(meters::DELIVERIES_MADE, "channel" => made.channel.as_str()).increment(1);
        let (delivery, channel, waiting) = (&made.id, made.channel.as_str(), result.waiting);
        if made.channel == Channel::None {
            tracing::error!(name: ONCE_A_MINUTE, waiting, last_subject = %subject, last_alert = alert, last_notice = notice, "no contact is known: alerts wait until there is one");
        } else {
            tracing::info!(%subject, alert, notice, %delivery, channel, "delivery made");
        }
    }
    if result.source == SourceDisposition::Consumed && result.wanted == 0 {
        tracing::info!(%subject, alert, notice, "the notification is sent to nobody: no contact's filter accepts it");
    }
    for reopened in &result.reopened {
        let (delivery, channel) = (&reopened.id, reopened.channel.as_str());
        tracing::info!(%subject, alert, notice, %delivery, channel, "cancelled delivery is pending again: its contact is back");
    }
}

/// A delivery was fanned out again.
pub(super) fn fanned_out_again(leased: &LeasedDelivery, notification: QuotaNotification<'_>, result: &FanOutResult) {
    if result.source == SourceDisposition::Cancelled {
        let LeasedDelivery { id, attempts, channel, .. } = leased;
        count_ended(*channel, DeliveryState::Cancelled);
        let (alert, notice) = (notification.alert_id().map(display), notification.notice_id());
        tracing::info!(subject = %notification.subject(), alert, notice, delivery = %id, attempt = attempts, channel = channel.as_str(),
                "delivery cancelled: the contacts changed");
    }
    fanned_out(notification, result);
}

/// Counts a delivery that ended in this state.
pub(super) fn count_ended(channel: Channel, state: DeliveryState) {
    counter!(meters::DELIVERIES_ENDED, "channel" => channel.as_str(), "state" => state.as_str()).increment(1);
}

/// One log event per outcome, and the metrics.
pub(super) fn settled(
    leased: &LeasedDelivery,
    notification: &Notification,
    contact: Option<&Contact>,
    settlement: &Settlement,
    now: UnixMs,
) {
    let LeasedDelivery { id: delivery, attempts: attempt, channel, subject, .. } = leased;
    let (alert, request) = (notification.alert_id().map(display), notification.request_id().map(display));
    let notice = notification.notice_id();
    let (state, channel) = (settlement.state(), channel.as_str());
    let outcome = settlement.outcome();
    let status = outcome.and_then(|outcome| outcome.status);
    let error = outcome.and_then(|outcome| outcome.error.as_deref()).unwrap_or_default();
    match settlement {
        Settlement::Delivered(outcome) => {
            let raised = notification.happened_at();
            // Otherwise every morning would look like a slow receiver.
            let wanted = contact.zip(notification.quota()).map(|(contact, quota)| {
                let digest = contact.digest_of(quota).map_or(raised, |digest| raised.after(digest.get()));
                contact.filter.quiet_until(quota, None, digest).unwrap_or(digest)
            });
            let seconds = (now.0 - wanted.unwrap_or(raised).0).max(0) as f64 / 1000.0;
            histogram!(meters::DELIVERED_SECONDS, "channel" => channel).record(seconds);
            // JSON would show a u128 as text.
            let took_ms = u64::try_from(outcome.took.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(subject, alert, request, notice, %delivery, attempt, channel, status, took_ms, "delivered");
        }
        Settlement::Retry(_, wait) => {
            tracing::warn!(subject, alert, request, notice, %delivery, attempt, channel, status, error, retry_in = ?wait, "attempt failed");
        }
        Settlement::Dead(_) | Settlement::Unsendable(_) => {
            tracing::error!(subject, alert, request, notice, %delivery, attempt, channel, status, error, "delivery is dead; it can be replayed");
        }
        Settlement::ContactDisabled(_) => {
            tracing::warn!(subject, alert, request, notice, %delivery, attempt, channel, status, error, "delivery cancelled: its contact is disabled");
        }
        Settlement::ExpiredAfter(_) => {
            tracing::warn!(%subject, alert, request, notice, %delivery, attempt, channel, status, error, "attempt failed, and the next one would come after the expiry: expired");
        }
        Settlement::Throttled(wait)
        | Settlement::Released(wait)
        | Settlement::Quiet(wait)
        | Settlement::SetAside(wait) => {
            tracing::debug!(subject, alert, request, notice, %delivery, attempt, channel, due_in = ?wait, "lease released");
        }
        Settlement::Muted(_) | Settlement::Expired | Settlement::Cancelled => {
            tracing::info!(subject, alert, request, notice, %delivery, attempt, channel, %state, "delivery ended without an attempt");
        }
    }
}
