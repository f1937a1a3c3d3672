//! Samples with which the templates are checked: every failure, every notice, and a page with everything.

use minijinja::{Value, context};
use serde_json::json;

use super::notice::{PortalFailure, PortalNotice};
use crate::channels::Sample;
use crate::html::environment::shown;
use crate::types::timestamp::Rfc3339;
use crate::types::{Alert, Channel, ContactId, DeliveryState, MetricFormat, Threshold};
use crate::views::portal::{PortalAlertView, PortalContactState, PortalContactView, PortalDeliveryView};

/// What pages are rendered from.
pub(super) fn contents() -> Vec<Value> {
    let failures = PortalFailure::ALL.into_iter().map(|failure| context! { failure => failure.as_str(), up => "../" });
    let notices = PortalNotice::ALL.into_iter().map(|notice| content(&filled(), Some(notice)));
    failures.chain(notices).chain([content(&empty(), None)]).collect()
}

fn content((view, charts): &(serde_json::Value, serde_json::Value), told: Option<PortalNotice>) -> Value {
    context! {
        failure => (), up => "../", view => shown(view), charts => shown(charts),
        secret => told.map(|_| "whsec_x"), may_change => told.is_some(), return_url => told.map(|_| "https://a.test/"),
        expires_at => "2026-11-21T08:37:00.000Z", channels => shown(&Channel::SENDING),
        told => told.map(PortalNotice::as_str), is_fault => false,
    }
}

fn empty() -> (serde_json::Value, serde_json::Value) {
    let view = json!({
        "subject": "alice", "name": null, "timezone": "UTC", "metrics": [], "history": [], "alerts": [],
        "contacts": [], "read_at": "2026-11-21T08:37:00.000Z",
    });
    (view, json!([]))
}

fn filled() -> (serde_json::Value, serde_json::Value) {
    let at = "2026-11-21T08:37:00.000Z";
    let read_at = at.parse().expect("a time");
    let format = json!({"name": "API spend", "unit": "USD", "scale": 2});
    let forecast = |state: &str| json!({"state": state, "expected_at": at, "earliest_at": at, "latest_at": at});
    let window = |window: &str, more: serde_json::Value| {
        let mut value = json!({
            "window": window, "period": "2026-11-21", "starts_at": at, "resets_at": at, "used": 400, "limit": 500,
            "used_percent": 80.0, "alerts": [], "pace": 500,
        });
        value
            .as_object_mut()
            .into_iter()
            .for_each(|fields| fields.extend(more.as_object().cloned().unwrap_or_default()));
        value
    };
    let windows = ["hour", "day", "week", "month", "quarter", "year"].map(|name| window(name, json!({})));
    let states = ["unknown", "unlikely", "possible", "likely", "reached"];
    let forecasts = states.map(|state| window("day", json!({"forecast": forecast(state)})));
    let coarse = json!({"forecast": {"state": "likely", "probability": 0.9}});
    let none = json!({"limit": null, "used": null, "used_percent": null, "resets_at": null, "pace": null});
    let empty = json!({"limit": 0, "used": 0, "used_percent": null, "forecast": {"state": "unknown"}});
    let rest = [window("day", coarse), window("total", none), window("total", empty)];
    let windows: Vec<_> = windows.into_iter().chain(forecasts).chain(rest).collect();
    let deliveries = DeliveryState::ALL.map(|state| PortalDeliveryView { address: "a@b.test".to_owned(), state });
    let thresholds = ["80", "used:9", "remaining:9"].map(|threshold| threshold.parse().expect("a threshold"));
    let alert = |(at_most, threshold): (usize, Threshold)| PortalAlertView {
        alert: Alert { status: Some(None.into()), ..Sample::example().alert(threshold, read_at) },
        format: MetricFormat { name: "API spend".parse().ok(), unit: "USD".parse().ok(), scale: 2 },
        deliveries: deliveries.iter().take(at_most * 3).cloned().collect(),
    };
    let contact = |(state, muted_until, here): (PortalContactState, Option<Rfc3339>, bool)| PortalContactView {
        id: ContactId::from_stored("c_1"),
        channel: Channel::SENDING[0],
        address: "a@b.test".to_owned(),
        state,
        muted_until,
        muted_here: here,
        thresholds: "all".to_owned(),
        added_by_subject: here,
    };
    let contacts = PortalContactState::ALL.map(|state| (state, None, true));
    let contacts = contacts.into_iter().chain([(PortalContactState::Muted, Some(Rfc3339(read_at)), false)]);
    let view = json!({
        "subject": "alice", "name": "Alice", "timezone": "UTC",
        "metrics": [{"metric": "cost", "format": format, "windows": windows}], "history": [],
        "alerts": thresholds.into_iter().enumerate().map(alert).collect::<Vec<_>>(),
        "contacts": contacts.map(contact).collect::<Vec<_>>(), "read_at": at,
    });
    let bar = json!({"label": "2026-11-21", "value": 400, "x": 0, "y": 0, "width": 9, "height": 9});
    let chart = |limit: Option<u64>| {
        json!({"name": "API spend", "format": format, "limit": limit,
            "chart": {"width": 900, "height": 120, "bars": [bar], "limit_y": limit}})
    };
    (view, json!([chart(Some(9)), chart(None)]))
}
