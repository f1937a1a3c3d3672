//! The page with everything that a token shows.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use minijinja::context;
use serde::Serialize;

use super::notice::{PortalFailure, PortalNotice};
use super::state::{PortalState, WithPortal};
use super::visitor::PortalVisitor;
use crate::api::problem::{CALL_TIMEOUT, within};
use crate::html::chart::Chart;
use crate::html::environment::shown;
use crate::html::fields::Fields;
use crate::types::{Channel, MetricFormat, Window};
use crate::views::history::MetricHistoryView;
use crate::views::portal::PortalMetricView;

/// The usage of one metric on the days of the history.
#[derive(Debug, Serialize)]
struct PortalChart {
    name: String,
    format: MetricFormat,
    limit: Option<u64>,
    chart: Chart,
}

/// `GET /portal/{token}/`
pub(super) async fn show(State(portal): WithPortal, visitor: PortalVisitor, headers: HeaderMap, uri: Uri) -> Response {
    // What the form did that led here.
    let query = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    let told = PortalNotice::from_stored(query.raw("told")).filter(|notice| notice.status() == StatusCode::OK);
    respond(&portal, &visitor, Shown { told, secret: None }, (&headers, &uri)).await
}

/// What a page shows beside the view.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) told: Option<PortalNotice>,
    /// The secret of a contact that was added: its only chance to be seen.
    pub(super) secret: Option<String>,
}

/// The page, with the status of what it tells.
pub(super) async fn respond(
    portal: &Arc<PortalState>,
    PortalVisitor { access, language }: &PortalVisitor,
    Shown { told, secret }: Shown,
    (headers, uri): (&HeaderMap, &Uri),
) -> Response {
    let read = async {
        let _permit = portal.reads.acquire().await.expect("nobody closes it");
        portal.observer.portal(access, portal.late_max, portal.history_days).await
    };
    let Ok(Some(view)) = within(CALL_TIMEOUT, read).await else {
        return PortalFailure::Later.into_response(portal, headers, uri.path());
    };
    let chart = |MetricHistoryView { metric, format, days }: &MetricHistoryView| {
        let limit = view.metrics.iter().find(|of| of.metric == *metric).and_then(day_limit);
        let name = format.name_of(metric).to_owned();
        let days = days.iter().map(|day| (day.day.to_string(), day.used));
        PortalChart { name, format: format.clone(), limit, chart: Chart::new(days, limit) }
    };
    let charts: Vec<PortalChart> = view.history.iter().map(chart).collect();
    let content = context! {
        failure => (), up => "../", view => shown(&view), charts => shown(&charts), secret,
        may_change => access.may_change_contacts(), return_url => access.return_url(),
        expires_at => access.expires_at().to_string(), channels => shown(&Channel::SENDING),
        told => told.map(PortalNotice::as_str), is_fault => told.is_some_and(|told| told.status() != StatusCode::OK),
    };
    let status = told.map_or(StatusCode::OK, PortalNotice::status);
    portal.html.rendered(status, language, content)
}

fn day_limit(metric: &PortalMetricView) -> Option<u64> {
    metric.windows.iter().find(|window| window.usage.window == Window::Day)?.usage.limit
}
