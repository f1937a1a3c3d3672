//! The ends of the alerts of a quota, as they are stored beside the records of its alerts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Alert, AlertEnd, AlertId, RaisedRecord, ResolvedNotice, ResolvedScope, Subject, UnixMs};

/// Maximum number of withdrawn ends that are known of an alert. Each needs another limit or credit, and a contact that
/// is sent to only then.
const WITHDRAWN_MAX: usize = 10;

/// What was noticed of the end of one alert.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedEnd {
    /// Its end; `None` since a new crossing opened it again.
    #[serde(flatten)]
    pub end: Option<AlertEnd>,
    /// Which end of its quota covers it: 1 for the first that was raised. That happens once. A time would not tell
    /// their order if the clock is set back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_in: Option<u32>,
    /// The ids of the withdrawn ends that covered it, the newest last: an alert was open again before all contacts had
    /// heard them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub withdrawn_ends: Vec<String>,
    /// The same of the ends of its own incident.
    #[serde(default, skip_serializing_if = "is_default")]
    pub withdrawn_incident_ends: Vec<String>,
    /// Whether its next end is told to receivers with an incident for each alert once more.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_incident_open: bool,
}

impl NotedEnd {
    /// The ids of the withdrawn ends that covered it.
    pub fn withdrawn(&self, scope: ResolvedScope) -> &[String] {
        match scope {
            ResolvedScope::Quota => &self.withdrawn_ends,
            ResolvedScope::Alert => &self.withdrawn_incident_ends,
        }
    }
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

    /// The ids of the withdrawn ends that covered one of these alerts.
    pub fn withdrawn(&self, scope: ResolvedScope, alerts: &[AlertId]) -> BTreeSet<&str> {
        let noted = alerts.iter().filter_map(|alert| self.ends.get(alert));
        noted.flat_map(|noted| noted.withdrawn(scope)).map(String::as_str).collect()
    }

    /// Withdraws an end that was told too early: the next one tells these alerts again.
    pub fn withdraw(&mut self, ResolvedNotice { id, scope, alerts, .. }: &ResolvedNotice) {
        for alert in alerts {
            let noted = self.ends.entry(alert.clone()).or_default();
            let withdrawn = match scope {
                ResolvedScope::Quota => {
                    noted.told_in = None;
                    &mut noted.withdrawn_ends
                }
                ResolvedScope::Alert => {
                    noted.is_incident_open = true;
                    &mut noted.withdrawn_incident_ends
                }
            };
            withdrawn.push(id.clone());
            if withdrawn.len() > WITHDRAWN_MAX {
                withdrawn.remove(0);
            }
        }
    }
}

/// All alerts of a record, oldest first, each with its state at `now`. An end that nobody has noticed yet is known if
/// the period is over. An end after `now` was noticed by a clock that was ahead, and has not come.
pub fn stated(record: RaisedRecord, noted: &NotedEnds, now: UnixMs) -> Vec<Alert> {
    let mut alerts = record.into_alerts();
    let superseded: Vec<AlertEnd> = alerts.windows(2).map(|pair| pair[1].end_of_earlier()).collect();
    let superseded = superseded.into_iter().map(Some).chain([None]);
    for (alert, superseded) in alerts.iter_mut().zip(superseded) {
        let noted = noted.get(&alert.id).and_then(|noted| noted.end).filter(|end| end.at.0 <= now);
        alert.status = Some(noted.or(superseded).or_else(|| alert.end_by_reset(now)).into());
    }
    alerts
}
