//! The daemons, the plans that are in effect, and the settings of this daemon.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use minijinja::context;
use serde::Serialize;

use super::error::ConsoleError;
use super::render::{rendered_html, shown};
use super::session::Visitor;
use super::state::WithConsole;
use crate::api::problem::{CALL_TIMEOUT, within};
use crate::subjects::Plans;
use crate::subjects::plans::Plan;
use crate::subjects::record::write_thresholds;
use crate::types::Metric;

/// A plan, with its limits and thresholds as people write them.
#[derive(Debug, Serialize)]
struct PlanRow {
    name: String,
    limits: Vec<String>,
    thresholds: String,
    is_default: bool,
}

fn rows_of(plans: &Plans) -> Vec<PlanRow> {
    let default = plans.default_plan(0);
    let all = plans.names().into_iter().filter_map(|name| plans.get(&name));
    let named = |metric: &Metric| plans.format_of(metric).labelled(metric);
    let row = |plan: Arc<Plan>| PlanRow {
        limits: plan
            .limits
            .iter()
            .map(|(metric, limits)| format!("{} {}", named(metric), limits.with_windows()))
            .collect(),
        thresholds: write_thresholds(&plan.thresholds).replace(',', ", "),
        is_default: plan.name == default.name,
        name: plan.name.to_string(),
    };
    all.map(row).collect()
}

/// `GET /system`
pub(super) async fn system(
    State(console): WithConsole,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, ConsoleError> {
    let view = within(CALL_TIMEOUT, console.observer.system()).await?;
    // Settings name files and hosts of the operator.
    let started = visitor.is_admin().then_some(&console.started_with);
    let settings = started.map(|started| &started.settings);
    let content = context! { title => "System", view => shown(&view), plans => shown(&rows_of(&console.observer.plans)), settings, findings => started.map(|started| &started.warnings) };
    Ok(rendered_html("system.html", &visitor, content))
}
