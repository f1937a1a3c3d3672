//! `/top`: who uses most. A ranking reads every counter of a period, so it is made only if somebody asks for it.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use minijinja::context;

use super::error::ConsoleError;
use super::lists::{Asked, ROWS_MAX, position, refused_filter, set};
use super::parsed_query::ParsedQuery;
use super::render::{rendered_html, shown};
use super::session::Visitor;
use super::state::{ConsoleState, WithConsole};
use crate::api::path::parameter;
use crate::api::problem::{CALL_TIMEOUT, Problem, within};
use crate::ledger::batch::MetricPeriod;
use crate::ledger::erasures;
use crate::types::{Metric, Subject, Window};
use crate::views::Cursor;
use crate::views::top::{self, RankingOrder, TOP_MAX, TopRequest, TopView};

const TOP: &str = "Who uses most?";

enum Ranking {
    NotAsked,
    BeingMade,
    Made(TopView),
}

/// `GET /top`
pub(super) async fn top(
    State(console): WithConsole,
    Extension(visitor): Extension<Visitor>,
    ParsedQuery(asked): ParsedQuery<Asked>,
) -> Result<Response, ConsoleError> {
    let ranking = ranking(&console, &asked).await;
    let ranking = ranking.map_err(|error| refused_filter(&console, &visitor, ("top.html", TOP), &asked, error))?;
    let (mut view, again) = match ranking {
        Ranking::NotAsked => (None, None),
        Ranking::BeingMade => (None, asked.href("top", Some(&asked.after))),
        Ranking::Made(view) => (Some(view), None),
    };
    let from: usize = position(&asked.after)?.unwrap_or(0);
    let (mut next, mut ranked) = (None, 0);
    if let Some(view) = &mut view {
        ranked = view.subjects.len();
        let until = from.saturating_add(ROWS_MAX);
        next = (ranked > until).then(|| Cursor(until).to_string());
        view.subjects = std::mem::take(&mut view.subjects).into_iter().skip(from).take(ROWS_MAX).collect();
    }
    let next = asked.href("top", next.as_deref());
    let begin = asked.href("top", Some(&Cursor(0).to_string()));
    let (windows, metric) = (Window::ALL, Metric::default());
    let metric = set(&asked.metric).unwrap_or(metric.as_str());
    let content = context! { title => TOP, view => shown(&view), asked => shown(&asked), metric, from, next, ranked, ranked_max => TOP_MAX, begin, again, windows => shown(&windows) };
    Ok(rendered_html("top.html", &visitor, content))
}

async fn ranking(console: &ConsoleState, asked: &Asked) -> Result<Ranking, ConsoleError> {
    let Some(by) = parameter::<RankingOrder>("by", set(&asked.by))? else { return Ok(Ranking::NotAsked) };
    let first = console.observer.partitions.first();
    let metric: Metric = parameter("metric", set(&asked.metric))?.unwrap_or_default();
    let window: Option<Window> = parameter("window", set(&asked.window))?;
    let under: Option<Subject> = parameter("subject", set(&asked.subject))?;
    let now = within(CALL_TIMEOUT, first.client.server_time()).await?;
    let period = top::period(window, parameter("period", set(&asked.period))?, now)
        .map_err(|error| Problem::bad_request(error.to_string()))?;
    let request = TopRequest { of: MetricPeriod { metric, period }, by, under };
    let erasures = within(CALL_TIMEOUT, erasures::count(first)).await?;
    let view = console.top.get(&console.observer, &(request, erasures)).await?;
    Ok(view.map_or(Ranking::BeingMade, |view| Ranking::Made(TopView::clone(&view))))
}
