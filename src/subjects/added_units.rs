//! The units that grants add to the limits of a subject: the field that everything that judges reads. Pure.

use std::collections::BTreeMap;

use crate::types::{Metric, Period};

use super::record::FieldError;

/// The field of `quota_grants:{tag}:<subject>` with the added units.
pub const ADDED_FIELD: &str = "added";

/// Units by metric and period; the period of a total is `all`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddedUnits(BTreeMap<Metric, BTreeMap<Period, u64>>);

impl AddedUnits {
    /// Reads the field: a JSON object such as `{"requests":{"all":1500}}`. A subject without grants lacks it.
    ///
    /// # Errors
    ///
    /// It is no such object.
    pub fn from_stored(stored: Option<&[u8]>) -> Result<Self, FieldError> {
        let Some(stored) = stored else { return Ok(Self::default()) };
        let read: Option<BTreeMap<String, BTreeMap<String, u64>>> = serde_json::from_slice(stored).ok();
        let of_period = |(period, units): (&String, &u64)| Some((Period::parse(period).ok()?, *units));
        let of_metric = |(metric, periods): (&String, &BTreeMap<String, u64>)| {
            Some((metric.parse().ok()?, periods.iter().map(of_period).collect::<Option<_>>()?))
        };
        let added = read.and_then(|read| read.iter().map(of_metric).collect::<Option<_>>());
        added.map(Self).ok_or_else(FieldError::unreadable_grants)
    }

    /// The text of the field.
    pub fn to_stored(&self) -> String {
        let of_period = |(period, units): (&Period, &u64)| (period.to_string(), *units);
        let of_metric = |(metric, periods): (&Metric, &BTreeMap<Period, u64>)| {
            (metric.to_string(), periods.iter().map(of_period).collect::<BTreeMap<_, _>>())
        };
        let stored: BTreeMap<_, _> = self.0.iter().map(of_metric).collect();
        serde_json::to_string(&stored).expect("plain strings and numbers serialise")
    }

    /// Adds units to a limit.
    pub fn add(&mut self, metric: &Metric, period: Period, units: u64) {
        *self.0.entry(metric.clone()).or_default().entry(period).or_default() += units;
    }

    /// The units that are added to the limit of this period.
    pub fn units_of(&self, metric: &Metric, period: Period) -> u64 {
        self.0.get(metric).and_then(|periods| periods.get(&period)).copied().unwrap_or(0)
    }

    /// Whether nothing is added to any limit.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter's limit must not depend on how the field was written.
    #[test]
    fn added_units_read_back() {
        let (requests, tokens): (Metric, Metric) = (Metric::default(), "tokens.in".parse().expect("legal"));
        let period = |text: &str| Period::parse(text).expect("legal");
        let mut added = AddedUnits::default();
        added.add(&requests, period("all"), 1000);
        added.add(&requests, period("all"), (1 << 53) - 1001);
        added.add(&tokens, period("2026-11-28"), 5);
        let read = AddedUnits::from_stored(Some(added.to_stored().as_bytes()));
        assert_eq!(read, Ok(added));
        let of = |metric, text| read.as_ref().expect("readable").units_of(metric, period(text));
        assert_eq!(
            (of(&requests, "all"), of(&requests, "2026-11-28"), of(&tokens, "2026-11-28")),
            ((1 << 53) - 1, 0, 5)
        );
        assert_eq!(AddedUnits::from_stored(None), Ok(AddedUnits::default()));
        for bad in ["", "[]", "{\"requests\":7}", "{\"requests\":{\"soon\":7}}", "{\"requests\":{\"all\":-1}}"] {
            assert!(AddedUnits::from_stored(Some(bad.as_bytes())).is_err(), "{bad}");
        }
    }
}
