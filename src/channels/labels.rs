//! What people read beside the facts of a quota: the name of the subject, the metric's name and unit, and links.

use minijinja::{Value, context};

use super::sample::{SAMPLE_AT, Sample};
use crate::subjects::Plans;
use crate::types::{DisplayName, MetricFormat, Percent, QuotaNotification};

/// The names, the unit and the links of a message about a quota.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// The display name of the subject.
    pub subject_name: Option<DisplayName>,
    /// The name, unit and scale of the metric.
    pub format: MetricFormat,
    /// The page of the plan on which the customer gets more.
    pub upgrade_url: Option<String>,
    /// The page of the plan on which the customer sees its usage.
    pub usage_url: Option<String>,
}

impl Labels {
    /// Those of a notification, by the present settings of its plan and metric.
    pub fn new<'a>(
        plans: &Plans,
        notification: impl Into<QuotaNotification<'a>>,
        subject_name: Option<DisplayName>,
    ) -> Self {
        let notification = notification.into();
        let (subject, metric) = (notification.subject(), notification.metric());
        let plan = plans.get(notification.plan());
        let [upgrade_url, usage_url] = match &plan {
            Some(plan) => [&plan.upgrade_url, &plan.usage_url].map(|link| link.as_ref()?.url_of(subject, metric)),
            None => [None, None],
        };
        Self { subject_name, format: plans.format_of(metric), upgrade_url, usage_url }
    }

    /// Those of a sample.
    pub fn of_sample(plans: &Plans, sample: &Sample) -> Self {
        let percent = Percent::new(100).expect("a legal percentage");
        Self::new(plans, &sample.alert(percent, SAMPLE_AT), sample.subject_name.clone())
    }

    /// A sample with everything, to check templates with.
    pub(super) fn sample() -> Self {
        let name = |text: &str| text.parse().ok();
        Self {
            subject_name: name("Example \"A & B\" Inc."),
            format: MetricFormat { name: name("API spend"), unit: name("USD"), scale: 2 },
            upgrade_url: Some("https://example.com/upgrade?customer=example-customer&metric=requests".to_owned()),
            usage_url: Some("https://example.com/usage/example-customer".to_owned()),
        }
    }

    /// The variables that the templates of all notifications about a quota have. They are documented in
    /// `templates/alert.txt`. `name` converts names for the reader.
    pub(super) fn variables<'a>(
        &self,
        notification: impl Into<QuotaNotification<'a>>,
        name: impl Fn(&str) -> String,
    ) -> Value {
        let Self { subject_name, format, upgrade_url, usage_url } = self;
        let notification = notification.into();
        let metric = notification.metric().as_str();
        let subject = name(notification.subject().as_str());
        let subject_name = subject_name.as_ref().map(|of| name(of.as_str()));
        context! {
            id => notification.id(),
            subject => subject.as_str(),
            metric => name(metric),
            window => notification.window().as_str(),
            plan => name(notification.plan()),
            timezone => name(notification.timezone()),
            subject_text => subject_name.as_ref().map_or_else(|| subject.clone(), |name| format!("{name} ({subject})")),
            subject_name => subject_name.unwrap_or_default(),
            metric_name => name(format.name.as_ref().map_or(metric, DisplayName::as_str)),
            unit => format.unit.as_ref().map(|unit| name(unit.as_str())).unwrap_or_default(),
            scale => format.scale,
            upgrade_url => upgrade_url.as_deref().unwrap_or_default(),
            usage_url => usage_url.as_deref().unwrap_or_default(),
        }
    }
}
