//! CloudEvents 1.0 in the structured content mode of its HTTP binding. `data` is that of the standard body.

use serde::Serialize;
use serde_json::{Value, json};

use crate::channels::channel::AlertPurpose;
use crate::channels::webhook::payload::{self, AlertData, ChallengeData};
use crate::types::text::is_control;
use crate::types::{Alert, Subject, UnixMs};

/// Who tells. Ids are one of a kind whichever deployment raised them, so all have one source.
const SOURCE: &str = "/quotabell";

#[derive(Serialize)]
struct CloudEvent<'a, D> {
    specversion: &'static str,
    id: &'a str,
    source: &'static str,
    r#type: &'static str,
    subject: String,
    time: String,
    datacontenttype: &'static str,
    data: D,
}

/// Writes the event of an alert. The id is the alert's: a receiver drops a repetition by source and id.
pub(super) fn alert(alert: &Alert, purpose: AlertPurpose) -> String {
    let (kind, time) = (payload::type_of(purpose), alert.raised_at_ms);
    event(alert.id.as_str(), kind, &alert.subject, time, AlertData::new(alert, purpose))
}

/// Writes the event that asks a receiver for consent.
pub(super) fn challenge(id: &str, subject: &Subject, challenge: &str, now: UnixMs) -> String {
    event(id, payload::VERIFICATION, subject, now, ChallengeData::new(subject, challenge))
}

/// Writes the event of a notice, from the standard body of it.
pub(super) fn notice(id: &str, standard: &str) -> String {
    let mut event: Value = serde_json::from_str(standard).expect("a body is JSON");
    let (kind, time, data) = (event["type"].take(), event["timestamp"].take(), event["data"].take());
    let subject = data.get("subject").cloned();
    let mut event = json!({"specversion": "1.0", "id": id, "source": SOURCE, "type": kind, "time": time});
    if let Some(subject) = subject.as_ref().and_then(Value::as_str) {
        event["subject"] = subject.replace(is_control, "\u{fffd}").into();
    }
    event["datacontenttype"] = "application/json".into();
    event["data"] = data;
    event.to_string()
}

fn event(id: &str, kind: &'static str, subject: &Subject, time: UnixMs, data: impl Serialize) -> String {
    let event = CloudEvent {
        specversion: "1.0",
        id,
        source: SOURCE,
        r#type: kind,
        // An attribute holds no control characters; `data` has the subject as it is.
        subject: subject.as_str().replace(is_control, "\u{fffd}"),
        time: time.to_string(),
        datacontenttype: "application/json",
        data,
    };
    serde_json::to_string(&event).expect("strings and finite numbers serialise")
}
