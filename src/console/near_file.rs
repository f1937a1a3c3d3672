//! The list of `/near` as CSV, for spreadsheets.

use std::time::Duration;

use axum::body::Bytes;

use crate::api::recent_reads::RecentReads;
use crate::forecast::ForecastState;
use crate::views::near::{NearSubjectView, NearView};
use crate::views::near_ranking::NearFilter;

/// The last files, each with the number of erasures before it: 10,000 rows take some time.
pub type NearFiles = RecentReads<(NearFilter, u64), NearFile>;

/// How long a file is given to others.
pub const FILE_TTL: Duration = Duration::from_secs(5);

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

/// A file with its name, which says what it lacks.
#[derive(Debug, Clone)]
pub struct NearFile {
    pub(super) name: String,
    pub(super) csv: Bytes,
}

impl NearFile {
    pub(super) fn new(view: &NearView) -> Self {
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
        Self { name: format!("near{cut}.csv"), csv: csv.into() }
    }
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
