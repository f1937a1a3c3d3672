//! The body of `PUT /v1/subjects/{id}`: the settings as `GET` shows them.
//!
//! What `GET` shows beside the settings may be in the body too, so that a caller can change what it has got and send it
//! back. It can't be changed here: contacts and mutes have routes of their own.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::problem::Problem;
use crate::actions::subject_patch::{OtherSettings, SubjectPatch};
use crate::subjects::{Plans, SubjectRecord};
use crate::types::threshold::THRESHOLDS_MAX;
use crate::types::{BillingDay, BillingMonth, DisplayName, Limits, Locale, Metric, Threshold};
use crate::views::SubjectView;

/// The member that names what can't be read.
const UNREADABLE: &str = "unreadable";

/// The settings. What is left out or `null` comes from the plan.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
#[schemars(rename = "SubjectSettings")]
pub(super) struct SubjectBody {
    /// One of the configured plans.
    plan: Option<String>,
    /// An IANA time zone.
    timezone: Option<String>,
    /// The day of the month on which its months begin.
    billing_day: Option<BillingDay>,
    /// The month in which its years begin, and from which its quarters are counted.
    billing_month: Option<BillingMonth>,
    /// Those of a metric replace all that the plan has for it. A number is a limit a day.
    limits: Option<BTreeMap<Metric, Limits>>,
    /// Thresholds that replace the plan's.
    #[schemars(length(min = 1, max = THRESHOLDS_MAX), extend("uniqueItems" = true))]
    thresholds: Option<Vec<Threshold>>,
    /// A language tag (BCP 47): the language of its mails.
    locale: Option<Locale>,
    /// Its name in texts, beside the id.
    name: Option<DisplayName>,
    /// As `GET` shows it, or left out.
    #[schemars(with = "Option<String>")]
    subject: Option<Value>,
    /// As `GET` shows them, or left out: they have routes of their own.
    #[schemars(with = "Option<Vec<Map<String, Value>>>")]
    contacts: Option<Value>,
    /// As `GET` shows it, or left out: it has a route of its own.
    #[schemars(with = "Option<Map<String, Value>>")]
    mute: Option<Value>,
    /// As `GET` shows them, or left out.
    #[schemars(with = "Option<Map<String, Value>>")]
    metric_mutes: Option<Value>,
    /// Left out, or empty: the PUT would remove these values.
    #[schemars(with = "Option<Vec<Map<String, Value>>>", length(max = 0))]
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
                let problem = "unreadable: the PUT would remove these values: correct them in `limits` and the other \
                               fields, and leave `unreadable` out";
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

    /// The change that replaces all settings by these.
    pub(super) fn into_patch(self, plans: &Plans) -> Result<SubjectPatch, Problem> {
        let Self { plan, timezone, billing_day, billing_month, limits, thresholds, locale, name, .. } = self;
        let limits = limits.unwrap_or_default();
        let set = SubjectRecord { plan, timezone, limits, billing_day, billing_month, thresholds, locale, name };
        let patch = SubjectPatch { set, others: OtherSettings::ClearAll, ..SubjectPatch::default() };
        patch.checked(plans).map_err(Problem::bad_request)
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
