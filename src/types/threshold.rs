//! Thresholds: points of a limit at which an alert is raised, as percentages or in units.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use super::limits::{LimitUnits, WindowLimit};
use super::percent::{PERCENT_MAX, Percent};
use super::text_form::inline_schema;
use super::units::{UNITS_MAX, Units, unexpected, whole_number};

/// Maximum number of thresholds of a plan or a subject. One event may reach all of them in each of seven windows, and
/// one commit raises them all: 700 alerts block the server for 10 ms, 4,000 for half a second (measured; each alert
/// names those above it).
pub const THRESHOLDS_MAX: usize = 100;

const USED: &str = "used";
const REMAINING: &str = "remaining";

/// A threshold of any limit. In settings a percentage is a number, such as `80`; the others are texts, such as
/// `used:5000` and `remaining:1000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Threshold {
    /// Used is this percentage of the limit.
    Percent(Percent),
    /// Used are these units, whatever the limit is.
    Used(Units),
    /// These units of the limit remain.
    Remaining(Units),
}

inline_schema!(Threshold, {
    "anyOf": [
        { "type": "integer", "minimum": 1, "maximum": PERCENT_MAX },
        { "type": "string", "pattern": "^(used|remaining):[0-9]+$" }
    ]
});

/// The text or number is not a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a threshold must be a whole number of percent, 1 to {PERCENT_MAX}, or used:N or remaining:N with N units, 1 to \
    {UNITS_MAX}"
)]
pub struct ThresholdError;

/// The threshold in the JSON of an alert: `{"kind":"percent","percent":80}` or `{"kind":"used","units":5000}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(missing_docs, reason = "they are those of a threshold")]
pub enum AlertThreshold {
    Percent { percent: Percent },
    Used { units: Units },
    Remaining { units: Units },
}

// One object with optional members: generators of clients have no names for the objects of alternatives.
impl JsonSchema for AlertThreshold {
    fn schema_name() -> Cow<'static, str> {
        "AlertThreshold".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The reached threshold: a percentage of the limit, or units that are used or remain.",
            "type": "object",
            "properties": {
                "kind": { "type": "string", "enum": ["percent", USED, REMAINING] },
                "percent": generator.subschema_for::<Percent>(),
                "units": generator.subschema_for::<Units>()
            },
            "required": ["kind"]
        })
    }
}

impl Threshold {
    /// The smallest count that reaches this threshold of `limit`. May exceed 2^53 - 1 for percentages above 100.
    ///
    /// `None` if the whole limit is not more than what shall remain: a count of 0 would reach the threshold, so the
    /// threshold is never due. Under a limit of 0 none is.
    pub fn units_of(self, limit: impl Into<LimitUnits>) -> Option<u128> {
        let limit = limit.into().nonzero()?;
        match self {
            Self::Percent(percent) => Some(percent.threshold_units(limit)),
            Self::Used(units) => Some(units.get().into()),
            Self::Remaining(units) => limit.get().checked_sub(units.get()).filter(|used| *used > 0).map(u128::from),
        }
    }

    /// The percentage; `None` for a threshold in units.
    pub const fn percent(self) -> Option<Percent> {
        match self {
            Self::Percent(percent) => Some(percent),
            Self::Used(_) | Self::Remaining(_) => None,
        }
    }

    /// The threshold as settings have it, with the unit of a percentage: `80%`, `used:5000`.
    pub fn label(self) -> String {
        match self {
            Self::Percent(percent) => format!("{percent}%"),
            Self::Used(_) | Self::Remaining(_) => self.to_string(),
        }
    }

    /// The value of a metric's label: `80`, `used` or `remaining`. Subjects may choose any units, and each value of a
    /// label costs memory.
    pub fn meter_label(self) -> String {
        match self {
            Self::Percent(percent) => percent.to_string(),
            Self::Used(_) => USED.to_owned(),
            Self::Remaining(_) => REMAINING.to_owned(),
        }
    }
}

/// Why a list of thresholds is invalid.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdsError {
    #[error("{0} is listed twice")]
    Doubled(Threshold),
    #[error("{0} thresholds are too many, at most {THRESHOLDS_MAX} are allowed")]
    TooMany(usize),
}

/// Sorts the thresholds of a plan or a subject.
///
/// # Errors
///
/// A duplicate, or more than [`THRESHOLDS_MAX`].
pub fn ascending(mut thresholds: Vec<Threshold>) -> Result<Vec<Threshold>, ThresholdsError> {
    thresholds.sort_unstable();
    if let Some(pair) = thresholds.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ThresholdsError::Doubled(pair[0]));
    }
    if thresholds.len() > THRESHOLDS_MAX {
        return Err(ThresholdsError::TooMany(thresholds.len()));
    }
    Ok(thresholds)
}

/// The thresholds that are due under none of these limits; nothing without limits, or if only grants decide.
pub fn never_due<'a>(thresholds: &[Threshold], limits: impl Iterator<Item = &'a WindowLimit>) -> Vec<Threshold> {
    let highest = limits.map(|limit| limit.units).max().filter(|highest| highest.nonzero().is_some());
    let Some(highest) = highest else { return Vec::new() };
    thresholds.iter().copied().filter(|threshold| threshold.units_of(highest).is_none()).collect()
}

impl From<Percent> for Threshold {
    fn from(percent: Percent) -> Self {
        Self::Percent(percent)
    }
}

impl From<Threshold> for AlertThreshold {
    fn from(threshold: Threshold) -> Self {
        match threshold {
            Threshold::Percent(percent) => Self::Percent { percent },
            Threshold::Used(units) => Self::Used { units },
            Threshold::Remaining(units) => Self::Remaining { units },
        }
    }
}

impl From<AlertThreshold> for Threshold {
    fn from(threshold: AlertThreshold) -> Self {
        match threshold {
            AlertThreshold::Percent { percent } => Self::Percent(percent),
            AlertThreshold::Used { units } => Self::Used(units),
            AlertThreshold::Remaining { units } => Self::Remaining(units),
        }
    }
}

impl std::fmt::Display for Threshold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}"),
            Self::Used(units) => write!(f, "{USED}:{units}"),
            Self::Remaining(units) => write!(f, "{REMAINING}:{units}"),
        }
    }
}

impl std::str::FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let Some((kind, units)) = text.split_once(':') else {
            return text.parse().map(Self::Percent).map_err(|_| ThresholdError);
        };
        let units = units.parse().map_err(|_| ThresholdError)?;
        match kind {
            USED => Ok(Self::Used(units)),
            REMAINING => Ok(Self::Remaining(units)),
            _ => Err(ThresholdError),
        }
    }
}

impl Serialize for Threshold {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Percent(percent) => percent.serialize(serializer),
            Self::Used(_) | Self::Remaining(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a whole number of percent, 1 to 1000, \"used:N\" or \"remaining:N\"";
        let value = Value::deserialize(deserializer)?;
        match &value {
            Value::Number(number) => {
                let whole = number.as_u64().or_else(|| number.as_f64().and_then(whole_number));
                let percent = whole.ok_or_else(|| unexpected(&value, EXPECTED))?;
                Percent::try_from(percent).map(Self::Percent).map_err(|_| de::Error::custom(ThresholdError))
            }
            // A percentage is a number, so that each threshold has one form in JSON.
            Value::String(text) if text.contains(':') => {
                text.parse().map_err(|error| de::Error::custom(format_args!("{text:?}: {error}")))
            }
            _ => Err(unexpected(&value, EXPECTED)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn units(units: u64) -> Units {
        Units::new(units).expect("in range")
    }

    fn any_threshold() -> impl Strategy<Value = Threshold> {
        prop_oneof![
            (1..=PERCENT_MAX).prop_map(|percent| Threshold::Percent(Percent::new(percent).expect("in range"))),
            (1..=UNITS_MAX).prop_map(|n| Threshold::Used(units(n))),
            (1..=UNITS_MAX).prop_map(|n| Threshold::Remaining(units(n))),
        ]
    }

    proptest! {
        /// A threshold that is stored or shown and read again must be the same one.
        #[test]
        fn every_form_of_a_threshold_is_read_back(threshold in any_threshold()) {
            prop_assert_eq!(threshold.to_string().parse(), Ok(threshold));
            let json = serde_json::to_string(&threshold).expect("serializable");
            prop_assert_eq!(serde_json::from_str::<Threshold>(&json).expect(&json), threshold);
            let object = serde_json::to_string(&AlertThreshold::from(threshold)).expect("serializable");
            let read: AlertThreshold = serde_json::from_str(&object).expect(&object);
            prop_assert_eq!(Threshold::from(read), threshold);
        }

        /// `remaining:N` is reached by the count that leaves N units, and by no smaller one.
        #[test]
        fn what_remains_at_a_threshold_is_what_it_names(limit in 1..=UNITS_MAX, left in 1..=UNITS_MAX) {
            let used = Threshold::Remaining(units(left)).units_of(units(limit));
            prop_assert_eq!(used, (left < limit).then(|| u128::from(limit - left)));
            prop_assert_eq!(Threshold::Used(units(left)).units_of(units(limit)), Some(left.into()));
        }
    }

    /// A misread threshold would alert at another count, or never.
    #[test]
    fn text_that_is_no_threshold_is_refused() {
        for bad in [
            "",
            "0",
            "1001",
            "80%",
            "used",
            "used:",
            "used:0",
            "used:-1",
            "used:1.5",
            "used:1e3",
            "used: 5",
            "Used:5",
            "used:9007199254740992",
            "used:5:6",
            "used=5",
            "left:5",
            ":5",
            "remaining:",
            "remaining:0",
            "remaining:-1",
            "remaining:20%",
            "percent:80",
        ] {
            assert_eq!(bad.parse::<Threshold>(), Err(ThresholdError), "{bad:?}");
            let json = serde_json::to_string(bad).expect("text");
            let error = serde_json::from_str::<Threshold>(&json).expect_err(bad).to_string();
            assert!(error.contains(&format!("{bad:?}")) && error.contains("used:N"), "{error}");
        }
        for bad in ["0", "1001", "-80", "80.5", "true", "null", "[80]", "{\"kind\":\"used\",\"units\":5}", "\"80\""] {
            let error = serde_json::from_str::<Threshold>(bad).expect_err(bad).to_string();
            assert!(error.contains("remaining:N"), "{bad}: {error}");
        }
    }

    /// Lists of thresholds show percentages first, and a threshold that is listed twice would never differ from itself.
    #[test]
    fn lists_are_sorted_and_have_no_duplicates() {
        let read = |list: &[&str]| list.iter().map(|text| text.parse().expect("legal")).collect::<Vec<Threshold>>();
        let sorted = ascending(read(&["remaining:1000", "used:5000", "100", "used:40", "80"]));
        assert_eq!(sorted, Ok(read(&["80", "100", "used:40", "used:5000", "remaining:1000"])));
        let twice = ascending(read(&["used:5", "80", "used:05"])).expect_err("twice").to_string();
        assert_eq!(twice, "used:5 is listed twice");
        let many = (1..=101).map(|n| Threshold::Used(units(n))).collect();
        assert_eq!(ascending(many), Err(ThresholdsError::TooMany(101)));
    }

    /// A customer of a platform may set any number, and each value of a label is a time series.
    #[test]
    fn labels_of_metrics_do_not_depend_on_units() {
        let labels = ["80", "used:5", "used:6", "remaining:7"].map(|text| {
            let threshold: Threshold = text.parse().expect("legal");
            threshold.meter_label()
        });
        assert_eq!(labels, ["80", "used", "used", "remaining"]);
    }
}
