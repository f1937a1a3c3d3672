//! PagerDuty's Events API, version 2.
//!
//! <https://developer.pagerduty.com/docs/send-alert-event>: a summary has at most 1,024 characters, a dedup_key 255.
//! The routing key stands in the body, and nothing is signed.

use serde_json::json;

use super::alert_text::{AlertText, Severity};
use crate::channels::channel::AlertPurpose;
use crate::channels::notice_text::NoticeText;
use crate::channels::webhook::payload::AlertData;
use crate::types::Alert;
use crate::types::text::printable;

/// The most characters of a summary.
const SUMMARY_MAX: usize = 1024;

/// Writes the event. Repetitions of one alert have one `dedup_key`, and so are one incident.
pub(super) fn alert(alert: &Alert, purpose: AlertPurpose, routing_key: &str) -> String {
    let text = AlertText::from_alert(alert, purpose, str::to_owned);
    let severity = match Severity::from_alert(alert, purpose) {
        Severity::Test => "info",
        Severity::Warning => "warning",
        Severity::Exceeded => "error",
    };
    json!({
        "routing_key": routing_key,
        "event_action": "trigger",
        "dedup_key": alert.id,
        "client": "quotabell",
        "payload": {
            "summary": text.sentence,
            "source": "quotabell",
            "severity": severity,
            "timestamp": alert.raised_at_ms.to_string(),
            "component": printable(alert.metric.as_str()),
            "group": printable(alert.subject.as_str()),
            "class": "quota",
            "custom_details": AlertData::new(alert, purpose),
        },
    })
    .to_string()
}

/// Writes a notice: an incident of its own.
pub(super) fn notice(id: &str, NoticeText { heading, text }: &NoticeText, routing_key: &str) -> String {
    let summary: String = heading.chars().take(SUMMARY_MAX).collect();
    json!({
        "routing_key": routing_key,
        "event_action": "trigger",
        "dedup_key": id,
        "client": "quotabell",
        "payload": {
            "summary": summary,
            "source": "quotabell",
            "severity": "warning",
            "class": "delivery",
            "custom_details": {"text": text},
        },
    })
    .to_string()
}
