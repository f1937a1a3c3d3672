//! The overview and the lists. Each reads one slice, says how much it examined, and links to the next.

use std::collections::BTreeSet;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use minijinja::{Value, context};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::bulk::{filter_of, href_with_filter};
use super::error::ConsoleError;
use super::near_file::NearFile;
use super::parsed_query::ParsedQuery;
use super::render::{rendered_html, shown};
use super::sentence::labelled;
use super::session::Visitor;
use super::state::{ConsoleState, WithConsole};
use crate::api::path::parameter;
use crate::api::problem::{CALL_TIMEOUT, Problem, within};
use crate::html::chart::Chart;
use crate::html::fields::Fields;
use crate::html::href::href_to;
use crate::ledger::erasures;
use crate::outbox::{CountingLag, DeliveryAction, Pause, counting_lag, read_pause};
use crate::redis_client::Partition;
use crate::types::timestamp::TimeOrDate;
use crate::types::{Channel, DeliveryState, Metric, StreamId, UnixMs, Window};
use crate::views::actions::newest;
use crate::views::alert_list::NotifiedAlertFilter;
use crate::views::alert_outcomes::AlertOutcome;
use crate::views::deliveries::{DeliveriesCursor, dead_causes, destination_slice, list_from};
use crate::views::near::{NearReading, NearRequest};
use crate::views::near_ranking::{NearFilter, RANKED_MAX};
use crate::views::overview::HourOverviewView;
use crate::views::refused::{GROUPED_MAX, by_reason};
use crate::views::subject_index::{IndexPart, MutePosition};
use crate::views::{Cursor, Observer};

/// The titles of the pages with a filter.
const NEAR: &str = "Near a limit";
const ALERTS: &str = "Alerts";
const DELIVERIES: &str = "Deliveries";
/// Number of rows of a page.
pub(super) const ROWS_MAX: usize = 100;
/// Number of muted subjects of a page: most of them have one mute.
const MUTED_MAX: usize = ROWS_MAX;

/// What a page is asked for. An empty field of a form counts as absent.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Asked {
    pub(super) metric: String,
    pub(super) window: String,
    percent: String,
    since: String,
    before: String,
    nobody: String,
    state: String,
    pub(super) subject: String,
    channel: String,
    destination: String,
    error: String,
    cause: String,
    alert: String,
    pub(super) by: String,
    pub(super) period: String,
    pub(super) after: String,
    /// The form whose outcome the page tells.
    sent: String,
}

/// A field that is not empty.
pub(super) fn set(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

/// The position that a link names.
pub(super) fn position<C: DeserializeOwned>(after: &str) -> Result<Option<C>, Problem> {
    Ok(parameter::<Cursor<C>>("after", set(after))?.map(|Cursor(position)| position))
}

impl Asked {
    /// The filter of the list of subjects near to a limit.
    pub(super) fn near_filter(&self) -> Result<NearFilter, Problem> {
        Ok(NearFilter {
            metric: parameter("metric", set(&self.metric))?,
            window: parameter("window", set(&self.window))?,
            percent: parameter("percent", set(&self.percent))?,
        })
    }

    fn alert_filter(&self) -> Result<NotifiedAlertFilter, Problem> {
        let only_nobody = set(&self.nobody).map(str::parse::<bool>).transpose();
        let only_nobody = only_nobody.map_err(|_| Problem::bad_request("nobody: must be true or false"))?;
        Ok(NotifiedAlertFilter {
            subject: parameter("subject", set(&self.subject))?,
            metric: parameter("metric", set(&self.metric))?,
            window: parameter("window", set(&self.window))?,
            percent: parameter("percent", set(&self.percent))?,
            since: parameter("since", set(&self.since))?.map(|TimeOrDate(since)| since),
            outcome: only_nobody.unwrap_or(false).then_some(AlertOutcome::Nobody),
        })
    }

    /// The link to the next slice of a page.
    pub(super) fn href(&self, page: &str, next: Option<&str>) -> Option<String> {
        let Self {
            metric,
            window,
            percent,
            since,
            before,
            nobody,
            state,
            subject,
            channel,
            destination,
            error,
            cause,
            alert,
            by,
            period,
            ..
        } = self;
        let fields = [
            ("metric", metric),
            ("window", window),
            ("percent", percent),
            ("since", since),
            ("before", before),
            ("nobody", nobody),
            ("state", state),
            ("subject", subject),
            ("channel", channel),
            ("destination", destination),
            ("error", error),
            ("cause", cause),
            ("alert", alert),
            ("by", by),
            ("period", period),
        ];
        let mut parameters: Vec<(&str, Option<&str>)> = fields.map(|(name, value)| (name, set(value))).into();
        parameters.push(("after", Some(next?)));
        Some(href_to(page, &parameters))
    }
}

/// `GET /`
pub(super) async fn overview(
    State(console): WithConsole,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, ConsoleError> {
    let observer = &console.observer;
    let read = async {
        let erasures = erasures::count(observer.partitions.first()).await?;
        // It says whether counting lags.
        console.overview.get_or_read(&erasures, CountingLag::None, observer.overview(NearReading::SHORT)).await
    };
    let view = within(CALL_TIMEOUT, read).await?;
    let chart = |count: fn(&HourOverviewView) -> u64| {
        Chart::new(view.hours.iter().map(|hour| (hour.starts_at.0.to_string(), count(hour))), None)
    };
    let (alerts, dead) = (chart(|hour| hour.alerts), chart(|hour| hour.dead));
    let rate = console.counting_rate.add(view.read_at.0, view.counting.counted);
    let content = context! { title => "Overview", view => shown(&*view), alerts => shown(&alerts), dead => shown(&dead), rate, formats => formats(&console) };
    Ok(rendered_html("overview.html", &visitor, content))
}

/// `GET /near`
pub(super) async fn near(
    State(console): WithConsole,
    Extension(visitor): Extension<Visitor>,
    ParsedQuery(asked): ParsedQuery<Asked>,
) -> Result<Response, ConsoleError> {
    let filter = asked.near_filter();
    let filter =
        filter.map_err(|problem| refused_filter(&console, &visitor, ("near.html", NEAR), &asked, problem.into()))?;
    let page = NearRequest { after: position(&asked.after)?, limit: ROWS_MAX, reading: NearReading::SHORT };
    let view = within(CALL_TIMEOUT, console.observer.near(&filter, page)).await?;
    let next = asked.href("near", view.next.as_deref());
    let csv = href_to(
        "near.csv",
        &[("metric", set(&asked.metric)), ("window", set(&asked.window)), ("percent", set(&asked.percent))],
    );
    let mut metrics = known_metrics(&console.observer);
    metrics.extend(view.subjects.iter().map(|row| row.metric.clone()).chain(filter.metric));
    let windows = Window::ALL;
    let content = context! { title => NEAR, view => shown(&view), asked => shown(&asked), next, csv, metrics => shown(&metrics), windows => shown(&windows), formats => formats(&console) };
    Ok(rendered_html("near.html", &visitor, content))
}

/// `GET /near.csv`
pub(super) async fn near_csv(
    State(console): WithConsole,
    ParsedQuery(asked): ParsedQuery<Asked>,
) -> Result<Response, ConsoleError> {
    let filter = asked.near_filter()?;
    let observer = &console.observer;
    let read = async {
        let erasures = erasures::count(observer.partitions.first()).await?;
        let lag = counting_lag::of_any(&observer.partitions).await?;
        let page = NearRequest { after: None, limit: 2 * RANKED_MAX, reading: NearReading::LONG };
        let read = async { observer.near(&filter, page).await.map(|view| NearFile::new(&view)) };
        console.near_files.get_or_read(&(filter.clone(), erasures), lag, read).await
    };
    let NearFile { name, csv } = NearFile::clone(&*within(CALL_TIMEOUT, read).await?);
    let name = format!("attachment; filename=\"{name}\"");
    let headers = [(CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()), (CONTENT_DISPOSITION, name)];
    Ok((headers, csv).into_response())
}

/// A list without rows: its filter as it was sent, with what is wrong. `error` itself if no field is wrong.
pub(super) fn refused_filter(
    console: &ConsoleState,
    visitor: &Visitor,
    (template, title): (&'static str, &str),
    asked: &Asked,
    error: ConsoleError,
) -> ConsoleError {
    let ConsoleError::Told { status: status @ StatusCode::BAD_REQUEST, detail, .. } = error else { return error };
    let (metrics, windows) = (known_metrics(&console.observer), Window::ALL);
    let (states, channels) = (DeliveryState::ALL, Channel::ALL);
    let (metric, pause) = (asked.metric.as_str(), None::<bool>);
    let content = context! { title, fault => labelled(&detail), asked => shown(asked), metric, pause, metrics => shown(&metrics), windows => shown(&windows), states => shown(&states), channels => shown(&channels), formats => formats(console) };
    ConsoleError::rendered(status, rendered_html(template, visitor, content))
}

/// How people read the counts of metrics.
fn formats(console: &ConsoleState) -> Value {
    shown(&console.observer.plans.formats())
}

/// The metrics that plans limit, those with a name or unit, and those of subjects that were near a limit last.
fn known_metrics(Observer { plans, near, .. }: &Observer) -> BTreeSet<Metric> {
    let ranking = near.get(&NearFilter::default()).best();
    let near = ranking.rows_after(None, UnixMs(0)).map(|row| row.of.metric.clone());
    let described = plans.formats().keys().cloned().chain(near).collect::<Vec<_>>();
    let plans = plans.names().into_iter().filter_map(|name| plans.get(&name));
    plans.flat_map(|plan| plan.limits.keys().cloned().collect::<Vec<_>>()).chain(described).collect()
}

/// `GET /alerts`
pub(super) async fn alerts(
    State(console): WithConsole,
    Extension(visitor): Extension<Visitor>,
    ParsedQuery(asked): ParsedQuery<Asked>,
) -> Result<Response, ConsoleError> {
    let filter = asked.alert_filter();
    let filter = filter
        .map_err(|problem| refused_filter(&console, &visitor, ("alerts.html", ALERTS), &asked, problem.into()))?;
    let from = position(&asked.after)?.unwrap_or_default();
    let view = within(CALL_TIMEOUT, console.observer.alerts(&filter, from, ROWS_MAX)).await?;
    let next = asked.href("alerts", view.next.as_deref());
    let windows = Window::ALL;
    Ok(rendered_html(
        "alerts.html",
        &visitor,
        context! { title => ALERTS, view => shown(&view), asked => shown(&asked), next, windows => shown(&windows), formats => formats(&console) },
    ))
}

/// `GET /deliveries`
pub(super) async fn deliveries(
    State(console): WithConsole,
    Extension(visitor): Extension<Visitor>,
    ParsedQuery(asked): ParsedQuery<Asked>,
    RawQuery(query): RawQuery,
) -> Result<Response, ConsoleError> {
    let partitions = &console.observer.partitions;
    let fields = Fields::parse(query.unwrap_or_default().as_bytes());
    let filter = filter_of(&fields).map_err(|problem| {
        refused_filter(&console, &visitor, ("deliveries.html", DELIVERIES), &asked, problem.into())
    })?;
    let from: Option<DeliveriesCursor> = position(&asked.after)?;
    let read = async {
        let listed = list_from(partitions, &filter, from, ROWS_MAX).await?;
        let mut causes = match filter.state {
            Some(DeliveryState::Dead) if from.is_none() && filter.is_of_causes() => {
                Some(dead_causes(partitions, None).await?)
            }
            _ => None,
        };
        if let Some(of) = &mut causes {
            of.causes.retain(|cause| filter.takes_cause(cause));
        }
        let Partition { client, keys } = partitions.first();
        Ok::<_, redis::RedisError>((listed, causes, read_pause(client, keys).await?))
    };
    let ((deliveries, next), causes, pause) = within(CALL_TIMEOUT, read).await?;
    let pause = pause.map(|Pause { since, reason }| context! { since => since.map(|at| at.to_string()), reason });
    let next = asked.href("deliveries", next.map(|next| Cursor(next).to_string()).as_deref());
    let (states, channels) = (DeliveryState::ALL, Channel::ALL);
    // Of all that match. Without a state, nothing applies to all of them. A retry of dead ones is a replay.
    let applies = |action: &DeliveryAction| filter.state.is_some() && action.takes().first() == filter.state.as_ref();
    let to_all =
        |action: DeliveryAction| (action.as_str(), href_with_filter("act", &[("do", action.as_str())], &fields));
    let of_all: Vec<_> = DeliveryAction::ALL.into_iter().filter(applies).map(to_all).collect();
    let applies = |action: &DeliveryAction| deliveries.iter().any(|of| action.takes().first() == Some(&of.state));
    let of_selected: Vec<_> = DeliveryAction::ALL.into_iter().filter(applies).map(|action| action.as_str()).collect();
    let content = context! { title => DELIVERIES, pause, of_selected, deliveries => shown(&deliveries), causes => shown(&causes), asked => shown(&asked), next, states => shown(&states), channels => shown(&channels), of_all, formats => formats(&console) };
    Ok(rendered_html("deliveries.html", &visitor, content))
}

/// `GET /destinations`
pub(super) async fn destinations(
    State(console): WithConsole,
    Extension(visitor): Extension<Visitor>,
    ParsedQuery(asked): ParsedQuery<Asked>,
) -> Result<Response, ConsoleError> {
    let from = position(&asked.after)?.unwrap_or_default();
    let Observer { partitions, give_up_after, .. } = &console.observer;
    let view = within(CALL_TIMEOUT, destination_slice(partitions, from, ROWS_MAX, *give_up_after)).await?;
    let next = asked.href("destinations", view.next.as_deref());
    Ok(rendered_html("destinations.html", &visitor, context! { title => "Destinations", view => shown(&view), next }))
}

/// `GET /mutes`
pub(super) async fn mutes(
    State(console): WithConsole,
    Extension(visitor): Extension<Visitor>,
    ParsedQuery(asked): ParsedQuery<Asked>,
) -> Result<Response, ConsoleError> {
    let after: Option<MutePosition> = position(&asked.after)?;
    let read = console.subjects.mutes(&console.observer, after.as_ref(), MUTED_MAX);
    let IndexPart { rows, next, subjects, is_complete } = within(CALL_TIMEOUT, read).await?;
    let next = asked.href("mutes", next.map(|next| Cursor(next).to_string()).as_deref());
    let content =
        context! { title => "Mutes", mutes => shown(&rows), next, subjects, is_complete, formats => formats(&console) };
    Ok(rendered_html("mutes.html", &visitor, content))
}

/// `GET /refused`
pub(super) async fn refused(
    State(console): WithConsole,
    Extension(visitor): Extension<Visitor>,
    ParsedQuery(asked): ParsedQuery<Asked>,
) -> Result<Response, ConsoleError> {
    let from = position(&asked.after)?.unwrap_or_default();
    let view = within(CALL_TIMEOUT, by_reason(&console.observer.partitions, from, None, GROUPED_MAX)).await?;
    let next = asked.href("refused", view.next.as_deref());
    Ok(rendered_html("refused.html", &visitor, context! { title => "Refused events", view => shown(&view), next }))
}

/// `GET /log`
pub(super) async fn log(
    State(console): WithConsole,
    Extension(visitor): Extension<Visitor>,
    ParsedQuery(asked): ParsedQuery<Asked>,
) -> Result<Response, ConsoleError> {
    let before = position(&asked.after)?.map(|(ms, seq)| StreamId { ms, seq });
    let read = newest(&console.observer.partitions, before.as_ref(), ROWS_MAX);
    let (actions, next) = within(CALL_TIMEOUT, read).await?;
    let next = next.map(|StreamId { ms, seq }| Cursor((ms, seq)).to_string());
    let next = asked.href("log", next.as_deref());
    Ok(rendered_html("log.html", &visitor, context! { title => "Actions", actions => shown(&actions), next }))
}
