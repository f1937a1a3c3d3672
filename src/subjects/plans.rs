//! Plans: named sets of limits and thresholds, from the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use super::limiter::Limiter;
use crate::types::text::hex;
use crate::types::{Alert, Metric, MetricFormat, Separator, Threshold, Window};
use sha2::{Digest, Sha256};

use super::config::PlanConfig;
use super::rates::{RateConfig, UnsupportedRate};
use super::record::write_thresholds;

/// The name of the plan of levels that have none: it has no limits and no rates, else what the default plan has.
const NO_PLAN: &str = "none";

/// A plan, which its subjects share.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its name.
    pub name: Arc<str>,
    /// Its settings. Its thresholds are ascending.
    config: PlanConfig,
    /// Limiters of the check API. Counting ignores them.
    pub limiters: BTreeMap<Metric, Limiter>,
}

impl Deref for Plan {
    type Target = PlanConfig;

    fn deref(&self) -> &PlanConfig {
        &self.config
    }
}

/// All plans, and the default plan. Clones share them: [`Self::replace`] affects all clones.
#[derive(Debug, Clone)]
pub struct Plans {
    set: Arc<RwLock<PlanSet>>,
    separator: Separator,
}

/// The plans of one configuration.
#[derive(Debug, Clone)]
struct PlanSet {
    by_name: BTreeMap<String, Arc<Plan>>,
    /// The plans of subjects without one, by level. The levels below have `no_plan`.
    defaults: Vec<Arc<Plan>>,
    no_plan: Arc<Plan>,
    fingerprint: Arc<str>,
    /// How people read the counts of metrics.
    formats: BTreeMap<Metric, MetricFormat>,
}

/// The plans come from an unchecked configuration and are invalid.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlansError {
    #[error("default_plan {0:?} is not one of the plans")]
    NoSuchPlan(String),
    #[error("subjects.default_plans names {0:?}, which is not one of the plans")]
    NoSuchPlanOfLevel(String),
    /// A rate that its limiter does not support.
    #[error("plans.{plan}.rate.{}: {rate}", .rate.metric)]
    Rate { plan: String, rate: UnsupportedRate },
}

impl Plans {
    /// Creates the plans of a checked configuration.
    ///
    /// # Errors
    ///
    /// [`PlansError`], only for an unchecked configuration.
    pub fn new(plans: &BTreeMap<String, PlanConfig>, default: &str) -> Result<Self, PlansError> {
        let by_name: BTreeMap<String, Arc<Plan>> =
            plans.iter().map(|(name, plan)| Ok((name.clone(), shared(name, plan)?))).collect::<Result<_, _>>()?;
        let default = by_name.get(default).cloned().ok_or_else(|| PlansError::NoSuchPlan(default.to_owned()))?;
        let fingerprint = fingerprint_of(&by_name, &default).into();
        let config = PlanConfig { limits: BTreeMap::new(), rate: RateConfig::default(), ..default.config.clone() };
        let no_plan = Arc::new(Plan { name: NO_PLAN.into(), config, limiters: BTreeMap::new() });
        let set = PlanSet { by_name, defaults: vec![default], no_plan, fingerprint, formats: BTreeMap::new() };
        Ok(Self { set: Arc::new(RwLock::new(set)), separator: Separator::NONE })
    }

    /// The same plans for subjects with this separator. `by_level` names the plans of subjects without one, from the
    /// top; if it is empty, the default plan is that of the first level.
    ///
    /// # Errors
    ///
    /// A name of `by_level` that is not one of the plans.
    pub fn by_level(mut self, separator: Separator, by_level: &[String]) -> Result<Self, PlansError> {
        let mut set = self.in_effect().clone();
        let plan_of =
            |name: &String| set.by_name.get(name).cloned().ok_or_else(|| PlansError::NoSuchPlanOfLevel(name.clone()));
        if !by_level.is_empty() {
            set.defaults = by_level.iter().map(plan_of).collect::<Result<_, _>>()?;
        }
        if !separator.is_none() {
            let names: Vec<&str> = set.defaults.iter().map(|plan| &*plan.name).collect();
            set.fingerprint = digest(&format!("{}{separator}{}", set.fingerprint, names.join(","))).into();
        }
        (self.set, self.separator) = (Arc::new(RwLock::new(set)), separator);
        Ok(self)
    }

    /// The same plans, with these formats of metrics.
    #[must_use]
    pub fn with_formats(mut self, formats: &BTreeMap<Metric, MetricFormat>) -> Self {
        let set = PlanSet { formats: formats.clone(), ..self.in_effect().clone() };
        self.set = Arc::new(RwLock::new(set));
        self
    }

    /// How people read the counts of a metric.
    pub fn format_of(&self, metric: &Metric) -> MetricFormat {
        self.in_effect().formats.get(metric).cloned().unwrap_or_default()
    }

    /// Those of all metrics that have one.
    pub fn formats(&self) -> BTreeMap<Metric, MetricFormat> {
        self.in_effect().formats.clone()
    }

    /// Adds the units of their metrics to listed alerts.
    pub fn add_units(&self, alerts: &mut [Alert]) {
        alerts.iter_mut().for_each(|alert| alert.unit = self.format_of(&alert.metric).unit());
    }

    /// The separator of subjects.
    pub const fn separator(&self) -> Separator {
        self.separator
    }

    /// The plan of this name.
    pub fn get(&self, name: &str) -> Option<Arc<Plan>> {
        self.in_effect().by_name.get(name).cloned()
    }

    /// The names of all plans, sorted.
    pub fn names(&self) -> Vec<String> {
        self.in_effect().by_name.keys().cloned().collect()
    }

    /// The metrics for which a plan has a rate.
    pub fn limited_by_rates(&self) -> Vec<Metric> {
        self.in_effect().by_name.values().flat_map(|plan| plan.limiters.keys().cloned()).collect()
    }

    /// Whether a plan limits the metric, or it has a format.
    pub fn names_metric(&self, metric: &Metric) -> bool {
        let set = self.in_effect();
        let limits = |plan: &Arc<Plan>| {
            plan.limits.contains_key(metric) || plan.limiters.keys().any(|limited| limited == metric)
        };
        set.formats.contains_key(metric) || set.by_name.values().any(limits)
    }

    /// The longest silence that a plan tells of; `None` if no plan does.
    pub fn longest_silence(&self) -> Option<Duration> {
        self.in_effect().by_name.values().filter_map(|plan| plan.silence).map(Duration::from).max()
    }

    /// The thresholds at which plans raise alerts, with the windows of their limits.
    pub fn thresholds(&self) -> BTreeSet<(Threshold, Window)> {
        let set = self.in_effect();
        let of_plan = |plan: &Arc<Plan>| {
            let limits = plan.limits.values().flat_map(|limits| limits.as_slice().iter().map(|limit| limit.window));
            let windows: BTreeSet<Window> = limits.collect();
            let thresholds = plan.thresholds.clone();
            windows
                .into_iter()
                .flat_map(move |window| thresholds.clone().into_iter().map(move |threshold| (threshold, window)))
        };
        set.by_name.values().flat_map(of_plan).collect()
    }

    /// The plan of a subject without one, by its level: 0 at the top.
    pub fn default_plan(&self, depth: usize) -> Arc<Plan> {
        let set = self.in_effect();
        Arc::clone(set.defaults.get(depth).unwrap_or(&set.no_plan))
    }

    /// The plan of this subject, which has none of its own.
    pub fn default_plan_of(&self, subject: &str) -> Arc<Plan> {
        self.default_plan(self.separator.depth(subject))
    }

    /// A text that differs if any limit or threshold of a plan differs; daemons on one stream should have the same. It
    /// omits `refuse_at` and rates, because they do not affect counting.
    pub fn fingerprint(&self) -> Arc<str> {
        Arc::clone(&self.in_effect().fingerprint)
    }

    /// Whether all plans and formats of metrics are the same, also in what the fingerprint omits.
    pub fn has_same_plans_as(&self, others: &Self) -> bool {
        let (own, others) = (self.in_effect().clone(), others.in_effect());
        own.by_name == others.by_name
            && own.defaults == others.defaults
            && own.no_plan == others.no_plan
            && own.formats == others.formats
    }

    /// Replaces the plans by those of another configuration. Cached settings of subjects were computed from the old
    /// plans: tell the caches that any subject may have changed.
    pub fn replace(&self, by: &Self) {
        let new = by.in_effect().clone();
        *self.set.write().unwrap_or_else(PoisonError::into_inner) = new;
    }

    fn in_effect(&self) -> RwLockReadGuard<'_, PlanSet> {
        self.set.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fingerprint_of(by_name: &BTreeMap<String, Arc<Plan>>, default: &Plan) -> String {
    let mut text = String::new();
    for plan in by_name.values() {
        text.push_str(&plan.counting_settings());
        text.push_str(if plan.name == default.name { "default\n" } else { "\n" });
    }
    digest(&text)
}

fn digest(text: &str) -> String {
    hex(&Sha256::digest(text)[..8])
}

impl Plan {
    /// The settings that affect counting, in a text that all versions share: its hash is stored with every commit.
    fn counting_settings(&self) -> String {
        let PlanConfig {
            limits,
            thresholds,
            refuse_at: _,
            grant_notice: _,
            upgrade_url: _,
            usage_url: _,
            forecast: _,
            spike: _,
            silence: _,
            rate: _,
        } = &self.config;
        let limits: Vec<String> = limits.iter().map(|(metric, limits)| format!("{metric}={limits}")).collect();
        format!("{:?} {} {} ", self.name, limits.join(","), write_thresholds(thresholds))
    }
}

fn shared(name: &str, plan: &PlanConfig) -> Result<Arc<Plan>, PlansError> {
    let limiters = plan.rate.limiters().map_err(|rate| PlansError::Rate { plan: name.to_owned(), rate })?;
    let mut config = plan.clone();
    config.thresholds.sort_unstable();
    Ok(Arc::new(Plan { name: name.into(), config, limiters }))
}

#[cfg(test)]
impl Plans {
    /// One plan without limits.
    pub(crate) fn without_limits() -> Self {
        let plan = PlanConfig { limits: BTreeMap::new(), thresholds: Vec::new(), ..PlanConfig::default() };
        Self::new(&[("free".to_owned(), plan)].into(), "free").expect("there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use super::super::limiter::Algorithm;
    use crate::subjects::rates::RateConfig;

    fn fingerprint(limits: &str, rate: RateConfig) -> String {
        let limits = [(Metric::default(), limits.parse().expect("limits"))].into();
        let thresholds = ["80", "100"].map(|text| text.parse().expect("legal")).to_vec();
        let plan = PlanConfig { limits, thresholds, rate, ..PlanConfig::default() };
        Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("legal").fingerprint().to_string()
    }

    /// Daemons on a stream compare it: a new version, or another rate, must not look like other plans.
    #[test]
    fn the_fingerprint_is_that_of_limits_and_thresholds_alone() {
        let expected = fingerprint("5000", RateConfig::default());
        assert_eq!(expected, "c07e501971453be8");
        let rates = [(Metric::default(), "60/1m".parse().expect("a rate"))].into();
        assert_eq!(fingerprint("5000/day", RateConfig { algorithm: Algorithm::Gcra, rates }), expected);
    }

    /// A reload that changes what levels without a plan have must not say that nothing has changed.
    #[test]
    fn another_default_plan_is_another_set_of_plans() {
        let plan = |thresholds: &[&str]| {
            let limits = [(Metric::default(), "5000".parse().expect("limits"))].into();
            let thresholds = thresholds.iter().map(|text| text.parse().expect("legal")).collect();
            PlanConfig { limits, thresholds, ..PlanConfig::default() }
        };
        let plans = [("org".to_owned(), plan(&["80"])), ("team".to_owned(), plan(&["90"]))].into();
        let of = |default: &str| {
            let separator = "/".parse().expect("a separator");
            Plans::new(&plans, default).and_then(|of| of.by_level(separator, &["org".to_owned()])).expect("legal")
        };
        assert!(of("org").has_same_plans_as(&of("org")));
        assert!(!of("org").has_same_plans_as(&of("team")));
    }

    /// Daemons that count the same units over other windows would raise other alerts.
    #[test]
    fn the_fingerprint_covers_windows() {
        let of = |limits| fingerprint(limits, RateConfig::default());
        let all: BTreeSet<String> =
            ["5000", "5000/hour", "5000/month", "600/hour 5000/day", "600/hour 5000/month"].map(of).into();
        assert_eq!(all.len(), 5);
        assert_eq!(of("600/hour 5000/day"), of("5000 600/hour"));
    }
}
