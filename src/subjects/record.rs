//! The hash `quota_subject:<subject>`: a subject's own settings. Parses and formats its fields, without access to
//! Redis.
//!
//! The platform may write the hash with HSET, so each field is checked separately and the good ones are kept. Foreign
//! fields stay untouched.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::types::billing::{BillingDayError, BillingMonthError};
use crate::types::display_name::DisplayNameError;
use crate::types::limits::LimitsError;
use crate::types::locale::LocaleError;
use crate::types::threshold::never_due;
use crate::types::{BillingDay, BillingMonth, DisplayName, Limits, Locale, Metric, Threshold, threshold};
use crate::zones::Zone;

/// A field of a subject and its value, as HGETALL returns them.
pub type SubjectField = (Vec<u8>, Vec<u8>);

/// The field of the plan's name.
pub const PLAN: &str = "plan";
/// The field of the time zone.
pub const TIMEZONE: &str = "timezone";
/// Prefix of the fields of limits; the metric follows.
pub const LIMIT_PREFIX: &str = "limit:";
/// The field of the billing day.
pub const BILLING_DAY: &str = "billing_day";
/// The field of the billing month.
pub const BILLING_MONTH: &str = "billing_month";
/// The field of the thresholds, `80,used:5000`.
pub const THRESHOLDS: &str = "thresholds";
/// The field of the locale, `vi`.
pub const LOCALE: &str = "locale";
/// The field of the display name.
pub const NAME: &str = "name";

/// The fields of a record, except limits.
pub const SETTINGS: [&str; 7] = [PLAN, TIMEZONE, BILLING_DAY, BILLING_MONTH, THRESHOLDS, LOCALE, NAME];

/// A subject's own settings; missing ones come from the plan, the default plan and the fallback contacts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubjectRecord {
    /// The plan's name. The caller checks whether the plan exists.
    pub plan: Option<String>,
    /// An IANA time zone, in its original spelling.
    pub timezone: Option<String>,
    /// Limits. Those of a metric replace all limits of the plan for it.
    pub limits: BTreeMap<Metric, Limits>,
    /// The billing day.
    pub billing_day: Option<BillingDay>,
    /// The billing month.
    pub billing_month: Option<BillingMonth>,
    /// Thresholds that replace those of the plan, ascending.
    pub thresholds: Option<Vec<Threshold>>,
    /// The language of messages to its contacts.
    pub locale: Option<Locale>,
    /// Its name in texts, beside the id.
    pub name: Option<DisplayName>,
}

/// An unreadable field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, JsonSchema)]
#[error("field {field:?}: {why}")]
#[schemars(rename = "UnreadableField")]
pub struct FieldError {
    /// The field's name.
    pub field: String,
    /// What is wrong, and what is allowed. Shows no secret.
    pub why: String,
}

/// A parsed hash: the readable part, and the errors of the other fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedRecord {
    /// The readable fields.
    pub record: SubjectRecord,
    /// The errors of the other fields, which the record omits.
    pub errors: Vec<FieldError>,
}

/// Warnings about allowed settings: a sentence for each limit that can't be reached because the limit of a longer
/// window is lower, and for each threshold that is not below a limit set with it.
pub fn limit_warnings(SubjectRecord { limits, thresholds, .. }: &SubjectRecord) -> Vec<String> {
    let of_metric = |(metric, limits): (&Metric, &Limits)| {
        limits.contradictions().map(|pair| format!("the limits of {metric}: {pair}")).collect::<Vec<_>>()
    };
    let all = limits.values().flat_map(|limits| limits.as_slice());
    let never_due = never_due(thresholds.as_deref().unwrap_or_default(), all);
    let never_due = never_due.into_iter().map(|threshold| format!("{threshold} is never due, no limit here is higher"));
    limits.iter().flat_map(of_metric).chain(never_due).collect()
}

impl FieldError {
    /// The error for grants that can't be read.
    pub fn unreadable_grants() -> Self {
        Self { field: "grants".to_owned(), why: "the added units can't be read".to_owned() }
    }

    /// The error for a plan that is not configured.
    pub fn no_such_plan(name: &str) -> Self {
        Self { field: PLAN.to_owned(), why: format!("{name:?} is not one of the configured plans") }
    }
}

impl SubjectRecord {
    /// Parses the fields of the hash as HGETALL returns them. Pure.
    pub fn parse<F: AsRef<[u8]>, V: AsRef<[u8]>>(fields: impl IntoIterator<Item = (F, V)>) -> ParsedRecord {
        let mut parsed = ParsedRecord::default();
        for (field, value) in fields {
            // Our names are ASCII, so other field names are foreign.
            let Ok(field) = std::str::from_utf8(field.as_ref()) else { continue };
            if let Err(why) = parsed.record.set_field(field, value.as_ref()) {
                parsed.errors.push(FieldError { field: field.to_owned(), why });
            }
        }
        parsed
    }

    /// Sets one setting from its field's stored value. Fields that are not ours are left alone.
    ///
    /// # Errors
    ///
    /// The value and what is allowed.
    pub fn set_field(&mut self, field: &str, value: &[u8]) -> Result<(), String> {
        match field {
            PLAN => self.plan = Some(parse_plan(text(value)?)?),
            TIMEZONE => self.timezone = Some(parse_timezone(text(value)?)?),
            BILLING_DAY => {
                let text = text(value)?;
                let day = text.parse().map_err(|error: BillingDayError| format!("{text:?}: {error}"))?;
                self.billing_day = Some(day);
            }
            BILLING_MONTH => {
                let text = text(value)?;
                let month = text.parse().map_err(|error: BillingMonthError| format!("{text:?}: {error}"))?;
                self.billing_month = Some(month);
            }
            THRESHOLDS => self.thresholds = Some(parse_thresholds(text(value)?)?),
            LOCALE => self.locale = Some(parse_locale(value)?),
            NAME => self.name = Some(parse_name(value)?),
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

    /// The fields for HSET, without missing ones.
    pub fn to_fields(&self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        fields.extend(self.plan.clone().map(|plan| (PLAN.to_owned(), plan)));
        fields.extend(self.timezone.clone().map(|zone| (TIMEZONE.to_owned(), zone)));
        fields.extend(self.billing_day.map(|day| (BILLING_DAY.to_owned(), day.to_string())));
        fields.extend(self.billing_month.map(|month| (BILLING_MONTH.to_owned(), month.to_string())));
        fields.extend(self.limits.iter().map(|(metric, limits)| (limit_field(metric), limits.to_string())));
        let thresholds = self.thresholds.as_deref().map(write_thresholds);
        fields.extend(thresholds.map(|thresholds| (THRESHOLDS.to_owned(), thresholds)));
        fields.extend(self.locale.as_ref().map(|locale| (LOCALE.to_owned(), locale.to_string())));
        fields.extend(self.name.as_ref().map(|name| (NAME.to_owned(), name.to_string())));
        fields
    }
}

/// Whether a field of the hash belongs to a record.
pub fn is_setting(field: &str) -> bool {
    SETTINGS.contains(&field) || field.starts_with(LIMIT_PREFIX)
}

/// `limit:<metric>`.
pub fn limit_field(metric: &Metric) -> String {
    format!("{LIMIT_PREFIX}{metric}")
}

/// `80,used:5000`, ascending.
pub fn write_thresholds(thresholds: &[Threshold]) -> String {
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

/// Checks the name of a time zone and returns its IANA spelling.
pub fn parse_timezone(text: &str) -> Result<String, String> {
    match text.parse::<Zone>() {
        Ok(zone) => Ok(zone.name().to_owned()),
        Err(_) => Err(format!("{text:?} is not an IANA time zone, such as \"Europe/Berlin\" or \"UTC\"")),
    }
}

/// Parses the field of the locale.
pub fn parse_locale(value: &[u8]) -> Result<Locale, String> {
    text(value)?.parse().map_err(|error: LocaleError| error.to_string())
}

/// Parses the field of the display name.
pub fn parse_name(value: &[u8]) -> Result<DisplayName, String> {
    text(value)?.parse().map_err(|error: DisplayNameError| error.to_string())
}

/// Parses `80,used:5000`: distinct thresholds in any order, at most [`threshold::THRESHOLDS_MAX`], with optional
/// spaces. Returns them ascending.
///
/// # Errors
///
/// A sentence with the wrong part and the allowed values.
pub fn parse_thresholds(text: &str) -> Result<Vec<Threshold>, String> {
    let mut thresholds = Vec::new();
    for part in text.split(',').map(str::trim) {
        let threshold: Threshold = part.parse().map_err(|error| format!("{part:?}: {error}, separated by commas"))?;
        thresholds.push(threshold);
    }
    threshold::ascending(thresholds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Window;
    use proptest::prelude::*;

    fn parse(fields: &[(&str, &str)]) -> ParsedRecord {
        SubjectRecord::parse(fields.iter().copied())
    }

    /// One bad field of the platform must not discard the good ones.
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

    /// Duplicate, empty and excessive thresholds are refused here as in a plan.
    #[test]
    fn thresholds_are_distinct() {
        for bad in ["", "0", "1001", "80,80", "80,", "eighty", "80;100", "-5", "8e1", "used:0", "left:5", "remaining:"]
        {
            assert_eq!(parse(&[("thresholds", bad)]).errors.len(), 1, "{bad:?}");
        }
        let many = |last| (1..=last).map(|n: u16| n.to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(parse(&[("thresholds", &many(100))]).errors, []);
        let why = &parse(&[("thresholds", &many(101))]).errors[0].why;
        assert_eq!(why, "101 thresholds are too many, at most 100 are allowed");
    }

    proptest! {
        /// Formatted fields parse to the same record.
        #[test]
        fn fields_round_trip(plan in proptest::option::of("[a-z]{1,9}"), limit in 1..=crate::types::units::UNITS_MAX,
                             window in 0..Window::ALL.len(), day in 1..=31_u8, month in 1..=12_u8,
                             units in proptest::collection::btree_set(1..=1000_u64, 1..6)) {
            let record = SubjectRecord {
                plan,
                timezone: Some("Asia/Ho_Chi_Minh".to_owned()),
                limits: [(Metric::default(), format!("{limit}/{}", Window::ALL[window]).parse().expect("in range"))].into(),
                billing_day: BillingDay::new(day),
                billing_month: BillingMonth::new(month),
                thresholds: Some(units.iter().map(|n| n.to_string()).chain(units.iter().map(|n| format!("remaining:{n}"))).map(|text| text.parse().expect("legal")).collect()),
                locale: Locale::parse("vi-VN").ok(),
                name: DisplayName::parse("Acme & Co.").ok(),
            };
            let parsed = SubjectRecord::parse(record.to_fields());
            prop_assert_eq!(parsed, ParsedRecord { record, errors: Vec::new() });
        }

        /// The platform may write anything.
        #[test]
        fn bytes_never_panic(field in "(plan|timezone|billing_day|limit:[a-z]*|thresholds|locale|name)", value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = SubjectRecord::parse([(field.as_bytes(), value)]);
        }
    }
}
