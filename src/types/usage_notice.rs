//! Notices about usage that no threshold raises: a limit that will be reached, usage far above the usual,
//! and none at all.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::alert::{digest_of, period_id_of};
use super::text_form::text_enum;
use super::timestamp::Rfc3339;
use super::{DeploymentId, Metric, Period, PeriodSpan, Subject, UnixMs, Window};

text_enum! {
    /// What a notice of usage says.
    pub enum UsageNoticeKind {
        /// A limit will probably be reached in its period.
        Forecast = "forecast",
        /// Usage is far above the usual.
        Spike = "spike",
        /// A subject that used something on most days uses nothing.
        Silence = "silence",
    }
}

impl UsageNoticeKind {
    /// The `type` of its webhook.
    pub const fn webhook_type(self) -> &'static str {
        match self {
            Self::Forecast => "quota.forecast",
            Self::Spike => "quota.spike",
            Self::Silence => "quota.silence",
        }
    }
}

/// How long after it was raised a silence is told: the period in which it is noticed says nothing about it.
const SILENCE_TOLD_WITHIN_MS: i64 = 2 * 86_400_000;

/// A notice of usage as it is raised. Also its JSON form in Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageNotice {
    /// The id: its kind and 32 hex digits, the same for the same period and limit.
    #[schemars(regex(pattern = "^(forecast|spike|silence)_[0-9a-f]{32}$"))]
    pub id: String,
    /// What it says.
    pub kind: UsageNoticeKind,
    /// The subject.
    pub subject: Subject,
    /// The metric.
    pub metric: Metric,
    /// The window of the limit; a day for a spike or a silence.
    pub window: Window,
    /// The period.
    pub period: Period,
    /// Units used in the period.
    pub used: u64,
    /// The limit, grants included, units; absent for a spike or a silence of a subject without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The plan in force.
    pub plan: String,
    /// The subject's time zone, an IANA name.
    pub timezone: String,
    /// The end of the period.
    pub resets_at: Rfc3339,
    /// When the notice was raised, server time.
    pub raised_at: Rfc3339,
    /// Of reaching the limit, percent; only of a forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub probability_percent: Option<u8>,
    /// When it will be reached; absent if that is after the period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_at: Option<Rfc3339>,
    /// In nine of ten cases it is reached later than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest_at: Option<Rfc3339>,
    /// In nine of ten cases it is reached earlier than this; absent if that is after the period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_at: Option<Rfc3339>,
    /// Units that are usual in the period by now; 0 for a silence.
    pub usual_by_now: u64,
    /// The end of the last hour with usage; only of a silence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Rfc3339>,
    /// Units of a usual day; only of a silence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual_per_day: Option<u64>,
}

/// Usage so far as a multiple of the usual by now, with one decimal.
pub fn times_usual(used: u64, usual_by_now: u64) -> f64 {
    (used as f64 / usual_by_now.max(1) as f64 * 10.0).round() / 10.0
}

/// What a notice is about.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct NoticeTopic<'a> {
    pub subject: &'a Subject,
    pub metric: &'a Metric,
    pub span: PeriodSpan,
    /// The plan in force.
    pub plan: &'a str,
    /// The subject's time zone, an IANA name.
    pub timezone: &'a str,
}

impl UsageNotice {
    /// A notice of this kind. The caller sets the numbers of the kind.
    pub fn new(id: String, kind: UsageNoticeKind, topic: NoticeTopic<'_>, raised_at: UnixMs) -> Self {
        let NoticeTopic { subject, metric, span, plan, timezone } = topic;
        Self {
            id,
            kind,
            subject: subject.clone(),
            metric: metric.clone(),
            window: span.period.window(),
            period: span.period,
            used: 0,
            limit: None,
            plan: plan.to_owned(),
            timezone: timezone.to_owned(),
            resets_at: Rfc3339(span.end),
            raised_at: Rfc3339(raised_at),
            probability_percent: None,
            expected_at: None,
            earliest_at: None,
            latest_at: None,
            usual_by_now: 0,
            silent_since: None,
            usual_per_day: None,
        }
    }

    /// The id of the only notice of this kind about a limit in a period; for a silence, after this last day with usage.
    pub fn id_of(
        instance: &DeploymentId,
        kind: UsageNoticeKind,
        (subject, metric, period): (&Subject, &Metric, Period),
        limit: Option<u64>,
    ) -> String {
        let limit = limit.map(|limit| limit.to_string()).unwrap_or_default();
        let period = period.to_string();
        let digest = digest_of(&[instance.as_str(), subject.as_str(), metric.as_str(), &period, &limit]);
        format!("{kind}_{digest}")
    }

    /// After this it is not sent, server time.
    pub const fn valid_until(&self) -> UnixMs {
        match self.kind {
            UsageNoticeKind::Forecast | UsageNoticeKind::Spike => self.resets_at.0,
            UsageNoticeKind::Silence => self.raised_at.0.plus(SILENCE_TOLD_WITHIN_MS),
        }
    }

    /// [`Alert::period_id`](super::Alert::period_id) of alerts about its period.
    pub fn period_id(&self) -> String {
        period_id_of(&self.subject, &self.metric, self.period)
    }

    /// [`times_usual`] of its usage.
    pub fn times_usual(&self) -> f64 {
        times_usual(self.used, self.usual_by_now)
    }

    /// The probability, from 0 to 1.
    pub fn probability(&self) -> Option<f64> {
        self.probability_percent.map(|percent| f64::from(percent) / 100.0)
    }
}
