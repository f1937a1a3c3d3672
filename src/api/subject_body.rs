//! The body of `PUT /v1/subjects/{id}`: the settings as `GET` shows them, without the contacts, which have routes of
//! their own.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::body;
use super::problem::Problem;
use crate::subjects::record::parse_timezone;
use crate::subjects::{Plans, SubjectRecord};
use crate::types::{BillingDay, Limits, Locale, Metric, Percent, percent};

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
}

impl SubjectBody {
    pub(super) fn into_record(self, plans: &Plans) -> Result<SubjectRecord, Problem> {
        let Self { plan, timezone, billing_day, limits, thresholds, locale } = self;
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

fn in_order(thresholds: Vec<Percent>) -> Result<Vec<Percent>, Problem> {
    let of = |problem: String| Problem::bad_request(format!("thresholds: {problem}"));
    if thresholds.is_empty() {
        return Err(of("is an empty list, leave it out for those of the plan".to_owned()));
    }
    percent::ascending(thresholds).map_err(|error| of(error.to_string()))
}
