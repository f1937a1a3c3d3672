//! Applies updates of the zone data while the daemon runs: the system replaces its files a few times a year.
//!
//! Everything that holds a zone gets the new rules at once (see [`crate::zones`]). Readers that also cache periods,
//! whose bounds depend on these rules, are told to read all settings again.

use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;

use super::plan_reload::PlanReloader;
use crate::types::meters;
use crate::zones::data::ZoneData;
use crate::zones::{self, Refreshed};

/// How often the files of the zones in use are read. Several hundred small files take a few milliseconds.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// Reads the zone data periodically.
pub(super) async fn run(reloader: Arc<PlanReloader>) {
    let data = zones::data_in_use();
    set_gauge(&data, 1.0);
    tracing::info!("zone data: {data}");
    if let Some(warning) = data.warning() {
        tracing::warn!("{warning}");
    }
    let mut failing = Vec::new();
    loop {
        tokio::time::sleep(REFRESH_INTERVAL).await;
        if let Ok(refreshed) = tokio::task::spawn_blocking(zones::refresh).await {
            apply(&refreshed, &reloader, &mut failing);
        }
    }
}

/// Applies a refresh. `failing` contains the failures that were already logged.
fn apply(refreshed: &Refreshed, reloader: &PlanReloader, failing: &mut Vec<String>) {
    let Refreshed { data, before, changed, failed } = refreshed;
    let known = std::mem::take(failing);
    for error in failed {
        let reason = error.source.to_string();
        let failure = format!("{error}: {reason}");
        if !known.contains(&failure) {
            tracing::warn!(%error, reason, "could not read a zone: it keeps its rules");
        }
        failing.push(failure);
    }
    if let Some(before) = before {
        set_gauge(before, 0.0);
        set_gauge(data, 1.0);
    }
    if before.is_some() || !changed.is_empty() {
        // A formerly unknown name may be a zone now, so settings are read again.
        reloader.tell_readers();
        tracing::info!(changed = changed.join(", "), "new zone data are in effect: {data}");
    }
}

fn set_gauge(data: &ZoneData, in_use: f64) {
    let version = data.version().unwrap_or("unknown").to_owned();
    gauge!(meters::ZONE_DATA, "source" => data.source().as_str(), "version" => version).set(in_use);
}
