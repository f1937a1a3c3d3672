//! The sections `[plans.*]` and `[subjects]`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::types::{Limits, Metric, Percent, Separator, Threshold, UrlTemplate, duration};

use super::forecast_config::{ForecastConfig, SilenceTime, SpikeTimes};
use super::rates::RateConfig;
use super::refuse_at::RefuseAt;

/// A named set of limits, thresholds and rates. The default has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanConfig {
    /// Units that a subject may use of a metric in one period of each window.
    pub limits: BTreeMap<Metric, Limits>,
    /// Thresholds of a limit at which an alert is raised.
    #[serde(default = "thresholds_default")]
    pub thresholds: Vec<Threshold>,
    /// The share of a limit at which checks refuse. Alerts do not depend on it.
    #[serde(default, skip_serializing_if = "RefuseAt::is_default")]
    pub refuse_at: RefuseAt,
    /// How long before the expiry of a grant its subject is told.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    pub grant_notice: Option<Duration>,
    /// The page on which a customer gets more; alerts link to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_url: Option<UrlTemplate>,
    /// The page on which a customer sees its usage; alerts link to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_url: Option<UrlTemplate>,
    /// Which limits that will be reached are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastConfig>,
    /// The multiple of the usual from which usage is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spike: Option<SpikeTimes>,
    /// How long a subject with usage on most days uses nothing until that is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence: Option<SilenceTime>,
    /// How many units of a metric a subject may use in a short time, for the check API.
    #[serde(default, skip_serializing_if = "RateConfig::is_empty")]
    pub rate: RateConfig,
}

/// 80 and 100: the thresholds of a plan that names none.
fn thresholds_default() -> Vec<Threshold> {
    [80, 100].into_iter().filter_map(Percent::new).map(Threshold::from).collect()
}

/// Storage and cache of subjects' settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubjectsConfig {
    /// Prefix of the keys of subjects. Ends with a colon.
    pub prefix: String,
    /// The character between the parts of a subject, such as "/"; "" for flat subjects.
    pub separator: Separator,
    /// The plans of subjects without one, by level from the top. Without any, `default_plan` is that of the first
    /// level.
    pub default_plans: Vec<String>,
    /// Maximum number of subjects with cached settings, about 200 B each.
    pub cache_entries: usize,
    /// Maximum number of contacts of a subject.
    pub contacts_max: usize,
}
