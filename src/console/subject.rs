//! One subject, the search for subjects, and one delivery.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use minijinja::context;
use serde::{Deserialize, Serialize};

use super::bulk::delivery_id;
use super::error::ConsoleError;
use super::lists::{ROWS_MAX, position};
use super::parsed_query::ParsedQuery;
use super::render::{rendered_html, shown};
use super::session::Visitor;
use super::state::{ConsoleState, WithConsole};
use crate::api::path::parameter;
use crate::api::problem::{CALL_TIMEOUT, Problem, within};
use crate::html::chart::Chart;
use crate::html::href::href_to;
use crate::redis_client::{ErrorKind, error_kind};
use crate::subjects::record::write_thresholds;
use crate::subjects::{Plans, StoredLevels};
use crate::types::{
    Alert, Channel, DeliveryId, Limits, Metric, MetricFormat, Subject, Threshold, Units, UnixMs, Window,
};
use crate::views::actions::newest_on;
use crate::views::alert_list::NotifiedAlertView;
use crate::views::deliveries::{self, list_from};
use crate::views::explain::{Audience, ExplainError, Explanation};
use crate::views::grants::{self, GrantStatus};
use crate::views::history::{self, DayRange, HistoryRequest, HistoryView, MetricHistoryView};
use crate::views::portal::{PortalWindowView, paced};
use crate::views::subject_index::IndexPart;
use crate::views::usage::MetricUsageView;
use crate::views::{Cursor, DeliveryFilter, GrantView, IdPrefix, SubjectSettings, SubjectView, UsageView, subject};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AskedSubject {
    pub(super) id: String,
    /// The form whose outcome the page tells.
    sent: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SearchQuery {
    q: String,
    after: String,
    sent: String,
}

/// `GET /subjects`: the id of a subject, or the beginning of that of a delivery, opens it. Anything else lists the
/// subjects that begin with it.
pub(super) async fn search(
    State(console): WithConsole,
    Extension(visitor): Extension<Visitor>,
    ParsedQuery(SearchQuery { q, after, .. }): ParsedQuery<SearchQuery>,
) -> Result<Response, ConsoleError> {
    let (q, partition) = (q.trim(), console.observer.partitions.first());
    let opened = |page, id| (StatusCode::SEE_OTHER, [(LOCATION, href_to(page, &[("id", Some(id))]))]).into_response();
    let delivery: Option<IdPrefix<DeliveryId>> = q.parse().ok().filter(|_| q.starts_with("delivery_"));
    if let Some(id) = delivery.as_ref().and_then(IdPrefix::whole) {
        return Ok(opened("delivery", id.as_str()));
    }
    let exact: Option<Subject> = q.parse().ok();
    let from: Option<Subject> = position(&after)?;
    if let (Some(exact), None) = (&exact, &from)
        && !within(CALL_TIMEOUT, subject::read_fields(partition, exact)).await?.is_empty()
    {
        return Ok(opened("subject", exact.as_str()));
    }
    if let Some(prefix) = &delivery {
        let found = deliveries::find(&console.observer.partitions, std::slice::from_ref(prefix));
        match within(CALL_TIMEOUT, found).await?.concat().as_slice() {
            [] => {}
            [(_, id)] => return Ok(opened("delivery", id.as_str())),
            several => {
                let detail = format!("{} deliveries begin with {prefix}: give more digits", several.len());
                return Err(ConsoleError::new(StatusCode::CONFLICT, detail));
            }
        }
    }
    let read = console.subjects.subjects(&console.observer, q, from.as_ref(), ROWS_MAX);
    let IndexPart { mut rows, next, subjects, is_complete } = within(CALL_TIMEOUT, read).await?;
    for row in rows.iter_mut().filter(|row| row.plan.is_none()) {
        row.plan = Some(console.observer.plans.default_plan_of(&row.subject).name.to_string());
    }
    let next = next.map(|next| Cursor(next).to_string());
    let next = next.map(|next| href_to("subjects", &[("q", Some(q)), ("after", Some(&next))]));
    let exact = exact.as_ref().map(Subject::as_str);
    let content = context! { title => "Subjects", formats => shown(&console.observer.plans.formats()), rows => shown(&rows), subjects, is_complete, next, q, exact };
    Ok(rendered_html("subjects.html", &visitor, content))
}

/// The usage of one metric on the days of the history.
#[derive(Debug, Serialize)]
struct MetricChart {
    metric: String,
    format: MetricFormat,
    limit: Option<u64>,
    chart: Chart,
}

/// What is marked on the bar of a window, in percent of its limit.
#[derive(Debug, Serialize)]
struct BarMarks {
    /// Those of thresholds.
    thresholds: Vec<u64>,
    /// What will be used at the end of the period if usage continues as it was.
    pace: Option<u64>,
}

impl BarMarks {
    /// The marks of each window of a metric.
    fn all(of: &MetricUsageView, thresholds: &[Threshold], now: UnixMs) -> Vec<Self> {
        let marks = |PortalWindowView { usage, pace }: &PortalWindowView| {
            let limit = usage.limit.unwrap_or(0);
            let percent = |units: u128| u64::try_from(units * 100 / u128::from(limit.max(1))).unwrap_or(u64::MAX);
            let due = |threshold: &Threshold| threshold.units_of(Units::new(limit)?);
            let thresholds = thresholds.iter().filter_map(due).map(percent);
            // One that is used up, or not used at all, has none.
            let goes_on = usage.used > Some(0) && usage.used < usage.limit;
            let pace = pace.filter(|_| goes_on).map(|pace| percent(pace.into()));
            Self { thresholds: thresholds.filter(|percent| *percent < 100).collect(), pace }
        };
        paced(of.windows.clone(), now).iter().map(marks).collect()
    }
}

/// A setting in effect, and what sets it.
#[derive(Debug, Serialize)]
struct SettingRow {
    name: String,
    value: String,
    origin: &'static str,
}

impl SettingRow {
    /// The settings in effect for a subject. `own` are those that are set for itself, `usage` has what grants add.
    fn all(own: &SubjectView, settings: &SubjectSettings, plans: &Plans, usage: &[MetricUsageView]) -> Vec<Self> {
        let row = |name: &str, value: String, is_own: bool, other| Self {
            name: name.to_owned(),
            value,
            origin: if is_own { "own" } else { other },
        };
        let limit = |(metric, limits): (&Metric, &Limits)| {
            let windows = usage.iter().filter(|of| of.metric == *metric).flat_map(|of| &of.windows);
            let granted = windows.filter_map(|of| Some(format!(", plus {}/{} of grants", of.granted?, of.window)));
            let value = granted.fold(limits.with_windows(), |value, granted| value + &granted);
            let name = format!("Limits of {}", plans.format_of(metric).labelled(metric));
            row(&name, value, own.limits.contains_key(metric), "plan")
        };
        let thresholds = write_thresholds(&settings.thresholds).replace(',', ", ");
        let mut rows = vec![row("Plan", settings.plan.clone(), own.plan.is_some(), "default")];
        rows.extend(settings.limits.iter().map(limit));
        rows.push(row("Alerts at", thresholds, own.thresholds.is_some(), "plan"));
        rows.push(row("Time zone", settings.zone.name().to_owned(), own.timezone.is_some(), "default"));
        rows.extend(own.billing_day.map(|day| row("Months begin on day", day.to_string(), true, "")));
        rows.extend(own.billing_month.map(|month| row("Years begin in month", month.to_string(), true, "")));
        let locale = own
            .locale
            .as_ref()
            .map_or_else(|| "none: messages use the default templates".to_owned(), ToString::to_string);
        rows.push(row("Language", locale, own.locale.is_some(), "default"));
        rows
    }
}

/// `GET /subject`
pub(super) async fn show(
    State(console): WithConsole,
    Extension(visitor): Extension<Visitor>,
    ParsedQuery(AskedSubject { id, .. }): ParsedQuery<AskedSubject>,
) -> Result<Response, ConsoleError> {
    let id: Subject = parameter("id", Some(&id))?.ok_or_else(|| Problem::bad_request("id: name a subject"))?;
    let explained = async { console.explainer.subject(&id).await.map_err(problem_of) };
    let Explanation { explanation, usage, .. } = within(CALL_TIMEOUT, explained).await?;
    let (settings, in_effect, charts, marks) =
        within(CALL_TIMEOUT, settings_and_charts(&console, &id, usage.as_ref())).await?;
    let filter = DeliveryFilter { subject: Some(id.clone()), ..DeliveryFilter::default() };
    let listed = list_from(&console.observer.partitions, &filter, None, ROWS_MAX);
    let (deliveries, _) = within(CALL_TIMEOUT, listed).await?;
    let alerts = within(CALL_TIMEOUT, notified_alerts(&console, usage.as_ref())).await?;
    let grants = within(CALL_TIMEOUT, grants_of(&console, &id)).await?;
    let formats = console.observer.plans.formats();
    let name = settings.name.as_ref();
    let title = name.map_or_else(|| id.to_string(), |name| format!("{name} ({id})"));
    let has_portal = console.portal_links.urls.is_some();
    let gets: Vec<String> = settings.contacts.iter().map(|contact| contact.filter.summary()).collect();
    let content = context! { title, has_portal, gets, id => id.as_str(), formats => shown(&formats), alerts => shown(&alerts), explanation => shown(&explanation), grants => shown(&grants), usage => shown(&usage), deliveries => shown(&deliveries), settings => shown(&settings), in_effect => shown(&in_effect), marks => shown(&marks), charts => shown(&charts), channels => shown(&Channel::SENDING) };
    Ok(rendered_html("subject.html", &visitor, content))
}

/// The alerts of the periods that are shown, the newest first, with who was notified.
async fn notified_alerts(
    console: &ConsoleState,
    usage: Option<&UsageView>,
) -> redis::RedisResult<Vec<NotifiedAlertView>> {
    let windows = usage.into_iter().flat_map(|usage| &usage.metrics).flat_map(|metric| &metric.windows);
    let mut alerts: Vec<&Alert> = windows.flat_map(|window| &window.alerts).collect();
    alerts.sort_by_key(|alert| Reverse((alert.raised_at_ms, alert.threshold_share())));
    let deliveries = console.observer.outcomes(&alerts).await?.deliveries;
    let with = |(alert, deliveries): (&Alert, _)| NotifiedAlertView { alert: alert.clone(), deliveries };
    Ok(alerts.into_iter().zip(deliveries).map(with).collect())
}

/// Those that pay first, then the newest. None if they can't be read: the sentences say so.
async fn grants_of(console: &ConsoleState, id: &Subject) -> redis::RedisResult<Vec<GrantView>> {
    let partition = console.observer.partitions.partition_of(id);
    let mut grants = match grants::read(partition, &console.observer.plans, id).await {
        Err(error) if error_kind(&error) == ErrorKind::WrongType => Vec::new(),
        read => read?.grants,
    };
    grants.sort_by_key(|grant| (grant.status != GrantStatus::Active, Reverse(grant.added_at)));
    grants.truncate(ROWS_MAX);
    Ok(grants)
}

async fn settings_and_charts(
    console: &ConsoleState,
    id: &Subject,
    usage: Option<&UsageView>,
) -> redis::RedisResult<(SubjectView, Vec<SettingRow>, Vec<MetricChart>, Vec<Vec<BarMarks>>)> {
    let plans = &console.observer.plans;
    let partition = console.observer.partitions.partition_of(id);
    let stored = StoredLevels::read(&partition.client, &partition.keys, id).await?;
    let now = partition.client.server_time().await?;
    let shown = SubjectView::read(id.as_str().as_bytes(), stored.fields(), plans, now);
    let settings = SubjectSettings::read(&stored, plans);
    let of_metrics = usage.map_or(&[][..], |usage| usage.metrics.as_slice());
    let in_effect = SettingRow::all(&shown, &settings, plans, of_metrics);
    let marks = of_metrics.iter().map(|of| BarMarks::all(of, &settings.thresholds, now)).collect();
    let request = HistoryRequest {
        subject: id.clone(),
        settings,
        metric: None,
        range: DayRange::default(),
        now,
        late_max: console.late_max,
        days: console.history_days,
    };
    let history = history::read(partition, plans, request).await?;
    let metrics = history.map(|HistoryView { metrics, .. }| metrics).unwrap_or_default();
    let limit_of = |metric: &str| {
        let windows = of_metrics.iter().filter(|of| of.metric.as_str() == metric).flat_map(|of| &of.windows);
        windows.filter(|window| window.window == Window::Day).find_map(|window| window.limit)
    };
    let chart = |MetricHistoryView { metric, format, days }: MetricHistoryView| {
        let limit = limit_of(metric.as_str());
        let days = days.iter().map(|day| (day.day.to_string(), day.used));
        let metric = format.name_of(&metric).to_owned();
        MetricChart { metric, format, limit, chart: Chart::new(days, limit) }
    };
    Ok((shown, in_effect, metrics.into_iter().map(chart).collect(), marks))
}

fn problem_of(error: ExplainError) -> Problem {
    match error {
        ExplainError::Redis(error) => error.into(),
        other => Problem::new(StatusCode::NOT_FOUND, other.to_string()),
    }
}

/// `GET /delivery`
pub(super) async fn delivery(
    State(console): State<Arc<ConsoleState>>,
    Extension(visitor): Extension<Visitor>,
    ParsedQuery(AskedSubject { id, .. }): ParsedQuery<AskedSubject>,
) -> Result<Response, ConsoleError> {
    let id = delivery_id(&id)?;
    // What the receiver answered is the operator's alone.
    let audience = if visitor.is_admin() { Audience::Operator } else { Audience::Platform };
    let read = within(CALL_TIMEOUT, console.explainer.delivery(&id, audience)).await?;
    let missing = || ConsoleError::not_found("there is no such delivery: they are kept for 14 days after their end");
    let (explanation, detail) = read.ok_or_else(missing)?;
    // The page is shown also if the log of actions can't be read.
    let action = within(CALL_TIMEOUT, newest_on(&console.observer.partitions, id.as_str())).await.unwrap_or_default();
    let is_leased = detail.delivery.is_leased;
    let content = context! { title => "Delivery", explanation => shown(&explanation), detail => shown(&detail), action => shown(&action), is_leased };
    Ok(rendered_html("delivery.html", &visitor, content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Period;
    use crate::types::timestamp::Rfc3339;
    use crate::views::usage::WindowUsageView;

    /// A bar without the thresholds that are still to come does not say how near they are.
    #[test]
    fn a_bar_has_lines_at_all_thresholds_and_at_its_pace() {
        let marks = |used, limit| {
            let window = WindowUsageView {
                window: Window::Day,
                period: Period::ALL_TIME,
                starts_at: Some(Rfc3339(UnixMs(0))),
                resets_at: Some(Rfc3339(UnixMs(86_400_000))),
                used: Some(used),
                limit,
                granted: None,
                limit_from: None,
                used_percent: None,
                forecast: None,
                alerts: Vec::new(),
            };
            let of =
                MetricUsageView { metric: Metric::default(), format: MetricFormat::default(), windows: vec![window] };
            let thresholds = ["50", "80", "remaining:500", "100"].map(|text| text.parse().expect("a threshold"));
            let marks = BarMarks::all(&of, &thresholds, UnixMs(21_600_000));
            marks.into_iter().map(|BarMarks { thresholds, pace }| (thresholds, pace)).collect::<Vec<_>>()
        };
        assert_eq!(marks(1_000, Some(5_000)), [(vec![50, 80, 90], Some(80))]);
        assert_eq!(marks(0, Some(5_000)), [(vec![50, 80, 90], None)]);
        assert_eq!(marks(5_000, Some(5_000)), [(vec![50, 80, 90], None)]);
        assert_eq!(marks(7, None), [(vec![], None)]);
    }
}
