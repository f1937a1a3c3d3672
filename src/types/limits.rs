//! The limits of a metric: `5000` a day, or several windows, `600/hour 5000/day`. Pure.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::text_form::UnknownVariant;
use super::text_form::{display_as_inner, inline_schema};
use super::units::{UNITS_MAX, UnitsError, unexpected, whole_number};
use super::{Units, Window};

/// Units that a subject may use of a metric in one period of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WindowLimit {
    /// The window.
    pub window: Window,
    /// The units per period.
    pub units: LimitUnits,
}

/// The units of a limit: 1 to 2^53 - 1. A total may have 0, so that only grants count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct LimitUnits(u64);

inline_schema!(LimitUnits, { "type": "integer", "minimum": 0, "maximum": UNITS_MAX });
display_as_inner!(LimitUnits);

impl LimitUnits {
    /// The units as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The units if there are any.
    pub const fn nonzero(self) -> Option<Units> {
        Units::new(self.0)
    }

    /// The limit with these units added, at most 2^53 - 1.
    #[must_use]
    pub fn plus(self, added: u64) -> Self {
        Self(self.0.saturating_add(added).min(UNITS_MAX))
    }
}

impl From<Units> for LimitUnits {
    fn from(units: Units) -> Self {
        Self(units.get())
    }
}

/// The limits of one metric: at least one, and at most one for each window, ascending by window.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Limits(Box<[WindowLimit]>);

/// The text or list is not a set of limits.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    #[error("names no limit")]
    Empty,
    #[error("{text:?} is not a limit: {source}")]
    Units { text: String, source: UnitsError },
    #[error("{text:?} is not a limit: only a total may be 0, such as \"0/total\"; then only grants count")]
    Zero { text: String },
    #[error("{text:?} is not a limit: {source}")]
    Window { text: String, source: UnknownVariant },
    /// It is unclear which of the two holds.
    #[error("two limits for the same window, {first} and {second}: a window has one")]
    SameWindow { first: WindowLimit, second: WindowLimit },
}

/// A limit above the limit of a longer window: the longer window's limit is reached first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{shorter} is above {longer}: the limit of the {} is reached first", longer.window)]
pub struct LimitContradiction {
    /// The limit that is too high.
    pub shorter: WindowLimit,
    /// The limit of the longer window.
    pub longer: WindowLimit,
}

impl Limits {
    /// Sorts and checks limits.
    pub fn new(limits: impl IntoIterator<Item = WindowLimit>) -> Result<Self, LimitsError> {
        let mut limits: Vec<WindowLimit> = limits.into_iter().collect();
        // Stable sort: the error names two limits of one window in the order in which they were written.
        limits.sort_by_key(|limit| limit.window);
        if let Some(pair) = limits.windows(2).find(|pair| pair[0].window == pair[1].window) {
            return Err(LimitsError::SameWindow { first: pair[0], second: pair[1] });
        }
        if limits.is_empty() { Err(LimitsError::Empty) } else { Ok(Self(limits.into())) }
    }

    /// The limits, ascending by window.
    pub const fn as_slice(&self) -> &[WindowLimit] {
        &self.0
    }

    /// The limits as people read them: `600/hour 5000/day`.
    pub fn with_windows(&self) -> String {
        self.0.iter().map(WindowLimit::to_string).collect::<Vec<_>>().join(" ")
    }

    /// The units of one window, if it has a limit.
    pub fn limit_of(&self, window: Window) -> Option<LimitUnits> {
        self.0.iter().find(|limit| limit.window == window).map(|limit| limit.units)
    }

    /// Limits that can't be reached, because the limit of the next longer window is lower.
    pub fn contradictions(&self) -> impl Iterator<Item = LimitContradiction> {
        let pairs = self.0.windows(2).map(|pair| LimitContradiction { shorter: pair[0], longer: pair[1] });
        // Grants raise a total of 0.
        pairs.filter(|pair| pair.shorter.units > pair.longer.units && pair.longer.units.get() > 0)
    }
}

/// A daily limit.
impl From<Units> for Limits {
    fn from(units: Units) -> Self {
        Self([WindowLimit { window: Window::Day, units: units.into() }].into())
    }
}

impl std::str::FromStr for WindowLimit {
    type Err = LimitsError;

    /// `600/hour`, or `5000` per day.
    fn from_str(text: &str) -> Result<Self, LimitsError> {
        let (units, window) = text.split_once('/').unwrap_or((text, Window::Day.as_str()));
        let window = || window.parse().map_err(|source| LimitsError::Window { text: text.to_owned(), source });
        if units == "0" {
            let is_total = window()? == Window::Total;
            let zero = Self { window: Window::Total, units: LimitUnits(0) };
            return is_total.then_some(zero).ok_or_else(|| LimitsError::Zero { text: text.to_owned() });
        }
        let units: Units = units.parse().map_err(|source| LimitsError::Units { text: text.to_owned(), source })?;
        Ok(Self { window: window()?, units: units.into() })
    }
}

impl std::str::FromStr for Limits {
    type Err = LimitsError;

    /// Limits separated by spaces.
    fn from_str(text: &str) -> Result<Self, LimitsError> {
        let limits: Vec<WindowLimit> = text.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        Self::new(limits)
    }
}

impl fmt::Display for WindowLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.units, self.window)
    }
}

/// The stored form: a single daily limit has no window.
impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_slice() {
            [WindowLimit { window: Window::Day, units }] => units.fmt(f),
            _ => f.write_str(&self.with_windows()),
        }
    }
}

/// A single daily limit as a number, everything else as a list of texts.
impl Serialize for Limits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_slice() {
            [WindowLimit { window: Window::Day, units }] => units.serialize(serializer),
            limits => serializer.collect_seq(limits.iter().map(ToString::to_string)),
        }
    }
}

impl JsonSchema for Limits {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Limits".into()
    }

    /// The schema accepts more forms than the output uses.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let units = generator.subschema_for::<Units>();
        let windows = Window::ALL.map(Window::as_str).join("|");
        let list = |items: Schema| json_schema!({"type": "array", "minItems": 1, "maxItems": Window::ALL.len(), "items": items});
        if generator.contract().is_serialize() {
            let limits = list(json_schema!({"type": "string", "pattern": format!("^[0-9]+/({windows})$")}));
            return json_schema!({"oneOf": [units, limits]});
        }
        let limit = json_schema!({"type": "string", "pattern": format!("^[0-9]+(/({windows}))?$")});
        let limits = list(json_schema!({"oneOf": [units, limit]}));
        let text = "One limit or several, separated by spaces: `600/hour 5000/day`.";
        json_schema!({"oneOf": [units, {"type": "string", "description": text}, limits]})
    }
}

impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitsVisitor)
    }
}

impl<'de> Deserialize<'de> for WindowLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => text.parse().map_err(Error::custom),
            value => units_a_day(&value, "a whole number or a limit such as \"600/hour\""),
        }
    }
}

/// The limit that a bare number means.
fn units_a_day<E: Error>(value: &Value, expected: &str) -> Result<WindowLimit, E> {
    let units = match value.as_u64().or_else(|| value.as_f64().and_then(whole_number)) {
        None if !value.is_i64() => return Err(unexpected(value, expected)),
        whole => whole.and_then(Units::new).ok_or_else(|| E::custom(UnitsError))?,
    };
    Ok(WindowLimit { window: Window::Day, units: units.into() })
}

/// What a setting of limits may be.
const LIMITS_FORMS: &str = "a whole number, a limit such as \"600/hour\", or a list of limits";

/// Reads a number, a text, or a list of them.
struct LimitsVisitor;

impl<'de> Visitor<'de> for LimitsVisitor {
    type Value = Limits;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(LIMITS_FORMS)
    }

    fn visit_u64<E: Error>(self, units: u64) -> Result<Limits, E> {
        units_a_day(&units.into(), LIMITS_FORMS).map(|limit| Limits([limit].into()))
    }

    fn visit_i64<E: Error>(self, units: i64) -> Result<Limits, E> {
        units_a_day(&units.into(), LIMITS_FORMS).map(|limit| Limits([limit].into()))
    }

    fn visit_f64<E: Error>(self, units: f64) -> Result<Limits, E> {
        units_a_day(&units.into(), LIMITS_FORMS).map(|limit| Limits([limit].into()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Limits, E> {
        text.parse().map_err(Error::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Limits, A::Error> {
        Limits::new(Vec::<WindowLimit>::deserialize(SeqAccessDeserializer::new(list))?).map_err(Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limits(text: &str) -> Limits {
        text.parse().expect(text)
    }

    /// A bare number is a daily limit, as in subjects that were stored before windows existed.
    #[test]
    fn a_number_is_a_limit_a_day() {
        assert_eq!(
            (limits("5000"), limits("5000/day")),
            (Limits::from(Units::new(5000).expect("legal")), limits("5000"))
        );
        assert_eq!(limits(" 100000/month 5000  600/hour ").to_string(), "600/hour 5000/day 100000/month");
        assert_eq!(limits("600/hour").limit_of(Window::Hour), Units::new(600).map(LimitUnits::from));
        assert_eq!(limits("600/hour").limit_of(Window::Day), None);
        assert_eq!(limits("0/total 7").to_string(), "7/day 0/total");
    }

    /// A misread limit would alert too early or too late.
    #[test]
    fn limits_that_are_none_are_refused() {
        for (text, why) in [
            ("", "names no limit"),
            ("  ", "names no limit"),
            ("0", "only a total may be 0"),
            ("0/month", "only a total may be 0"),
            ("0/totals", "use hour"),
            ("00/total", "1 to 9007199254740991"),
            ("1e3/hour", "1 to 9007199254740991"),
            ("-5/day", "1 to 9007199254740991"),
            ("/day", "1 to 9007199254740991"),
            ("9007199254740992/month", "1 to 9007199254740991"),
            ("600/", "use hour, day, week, month, quarter, year or total"),
            ("600/hours", "use hour, day, week, month, quarter, year or total"),
            ("600/1h", "use hour, day, week, month, quarter, year or total"),
            ("600/hour/day", "use hour, day, week, month, quarter, year or total"),
            ("600 /hour", "1 to 9007199254740991"),
            ("600/hour,5000/day", "use hour, day, week, month, quarter, year or total"),
            ("5000 7/day", "5000/day and 7/day"),
            ("1/hour 2/day 1/hour", "1/hour and 1/hour"),
        ] {
            let error = text.parse::<Limits>().expect_err(text).to_string();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    /// An unreachable limit was probably meant for another window.
    #[test]
    fn a_limit_above_that_of_a_longer_window_is_found() {
        let found = |text| limits(text).contradictions().map(|pair| pair.to_string()).collect::<Vec<_>>();
        assert_eq!(found("600/hour 5000/day 5000/week 5001/month"), [""; 0]);
        assert_eq!(found("600/hour 500/day"), ["600/hour is above 500/day: the limit of the day is reached first"]);
        assert_eq!(found("9/hour 8/week 7/month").len(), 2);
    }

    /// TOML and JSON have the same form, in both directions.
    #[test]
    fn json_has_a_number_for_a_day_and_a_list_for_others() {
        for (json, text, again) in [
            ("5000", "5000", "5000"),
            ("\"600/hour\"", "600/hour", "[\"600/hour\"]"),
            ("[7, \"600/hour\"]", "600/hour 7/day", "[\"600/hour\",\"7/day\"]"),
            ("\"600/hour 7\"", "600/hour 7/day", "[\"600/hour\",\"7/day\"]"),
        ] {
            let read: Limits = serde_json::from_str(json).expect(json);
            assert_eq!(
                (read.to_string().as_str(), serde_json::to_string(&read).expect("JSON").as_str()),
                (text, again)
            );
        }
        for bad in ["[]", "{}", "null", "0", "-1", "1.5", "[\"600/hour 7\"]", "[[7]]", "[7,7]"] {
            assert!(serde_json::from_str::<Limits>(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        /// Reading the stored form returns the same limits.
        #[test]
        fn limits_read_back(units in proptest::collection::vec(1..=crate::types::units::UNITS_MAX, 4), mask in 1_usize..16) {
            let all = Window::ALL.into_iter().zip(units).map(|(window, units)| WindowLimit { window, units: Units::new(units).expect("legal").into() });
            let limits = Limits::new(all.enumerate().filter(|(at, _)| mask & (1 << at) != 0).map(|(_, limit)| limit)).expect("one each");
            prop_assert_eq!(limits.to_string().parse(), Ok(limits.clone()));
            let json = serde_json::to_string(&limits).expect("JSON");
            prop_assert_eq!(serde_json::from_str::<Limits>(&json).expect("the same"), limits);
        }
    }
}
