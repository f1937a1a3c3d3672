//! Plans: named sets of daily limits and thresholds, from the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::types::{Metric, Percent, Units};

use super::config::PlanConfig;

/// A plan, shared by all its subjects.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its name.
    pub name: Arc<str>,
    /// Units a subject may use of a metric in one day.
    pub limits: BTreeMap<Metric, Units>,
    /// Percentages at which alerts are due, ascending.
    pub thresholds: Vec<Percent>,
}

/// All plans, and which one a subject has that names none.
#[derive(Debug, Clone)]
pub struct Plans {
    by_name: BTreeMap<String, Arc<Plan>>,
    default: Arc<Plan>,
}

/// The default plan is not among the plans.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("default_plan {0:?} is not one of the plans")]
pub struct NoSuchPlan(pub String);

impl Plans {
    /// Takes the plans of a checked configuration.
    ///
    /// # Errors
    ///
    /// [`NoSuchPlan`] when `default` is not among them.
    pub fn new(plans: &BTreeMap<String, PlanConfig>, default: &str) -> Result<Self, NoSuchPlan> {
        let by_name: BTreeMap<String, Arc<Plan>> =
            plans.iter().map(|(name, plan)| (name.clone(), shared(name, plan))).collect();
        let default = by_name.get(default).cloned().ok_or_else(|| NoSuchPlan(default.to_owned()))?;
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

    /// A text that differs whenever a limit or threshold of a plan differs; two daemons on one stream should agree on it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        use sha2::{Digest, Sha256};
        let mut hash = Sha256::new();
        for plan in self.by_name.values() {
            hash.update(format!("{:?}", (plan, plan.name == self.default.name)));
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

fn shared(name: &str, plan: &PlanConfig) -> Arc<Plan> {
    let mut thresholds = plan.thresholds.clone();
    thresholds.sort_unstable();
    Arc::new(Plan { name: name.into(), limits: plan.limits.clone(), thresholds })
}
