//! The charts of the history. Pure.

use serde::Serialize;

use crate::html::chart::Chart;
use crate::types::{MetricFormat, Window};
use crate::views::history::MetricHistoryView;
use crate::views::portal::{PortalMetricView, PortalView};

/// The usage of one metric on the days of the history.
#[derive(Debug, Serialize)]
pub(super) struct PortalChart {
    pub(super) name: String,
    pub(super) format: MetricFormat,
    pub(super) limit: Option<u64>,
    pub(super) chart: Chart,
}

impl PortalChart {
    /// A chart for each metric with a history.
    pub(super) fn all(view: &PortalView) -> Vec<Self> {
        let chart = |MetricHistoryView { metric, format, days }: &MetricHistoryView| {
            let limit = view.metrics.iter().find(|of| of.metric == *metric).and_then(day_limit);
            let days = days.iter().map(|day| (day.day.to_string(), day.used));
            Self {
                name: format.name_of(metric).to_owned(),
                format: format.clone(),
                limit,
                chart: Chart::new(days, limit),
            }
        };
        view.history.iter().map(chart).collect()
    }
}

fn day_limit(metric: &PortalMetricView) -> Option<u64> {
    metric.windows.iter().find(|window| window.usage.window == Window::Day)?.usage.limit
}
