//! What the log and the metrics say of alerts that were fanned out.

use std::time::Instant;

use metrics::counter;

use super::fan_out::{FanOutResult, SourceEnd};
use super::lease::LeasedDelivery;
use super::settlement_log::count_ended;
use crate::types::{Alert, Channel, DeliveryState, LOG_INTERVAL, LOG_LINES, LogLimiter, meters};

/// The log of a loop that fans out. What had no line is told with its number, at the end at the latest.
#[derive(Debug)]
pub(super) struct FanOutLog {
    without_contact: LogLimiter,
    lines: LogLimiter<Line>,
}

/// A line of the log that tells of one alert or delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Made,
    SentToNobody,
    PendingAgain,
    Cancelled,
}

impl Default for FanOutLog {
    fn default() -> Self {
        Self { without_contact: LogLimiter::new(LOG_INTERVAL), lines: LogLimiter::of_lines(LOG_INTERVAL, LOG_LINES) }
    }
}

impl FanOutLog {
    /// What a fan-out made: one event per delivery, and the metric.
    pub(super) fn done(&self, alert: &Alert, result: &FanOutResult) {
        let Alert { id, subject, .. } = alert;
        for made in &result.made {
            counter!(meters::DELIVERIES_MADE, "channel" => made.channel.as_str()).increment(1);
            let (delivery, channel, waiting) = (&made.id, made.channel.as_str(), result.waiting);
            if made.channel == Channel::None {
                self.waits(alert, waiting);
            } else if self.has_line(Line::Made) {
                tracing::info!(%subject, alert = %id, %delivery, channel, "delivery made");
            }
        }
        if result.source == SourceEnd::Consumed && result.wanted == 0 && self.has_line(Line::SentToNobody) {
            tracing::info!(%subject, alert = %id, "the alert is recorded and sent to nobody: none of the contacts hears it");
        }
        for reopened in &result.reopened {
            let (delivery, channel) = (&reopened.id, reopened.channel.as_str());
            if self.has_line(Line::PendingAgain) {
                tracing::info!(%subject, alert = %id, %delivery, channel, "cancelled delivery is pending again: its contact is back");
            }
        }
    }

    /// A delivery was fanned out again.
    pub(super) fn done_again(&self, leased: &LeasedDelivery, alert: &Alert, result: &FanOutResult) {
        if result.source == SourceEnd::Cancelled {
            let LeasedDelivery { id, attempts, channel, .. } = leased;
            count_ended(*channel, DeliveryState::Cancelled);
            if self.has_line(Line::Cancelled) {
                tracing::info!(subject = %alert.subject, alert = %alert.id, delivery = %id, attempt = attempts, channel = channel.as_str(),
                    "delivery cancelled: the contacts changed");
            }
        }
        self.done(alert, result);
    }

    /// Says how many had no line, once their minute is over.
    pub(super) fn say_rest(&self) {
        let now = Instant::now();
        log_more_wait(self.without_contact.overdue(&(), now).unwrap_or(0));
        Line::ALL.iter().for_each(|line| line.log_more(self.lines.overdue(line, now).unwrap_or(0)));
    }

    /// Whether this one has a line.
    fn has_line(&self, line: Line) -> bool {
        let unsaid = self.lines.admit(line, Instant::now());
        line.log_more(unsaid.unwrap_or(0));
        unsaid.is_some()
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

impl Drop for FanOutLog {
    fn drop(&mut self) {
        log_more_wait(self.without_contact.rest(&()));
        Line::ALL.iter().for_each(|line| line.log_more(self.lines.rest(line)));
    }
}

impl Line {
    const ALL: [Self; 4] = [Self::Made, Self::SentToNobody, Self::PendingAgain, Self::Cancelled];

    /// Says that there were so many more, if any.
    fn log_more(self, more: u64) {
        match self {
            _ if more == 0 => {}
            Self::Made => tracing::info!(deliveries = more, "more deliveries made, not logged one by one"),
            Self::SentToNobody => {
                tracing::info!(alerts = more, "more alerts sent to nobody, not logged one by one")
            }
            Self::PendingAgain => {
                tracing::info!(deliveries = more, "more deliveries pending again, not logged one by one");
            }
            Self::Cancelled => {
                tracing::info!(deliveries = more, "more deliveries cancelled, not logged one by one")
            }
        }
    }
}

fn log_more_wait(alerts: u64) {
    if alerts > 0 {
        tracing::error!(alerts, "no contact is known: more alerts wait until there is one");
    }
}
