//! The section `[events]`: how the data of CloudEvents becomes units.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use crate::types::Metric;
use crate::types::Units;
use crate::types::units::UNITS_MAX;

/// The first part of each path.
const DATA: &str = "data";
/// The end of a path that need not be there.
const OPTIONAL: &str = "?";
/// Maximum number of names in a path. JSON that is nested deeper is no usage event.
const PATH_PARTS_MAX: usize = 8;

/// The section `[events]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsConfig {
    /// The rule for each `type` of CloudEvents whose data is more than `units` or `credit`.
    pub types: BTreeMap<String, EventTypeConfig>,
}

/// The rule for CloudEvents of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventTypeConfig {
    /// The metrics of an event, and what it uses of each.
    pub metrics: BTreeMap<Metric, UnitsSource>,
}

/// The source of the units of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitsSource {
    /// Each event uses these.
    Fixed(Units),
    /// The number at a path of the data.
    Path(DataPath),
}

/// A path into the data of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPath {
    /// Names of members, from the outside inwards.
    pub names: Vec<String>,
    /// Data without it uses nothing, and is not refused. Written as `?` at the end.
    pub is_optional: bool,
}

/// The text is no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a path into the data, such as \"data.total_tokens\", nor a number of units")]
pub struct UnitsSourceError(String);

impl FromStr for UnitsSource {
    type Err = UnitsSourceError;

    fn from_str(text: &str) -> Result<Self, UnitsSourceError> {
        let (path, is_optional) = text.strip_suffix(OPTIONAL).map_or((text, false), |path| (path, true));
        let mut parts = path.split('.').map(str::to_owned);
        let is_of_data = parts.next().as_deref() == Some(DATA);
        let names: Vec<String> = parts.collect();
        let is_path = (1..=PATH_PARTS_MAX).contains(&names.len())
            && names.iter().all(|name| !name.is_empty() && !name.ends_with(OPTIONAL));
        match is_of_data && is_path {
            true => Ok(Self::Path(DataPath { names, is_optional })),
            false => Err(UnitsSourceError(text.to_owned())),
        }
    }
}

impl fmt::Display for UnitsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(units) => units.fmt(f),
            Self::Path(DataPath { names, is_optional }) => {
                write!(f, "{DATA}.{}{}", names.join("."), if *is_optional { OPTIONAL } else { "" })
            }
        }
    }
}

impl Serialize for UnitsSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(units) => units.serialize(serializer),
            Self::Path(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for UnitsSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let fixed = value.as_u64().and_then(Units::new).map(Self::Fixed);
        match (fixed, value.as_str()) {
            (Some(fixed), _) => Ok(fixed),
            (None, Some(text)) => text.parse().map_err(de::Error::custom),
            (None, None) => {
                let rule = format_args!("{value} is neither 1 to {UNITS_MAX} units nor a path into the data");
                Err(de::Error::custom(rule))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule that names nothing must fail at the start, not at the first event.
    #[test]
    fn a_rule_names_a_number_or_a_path_into_the_data() {
        let read = |text: &str| serde_json::from_str::<UnitsSource>(text).map_err(|error| error.to_string());
        assert_eq!(read("3"), Ok(UnitsSource::Fixed(Units::new(3).expect("legal"))));
        for path in ["data.tokens", "data.usage.prompt_tokens", "data.usage.prompt_tokens?"] {
            assert_eq!(read(&format!("{path:?}")).expect(path).to_string(), path);
        }
        for bad in [
            "0",
            "-1",
            "1.5",
            "true",
            "\"\"",
            "\"data\"",
            "\"data.\"",
            "\"data..a\"",
            "\"data.?\"",
            "\"data.a??\"",
            "\"a.b\"",
            "\"3\"",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(read("\"data.a.b.c.d.e.f.g.h.i\"").is_err(), "too deep");
    }
}
