//! Settings that are allowed but probably mistakes. `check-config`, a start and a reload report them.

use std::collections::BTreeSet;

use super::error::key;
use super::settings::Config;
use crate::types::threshold::never_due;
use crate::types::{Threshold, Window};

impl Config {
    /// One sentence per warning, with the key and its place.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (plan, settings) in &self.plans {
            for (metric, limits) in &settings.limits {
                let path = ["plans", plan, "limits", metric.as_str()].map(str::to_owned);
                let place = self.places.place_of(&path);
                warnings.extend(limits.contradictions().map(|pair| format!("{}: {pair} ({place})", key(&path))));
            }
        }
        warnings.extend(self.never_due());
        warnings.extend(self.useless_forecasts());
        warnings.extend(self.useless_in_contacts());
        warnings
    }

    /// Windows of forecasts that are told to nobody: only a subject with limits of its own could have one.
    fn useless_forecasts(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (plan, settings) in &self.plans {
            let Some(forecast) = &settings.forecast else { continue };
            let path = ["plans", plan, "forecast", "windows"].map(str::to_owned);
            let (key, place) = (key(&path), self.places.place_of(&path));
            if forecast.windows.is_empty() {
                warnings.push(format!("{key} is empty: no forecast is told ({place})"));
            }
            let limited: BTreeSet<Window> =
                settings.limits.values().flat_map(|limits| limits.as_slice()).map(|limit| limit.window).collect();
            let unlimited = forecast.windows.iter().filter(|window| !limited.contains(window));
            warnings.extend(unlimited.map(|window| format!("{key}: the plan has no limit of a {window} ({place})")));
        }
        warnings
    }

    /// Thresholds of plans that are not below any limit of their plan. A subject with a higher limit could reach them.
    fn never_due(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (plan, settings) in &self.plans {
            let path = ["plans", plan, "thresholds"].map(str::to_owned);
            let place = self.places.place_of(&path);
            let limits = settings.limits.values().flat_map(|limits| limits.as_slice());
            for threshold in never_due(&settings.thresholds, limits) {
                let key = key(&path);
                warnings.push(format!("{key}: {threshold} is never due, no limit of the plan is higher ({place})"));
            }
        }
        warnings
    }

    /// Thresholds that a contact filters by and no plan has: only a subject with its own thresholds could reach them.
    /// And digests that have no effect.
    fn useless_in_contacts(&self) -> Vec<String> {
        let planned: BTreeSet<Threshold> =
            self.plans.values().flat_map(|plan| plan.thresholds.iter().copied()).collect();
        let fallback = self.fallback.contacts.iter().map(|contact| ("fallback", contact));
        let operator = self.operator.contacts.iter().map(|one| ("operator", &one.contact));
        let mut warnings = Vec::new();
        for (section, contact) in fallback.chain(operator) {
            for threshold in contact.filter.thresholds.iter().filter(|one| !planned.contains(one)) {
                let (id, threshold) = (&contact.id, threshold.label());
                warnings.push(format!("{section}.contacts: {id} hears {threshold}, a threshold that no plan has"));
            }
            if let Some(options) =
                contact.options().filter(|_| contact.filter.digest.is_some() && !contact.holds_several())
            {
                let (id, format) = (&contact.id, &options.format);
                warnings.push(format!("{section}.contacts: {id} has a digest, which has no effect with {format}"));
            }
        }
        warnings
    }
}
