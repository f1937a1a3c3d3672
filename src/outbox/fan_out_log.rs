//! What the log and the metrics say of alerts that were fanned out.

use std::time::Instant;

use metrics::counter;

use super::fan_out::{FanOutResult, SourceEnd};
use crate::types::{Alert, Channel, LOG_INTERVAL, LOG_LINES, LogLimiter, meters};

/// The log of a loop that fans out.
#[derive(Debug)]
pub(super) struct FanOutLog {
    without_contact: LogLimiter,
    made: LogLimiter,
}

impl Default for FanOutLog {
    fn default() -> Self {
        Self { without_contact: LogLimiter::new(LOG_INTERVAL), made: LogLimiter::of_lines(LOG_INTERVAL, LOG_LINES) }
    }
}

impl FanOutLog {
    /// What a fan-out made: one event per delivery, and the metric.
    pub(super) fn done(&self, alert: &Alert, result: &FanOutResult) {
        let Alert { id, subject, .. } = alert;
        for made in &result.made {
            counter!(meters::MADE, "channel" => made.channel.as_str()).increment(1);
            let (delivery, channel, waiting) = (&made.id, made.channel.as_str(), result.waiting);
            if made.channel == Channel::None {
                self.waits(alert, waiting);
            } else if let Some(unsaid) = self.made.admit((), Instant::now()) {
                log_more_made(unsaid);
                tracing::info!(%subject, alert = %id, %delivery, channel, "delivery made");
            }
        }
        if result.source == SourceEnd::Consumed && result.wanted == 0 {
            tracing::info!(%subject, alert = %id, "the alert is recorded and sent to nobody: none of the contacts hears it");
        }
        for reopened in &result.reopened {
            let (delivery, channel) = (&reopened.id, reopened.channel.as_str());
            tracing::info!(%subject, alert = %id, %delivery, channel, "cancelled delivery is pending again: its contact is back");
        }
    }

    /// Says how many had no line, once their minute is over.
    pub(super) fn say_rest(&self) {
        let now = Instant::now();
        if let Some(alerts) = self.without_contact.overdue(&(), now) {
            tracing::error!(alerts, "no contact is known: more alerts wait until there is one");
        }
        log_more_made(self.made.overdue(&(), now).unwrap_or(0));
    }

    /// An alert that nobody can be told of, said once a minute with the number of them: a plan whose customers have no
    /// contacts must not fill a disk. `waiting` are all that wait now.
    fn waits(&self, Alert { id, subject, .. }: &Alert, waiting: u64) {
        if let Some(unsaid) = self.without_contact.admit((), Instant::now()) {
            let alerts = unsaid + 1;
            tracing::error!(alerts, waiting, last_subject = %subject, last_alert = %id, "no contact is known: alerts wait until there is one");
        }
    }
}

fn log_more_made(deliveries: u64) {
    if deliveries > 0 {
        tracing::info!(deliveries, "more deliveries were made than have a line each");
    }
}
