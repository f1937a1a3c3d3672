//! Which alerts and notices of a quota a contact receives.

use super::{Metric, QuotaNotification, Threshold};

/// The word that means every threshold or metric.
pub(crate) const ALL: &str = "all";

/// The alerts that a contact receives: those at these thresholds, of these metrics. An empty filter accepts all alerts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContactFilter {
    /// Thresholds, ascending; empty for all.
    pub thresholds: Vec<Threshold>,
    /// Metrics, in order; empty for all.
    pub metrics: Vec<Metric>,
    /// Whether it also receives the alerts of all levels below its subject.
    pub subtree: bool,
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
    pub fn new(thresholds: Option<Vec<Threshold>>, metrics: Option<Vec<Metric>>) -> Result<Self, ContactFilterError> {
        let (thresholds, metrics) = (in_order("thresholds", thresholds)?, in_order("metrics", metrics)?);
        Ok(Self { thresholds, metrics, subtree: false })
    }

    /// Whether the filter accepts alerts at this threshold.
    pub fn takes_threshold(&self, threshold: Threshold) -> bool {
        self.thresholds.is_empty() || self.thresholds.contains(&threshold)
    }

    /// Whether the filter accepts this notification. A notice has no threshold, so only its metric counts.
    pub fn takes<'a>(&self, notification: impl Into<QuotaNotification<'a>>) -> bool {
        let notification = notification.into();
        let takes_metric = self.metrics.is_empty() || self.metrics.contains(notification.metric());
        takes_metric
            && match notification {
                QuotaNotification::Alert(alert) => self.takes_threshold(alert.threshold),
                QuotaNotification::GrantExpires(_) | QuotaNotification::Usage(_) => true,
            }
    }

    /// `all`, or a text such as `80,used:5000 of requests, also below`.
    pub fn summary(&self) -> String {
        let Self { thresholds, metrics, subtree } = self;
        let below = if *subtree { ", also below" } else { "" };
        let thresholds: Vec<String> = thresholds.iter().map(ToString::to_string).collect();
        let metrics: Vec<&str> = metrics.iter().map(Metric::as_str).collect();
        let thresholds = if thresholds.is_empty() { ALL.to_owned() } else { thresholds.join(",") };
        let of = if metrics.is_empty() { String::new() } else { format!(" of {}", metrics.join(",")) };
        format!("{thresholds}{of}{below}")
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
        let empty = ContactFilter::new(Some(Vec::new()), None).expect_err("empty").to_string();
        assert_eq!(empty, "thresholds is an empty list: leave it out for all");
        let twice =
            ContactFilter::new(Some(vec![read("used:5"), read("used:5")]), None).expect_err("twice").to_string();
        assert_eq!(twice, "thresholds names used:5 twice");
        let filter = ContactFilter::new(Some(vec![read("remaining:80"), read("80")]), None).expect("legal");
        assert_eq!(filter.thresholds, [read("80"), read("remaining:80")]);
        assert!(filter.takes_threshold(read("80")) && !filter.takes_threshold(read("used:80")));
        assert_eq!(filter.summary(), "80,remaining:80");
        assert!(ContactFilter::default().takes_threshold(read("90")));
    }
}
