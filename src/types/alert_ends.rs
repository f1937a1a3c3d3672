//! The ends of the alerts of a quota, as they are stored beside the records of its alerts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Alert, AlertEnd, AlertId, RaisedRecord, ResolvedScope, Subject, UnixMs};

/// What was noticed of the end of one alert.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedEnd {
    /// Its end; `None` since a new crossing opened it again.
    #[serde(flatten)]
    pub end: Option<AlertEnd>,
    /// Which end of its quota covers it: 1 for the first that was raised. That happens once. A time would not tell
    /// their order if the clock is set back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_in: Option<u32>,
    /// How often that end was withdrawn: an alert was open again before it was sent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub withdrawn: u32,
    /// The same of the end of its own incident.
    #[serde(default, skip_serializing_if = "is_default")]
    pub incident_withdrawn: u32,
    /// Whether its next end is told to receivers with an incident for each alert once more.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_incident_open: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The ends of the alerts of a subject, metric and period, as they are stored beside their records. An alert without an
/// entry has never ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertEnds {
    /// The subject of the alerts.
    #[serde(rename = "ends_of")]
    pub subject: Subject,
    /// By alert.
    pub ends: NotedEnds,
}

/// What was noticed of the ends of alerts.
pub type NotedEnds = BTreeMap<AlertId, NotedEnd>;

impl AlertEnds {
    /// No alert has ended.
    pub const fn none(subject: Subject) -> Self {
        Self { subject, ends: BTreeMap::new() }
    }

    /// The end of an alert.
    pub fn end_of(&self, alert: &AlertId) -> Option<AlertEnd> {
        self.ends.get(alert)?.end
    }

    /// The number of the next end of the quota.
    pub fn next(&self) -> u32 {
        self.ends.values().filter_map(|noted| noted.told_in).max().unwrap_or(0).saturating_add(1)
    }

    /// How often an end of these alerts was withdrawn.
    pub fn round_of<'a>(&self, scope: ResolvedScope, alerts: impl IntoIterator<Item = &'a AlertId>) -> u32 {
        let noted = alerts.into_iter().filter_map(|alert| self.ends.get(alert));
        let round = |noted: &NotedEnd| match scope {
            ResolvedScope::Quota => noted.withdrawn,
            ResolvedScope::Alert => noted.incident_withdrawn,
        };
        noted.map(round).max().unwrap_or(0)
    }

    /// Withdraws an end that was told too early: the next one tells these alerts again.
    pub fn withdraw(&mut self, scope: ResolvedScope, alerts: &[AlertId]) {
        let round = self.round_of(scope, alerts).saturating_add(1);
        for alert in alerts {
            let noted = self.ends.entry(alert.clone()).or_default();
            match scope {
                ResolvedScope::Quota => (noted.told_in, noted.withdrawn) = (None, round),
                ResolvedScope::Alert => (noted.is_incident_open, noted.incident_withdrawn) = (true, round),
            }
        }
    }
}

/// All alerts of a record, oldest first, each with its state at `now`. An end that nobody has noticed yet is known if
/// the period is over.
pub fn stated(record: RaisedRecord, noted: &NotedEnds, now: UnixMs) -> Vec<Alert> {
    let mut alerts = record.into_alerts();
    let superseded: Vec<AlertEnd> = alerts.windows(2).map(|pair| pair[1].end_of_earlier()).collect();
    let superseded = superseded.into_iter().map(Some).chain([None]);
    for (alert, superseded) in alerts.iter_mut().zip(superseded) {
        let noted = noted.get(&alert.id).and_then(|noted| noted.end);
        alert.status = Some(noted.or(superseded).or_else(|| alert.end_by_reset(now)).into());
    }
    alerts
}
