//! The log of alerts: each with what raised it and how each of its deliveries ended.

use std::collections::HashMap;

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::outbox::alert_log::months;
use crate::redis_client::Partition;
use crate::subjects::Plans;
use crate::types::timestamp::Rfc3339;
use crate::types::{AlertStatus, Subject, UnixMs};

/// Number of entries per read.
const ENTRIES_AT_ONCE: usize = 1_000;

/// A raised alert, and the outcomes of its deliveries.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LoggedAlert {
    /// The alert as it was raised, and the unit of its metric today.
    #[schemars(with = "crate::types::Alert")]
    pub alert: Value,
    /// Whether it had ended, and why, as it was last noticed.
    #[serde(flatten)]
    pub status: AlertStatus,
    /// How its deliveries ended, in the order of their ends. A pending one is missing.
    pub deliveries: Vec<LoggedDelivery>,
}

/// How a delivery ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LoggedDelivery {
    /// Its id.
    pub id: String,
    /// Its channel: `email`, `webhook` or `none`.
    pub channel: String,
    /// The contact that it was for; `none` without one.
    pub contact_id: String,
    /// The mail server's or the receiver's queue.
    pub destination: String,
    /// `delivered`, `dead`, `muted`, `expired` or `cancelled`.
    pub state: String,
    /// Number of attempts.
    pub attempts: u64,
    /// What the receiver or the network said in the last attempt that failed.
    pub last_error: Option<String>,
    /// When it ended, server time.
    pub ended_at: Rfc3339,
}

/// Which alerts are wanted.
#[derive(Debug, Clone)]
pub struct LogFilter {
    /// Raised at this time or later.
    pub since: UnixMs,
    /// Raised before this time.
    pub until: UnixMs,
    /// Only this subject's.
    pub subject: Option<Subject>,
}

/// The fields of an entry: names and values in turn.
type Fields = Vec<(String, String)>;

/// The alerts of a partition that pass the filter, in the order of their raising.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn of_partition(
    Partition { client, keys }: &Partition,
    filter: &LogFilter,
    plans: &Plans,
) -> RedisResult<Vec<LoggedAlert>> {
    let (mut alerts, mut positions, mut states) = (Vec::new(), HashMap::new(), HashMap::new());
    let now = client.server_time().await?;
    for month in months(now).into_iter().filter(|month| month.end() > filter.since) {
        let mut from = "-".to_owned();
        loop {
            let mut command = redis::cmd("XRANGE");
            command.arg(keys.alert_log(month)).arg(&from).arg("+").arg("COUNT").arg(ENTRIES_AT_ONCE);
            let entries: Vec<(String, Fields)> = client.query(&command).await?;
            let Some((last, _)) = entries.last() else { break };
            from = format!("({last}");
            for (_, fields) in &entries {
                add(fields, filter, &mut alerts, &mut positions);
                states.extend(state(fields));
            }
        }
    }
    // The end of an alert may be noticed before the alert leaves the outbox.
    for (alert, status) in states {
        if let Some(at) = positions.get(&alert) {
            alerts[*at].status = status;
        }
    }
    alerts.iter_mut().for_each(|logged| add_unit(&mut logged.alert, plans));
    Ok(alerts)
}

/// Adds the unit and the scale of its metric, as they are now.
fn add_unit(alert: &mut Value, plans: &Plans) {
    let metric = alert["metric"].as_str().and_then(|metric| metric.parse().ok());
    let unit = metric.and_then(|metric| serde_json::to_value(plans.format_of(&metric).unit()).ok());
    if let (Some(alert), Some(Value::Object(unit))) = (alert.as_object_mut(), unit) {
        alert.extend(unit);
    }
}

/// The state of an alert that an entry tells.
fn state(fields: &Fields) -> Option<(String, AlertStatus)> {
    let field = |name: &str| fields.iter().find(|(named, _)| named == name).map(|(_, value)| value);
    Some((field("alert_id")?.clone(), serde_json::from_str(field("state")?).ok()?))
}

/// Adds what an entry tells. An end without its alert is that of one outside the filter.
fn add(
    fields: &Fields,
    filter: &LogFilter,
    alerts: &mut Vec<LoggedAlert>,
    positions: &mut HashMap<String, usize>,
) -> Option<()> {
    let field = |name: &str| fields.iter().find(|(named, _)| named == name).map(|(_, value)| value.clone());
    let (alert_id, at) = (field("alert_id")?, UnixMs(field("at_ms")?.parse().ok()?));
    match field("alert") {
        Some(json) => {
            let alert: Value = serde_json::from_str(&json).ok()?;
            let raised: UnixMs = alert["raised_at"].as_str()?.parse().ok()?;
            let is_wanted = filter.subject.as_ref().is_none_or(|wanted| alert["subject"] == wanted.as_str());
            if is_wanted && (filter.since..filter.until).contains(&raised) {
                positions.insert(alert_id, alerts.len());
                alerts.push(LoggedAlert { alert, status: None.into(), deliveries: Vec::new() });
            }
        }
        None => {
            let alert = &mut alerts[*positions.get(&alert_id)?];
            let id = field("delivery")?;
            // A dead delivery that was replayed ends once more: the last end counts.
            alert.deliveries.retain(|earlier| earlier.id != id);
            alert.deliveries.push(LoggedDelivery {
                id,
                channel: field("channel")?,
                contact_id: field("contact_id")?,
                destination: field("destination")?,
                state: field("state")?,
                attempts: field("attempts")?.parse().ok()?,
                last_error: field("last_error").filter(|error| !error.is_empty()),
                ended_at: Rfc3339(at),
            });
        }
    }
    Some(())
}
