//! How people read the counts of a metric: its name, its unit and its scale. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::text::{grouped, pluralize};
use super::units::Units;
use super::{DisplayName, Metric, Threshold};

/// Maximum scale: 2^53 - 1, the largest count, has 16 digits.
pub const SCALE_MAX: u8 = 15;
/// Maximum length of a unit, characters.
const UNIT_CHARS_MAX: usize = 16;
/// Minimum number of decimals of a scaled amount, as prices have them; fewer if the scale is smaller.
const DECIMALS_MIN: usize = 2;

/// How people read the counts of a metric. JSON for programs has whole units beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricFormat {
    /// The name of the metric in texts; absent if none is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<DisplayName>,
    /// The unit of its amounts, such as `USD`; absent if none is configured.
    #[serde(default, deserialize_with = "unit", skip_serializing_if = "Option::is_none")]
    pub unit: Option<DisplayName>,
    /// Number of decimals of an amount: with 6, a count of 12,500,000 is 12.50. Absent if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(max = SCALE_MAX))]
    pub scale: u8,
}

/// The unit and the scale beside counts in JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MetricUnit {
    /// The unit of the metric; absent if none is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<DisplayName>,
    /// Number of decimals of an amount in that unit; absent if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(max = SCALE_MAX))]
    pub scale: u8,
}

fn unit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DisplayName>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let unit = DisplayName::parse(&text).ok().filter(|unit| unit.as_str().chars().count() <= UNIT_CHARS_MAX);
    let allowed = format_args!("1 to {UNIT_CHARS_MAX} visible characters without spaces at the ends");
    unit.map(Some).ok_or_else(|| serde::de::Error::custom(format_args!("{text:?} is not a unit: {allowed}")))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(scale: &u8) -> bool {
    *scale == 0
}

impl MetricUnit {
    /// A threshold in English: `80%`, `used 12.50 USD`, `remaining 1,000`.
    pub fn threshold(&self, threshold: Threshold) -> String {
        let unit = self.unit.as_ref().map_or("", DisplayName::as_str);
        let amount = |units: Units| amount(units.get(), self.scale, unit, ",");
        match threshold {
            Threshold::Percent(percent) => format!("{percent}%"),
            Threshold::Used(units) => format!("used {}", amount(units)),
            Threshold::Remaining(units) => format!("remaining {}", amount(units)),
        }
    }
}

impl MetricFormat {
    /// The name of the metric in texts.
    pub fn name_of<'a>(&'a self, metric: &'a Metric) -> &'a str {
        self.name.as_ref().map_or(metric.as_str(), DisplayName::as_str)
    }

    /// The name with the metric behind it, or the metric alone.
    pub fn labelled(&self, metric: &Metric) -> String {
        self.name.as_ref().map_or_else(|| metric.to_string(), |name| format!("{name} ({metric})"))
    }

    /// The unit and the scale, without the name.
    pub fn unit(&self) -> MetricUnit {
        MetricUnit { unit: self.unit.clone(), scale: self.scale }
    }

    /// A threshold in English: `80%`, `used 12.50 USD`, `remaining 1,000`.
    pub fn threshold(&self, threshold: Threshold) -> String {
        self.unit().threshold(threshold)
    }

    /// A count in English with its unit, if it has one: `12,500`, `12.50 USD`.
    pub fn amount(&self, count: u64) -> String {
        let unit = self.unit.as_ref().map_or("", DisplayName::as_str);
        amount(count, self.scale, unit, ",")
    }

    /// An estimate, rounded as people write money: to two decimals, or below .10 to two digits.
    pub fn rounded(&self, estimate: u64) -> u64 {
        let cent = 10_u64.pow(u32::from(self.scale.min(SCALE_MAX)).saturating_sub(DECIMALS_MIN as u32));
        let two_digits = 10_u64.pow(estimate.checked_ilog10().unwrap_or(0).saturating_sub(1));
        let step = cent.min(two_digits);
        estimate.saturating_add(step / 2) / step * step
    }

    /// A count in English with a noun: `1 unit`, `12,500 units`, `12.50 USD`.
    pub fn counted(&self, count: u64) -> String {
        match (&self.unit, self.scale) {
            (None, 0) => pluralize(count, "unit", "units"),
            (None, _) => format!("{} units", self.amount(count)),
            (Some(_), _) => self.amount(count),
        }
    }
}

/// A count as people read it, with a separator between groups of three digits and the unit behind it. All decimals are
/// shown, except zeros at the end: a rounded amount could equal a limit that is not reached.
pub fn amount(count: u64, scale: u8, unit: &str, separator: &str) -> String {
    let scale = usize::from(scale.min(SCALE_MAX));
    let one = 10_u64.pow(u32::from(SCALE_MAX).min(scale as u32));
    let whole = grouped(count / one, separator);
    let decimals = format!("{:0scale$}", count % one);
    let shown = decimals.trim_end_matches('0').len().max(DECIMALS_MIN.min(scale));
    let mark = if matches!(separator, "," | "'") { "." } else { "," };
    let number = if scale == 0 { whole } else { format!("{whole}{mark}{}", &decimals[..shown]) };
    if unit.is_empty() { number } else { format!("{number} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A misplaced decimal mark is a wrong invoice.
    #[test]
    fn amounts_have_their_scale_and_unit() {
        for (count, scale, unit, english, vietnamese) in [
            (12_500_000, 6, "USD", "12.50 USD", "12,50 USD"),
            (1_234_567_890_123, 6, "USD", "1,234,567.890123 USD", "1.234.567,890123 USD"),
            (0, 6, "USD", "0.00 USD", "0,00 USD"),
            (1, 6, "", "0.000001", "0,000001"),
            (19_999_999, 6, "USD", "19.999999 USD", "19,999999 USD"),
            (15, 1, "GB", "1.5 GB", "1,5 GB"),
            (12_500, 0, "GB", "12,500 GB", "12.500 GB"),
            (12_500, 0, "", "12,500", "12.500"),
            (9_007_199_254_740_991, 15, "", "9.007199254740991", "9,007199254740991"),
        ] {
            assert_eq!(amount(count, scale, unit, ","), english);
            assert_eq!(amount(count, scale, unit, "."), vietnamese);
        }
        let of = |unit: Option<&str>, scale| {
            let unit = unit.map(|unit| unit.parse().expect("legal"));
            MetricFormat { unit, scale, ..MetricFormat::default() }
        };
        assert_eq!(of(None, 0).counted(1), "1 unit");
        assert_eq!(of(None, 0).counted(5000), "5,000 units");
        assert_eq!(of(None, 2).counted(100), "1.00 units");
        let usd = of(Some("USD"), 6);
        for (estimate, shown) in
            [(1_340_503, "1.34 USD"), (4_849, "0.0048 USD"), (9_960, "0.01 USD"), (7, "0.000007 USD")]
        {
            assert_eq!(usd.amount(usd.rounded(estimate)), shown);
        }
        assert_eq!([0, 9, 468, 12_345].map(|estimate| of(None, 0).rounded(estimate)), [0, 9, 468, 12_345]);
        assert_eq!(of(Some("EUR"), 2).rounded(12_345), 12_345);
        assert_eq!(usd.counted(12_500_000), "12.50 USD");
        let thresholds = ["80", "used:12500000", "remaining:1000"].map(|text| text.parse().expect("legal"));
        assert_eq!(thresholds.map(|of| usd.threshold(of)), ["80%", "used 12.50 USD", "remaining 0.001 USD"]);
    }

    proptest! {
        /// No decimal is lost: the digits are those of the count.
        #[test]
        fn the_digits_are_those_of_the_count(count in 0..=crate::types::units::UNITS_MAX, scale in 0..=SCALE_MAX) {
            let shown = amount(count, scale, "", ",").replace(',', "");
            let (whole, decimals) = shown.split_once('.').unwrap_or((&shown, ""));
            let digits = format!("{whole}{decimals:0<width$}", width = usize::from(scale));
            prop_assert_eq!(digits.parse::<u64>().expect("digits"), count);
        }
    }
}
