//! What is allowed in the configuration and is probably a mistake. Told by `check-config` and at start.

use super::error::key;
use super::settings::Config;

impl Config {
    /// A sentence for each, with its key and its place.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (plan, settings) in &self.plans {
            for (metric, limits) in &settings.limits {
                let path = ["plans", plan, "limits", metric.as_str()].map(str::to_owned);
                let place = self.places.of(&path).map_or_else(String::new, |place| format!(" ({place})"));
                warnings.extend(limits.contradictions().map(|pair| format!("{}: {pair}{place}", key(&path))));
            }
        }
        warnings
    }
}
