//! The share of a limit at which checks refuse. Pure.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::types::units::{UNITS_MAX, unexpected};
use crate::types::{LimitUnits, Percent};

/// When checks refuse: a soft limit lets more through than the quota, and alerts are due as always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefuseAt {
    /// At this percentage of the limit, 100 to 1000.
    Percent(Percent),
    /// Never: the limit only alerts.
    Never,
}

/// The text for [`RefuseAt::Never`].
const NEVER: &str = "never";

impl RefuseAt {
    /// The most units that checks let a subject use: the percentage of the limit, rounded down. At most 2^53-1, because
    /// no counter exceeds it. Under a limit of 0 none, whatever the plan says.
    pub fn units_max(self, limit: LimitUnits) -> u64 {
        if limit.nonzero().is_none() {
            return 0;
        }
        let Self::Percent(percent) = self else { return UNITS_MAX };
        let units = u128::from(limit.get()) * u128::from(percent.get()) / 100;
        u64::try_from(units).unwrap_or(UNITS_MAX).min(UNITS_MAX)
    }

    /// Whether this is the default, 100 %.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for RefuseAt {
    fn default() -> Self {
        Self::Percent(Percent::new(100).expect("a legal percentage"))
    }
}

impl Serialize for RefuseAt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Percent(percent) => percent.serialize(serializer),
            Self::Never => serializer.serialize_str(NEVER),
        }
    }
}

impl<'de> Deserialize<'de> for RefuseAt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let percent = match &value {
            Value::String(text) if text == NEVER => return Ok(Self::Never),
            // A variable of the environment is text.
            Value::String(text) => text.parse().ok(),
            value => value.as_u64(),
        };
        let percent =
            percent.and_then(|percent| Percent::try_from(percent).ok()).filter(|percent| percent.get() >= 100);
        // A secret at the wrong key is not repeated.
        let expected = "a whole percentage, 100 to 1000, or \"never\"";
        percent.map(Self::Percent).ok_or_else(|| unexpected(&value, expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Units;

    fn read(json: &str) -> Result<RefuseAt, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    /// A percentage below 100 would refuse what the limit allows, and a misread word would refuse nothing.
    #[test]
    fn it_is_a_percentage_from_100_or_never() {
        for json in ["100", "120", "1000", "\"never\""] {
            let read = read(json).expect(json);
            assert_eq!(serde_json::to_string(&read).expect("serialises"), json);
        }
        assert_eq!(read("\"150\""), read("150"));
        for bad in ["99", "1001", "-5", "120.5", "\"Never\"", "\"\"", "true", "null"] {
            let error = read(bad).expect_err(bad);
            assert!(error.contains("expected a whole percentage, 100 to 1000, or \"never\""), "{error}");
        }
    }

    /// Rounding up would let one unit more through than the share of the limit.
    #[test]
    fn units_are_rounded_down_and_stay_below_2_to_53() {
        let of =
            |percent: &str, limit| read(percent).expect("legal").units_max(Units::new(limit).expect("legal").into());
        assert_eq!((of("100", 7), of("150", 7), of("\"never\"", 7)), (7, 10, UNITS_MAX));
        assert_eq!(of("1000", UNITS_MAX), UNITS_MAX);
    }
}
