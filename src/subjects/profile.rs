//! What a subject's settings amount to: plan, zone, limits, thresholds. Pure.
//!
//! A field that can't be read keeps its last good value. Without one the subject is counted and not judged until the field is
//! mended: no zone silently becomes UTC and no limit silently the default one.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono_tz::Tz;

use crate::types::{Metric, Percent, Units};

use super::plans::{Plan, Plans};

/// A subject's settings as the counting of its events needs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    plan: Arc<Plan>,
    zone: Tz,
    limits: BTreeMap<Metric, Units>,
    thresholds: Option<Vec<Percent>>,
    judged: bool,
}

/// A field of a subject's hash that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Unreadable {
    /// The field.
    pub field: String,
    /// What is wrong and what is allowed.
    pub why: String,
}

impl Profile {
    /// The settings of a subject that Redis does not know.
    #[must_use]
    pub fn of_unknown(plans: &Plans) -> Self {
        Self {
            plan: Arc::clone(plans.default_plan()),
            zone: Tz::UTC,
            limits: BTreeMap::new(),
            thresholds: None,
            judged: true,
        }
    }

    /// The settings that `fields` (of `quota_subject:<subject>`) amount to, with `last` as the last good ones.
    ///
    /// Also returns what could not be read; the caller says it once.
    #[must_use]
    pub fn read(fields: &[(Vec<u8>, Vec<u8>)], plans: &Plans, last: Option<&Self>) -> (Self, Vec<Unreadable>) {
        let mut profile = Self::of_unknown(plans);
        let mut unreadable = Vec::new();
        for (name, value) in fields {
            let name = String::from_utf8_lossy(name);
            if let Err(why) = profile.read_field(&name, value, plans) {
                profile.keep_last(&name, last);
                unreadable.push(Unreadable { field: name.into_owned(), why });
            }
        }
        (profile, unreadable)
    }

    fn read_field(&mut self, name: &str, value: &[u8], plans: &Plans) -> Result<(), String> {
        let text = std::str::from_utf8(value).map_err(|_| "not UTF-8".to_owned())?;
        match name {
            "plan" => {
                let plan = plans.get(text).ok_or_else(|| format!("{text:?} is not one of the configured plans"))?;
                self.plan = Arc::clone(plan);
            }
            "timezone" => {
                self.zone =
                    text.parse().map_err(|_| format!("{text:?} is not an IANA time zone, as \"Europe/Berlin\""))?;
            }
            "thresholds" => self.thresholds = Some(thresholds_of(text)?),
            _ => {
                if let Some(metric) = name.strip_prefix("limit:") {
                    let metric = metric.parse::<Metric>().map_err(|error| error.to_string())?;
                    let units =
                        Units::parse(value).map_err(|_| format!("{text:?} is not a limit, 1 to 2^53-1 in digits"))?;
                    self.limits.insert(metric, units);
                }
            }
        }
        Ok(())
    }

    /// Takes one field from the last good settings; without them nothing is judged.
    fn keep_last(&mut self, field: &str, last: Option<&Self>) {
        let Some(last) = last.filter(|last| last.judged) else {
            self.judged = false;
            return;
        };
        match field {
            "plan" => self.plan = Arc::clone(&last.plan),
            "timezone" => self.zone = last.zone,
            "thresholds" => self.thresholds.clone_from(&last.thresholds),
            _ => {
                let metric = field.strip_prefix("limit:").and_then(|metric| metric.parse::<Metric>().ok());
                match metric.and_then(|metric| last.limits.get_key_value(&metric)) {
                    Some((metric, units)) => {
                        self.limits.insert(metric.clone(), *units);
                    }
                    None => self.judged = false,
                }
            }
        }
    }

    /// The plan's name.
    #[must_use]
    pub fn plan(&self) -> &Arc<str> {
        &self.plan.name
    }

    /// The zone in which the subject's days lie.
    #[must_use]
    pub const fn zone(&self) -> Tz {
        self.zone
    }

    /// Whether thresholds are judged at all; not while a field is unreadable and has no last good value.
    #[must_use]
    pub const fn is_judged(&self) -> bool {
        self.judged
    }

    /// Units a day of this metric: the subject's own, else the plan's.
    #[must_use]
    pub fn limit(&self, metric: &Metric) -> Option<Units> {
        self.limits.get(metric).or_else(|| self.plan.limits.get(metric)).copied()
    }

    /// Every metric with a limit, and the limit.
    #[must_use]
    pub fn limits(&self) -> BTreeMap<Metric, Units> {
        let mut limits = self.plan.limits.clone();
        limits.extend(self.limits.clone());
        limits
    }

    /// The percentages at which alerts are due: the subject's own, else the plan's.
    #[must_use]
    pub fn thresholds(&self) -> &[Percent] {
        self.thresholds.as_deref().unwrap_or(&self.plan.thresholds)
    }
}

/// Reads `80,100`: distinct whole percentages from 1 to 1000.
fn thresholds_of(text: &str) -> Result<Vec<Percent>, String> {
    let allowed =
        || format!("{text:?} is not a list of thresholds: distinct percentages from 1 to 1000, as \"80,100\"");
    let mut thresholds = Vec::new();
    for part in text.split(',') {
        let percent: Percent = part.trim().parse().map_err(|_| allowed())?;
        if thresholds.contains(&percent) {
            return Err(allowed());
        }
        thresholds.push(percent);
    }
    thresholds.sort_unstable();
    Ok(thresholds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans() -> Plans {
        let plan = |units| super::super::config::PlanConfig {
            limits: [(Metric::default(), Units::new(units).expect("in range"))].into(),
            thresholds: [80, 100].map(|n| Percent::new(n).expect("in range")).to_vec(),
        };
        Plans::new(&[("free".to_owned(), plan(5000)), ("pro".to_owned(), plan(50_000))].into(), "free")
            .expect("free is there")
    }

    fn fields(pairs: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
        pairs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
    }

    /// A subject's own limit wins over its plan's, which wins over nothing.
    #[test]
    fn own_limits_win_over_the_plan() {
        let (profile, bad) =
            Profile::read(&fields(&[("plan", "pro"), ("limit:requests", "7"), ("contacts", "[]")]), &plans(), None);
        assert_eq!(bad, []);
        assert_eq!(profile.limit(&Metric::default()).map(Units::get), Some(7));
        assert_eq!(&**profile.plan(), "pro");
    }

    /// A typo in the zone must not move a customer's day to UTC.
    #[test]
    fn an_unreadable_field_keeps_its_last_good_value() {
        let plans = plans();
        let (good, _) = Profile::read(&fields(&[("timezone", "Asia/Tokyo"), ("plan", "pro")]), &plans, None);
        let (kept, bad) = Profile::read(&fields(&[("timezone", "Asia/Tokio"), ("plan", "free")]), &plans, Some(&good));
        assert_eq!(kept.zone(), Tz::Asia__Tokyo);
        assert_eq!((&**kept.plan(), kept.is_judged()), ("free", true));
        assert_eq!(bad[0].field, "timezone");
    }

    /// Without a last good value the default limit would raise alerts that nobody promised.
    #[test]
    fn without_a_last_good_value_nothing_is_judged() {
        for pair in [
            ("plan", "gold"),
            ("timezone", "Mars"),
            ("limit:requests", "1e3"),
            ("limit:requests", "0"),
            ("thresholds", "0"),
        ] {
            let (profile, bad) = Profile::read(&fields(&[pair]), &plans(), None);
            assert!(!profile.is_judged(), "{pair:?}");
            assert_eq!(bad.len(), 1, "{pair:?}");
        }
    }
}
