//! A change of one subject's settings: which are set, and which are removed. Pure.
//!
//! Options, rows of an import and JSON bodies fill a [`SubjectPatch`]. Its checks, its error texts and the fields that
//! it writes are the same for all of them. Read next: [`super::subject_change`], which adds contacts and writes.

use std::collections::BTreeSet;

use crate::contacts::store::FieldChanges;
use crate::subjects::record::{LIMIT_PREFIX, PLAN, THRESHOLDS, TIMEZONE, is_setting, parse_timezone};
use crate::subjects::{Plans, SubjectRecord};
use crate::types::text::suggestion;
use crate::types::{Metric, threshold};

/// The text that removes the limits of a metric.
const NO_LIMIT: &str = "none";

/// A change of one subject's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubjectPatch {
    /// The settings that are set.
    pub set: SubjectRecord,
    /// Fields that are removed, unless they are set.
    pub cleared: BTreeSet<String>,
    /// What happens to the other stored settings.
    pub others: OtherSettings,
}

/// What happens to stored settings that a patch does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OtherSettings {
    /// They stay.
    #[default]
    Keep,
    /// Limits are removed, the others stay.
    ClearLimits,
    /// All are removed.
    ClearAll,
}

impl SubjectPatch {
    /// Sets a field from its stored form; `none` removes the limits of a metric.
    ///
    /// # Errors
    ///
    /// The field, the value and what is allowed.
    pub fn parse(&mut self, field: &str, text: &str) -> Result<(), String> {
        let named = |why: String| format!("{field}: {why}");
        let Some(metric) = field.strip_prefix(LIMIT_PREFIX) else {
            return self.set.set_field(field, text.as_bytes()).map_err(named);
        };
        if text == NO_LIMIT {
            Metric::parse(metric.as_bytes()).map_err(|error| named(error.to_string()))?;
            self.cleared.insert(field.to_owned());
            return Ok(());
        }
        let hint = |why: String| named(format!("{why}; {NO_LIMIT} removes the limits"));
        self.set.set_field(field, text.as_bytes()).map_err(hint)
    }

    /// Checks what the types of the settings do not guarantee, and brings each into its stored form.
    ///
    /// # Errors
    ///
    /// The field, the value and what is allowed.
    pub fn checked(mut self, plans: &Plans) -> Result<Self, String> {
        if let Some(plan) = self.set.plan.as_deref().filter(|plan| plans.get(plan).is_none()) {
            let known = plans.names();
            let near = suggestion(plan, &known);
            return Err(format!("{PLAN}: there is no plan {plan:?}{near}, only {}", known.join(", ")));
        }
        let zone = self.set.timezone.as_deref().map(parse_timezone).transpose();
        self.set.timezone = zone.map_err(|why| format!("{TIMEZONE}: {why}"))?;
        if let Some(thresholds) = self.set.thresholds.take() {
            if thresholds.is_empty() {
                return Err(format!("{THRESHOLDS}: is an empty list, leave it out for those of the plan"));
            }
            let ascending = threshold::ascending(thresholds).map_err(|error| format!("{THRESHOLDS}: {error}"))?;
            self.set.thresholds = Some(ascending);
        }
        Ok(self)
    }

    /// Whether it changes nothing, whatever is stored.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The fields that it writes to a hash that has fields of these names.
    pub(super) fn changes<'a>(&self, stored: impl Iterator<Item = &'a str>) -> FieldChanges {
        let set = self.set.to_fields();
        let is_cleared = |name: &&str| match self.others {
            OtherSettings::Keep => false,
            OtherSettings::ClearLimits => name.starts_with(LIMIT_PREFIX),
            OtherSettings::ClearAll => is_setting(name),
        };
        let mut cleared = self.cleared.clone();
        cleared.extend(stored.filter(is_cleared).map(str::to_owned));
        cleared.retain(|name| !set.iter().any(|(kept, _)| kept == name));
        FieldChanges { set, cleared: cleared.into_iter().collect() }
    }
}
