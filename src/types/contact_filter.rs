//! Which alerts and notices of a quota a contact receives, and when.

use super::{DigestInterval, Metric, QuietTime, QuotaNotification, Threshold, UnixMs, Window};
use crate::zones::Zone;

/// The share of a limit from which an alert does not wait for the end of a quiet time or for a digest, percent.
const URGENT_PERCENT: u64 = 100;

/// The word that means every threshold, metric or window.
pub(crate) const ALL: &str = "all";

/// The alerts that a contact receives: those at these thresholds, of these metrics and windows. An empty filter accepts
/// all alerts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContactFilter {
    /// Thresholds, ascending; empty for all.
    pub thresholds: Vec<Threshold>,
    /// Metrics, in order; empty for all.
    pub metrics: Vec<Metric>,
    /// Windows, the shortest first; empty for all.
    pub windows: Vec<Window>,
    /// When its notifications wait, in the zone of their subject.
    pub quiet: Option<QuietTime>,
    /// Whether alerts of a used up limit wait too.
    pub quiet_all: bool,
    /// For how long its notifications are gathered into one message; `None`: each is sent at once.
    pub digest: Option<DigestInterval>,
    /// Whether alerts of a used up limit of a day or longer are gathered too.
    pub digest_all: bool,
    /// Whether it also receives the alerts of all levels below its subject.
    pub subtree: bool,
    /// Whether it hears that its alerts have ended; `None` for the default of its format.
    pub resolved: Option<bool>,
}

/// Why a filter is invalid.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContactFilterError {
    /// An empty list could mean all or none.
    #[error("{0} is an empty list: leave it out for all")]
    Empty(&'static str),
    #[error("{field} names {value} twice")]
    Twice { field: &'static str, value: String },
}

impl ContactFilter {
    /// A filter with these lists; `None` means all.
    pub fn new(
        thresholds: Option<Vec<Threshold>>,
        metrics: Option<Vec<Metric>>,
        windows: Option<Vec<Window>>,
    ) -> Result<Self, ContactFilterError> {
        let (thresholds, metrics) = (in_order("thresholds", thresholds)?, in_order("metrics", metrics)?);
        Ok(Self { thresholds, metrics, windows: in_order("windows", windows)?, ..Self::default() })
    }

    /// Whether the filter accepts alerts at this threshold.
    pub fn takes_threshold(&self, threshold: Threshold) -> bool {
        self.thresholds.is_empty() || self.thresholds.contains(&threshold)
    }

    /// Whether the filter accepts this notification. A notice has no threshold, so only its metric and window count.
    /// The end of alerts is accepted with any of their thresholds.
    pub fn takes<'a>(&self, notification: impl Into<QuotaNotification<'a>>) -> bool {
        let notification = notification.into();
        let takes_metric = self.metrics.is_empty() || self.metrics.contains(notification.metric());
        let takes_window = self.windows.is_empty() || self.windows.contains(&notification.window());
        takes_metric
            && takes_window
            && match notification {
                QuotaNotification::Alert(alert) => self.takes_threshold(alert.threshold),
                QuotaNotification::Resolved(notice) => notice.thresholds.iter().any(|of| self.takes_threshold(*of)),
                QuotaNotification::GrantExpires(_) | QuotaNotification::Usage(_) => true,
            }
    }

    /// Until when this notification waits if it would be sent at `now`; `None` if it need not wait. `zone` is the
    /// present one of the subject; without it, the quiet time is in that of the notification.
    pub fn quiet_until<'a>(
        &self,
        notification: impl Into<QuotaNotification<'a>>,
        zone: Option<Zone>,
        now: UnixMs,
    ) -> Option<UnixMs> {
        let notification = notification.into();
        let quiet = self.quiet_of(notification)?;
        let zone = zone.or_else(|| notification.timezone().parse().ok());
        quiet.ends_after(now, zone.unwrap_or(Zone::UTC))
    }

    /// The quiet time in which this notification waits; `None` if it never does.
    pub fn quiet_of<'a>(&self, notification: impl Into<QuotaNotification<'a>>) -> Option<QuietTime> {
        let notification = notification.into();
        self.quiet.filter(|_| !is_urgent(notification) || self.quiet_all)
    }

    /// For how long this notification is gathered with others; `None` if it is sent at once.
    pub fn digest_of<'a>(&self, notification: impl Into<QuotaNotification<'a>>) -> Option<DigestInterval> {
        let notification = notification.into();
        // The next hour begins anew before a digest would be read.
        let is_sent_at_once = is_urgent(notification) && notification.window() != Window::Hour;
        self.digest.filter(|_| !is_sent_at_once || self.digest_all)
    }

    /// `all`, or a text such as `80,used:5000 of requests in day, also below, quiet 22:00-07:00, digest 1h, ends`.
    pub fn summary(&self) -> String {
        let Self { thresholds, metrics, windows, quiet, quiet_all, digest, digest_all, subtree, resolved } = self;
        let below = if *subtree { ", also below" } else { "" };
        let thresholds: Vec<String> = thresholds.iter().map(ToString::to_string).collect();
        let metrics: Vec<&str> = metrics.iter().map(Metric::as_str).collect();
        let thresholds = if thresholds.is_empty() { ALL.to_owned() } else { thresholds.join(",") };
        let of = if metrics.is_empty() { String::new() } else { format!(" of {}", metrics.join(",")) };
        let windows: Vec<&str> = windows.iter().map(|window| window.as_str()).collect();
        let within = if windows.is_empty() { String::new() } else { format!(" in {}", windows.join(",")) };
        let all = |of_all: bool| if of_all { " for all" } else { "" };
        let quiet = quiet.map(|quiet| format!(", quiet {quiet}{}", all(*quiet_all))).unwrap_or_default();
        let digest = digest.map(|digest| format!(", digest {digest}{}", all(*digest_all))).unwrap_or_default();
        let ends = match resolved {
            None => "",
            Some(true) => ", ends",
            Some(false) => ", no ends",
        };
        format!("{thresholds}{of}{within}{below}{quiet}{digest}{ends}")
    }
}

/// Whether it tells that a limit is used up.
fn is_urgent(notification: QuotaNotification<'_>) -> bool {
    match notification {
        QuotaNotification::Alert(alert) => alert.threshold_share() >= URGENT_PERCENT,
        QuotaNotification::GrantExpires(_) | QuotaNotification::Usage(_) | QuotaNotification::Resolved(_) => false,
    }
}

fn in_order<T: Ord + ToString>(field: &'static str, named: Option<Vec<T>>) -> Result<Vec<T>, ContactFilterError> {
    let Some(mut values) = named else { return Ok(Vec::new()) };
    values.sort_unstable();
    if let Some(pair) = values.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ContactFilterError::Twice { field, value: pair[0].to_string() });
    }
    if values.is_empty() { Err(ContactFilterError::Empty(field)) } else { Ok(values) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty list could mean all alerts or none, and a wrong guess would cost an alert.
    #[test]
    fn an_empty_list_and_a_repetition_are_refused() {
        let read = |text: &str| text.parse::<Threshold>().expect("legal");
        let empty = ContactFilter::new(Some(Vec::new()), None, None).expect_err("empty").to_string();
        assert_eq!(empty, "thresholds is an empty list: leave it out for all");
        let twice =
            ContactFilter::new(Some(vec![read("used:5"), read("used:5")]), None, None).expect_err("twice").to_string();
        assert_eq!(twice, "thresholds names used:5 twice");
        let filter = ContactFilter::new(Some(vec![read("remaining:80"), read("80")]), None, None).expect("legal");
        assert_eq!(filter.thresholds, [read("80"), read("remaining:80")]);
        assert!(filter.takes_threshold(read("80")) && !filter.takes_threshold(read("used:80")));
        assert_eq!(filter.summary(), "80,remaining:80");
        assert!(ContactFilter::default().takes_threshold(read("90")));
    }
}
