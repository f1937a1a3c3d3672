//! Logs and counts alerts that were fanned out.

use metrics::counter;

use super::fan_out::{FanOutResult, SourceDisposition};
use super::lease::LeasedDelivery;
use super::settlement_log::count_ended;
use crate::types::{Alert, Channel, DeliveryState, ONCE_A_MINUTE, meters};

/// The result of a fan-out: one event per delivery, and the metric.
pub(super) fn fanned_out(alert: &Alert, result: &FanOutResult) {
    let Alert { id, subject, .. } = alert;
    for made in &result.made {
        counter!(meters::DELIVERIES_MADE, "channel" => made.channel.as_str()).increment(1);
        let (delivery, channel, waiting) = (&made.id, made.channel.as_str(), result.waiting);
        if made.channel == Channel::None {
            tracing::error!(name: ONCE_A_MINUTE, waiting, last_subject = %subject, last_alert = %id, "no contact is known: alerts wait until there is one");
        } else {
            tracing::info!(%subject, alert = %id, %delivery, channel, "delivery made");
        }
    }
    if result.source == SourceDisposition::Consumed && result.wanted == 0 {
        tracing::info!(%subject, alert = %id, "the alert is recorded and sent to nobody: no contact's filter accepts it");
    }
    for reopened in &result.reopened {
        let (delivery, channel) = (&reopened.id, reopened.channel.as_str());
        tracing::info!(%subject, alert = %id, %delivery, channel, "cancelled delivery is pending again: its contact is back");
    }
}

/// A delivery was fanned out again.
pub(super) fn fanned_out_again(leased: &LeasedDelivery, alert: &Alert, result: &FanOutResult) {
    if result.source == SourceDisposition::Cancelled {
        let LeasedDelivery { id, attempts, channel, .. } = leased;
        count_ended(*channel, DeliveryState::Cancelled);
        tracing::info!(subject = %alert.subject, alert = %alert.id, delivery = %id, attempt = attempts, channel = channel.as_str(),
                "delivery cancelled: the contacts changed");
    }
    fanned_out(alert, result);
}
