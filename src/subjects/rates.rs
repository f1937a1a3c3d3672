//! The section `[plans.NAME.rate]`: units per time for each metric, and the limiter.
//!
//! Every key except `algorithm` is a metric. The section is deserialized by hand, because an error in a flattened map
//! would not name the faulty key.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::limiter::{Algorithm, Limiter};
use crate::types::{Metric, Rate};
use quotabell_throttle::TooManyMembers;

/// The only key that is not a metric.
pub const ALGORITHM: &str = "algorithm";

/// The rates of a plan; empty by default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RateConfig {
    /// The limiter of all rates.
    pub algorithm: Algorithm,
    /// The rate of each metric.
    #[serde(flatten)]
    pub rates: BTreeMap<Metric, Rate>,
}

impl RateConfig {
    /// Whether there is no rate.
    pub fn is_empty(&self) -> bool {
        self.rates.is_empty()
    }

    /// The limiter of each metric.
    ///
    /// # Errors
    ///
    /// The first metric whose rate its limiter does not support.
    pub fn limiters(&self) -> Result<BTreeMap<Metric, Limiter>, UnsupportedRate> {
        let limiter = |(metric, rate): (&Metric, &Rate)| match Limiter::new(self.algorithm, (*rate).into()) {
            Ok(limiter) => Ok((metric.clone(), limiter)),
            Err(source) => Err(UnsupportedRate { metric: metric.clone(), source }),
        };
        self.rates.iter().map(limiter).collect()
    }
}

/// A rate that its limiter does not support.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source}")]
pub struct UnsupportedRate {
    /// The metric.
    pub metric: Metric,
    /// The reason.
    pub source: TooManyMembers,
}

impl<'de> Deserialize<'de> for RateConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Rates)
    }
}

struct Rates;

impl<'de> Visitor<'de> for Rates {
    type Value = RateConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RateConfig, A::Error> {
        let mut config = RateConfig::default();
        while let Some(key) = map.next_key()? {
            match key {
                Key::Algorithm => config.algorithm = map.next_value()?,
                Key::Metric(metric) => {
                    config.rates.insert(metric, map.next_value()?);
                }
            }
        }
        // An empty section is probably a mistake.
        if config.is_empty() {
            return Err(Error::custom("names no metric, so it limits nothing"));
        }
        Ok(config)
    }
}

/// A separate type, so that an error points to the key and not to its value.
enum Key {
    Algorithm,
    Metric(Metric),
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let key = String::deserialize(deserializer)?;
        if key == ALGORITHM { Ok(Self::Algorithm) } else { key.parse().map(Self::Metric).map_err(Error::custom) }
    }
}
