//! The effective settings of a subject: plan, zone, billing start, limits, thresholds. Pure.
//!
//! An unreadable field keeps its last good value. Without one the subject is counted but not judged until the field is
//! fixed: a zone never silently becomes UTC, and a limit never silently becomes the default.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::limiter::Limiter;
use crate::types::{
    BillingDay, BillingMonth, BillingStart, LimitUnits, Limits, Metric, Period, Threshold, Window, WindowLimit,
};
use crate::zones::Zone;

use super::added_units::AddedUnits;
use super::forecast_config::{ForecastConfig, SpikeTimes};
use super::plans::{Plan, Plans};
use super::record::{self, FieldError, SubjectRecord};
use super::refuse_at::RefuseAt;

/// A subject's settings, as counting needs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    plan: Arc<Plan>,
    zone: Inheritable<Zone>,
    billing_day: Inheritable<BillingDay>,
    billing_month: Inheritable<BillingMonth>,
    limits: BTreeMap<Metric, Limits>,
    thresholds: Option<Vec<Threshold>>,
    judged: bool,
    /// What grants add to the limits.
    added: Arc<AddedUnits>,
    /// The settings of the level above.
    above: Option<Arc<Self>>,
}

/// A setting that a subject names or inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inheritable<T> {
    /// It names none: that of the nearest level above that names one applies, else the default.
    Missing,
    /// It, or a level above, names this one.
    Named(T),
    /// It can't be read and never could. The subject and the levels below are counted with the default and not judged.
    Unreadable,
}

impl<T: Copy> Inheritable<T> {
    /// This setting below a level with the setting `above`.
    const fn below(self, above: Self) -> Self {
        match self {
            Self::Missing => above,
            own => own,
        }
    }

    const fn named_or(self, default: T) -> T {
        match self {
            Self::Named(named) => named,
            Self::Missing | Self::Unreadable => default,
        }
    }

    const fn is_readable(self) -> bool {
        !matches!(self, Self::Unreadable)
    }
}

impl<T> From<Option<T>> for Inheritable<T> {
    fn from(named: Option<T>) -> Self {
        named.map_or(Self::Missing, Self::Named)
    }
}

impl Profile {
    /// The settings of a subject without a hash in Redis, by its level: 0 at the top.
    pub fn of_unknown(plans: &Plans, depth: usize) -> Self {
        Self {
            plan: plans.default_plan(depth),
            zone: Inheritable::Missing,
            billing_day: Inheritable::Missing,
            billing_month: Inheritable::Missing,
            limits: BTreeMap::new(),
            thresholds: None,
            judged: true,
            added: Arc::default(),
            above: None,
        }
    }

    /// The settings of a subject whose fields are unreadable and were never read: it is counted but not judged.
    pub fn unreadable(plans: &Plans, depth: usize) -> Self {
        let (zone, billing_day, billing_month) =
            (Inheritable::Unreadable, Inheritable::Unreadable, Inheritable::Unreadable);
        Self { judged: false, zone, billing_day, billing_month, ..Self::of_unknown(plans, depth) }
    }

    /// The settings in `fields` (of `quota_subject:<subject>`) of a subject of this level, with `last` as the last good
    /// ones.
    ///
    /// Also returns the unreadable fields, which the caller reports once. Ignores contacts, locale and name: a delivery
    /// reads them.
    pub fn read(
        fields: &[(Vec<u8>, Vec<u8>)],
        plans: &Plans,
        depth: usize,
        last: Option<&Self>,
    ) -> (Self, Vec<FieldError>) {
        let record::ParsedRecord { record: own, mut errors } =
            SubjectRecord::parse(fields.iter().map(|(name, value)| (name, value)));
        errors.retain(|error| ![record::LOCALE, record::NAME].contains(&error.field.as_str()));
        let mut profile = Self::of_unknown(plans, depth);
        match own.plan.as_deref().map(|name| plans.get(name).ok_or(name)) {
            None => {}
            Some(Ok(plan)) => profile.plan = plan,
            Some(Err(name)) => errors.push(FieldError::no_such_plan(name)),
        }
        // The record has already checked the name.
        profile.zone = own.timezone.and_then(|name| name.parse().ok()).into();
        profile.billing_day = own.billing_day.into();
        profile.billing_month = own.billing_month.into();
        profile.limits = own.limits;
        profile.thresholds = own.thresholds;
        errors.iter().for_each(|error| profile.keep_last(&error.field, last));
        (profile, errors)
    }

    /// Takes one field from the last settings. Without good ones nothing is judged, but events still count on days of
    /// the last zone.
    fn keep_last(&mut self, field: &str, last: Option<&Self>) {
        self.judged &= last.is_some_and(|last| last.judged);
        let Some(last) = last else {
            match field {
                record::TIMEZONE => self.zone = Inheritable::Unreadable,
                record::BILLING_DAY => self.billing_day = Inheritable::Unreadable,
                record::BILLING_MONTH => self.billing_month = Inheritable::Unreadable,
                _ => {}
            }
            return;
        };
        match field {
            record::PLAN => self.plan = Arc::clone(&last.plan),
            record::TIMEZONE => self.zone = last.zone,
            record::BILLING_DAY => self.billing_day = last.billing_day,
            record::BILLING_MONTH => self.billing_month = last.billing_month,
            record::THRESHOLDS => self.thresholds.clone_from(&last.thresholds),
            _ => {
                let metric = field.strip_prefix(record::LIMIT_PREFIX).and_then(|metric| metric.parse::<Metric>().ok());
                match metric.and_then(|metric| last.limits.get_key_value(&metric)) {
                    Some((metric, limits)) => {
                        self.limits.insert(metric.clone(), limits.clone());
                    }
                    None => self.judged = false,
                }
            }
        }
    }

    /// Sets what grants add to the limits. If that can't be read, keeps the last good value, and without one nothing is
    /// judged.
    pub fn set_added(&mut self, added: Result<AddedUnits, FieldError>, last: Option<&Self>) -> Result<(), FieldError> {
        match (added, last) {
            (Ok(added), _) => {
                self.added = Arc::new(added);
                Ok(())
            }
            (Err(error), Some(last)) => {
                self.added = Arc::clone(&last.added);
                Err(error)
            }
            (Err(error), None) => {
                self.judged = false;
                Err(error)
            }
        }
    }

    /// The plan's name.
    pub fn plan(&self) -> &Arc<str> {
        &self.plan.name
    }

    /// Whether it has this plan.
    pub fn has_plan(&self, plan: &Arc<Plan>) -> bool {
        Arc::ptr_eq(&self.plan, plan)
    }

    /// The zone of the subject's days and longer periods.
    pub fn zone(&self) -> Zone {
        self.zone.named_or(Zone::UTC)
    }

    /// These settings below a level with the settings `above`. A subject that names no zone or no billing date has that
    /// of the level above, and it is counted in all windows in which that level is.
    pub fn below(&self, above: &Arc<Self>) -> Self {
        let mut below = Self { above: Some(Arc::clone(above)), ..self.clone() };
        below.zone = self.zone.below(above.zone);
        below.billing_day = self.billing_day.below(above.billing_day);
        below.billing_month = self.billing_month.below(above.billing_month);
        let (day, month) = (below.billing_day, below.billing_month);
        below.judged &= below.zone.is_readable() && day.is_readable() && month.is_readable();
        below
    }

    /// The windows in which a metric is counted: always the day, and those in which this subject or a level above it
    /// has a limit.
    pub fn windows_of(&self, metric: &Metric) -> impl Iterator<Item = Window> {
        let levels = || std::iter::successors(Some(self), |level| level.above.as_deref());
        let is_limited =
            |window| levels().any(|level| level.limits_of(metric).iter().any(|limit| limit.window == window));
        let is_counted = Window::ALL.map(|window| window == Window::Day || is_limited(window));
        Window::ALL.into_iter().zip(is_counted).filter_map(|(window, is_counted)| is_counted.then_some(window))
    }

    /// The date on which the subject's months, quarters and years begin.
    pub fn billing(&self) -> BillingStart {
        BillingStart {
            day: self.billing_day.named_or(BillingDay::default()),
            month: self.billing_month.named_or(BillingMonth::default()),
        }
    }

    /// Whether thresholds are judged; false while a field is unreadable and has no last good value.
    pub const fn has_known_limits(&self) -> bool {
        self.judged
    }

    /// The limits of this metric without grants, ascending by window: the subject's own, else the plan's. They are not
    /// mixed, so that own limits can also remove a window of the plan.
    pub fn limits_of(&self, metric: &Metric) -> &[WindowLimit] {
        self.limits.get(metric).or_else(|| self.plan.limits.get(metric)).map_or(&[], Limits::as_slice)
    }

    /// What grants add to the limits.
    pub const fn added(&self) -> &Arc<AddedUnits> {
        &self.added
    }

    /// The limit of a period: that of its window, and what grants add to it.
    pub fn limit_of(&self, metric: &Metric, period: Period) -> Option<LimitUnits> {
        let base = self.limits_of(metric).iter().find(|limit| limit.window == period.window())?;
        Some(base.units.plus(self.added.units_of(metric, period)))
    }

    /// The share of a limit at which checks refuse.
    pub fn refuse_at(&self) -> RefuseAt {
        self.plan.refuse_at
    }

    /// How long before the expiry of a grant the subject is told.
    pub fn grant_notice(&self) -> Option<Duration> {
        self.plan.grant_notice
    }

    /// Which limits that will be reached are told.
    pub fn forecast(&self) -> Option<&ForecastConfig> {
        self.plan.forecast.as_ref()
    }

    /// The multiple of the usual from which usage is told.
    pub fn spike(&self) -> Option<SpikeTimes> {
        self.plan.spike
    }

    /// How long the subject uses nothing until that is told.
    pub fn silence(&self) -> Option<Duration> {
        self.plan.silence.map(Duration::from)
    }

    /// The plan's limiter of this metric.
    pub fn limiter(&self, metric: &Metric) -> Option<&Limiter> {
        self.plan.limiters.get(metric)
    }

    /// Every metric with limits, and its limits.
    pub fn limits(&self) -> BTreeMap<Metric, Limits> {
        let mut limits = self.plan.limits.clone();
        limits.extend(self.limits.clone());
        limits
    }

    /// Limits of the subject itself, instead of those of its plan.
    pub fn own_limits_of(&self, metric: &Metric) -> Option<&Limits> {
        self.limits.get(metric)
    }

    /// Thresholds of the subject itself, instead of those of its plan.
    pub fn own_thresholds(&self) -> Option<&[Threshold]> {
        self.thresholds.as_deref()
    }

    /// The thresholds at which alerts are raised: the subject's own, else the plan's.
    pub fn thresholds(&self) -> &[Threshold] {
        self.thresholds.as_deref().unwrap_or(&self.plan.thresholds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Units;

    fn plans() -> Plans {
        let plan = |units| super::super::config::PlanConfig {
            limits: [(Metric::default(), Units::new(units).expect("in range").into())].into(),
            thresholds: ["80", "100"].map(|text| text.parse().expect("legal")).to_vec(),
            ..super::super::config::PlanConfig::default()
        };
        Plans::new(&[("free".to_owned(), plan(5000)), ("pro".to_owned(), plan(50_000))].into(), "free")
            .expect("free is there")
    }

    fn fields(pairs: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
        pairs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
    }

    fn limits(profile: &Profile) -> Vec<String> {
        profile.limits_of(&Metric::default()).iter().map(ToString::to_string).collect()
    }

    /// A subject's own limit wins over its plan's limit.
    #[test]
    fn own_limits_win_over_the_plan() {
        let (profile, bad) =
            Profile::read(&fields(&[("plan", "pro"), ("limit:requests", "7"), ("contacts", "[]")]), &plans(), 0, None);
        assert_eq!(bad, []);
        assert_eq!(limits(&profile), ["7/day"]);
        assert_eq!(&**profile.plan(), "pro");
    }

    /// If own limits and plan limits were mixed, a subject could not lift the daily limit of its plan.
    #[test]
    fn own_limits_of_a_metric_replace_all_of_the_plan() {
        let (profile, bad) = Profile::read(&fields(&[("limit:requests", "9/month 7/hour")]), &plans(), 0, None);
        assert_eq!(bad, []);
        assert_eq!(limits(&profile), ["7/hour", "9/month"]);
        assert_eq!(limits(&Profile::of_unknown(&plans(), 0)), ["5000/day"]);
    }

    /// An unreadable billing day must not end the customer's month.
    #[test]
    fn an_unreadable_billing_day_keeps_its_last_good_value() {
        let plans = plans();
        let (good, _) = Profile::read(&fields(&[("billing_day", "15")]), &plans, 0, None);
        assert_eq!((good.billing().day.get(), Profile::of_unknown(&plans, 0).billing().day.get()), (15, 1));
        for bad in ["0", "32", "1st", ""] {
            let (kept, errors) = Profile::read(&fields(&[("billing_day", bad)]), &plans, 0, Some(&good));
            assert_eq!((kept.billing().day.get(), kept.has_known_limits(), errors.len()), (15, true, 1), "{bad:?}");
        }
    }

    /// A month that silently begins on the 1st would start the counts of all teams over.
    #[test]
    fn an_unreadable_billing_date_above_is_not_taken_for_the_first() {
        let plans = plans();
        let team = Profile::of_unknown(&plans, 0);
        for (field, value) in [("billing_day", "32"), ("billing_month", "13"), ("timezone", "Mars")] {
            let (above, _) = Profile::read(&fields(&[(field, value)]), &plans, 0, None);
            assert!(!team.below(&Arc::new(above.clone())).has_known_limits(), "{field}");
            let (own, _) = Profile::read(
                &fields(&[("billing_day", "15"), ("billing_month", "4"), ("timezone", "UTC")]),
                &plans,
                0,
                None,
            );
            assert!(own.below(&Arc::new(above)).has_known_limits(), "{field} is the team's own");
        }
    }

    /// The language of a customer does not affect counting.
    #[test]
    fn an_unreadable_locale_changes_nothing() {
        let (profile, bad) = Profile::read(&fields(&[("locale", "vi_VN"), ("name", "")]), &plans(), 0, None);
        assert_eq!((profile.has_known_limits(), bad), (true, Vec::new()));
    }

    /// A typing error in the zone must not move a customer's day to UTC.
    #[test]
    fn an_unreadable_field_keeps_its_last_good_value() {
        let plans = plans();
        let (good, _) = Profile::read(&fields(&[("timezone", "Asia/Tokyo"), ("plan", "pro")]), &plans, 0, None);
        let (kept, bad) =
            Profile::read(&fields(&[("timezone", "Asia/Tokio"), ("plan", "free")]), &plans, 0, Some(&good));
        assert_eq!(kept.zone().name(), "Asia/Tokyo");
        assert_eq!((&**kept.plan(), kept.has_known_limits()), ("free", true));
        assert_eq!(bad[0].field, "timezone");
    }

    /// Events that are not judged are still counted, on days of the last good zone.
    #[test]
    fn a_zone_that_breaks_while_nothing_is_judged_is_kept() {
        let plans = plans();
        let (bad, _) = Profile::read(&fields(&[("timezone", "Asia/Tokyo"), ("plan", "gold")]), &plans, 0, None);
        assert!(!bad.has_known_limits());
        let (worse, _) = Profile::read(&fields(&[("timezone", "Mars"), ("plan", "gold")]), &plans, 0, Some(&bad));
        assert_eq!((worse.zone().name(), worse.has_known_limits()), ("Asia/Tokyo", false));
    }

    /// Without a last good value the default limit would raise alerts that nobody promised.
    #[test]
    fn without_a_last_good_value_nothing_is_judged() {
        for pair in [
            ("plan", "gold"),
            ("timezone", "Mars"),
            ("limit:requests", "1e3"),
            ("limit:requests", "0"),
            ("limit:requests", "600/hour 7/hour"),
            ("billing_day", "0"),
            ("thresholds", "0"),
        ] {
            let (profile, bad) = Profile::read(&fields(&[pair]), &plans(), 0, None);
            assert!(!profile.has_known_limits(), "{pair:?}");
            assert_eq!(bad.len(), 1, "{pair:?}");
        }
    }

    /// A team's day is that of its organization, unless it names another zone; a zone that can't be read is never UTC.
    #[test]
    fn zone_and_billing_date_are_those_of_the_nearest_level_with_one() {
        let read = |pairs: &[(&str, &str)]| Arc::new(Profile::read(&fields(pairs), &plans(), 1, None).0);
        let (tokyo, broken, silent) = (read(&[("timezone", "Asia/Tokyo")]), read(&[("timezone", "Mars")]), read(&[]));
        let own = read(&[("timezone", "Europe/Berlin"), ("billing_day", "15")]);
        let of = |profile: &Profile| (profile.zone().name(), profile.has_known_limits());
        assert_eq!(of(&silent.below(&Arc::new(silent.below(&tokyo)))), ("Asia/Tokyo", true));
        assert_eq!(of(&own.below(&tokyo)), ("Europe/Berlin", true));
        assert_eq!(of(&silent.below(&broken)), ("UTC", false));
        assert_eq!(of(&own.below(&broken)), ("Europe/Berlin", true));
        assert_eq!(silent.below(&own).billing().day.get(), 15);
    }

    /// The organization's alert of a month names the teams that used most in that month.
    #[test]
    fn a_level_is_counted_in_the_windows_of_those_above_it() {
        let above = Profile::read(&fields(&[("limit:requests", "9/month")]), &plans(), 0, None).0;
        let own = Profile::read(&fields(&[("limit:requests", "7/hour")]), &plans(), 1, None).0;
        let windows: Vec<Window> = own.below(&Arc::new(above)).windows_of(&Metric::default()).collect();
        assert_eq!(windows, [Window::Hour, Window::Day, Window::Month]);
    }

    /// A key without a plan must not get the limits of an organization.
    #[test]
    fn subjects_without_a_plan_have_that_of_their_level() {
        let of = |plans: &Plans| [0, 1, 2].map(|depth| Profile::of_unknown(plans, depth).plan().to_string());
        let slash = "/".parse().expect("legal");
        let by_level =
            |names: &[&str]| plans().by_level(slash, &names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(of(&by_level(&[]).expect("legal")), ["free", "none", "none"]);
        assert_eq!(of(&by_level(&["pro", "free"]).expect("legal")), ["pro", "free", "none"]);
        assert!(by_level(&["gold"]).is_err());
        assert_ne!(by_level(&["pro"]).expect("legal").fingerprint(), by_level(&[]).expect("legal").fingerprint());
    }
}
