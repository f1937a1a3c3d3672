//! Plans: named sets of daily limits and thresholds, from the configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::throttle::Limiter;
use crate::types::{Metric, Percent, Units};

use super::config::PlanConfig;
use super::rates::UnsupportedRate;

/// A plan, shared by all its subjects.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its name.
    pub name: Arc<str>,
    /// Units a subject may use of a metric in one day.
    pub limits: BTreeMap<Metric, Units>,
    /// Percentages at which alerts are due, ascending.
    pub thresholds: Vec<Percent>,
    /// Limiters of the check API. Counting knows nothing of them.
    pub limiters: BTreeMap<Metric, Limiter>,
}

/// All plans, and which one a subject has that names none.
#[derive(Debug, Clone)]
pub struct Plans {
    by_name: BTreeMap<String, Arc<Plan>>,
    default: Arc<Plan>,
}

/// The plans of an unchecked configuration can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlansError {
    /// The default plan is not among the plans.
    #[error("default_plan {0:?} is not one of the plans")]
    NoSuchPlan(String),
    /// A rate that its limiter can't hold.
    #[error("plans.{plan}.rate.{}: {rate}", .rate.metric)]
    Rate {
        /// The plan.
        plan: String,
        /// The rate.
        rate: UnsupportedRate,
    },
}

impl Plans {
    /// Takes the plans of a checked configuration.
    ///
    /// # Errors
    ///
    /// [`PlansError`], only for a configuration that was not checked.
    pub fn new(plans: &BTreeMap<String, PlanConfig>, default: &str) -> Result<Self, PlansError> {
        let by_name: BTreeMap<String, Arc<Plan>> =
            plans.iter().map(|(name, plan)| Ok((name.clone(), shared(name, plan)?))).collect::<Result<_, _>>()?;
        let default = by_name.get(default).cloned().ok_or_else(|| PlansError::NoSuchPlan(default.to_owned()))?;
        Ok(Self { by_name, default })
    }

    /// The plan of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Plan>> {
        self.by_name.get(name)
    }

    /// The plan of a subject that names none.
    #[must_use]
    pub const fn default_plan(&self) -> &Arc<Plan> {
        &self.default
    }

    /// A text that differs whenever a limit or threshold of a plan differs; two daemons on one stream should agree on it. Rates
    /// are left out: they count nothing.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        use sha2::{Digest, Sha256};
        let mut hash = Sha256::new();
        for plan in self.by_name.values() {
            hash.update(format!("{:?}", (Counting(plan), plan.name == self.default.name)));
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A plan as far as counting depends on it. The text is stored with every commit, so it stays as it is.
struct Counting<'a>(&'a Plan);

impl fmt::Debug for Counting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { name, limits, thresholds, limiters: _ } = self.0;
        let mut plan = f.debug_struct("Plan");
        plan.field("name", name).field("limits", limits).field("thresholds", thresholds).finish()
    }
}

fn shared(name: &str, plan: &PlanConfig) -> Result<Arc<Plan>, PlansError> {
    let mut thresholds = plan.thresholds.clone();
    thresholds.sort_unstable();
    let limiters = plan.rate.limiters().map_err(|rate| PlansError::Rate { plan: name.to_owned(), rate })?;
    Ok(Arc::new(Plan { name: name.into(), limits: plan.limits.clone(), thresholds, limiters }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subjects::rates::RateConfig;
    use crate::throttle::Algorithm;

    fn fingerprint(rate: RateConfig) -> String {
        let limits = [(Metric::default(), Units::new(5000).expect("in range"))].into();
        let thresholds = [80, 100].map(|percent| Percent::new(percent).expect("in range")).to_vec();
        let plan = PlanConfig { limits, thresholds, rate };
        Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("legal").fingerprint()
    }

    /// Every daemon on a stream compares it: a new version, or a rate that differs, must not look like other plans.
    #[test]
    fn the_fingerprint_is_that_of_limits_and_thresholds_alone() {
        assert_eq!(fingerprint(RateConfig::default()), "225b1bfb79602506");
        let rates = [(Metric::default(), "60/1m".parse().expect("a rate"))].into();
        assert_eq!(fingerprint(RateConfig { algorithm: Algorithm::Gcra, rates }), "225b1bfb79602506");
    }
}
