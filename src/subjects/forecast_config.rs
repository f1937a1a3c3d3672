//! What a plan says about forecasts, unusual usage and silence.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::types::{Window, duration};

/// The limits whose forecasts are told to contacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForecastConfig {
    /// The windows: day, week and month.
    pub windows: Vec<Window>,
    /// The probability from which it is told; that of the window if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<Probability>,
}

/// A probability from 0.5 to 0.99, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Probability(u8);

/// A multiple of the usual, from 1.5 to 100, in tenths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct SpikeTimes(u16);

/// How long nothing is used, from one day to 30 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SilenceTime(#[serde(with = "duration")] Duration);

impl From<SilenceTime> for Duration {
    fn from(SilenceTime(time): SilenceTime) -> Self {
        time
    }
}

impl<'de> Deserialize<'de> for SilenceTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const DAY: Duration = Duration::from_secs(86_400);
        let time = duration::deserialize(deserializer)?;
        if (DAY..=30 * DAY).contains(&time) {
            return Ok(Self(time));
        }
        Err(serde::de::Error::custom("from 1d to 30d"))
    }
}

/// The number is outside its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a number from {0}")]
pub struct OutOfRange(&'static str);

impl TryFrom<f64> for Probability {
    type Error = OutOfRange;
    fn try_from(number: f64) -> Result<Self, OutOfRange> {
        let percent = (number * 100.0).round();
        if (50.0..=99.0).contains(&percent) { Ok(Self(percent as u8)) } else { Err(OutOfRange("0.5 to 0.99")) }
    }
}

impl From<Probability> for f64 {
    fn from(Probability(percent): Probability) -> Self {
        Self::from(percent) / 100.0
    }
}

impl TryFrom<f64> for SpikeTimes {
    type Error = OutOfRange;
    fn try_from(number: f64) -> Result<Self, OutOfRange> {
        let tenths = (number * 10.0).round();
        if (15.0..=1000.0).contains(&tenths) { Ok(Self(tenths as u16)) } else { Err(OutOfRange("1.5 to 100")) }
    }
}

impl From<SpikeTimes> for f64 {
    fn from(SpikeTimes(tenths): SpikeTimes) -> Self {
        Self::from(tenths) / 10.0
    }
}
