//! Samples with which the templates are checked: every failure, every notice, and a page with everything.

use minijinja::{Value, context};

use super::chart::PortalChart;
use super::notice::{PortalFailure, PortalNotice};
use crate::channels::Sample;
use crate::forecast::ForecastState;
use crate::html::chart::Chart;
use crate::html::environment::shown;
use crate::types::timestamp::Rfc3339;
use crate::types::{Alert, Channel, ContactId, DeliveryState, MetricFormat, Period, Threshold, Window};
use crate::views::forecast::ForecastView;
use crate::views::portal::{
    PortalAlertView, PortalContactState, PortalContactView, PortalDeliveryView, PortalMetricView, PortalMuteView,
    PortalView, PortalWindowView,
};
use crate::views::usage::WindowUsageView;

const READ_AT: &str = "2026-11-21T08:37:00.000Z";

/// What pages are rendered from.
pub(super) fn contents() -> Vec<Value> {
    let failures = PortalFailure::ALL.into_iter().map(|failure| {
        let way_on = (failure != PortalFailure::Expired).then_some("./");
        let return_url = way_on.is_none().then_some("https://a.test/");
        context! { failure => failure.as_str(), up => "../", way_on, return_url }
    });
    let notices = PortalNotice::ALL.into_iter().map(|notice| content(&filled(), Some(notice)));
    failures.chain(notices).chain([content(&empty(), None)]).collect()
}

fn content((view, charts): &(PortalView, Vec<PortalChart>), told: Option<PortalNotice>) -> Value {
    context! {
        failure => (), up => "../", view => shown(view), charts => shown(charts), is_last => told.is_none(),
        secret => told.map(|_| "whsec_x"), may_change => told.is_some(), return_url => told.map(|_| "https://a.test/"),
        expires_at => READ_AT, channels => shown(&Channel::SENDING),
        told => told.map(PortalNotice::as_str), is_fault => told.is_some(), refused => refused_form(told),
    }
}

/// Beside the form that adds a contact, beside one of a contact, and none.
fn refused_form(told: Option<PortalNotice>) -> Value {
    let form = |contact: &str, action: &str| {
        context! { contact, action, channel => Channel::SENDING[0].as_str(), address => "a@b", thresholds => "80" }
    };
    match told {
        Some(PortalNotice::BadAddress) => form("", ""),
        Some(PortalNotice::WrongCode) => form("c_1", "confirm"),
        Some(PortalNotice::BadThresholds) => form("c_1", "thresholds"),
        _ => ().into(),
    }
}

fn read_at() -> Rfc3339 {
    Rfc3339(READ_AT.parse().expect("a time"))
}

fn empty() -> (PortalView, Vec<PortalChart>) {
    let view = PortalView {
        subject: Sample::example().subject,
        name: None,
        timezone: "UTC",
        metrics: Vec::new(),
        history: Vec::new(),
        alerts: Vec::new(),
        mutes: Vec::new(),
        contacts: Vec::new(),
        read_at: read_at(),
    };
    (view, Vec::new())
}

fn filled() -> (PortalView, Vec<PortalChart>) {
    let format = MetricFormat { name: "API spend".parse().ok(), unit: "USD".parse().ok(), scale: 2 };
    let deliveries = DeliveryState::ALL.map(|state| PortalDeliveryView { address: "a@b.test".to_owned(), state });
    let thresholds = ["80", "used:9", "remaining:9"].map(|threshold| threshold.parse().expect("a threshold"));
    let alert = |(at_most, threshold): (usize, Threshold)| PortalAlertView {
        alert: Alert { status: Some(None.into()), ..Sample::example().alert(threshold, read_at().0) },
        format: format.clone(),
        deliveries: deliveries.iter().take(at_most * 3).cloned().collect(),
    };
    let alerts: Vec<PortalAlertView> = thresholds.into_iter().enumerate().map(alert).collect();
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
    let contacts = contacts.into_iter().chain([(PortalContactState::Muted, Some(read_at()), false)]);
    let mutes = [(None, None), (Some("API spend".to_owned()), Some(read_at()))];
    let mutes = mutes.map(|(metric, until)| PortalMuteView { metric, until });
    let Alert { metric, period, .. } = alerts[0].alert.clone();
    let upgrade_url = Some("https://a.test/upgrade".to_owned());
    let metrics = vec![PortalMetricView { metric, format: format.clone(), windows: windows(period), upgrade_url }];
    let view = PortalView {
        name: "Alice".parse().ok(),
        metrics,
        alerts,
        mutes: mutes.into(),
        contacts: contacts.map(contact).collect(),
        ..empty().0
    };
    let chart = |limit| PortalChart {
        name: "API spend".to_owned(),
        format: format.clone(),
        limit,
        chart: Chart::new(["2026-11-20", "2026-11-21"].map(|day| (day.to_owned(), 400)).into_iter(), limit),
    };
    (view, vec![chart(Some(9)), chart(None)])
}

/// Each window, each state of a forecast, a window without a limit, and one without granted units.
fn windows(period: Period) -> Vec<PortalWindowView> {
    let limited = |window| WindowUsageView {
        window,
        period,
        starts_at: Some(read_at()),
        resets_at: Some(read_at()),
        used: Some(400),
        limit: Some(500),
        granted: None,
        limit_from: None,
        used_percent: Some(80.0),
        forecast: None,
        alerts: Vec::new(),
    };
    let of_each = Window::ALL.map(limited).into_iter();
    let forecast = |forecast| WindowUsageView { forecast: Some(forecast), ..limited(Window::Day) };
    let forecasts = ForecastState::ALL.into_iter();
    let forecasts = forecasts.flat_map(|state| [None, Some(read_at())].map(|at| ForecastView::sample(state, at)));
    let unlimited = WindowUsageView { limit: None, used: None, used_percent: None, ..limited(Window::Day) };
    let ends_never = WindowUsageView { resets_at: None, ..limited(Window::Total) };
    let nothing = WindowUsageView { limit: Some(0), used: Some(0), used_percent: None, ..ends_never.clone() };
    let all = of_each.chain(forecasts.map(forecast)).chain([unlimited, ends_never, nothing]);
    let both =
        all.flat_map(|usage| [Some(450), Some(550), None].map(|pace| PortalWindowView { usage: usage.clone(), pace }));
    both.collect()
}
