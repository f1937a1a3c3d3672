//! The hash `quota_subject:<subject>`: what a subject has of its own. Reads and writes its fields, never Redis itself.
//!
//! The platform may write the hash by its own HSET, so reading judges each field by itself and keeps the good ones.
//! Fields that are not ours are left alone.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::types::billing_day::BillingDayError;
use crate::types::limits::LimitsError;
use crate::types::locale::LocaleError;
use crate::types::{BillingDay, Limits, Locale, Metric, Percent, percent};
use crate::zones::Zone;

/// A field of a subject and its value, as HGETALL gives them.
pub type SubjectField = (Vec<u8>, Vec<u8>);

/// The field that names the plan.
pub const PLAN: &str = "plan";
/// The field that names the time zone.
pub const TIMEZONE: &str = "timezone";
/// What the fields of limits begin with; the metric follows.
pub const LIMIT_PREFIX: &str = "limit:";
/// The field that names the day of the month on which the subject's months begin.
pub const BILLING_DAY: &str = "billing_day";
/// The field that holds the thresholds, `80,100`.
pub const THRESHOLDS: &str = "thresholds";
/// The field that names the locale, `vi`.
pub const LOCALE: &str = "locale";

/// What a subject has of its own; what is absent comes from the plan, the default plan and the fallback contacts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubjectRecord {
    /// The plan's name. Whether there is such a plan is for the caller to say.
    pub plan: Option<String>,
    /// An IANA time zone, spelled as it was written.
    pub timezone: Option<String>,
    /// Limits. Those of a metric replace all that the plan has for it.
    pub limits: BTreeMap<Metric, Limits>,
    /// The day of the month on which months begin.
    pub billing_day: Option<BillingDay>,
    /// Thresholds that replace the plan's, ascending.
    pub thresholds: Option<Vec<Percent>>,
    /// The language in which its contacts are told.
    pub locale: Option<Locale>,
}

/// A field that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, JsonSchema)]
#[error("field {field:?}: {why}")]
#[schemars(rename = "UnreadableField")]
pub struct FieldError {
    /// The field's name.
    pub field: String,
    /// What is wrong, and what is allowed. Shows no secret.
    pub why: String,
}

/// A hash as read: the readable part, and the fields that are not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedRecord {
    /// The readable fields.
    pub record: SubjectRecord,
    /// The others; the record has nothing in their place.
    pub errors: Vec<FieldError>,
}

/// What an operator should know about limits that are legal: a sentence for each that can't be reached, because that of
/// a longer window is lower.
pub fn limit_warnings<'a>(limits: impl IntoIterator<Item = (&'a Metric, &'a Limits)>) -> Vec<String> {
    let of_metric = |(metric, limits): (&Metric, &Limits)| {
        limits.contradictions().map(|pair| format!("the limits of {metric}: {pair}")).collect::<Vec<_>>()
    };
    limits.into_iter().flat_map(of_metric).collect()
}

impl FieldError {
    /// A plan that the configuration does not have.
    pub fn no_such_plan(name: &str) -> Self {
        Self { field: PLAN.to_owned(), why: format!("{name:?} is not one of the configured plans") }
    }
}

impl SubjectRecord {
    /// Reads the fields of the hash as HGETALL returns them. Pure.
    pub fn parse<F: AsRef<[u8]>, V: AsRef<[u8]>>(fields: impl IntoIterator<Item = (F, V)>) -> ParsedRecord {
        let mut parsed = ParsedRecord::default();
        for (field, value) in fields {
            // Our names are ASCII; whatever is not even text is not ours.
            let Ok(field) = std::str::from_utf8(field.as_ref()) else { continue };
            if let Err(why) = parsed.record.take_field(field, value.as_ref()) {
                parsed.errors.push(FieldError { field: field.to_owned(), why });
            }
        }
        parsed
    }

    fn take_field(&mut self, field: &str, value: &[u8]) -> Result<(), String> {
        match field {
            PLAN => self.plan = Some(parse_plan(text(value)?)?),
            TIMEZONE => self.timezone = Some(parse_timezone(text(value)?)?),
            BILLING_DAY => {
                let day = text(value)?.parse().map_err(|error: BillingDayError| error.to_string())?;
                self.billing_day = Some(day);
            }
            THRESHOLDS => self.thresholds = Some(parse_thresholds(text(value)?)?),
            LOCALE => self.locale = Some(parse_locale(value)?),
            _ => {
                if let Some(metric) = field.strip_prefix(LIMIT_PREFIX) {
                    let metric = Metric::parse(metric.as_bytes()).map_err(|error| error.to_string())?;
                    let limits = text(value)?.parse().map_err(|error: LimitsError| error.to_string())?;
                    self.limits.insert(metric, limits);
                }
            }
        }
        Ok(())
    }

    /// The fields as HSET takes them; what the record does not have is left out.
    pub fn to_fields(&self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        fields.extend(self.plan.clone().map(|plan| (PLAN.to_owned(), plan)));
        fields.extend(self.timezone.clone().map(|zone| (TIMEZONE.to_owned(), zone)));
        fields.extend(self.billing_day.map(|day| (BILLING_DAY.to_owned(), day.to_string())));
        fields.extend(self.limits.iter().map(|(metric, limits)| (limit_field(metric), limits.to_string())));
        let thresholds = self.thresholds.as_deref().map(write_thresholds);
        fields.extend(thresholds.map(|thresholds| (THRESHOLDS.to_owned(), thresholds)));
        fields.extend(self.locale.as_ref().map(|locale| (LOCALE.to_owned(), locale.to_string())));
        fields
    }
}

/// Whether a field of the hash is one that a record has.
pub fn is_setting(field: &str) -> bool {
    [PLAN, TIMEZONE, BILLING_DAY, THRESHOLDS, LOCALE].contains(&field) || field.starts_with(LIMIT_PREFIX)
}

/// `limit:<metric>`.
pub fn limit_field(metric: &Metric) -> String {
    format!("{LIMIT_PREFIX}{metric}")
}

/// `80,100`, ascending.
pub fn write_thresholds(thresholds: &[Percent]) -> String {
    let mut sorted = thresholds.to_vec();
    sorted.sort_unstable();
    sorted.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn text(value: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(value).map_err(|_| "not UTF-8".to_owned())
}

fn parse_plan(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("empty; remove the field for the default plan".to_owned()) } else { Ok(text.to_owned()) }
}

/// Judges the name of a time zone, and gives it as it stands in the IANA data base.
pub fn parse_timezone(text: &str) -> Result<String, String> {
    match text.parse::<Zone>() {
        Ok(zone) => Ok(zone.name().to_owned()),
        Err(_) => Err(format!("{text:?} is not an IANA time zone, such as \"Europe/Berlin\" or \"UTC\"")),
    }
}

/// Reads the field of the locale.
pub fn parse_locale(value: &[u8]) -> Result<Locale, String> {
    text(value)?.parse().map_err(|error: LocaleError| error.to_string())
}

/// Reads `80,100`: distinct percentages, at most [`percent::THRESHOLDS_MAX`], spaces around them allowed. Ascending
/// whatever their order was.
///
/// # Errors
///
/// A sentence with the part that is wrong and what is allowed.
pub fn parse_thresholds(text: &str) -> Result<Vec<Percent>, String> {
    let mut thresholds = Vec::new();
    for part in text.split(',').map(str::trim) {
        let percent: Percent = part.parse().map_err(|error| format!("{part:?}: {error}, each parted by a comma"))?;
        thresholds.push(percent);
    }
    percent::ascending(thresholds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Window;
    use proptest::prelude::*;

    fn parse(fields: &[(&str, &str)]) -> ParsedRecord {
        SubjectRecord::parse(fields.iter().copied())
    }

    /// One bad field written by the platform must not take the good ones with it.
    #[test]
    fn each_field_is_judged_by_itself() {
        let parsed = parse(&[
            ("plan", "pro"),
            ("timezone", "Mars/Olympus"),
            ("limit:requests", "5000"),
            ("limit:tokens", "lots"),
            ("limit:", "1"),
            ("limit:gpt-4.tokens_in", "0"),
            ("limit:calls", "600/hour 5000/day 7/hour"),
            ("billing_day", "32"),
            ("locale", "vi_VN"),
            ("thresholds", "80, 50"),
            ("note", "the platform's own"),
        ]);
        assert_eq!(parsed.record.plan.as_deref(), Some("pro"));
        assert_eq!(parsed.record.limits.len(), 1);
        assert_eq!(parsed.record.thresholds.as_deref().map(write_thresholds).as_deref(), Some("50,80"));
        let bad: Vec<&str> = parsed.errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(
            bad,
            ["timezone", "limit:tokens", "limit:", "limit:gpt-4.tokens_in", "limit:calls", "billing_day", "locale"]
        );
    }

    /// Doubled, empty and excessive thresholds are refused when read, as they are in a plan.
    #[test]
    fn thresholds_are_distinct_percentages() {
        for bad in ["", "0", "1001", "80,80", "80,", "eighty", "80;100", "-5", "8e1"] {
            assert_eq!(parse(&[("thresholds", bad)]).errors.len(), 1, "{bad:?}");
        }
        let many = |last| (1..=last).map(|n: u16| n.to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(parse(&[("thresholds", &many(100))]).errors, []);
        let why = &parse(&[("thresholds", &many(101))]).errors[0].why;
        assert_eq!(why, "101 thresholds are too many, at most 100 are allowed");
    }

    proptest! {
        /// What is written is read back the same.
        #[test]
        fn fields_round_trip(plan in proptest::option::of("[a-z]{1,9}"), limit in 1..=crate::types::units::UNITS_MAX,
                             window in 0..4_usize, billing_day in 1..=31_u8,
                             percents in proptest::collection::btree_set(1_u16..=1000, 1..6)) {
            let record = SubjectRecord {
                plan,
                timezone: Some("Asia/Ho_Chi_Minh".to_owned()),
                limits: [(Metric::default(), format!("{limit}/{}", Window::ALL[window]).parse().expect("in range"))].into(),
                billing_day: BillingDay::new(billing_day),
                thresholds: Some(percents.into_iter().filter_map(Percent::new).collect()),
                locale: Locale::parse("vi-VN").ok(),
            };
            let parsed = SubjectRecord::parse(record.to_fields());
            prop_assert_eq!(parsed, ParsedRecord { record, errors: Vec::new() });
        }

        /// The platform may write anything.
        #[test]
        fn bytes_never_panic(field in "(plan|timezone|billing_day|limit:[a-z]*|thresholds|locale)", value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = SubjectRecord::parse([(field.as_bytes(), value)]);
        }
    }
}
