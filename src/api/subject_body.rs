//! The body of `PUT /v1/subjects/{id}`: the settings as `GET` shows them.
//!
//! What `GET` shows beside the settings may be in the body too, so that a caller can change what it has got and send it
//! back. It can't be changed here: contacts and mutes have routes of their own.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::body;
use super::problem::Problem;
use crate::subjects::record::parse_timezone;
use crate::subjects::{Plans, SubjectRecord};
use crate::types::{BillingDay, Limits, Locale, Metric, Percent, percent};
use crate::views::SubjectView;

/// The member that names what can't be read.
const UNREADABLE: &str = "unreadable";

/// The settings. What is left out or `null` comes from the plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(super) struct SubjectBody {
    plan: Option<String>,
    timezone: Option<String>,
    billing_day: Option<BillingDay>,
    #[serde(default, deserialize_with = "body::limits")]
    limits: BTreeMap<Metric, Limits>,
    #[serde(default, deserialize_with = "body::thresholds")]
    thresholds: Option<Vec<Percent>>,
    locale: Option<Locale>,
    // Shown beside the settings: as `GET` shows them, or left out.
    subject: Option<Value>,
    contacts: Option<Value>,
    mute: Option<Value>,
    metric_mutes: Option<Value>,
    unreadable: Option<Value>,
}

impl SubjectBody {
    /// Whether there is anything for [`Self::check_shown`] to judge.
    pub(super) fn has_shown(&self) -> bool {
        self.shown().next().is_some()
    }

    /// Judges what is in the body beside the settings: it must be as the subject is `now` shown.
    pub(super) fn check_shown(&self, now: &SubjectView) -> Result<(), Problem> {
        let now = serde_json::to_value(now).map_err(|error| Problem::bad_request(error.to_string()))?;
        for (name, given) in self.shown() {
            if name == UNREADABLE && !is_nothing(given) {
                let problem = "unreadable: what can't be read would be removed: correct it in `limits` and the others, and \
                               leave `unreadable` out";
                return Err(Problem::bad_request(problem));
            }
            let is_as_shown = *given == now[name] || (is_nothing(given) && is_nothing(&now[name]));
            if !is_as_shown {
                let problem = format!("{name}: can't be changed here, it must be as GET shows it or be left out");
                return Err(Problem::bad_request(problem));
            }
        }
        Ok(())
    }

    fn shown(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        let Self { subject, contacts, mute, metric_mutes, unreadable, .. } = self;
        let shown = [
            ("subject", subject),
            ("contacts", contacts),
            ("mute", mute),
            ("metric_mutes", metric_mutes),
            (UNREADABLE, unreadable),
        ];
        shown.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)))
    }

    pub(super) fn into_record(self, plans: &Plans) -> Result<SubjectRecord, Problem> {
        let Self { plan, timezone, billing_day, limits, thresholds, locale, .. } = self;
        if let Some(plan) = plan.as_deref().filter(|plan| plans.get(plan).is_none()) {
            let problem = format!("plan: there is no plan {plan:?}, only {}", plans.names().join(", "));
            return Err(Problem::bad_request(problem));
        }
        let timezone = timezone.as_deref().map(parse_timezone).transpose();
        let timezone = timezone.map_err(|error| Problem::bad_request(format!("timezone: {error}")))?;
        let thresholds = thresholds.map(in_order).transpose()?;
        Ok(SubjectRecord { plan, timezone, limits, billing_day, thresholds, locale })
    }
}

/// Whether `GET` would leave this out.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

fn in_order(thresholds: Vec<Percent>) -> Result<Vec<Percent>, Problem> {
    let of = |problem: String| Problem::bad_request(format!("thresholds: {problem}"));
    if thresholds.is_empty() {
        return Err(of("is an empty list, leave it out for those of the plan".to_owned()));
    }
    percent::ascending(thresholds).map_err(|error| of(error.to_string()))
}
