//! `/near` as CSV, for spreadsheets.

use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use super::error::ConsoleError;

use super::lists::Asked;
use super::parsed_query::ParsedQuery;
use super::state::WithConsole;
use crate::api::problem::{CALL_TIMEOUT, within};
use crate::forecast::ForecastState;
use crate::views::near::{NearRequest, NearSubjectView, SLICES_AT_ONCE};
use crate::views::near_ranking::RANKED_MAX;

/// Number of slices that a file waits for: as many as ten pages examine.
const SLICES_MAX: usize = 10 * SLICES_AT_ONCE;

const HEADING: [&str; 12] = [
    "subject",
    "plan",
    "metric",
    "window",
    "period",
    "used",
    "limit",
    "used_percent",
    "resets_at",
    "notified",
    "forecast",
    "expected_at",
];

/// `GET /near.csv`
pub(super) async fn near(
    State(console): WithConsole,
    ParsedQuery(asked): ParsedQuery<Asked>,
) -> Result<Response, ConsoleError> {
    let filter = asked.near_filter()?;
    let page = NearRequest { after: None, limit: 2 * RANKED_MAX, slices: SLICES_MAX };
    let view = within(CALL_TIMEOUT, console.observer.near(&filter, page)).await?;
    let mut csv = HEADING.join(",") + "\r\n";
    for row in &view.subjects {
        csv += &cells(row).map(|cell| quoted(&cell)).join(",");
        csv += "\r\n";
    }
    let cut = match (view.is_complete, view.is_cut) {
        (true, false) => String::new(),
        (true, true) => format!("-first-{}", view.subjects.len()),
        (false, _) => format!("-of-{}-alerts", view.examined),
    };
    let name = format!("attachment; filename=\"near{cut}.csv\"");
    let headers = [(CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()), (CONTENT_DISPOSITION, name)];
    Ok((headers, csv).into_response())
}

fn cells(row: &NearSubjectView) -> [String; HEADING.len()] {
    let (highest, forecast) = (row.reached.last(), row.forecast.as_ref());
    let state = if row.limit <= row.used { Some(ForecastState::Reached) } else { forecast.map(|of| of.state) };
    [
        row.subject.to_string(),
        row.plan.clone(),
        row.metric.to_string(),
        row.window.to_string(),
        row.period.to_string(),
        row.used.to_string(),
        row.limit.to_string(),
        row.used_percent.to_string(),
        row.resets_at.map(|at| at.0.to_string()).unwrap_or_default(),
        highest.map(|reached| reached.deliveries.outcome.as_str().to_owned()).unwrap_or_default(),
        state.map(|state| state.as_str().to_owned()).unwrap_or_default(),
        forecast.and_then(|of| of.expected_at).map(|at| at.0.to_string()).unwrap_or_default(),
    ]
}

/// A cell in quotes, if it needs them. A spreadsheet must not take a name for a formula.
fn quoted(cell: &str) -> String {
    let text = if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) { &format!("'{cell}") } else { cell };
    match text.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A spreadsheet would run what a customer chose as its name.
    #[test]
    fn a_name_is_no_formula() {
        for (name, cell) in
            [("=1+1", "'=1+1"), ("@a,b", "\"'@a,b\""), ("a=1", "a=1"), ("say \"hi\"", "\"say \"\"hi\"\"\"")]
        {
            assert_eq!(quoted(name), cell);
        }
    }
}
