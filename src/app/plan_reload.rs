//! Reading the plans again while the daemon runs: on SIGHUP, and for `POST /v1/reload`.
//!
//! The configuration is judged whole, as at a start, and refused whole. Of a good one the plans come into effect with
//! the next batch and the next check; everything else waits for the next start.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{counter, gauge};
use tokio::signal::unix::Signal;

use crate::api::state::{ReloadError, ReloadedPlans};
use crate::config::Config;
use crate::subjects::Plans;
use crate::subjects::watch::ChangeFeed;
use crate::types::meters;

/// Reads the configuration as it stands now.
pub type ReadConfig = Box<dyn Fn() -> anyhow::Result<Config> + Send + Sync>;

pub(super) struct PlanReloader {
    read: ReadConfig,
    plans: Plans,
    /// The configuration that was read last.
    config: Mutex<Config>,
    /// Readers that hold settings of subjects, which the plans are part of.
    holders: Mutex<Vec<ChangeFeed>>,
}

impl PlanReloader {
    /// For a daemon that was started with `config`, of which these are the plans.
    pub(super) fn new(read: ReadConfig, config: &Config, plans: Plans) -> Self {
        set_gauge(&plans.fingerprint(), 1.0);
        begin_alert_counters(&plans);
        Self { read, plans, config: Mutex::new(config.clone()), holders: Mutex::default() }
    }

    /// A reader of this feed is told of each reload.
    pub(super) fn add_feed(&self, holder: ChangeFeed) {
        lock(&self.holders).push(holder);
    }

    /// Tells every reader that the settings of any subject may mean something else now.
    pub(super) fn tell_readers(&self) {
        lock(&self.holders).iter().for_each(ChangeFeed::all_changed);
    }

    /// Reads the plans again whenever the signal comes.
    pub(super) async fn on_signal(self: Arc<Self>, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            let reloader = Arc::clone(&self);
            // Files are read. What became of it is in the log.
            let _ = tokio::task::spawn_blocking(move || reloader.reload()).await;
        }
    }

    /// Reads the plans again, and tells the log how that ended. Reads files, so it blocks.
    pub(super) fn reload(&self) -> Result<ReloadedPlans, ReloadError> {
        let reloaded = (self.read)().map_err(|error| refused(&error)).and_then(|config| self.apply(config));
        // Counted first: whoever reads of it in the log finds it in the metrics.
        let outcome = if reloaded.is_ok() { "applied" } else { "refused" };
        counter!(meters::RELOADS, "outcome" => outcome).increment(1);
        match &reloaded {
            Ok(ReloadedPlans { fingerprint, changed }) => {
                tracing::info!(fingerprint, changed, "plans were read again and are in effect");
            }
            Err(ReloadError(reason)) => tracing::error!(
                reason,
                "plans were not reloaded: the configuration is refused, the plans before stay in effect"
            ),
        }
        reloaded
    }

    fn apply(&self, config: Config) -> Result<ReloadedPlans, ReloadError> {
        let plans = config.plans().map_err(|error| refused(&error.into()))?;
        config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        let mut last = lock(&self.config);
        let settings = last.changed_beside_plans(&config).join(", ");
        if !settings.is_empty() {
            tracing::warn!(settings, "settings beside the plans have changed too: they take effect at the next start");
        }
        let (before, fingerprint) = (self.plans.fingerprint(), plans.fingerprint());
        self.plans.replace(&plans);
        begin_alert_counters(&plans);
        *last = config;
        drop(last);
        self.tell_readers();
        if before != fingerprint {
            set_gauge(&before, 0.0);
            set_gauge(&fingerprint, 1.0);
        }
        Ok(ReloadedPlans { changed: before != fingerprint, fingerprint: fingerprint.to_string() })
    }
}

fn refused(error: &anyhow::Error) -> ReloadError {
    ReloadError(format!("{error:#}"))
}

/// Lets the alerts that these plans may raise begin with 0: a rate over a series that appears with its first alert
/// misses that.
fn begin_alert_counters(plans: &Plans) {
    for (threshold, window) in plans.thresholds() {
        let (threshold, window) = (threshold.to_string(), window.as_str());
        counter!(meters::ALERTS_RAISED, "threshold" => threshold, "window" => window).increment(0);
    }
}

/// 1 for plans that are in effect, 0 for those before.
fn set_gauge(fingerprint: &str, in_effect: f64) {
    gauge!(meters::PLANS, "fingerprint" => fingerprint.to_owned()).set(in_effect);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
