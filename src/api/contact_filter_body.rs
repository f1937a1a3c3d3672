//! The body of what a contact is to hear, and when.

use schemars::JsonSchema;
use serde::Deserialize;

use super::problem::Problem;
use crate::contacts::state::FilterChange;
use crate::types::{ContactFilter, DigestInterval, Metric, QuietTime, Threshold, Window};

/// The body of what a contact is to hear: what is left out or `null` means all.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
#[schemars(rename = "ContactFilter")]
pub(super) struct ContactFilterBody {
    /// The thresholds whose alerts it gets; left out or null for all.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub(super) thresholds: Option<Vec<Threshold>>,
    /// The metrics whose alerts it gets; left out or null for all.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub(super) metrics: Option<Vec<Metric>>,
    /// The windows whose alerts it gets; left out or null for all.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub(super) windows: Option<Vec<Window>>,
    /// When its notifications wait, in the zone of the subject; left out or null if they never do. Alerts at 100 % are
    /// sent anyway.
    pub(super) quiet: Option<QuietTime>,
    /// Whether alerts at 100 % wait too; left out for no.
    #[serde(default)]
    pub(super) quiet_all: bool,
    /// For how long its notifications are gathered into one message, such as `1h`; left out or null if each is sent at
    /// once. Alerts at 100 % of a day or longer are sent at once anyway.
    pub(super) digest: Option<DigestInterval>,
    /// Whether alerts at 100 % are gathered too; left out for no.
    #[serde(default)]
    pub(super) digest_all: bool,
    /// Whether it also gets the alerts of all levels below the subject; left out for no.
    #[serde(default)]
    pub(super) subtree: bool,
    /// Whether it hears that all its alerts of a quota have ended; left out or null for no, but for yes of a
    /// `pagerduty` contact, whose incidents are resolved.
    pub(super) resolved: Option<bool>,
}

impl ContactFilterBody {
    /// The change that replaces the whole filter.
    pub(super) fn into_change(self) -> Result<FilterChange, Problem> {
        let Self { thresholds, metrics, windows, quiet, quiet_all, digest, digest_all, subtree, resolved } = self;
        let filter = ContactFilter::new(thresholds, metrics, windows);
        let filter = filter.map_err(|error| Problem::bad_request(error.to_string()))?;
        Ok(FilterChange {
            thresholds: Some(filter.thresholds),
            metrics: Some(filter.metrics),
            windows: Some(filter.windows),
            quiet: Some(quiet),
            quiet_all: Some(quiet_all),
            digest: Some(digest),
            digest_all: Some(digest_all),
            subtree: Some(subtree),
            resolved: Some(resolved),
        })
    }
}
