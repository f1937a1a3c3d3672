//! The notice that alerts of a quota have ended.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::alert::{digest_of, period_id_of};
use super::text_form::text_enum;
use super::timestamp::Rfc3339;
use super::{Alert, AlertEnd, AlertId, EndReason, Metric, Period, Subject, Threshold, Window};

text_enum! {
    /// What has ended.
    pub enum ResolvedScope {
        /// The last open alert of a subject, metric and period: for contacts that ask.
        Quota = "quota",
        /// One alert: for receivers with an incident for each.
        Alert = "alert",
    }
}

/// The end of alerts, fixed when it is raised. Also its JSON form in Redis. If they were open again meanwhile, the
/// message has their last end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResolvedNotice {
    /// The id: `resolved_` and 32 hex digits, the same for the same alerts until they are open again before it is sent.
    #[schemars(regex(pattern = "^resolved_[0-9a-f]{32}$"))]
    pub id: String,
    /// What has ended.
    pub scope: ResolvedScope,
    /// The subject whose quota it is.
    pub subject: Subject,
    /// The metric.
    pub metric: Metric,
    /// The window of the limit.
    pub window: Window,
    /// The period.
    pub period: Period,
    /// The alerts that have ended.
    #[schemars(length(min = 1))]
    pub alerts: Vec<AlertId>,
    /// The thresholds that had been reached, in the order of their counts.
    #[schemars(length(min = 1))]
    pub thresholds: Vec<Threshold>,
    /// Why the last of them has ended.
    pub reason: EndReason,
    /// When.
    pub resolved_at: Rfc3339,
    /// Units used in the period.
    pub used: u64,
    /// The limit, grants included, units; null if there is none any more.
    pub limit: Option<u64>,
    /// The plan in force.
    pub plan: String,
    /// The subject's time zone, an IANA name.
    pub timezone: String,
    /// When the period ends; null for a total.
    pub resets_at: Option<Rfc3339>,
    /// When the notice was raised, server time.
    pub raised_at: Rfc3339,
}

/// The present state of the quota whose alerts have ended.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct QuotaNow<'a> {
    pub used: u64,
    /// `None` if the quota has no limit any more.
    pub limit: Option<u64>,
    pub plan: &'a str,
    pub timezone: &'a str,
    pub resets_at: Option<Rfc3339>,
    pub now: Rfc3339,
}

impl ResolvedNotice {
    /// The notice that these alerts of one quota have ended; `None` without alerts.
    pub fn new(scope: ResolvedScope, alerts: &[&Alert], end: AlertEnd, quota: QuotaNow<'_>) -> Option<Self> {
        let mut ascending = alerts.to_vec();
        ascending.sort_by_key(|alert| (alert.threshold_units, alert.threshold));
        let last = *ascending.last()?;
        let mut thresholds: Vec<Threshold> = Vec::new();
        for alert in &ascending {
            if !thresholds.contains(&alert.threshold) {
                thresholds.push(alert.threshold);
            }
        }
        let mut ids: Vec<AlertId> = ascending.iter().map(|alert| alert.id.clone()).collect();
        ids.sort_unstable();
        let QuotaNow { used, limit, plan, timezone, resets_at, now } = quota;
        let Alert { subject, metric, window, period, .. } = last.clone();
        Some(Self {
            id: Self::id_of(scope, &ids, &BTreeSet::new()),
            scope,
            subject,
            metric,
            window,
            period,
            alerts: ids,
            thresholds,
            reason: end.reason,
            resolved_at: end.at,
            used,
            limit,
            plan: plan.to_owned(),
            timezone: timezone.to_owned(),
            resets_at,
            raised_at: now,
        })
    }

    /// The id of the end of these alerts, given the ids of the withdrawn ends of one of them.
    pub fn id_of(scope: ResolvedScope, alerts: &[AlertId], withdrawn: &BTreeSet<&str>) -> String {
        let parts = std::iter::once(scope.as_str()).chain(alerts.iter().map(AlertId::as_str));
        format!("resolved_{}", digest_of(&parts.chain(withdrawn.iter().copied()).collect::<Vec<_>>()))
    }

    /// The same notice in place of withdrawn ones.
    #[must_use]
    pub fn instead_of(self, withdrawn: &BTreeSet<&str>) -> Self {
        Self { id: Self::id_of(self.scope, &self.alerts, withdrawn), ..self }
    }

    /// [`Alert::period_id`] of its alerts.
    pub fn period_id(&self) -> String {
        period_id_of(&self.subject, &self.metric, self.period)
    }

    /// The highest threshold that had been reached.
    pub fn highest(&self) -> Threshold {
        *self.thresholds.last().expect("a notice has at least one")
    }

    /// The alert, if it is the end of one.
    pub fn only_alert(&self) -> Option<&AlertId> {
        self.alerts.first().filter(|_| self.scope == ResolvedScope::Alert)
    }
}
