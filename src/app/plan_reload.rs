//! Reloads the configuration while the daemon runs: on SIGHUP, and for `POST /v1/reload`.
//!
//! The configuration is checked as a whole, as at a start, and refused as a whole. The plans of a valid one take effect
//! with the next batch and the next check, the API's tokens and the rules of `[events]` with the next request;
//! everything else waits for the next start. A configuration that removes plans in use is refused too, unless the
//! operator forces it, because an editor or a deployment may have written half a file.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::counter;
use sha2::{Digest as _, Sha256};
use tokio::signal::unix::Signal;

use crate::api::CurrentTokens;
use crate::api::ingestion::shared::CurrentRules;
use crate::api::state::{ReloadError, ReloadMode, ReloadedPlans};
use crate::config::Config;
use crate::redis_client::endpoint::UrlSource;
use crate::redis_client::{Partition, RedisEndpoint};
use crate::subjects::Plans;
use crate::subjects::plan_use::{NamedPlan, first_subject_naming};
use crate::subjects::watch::ChangeFeed;
use crate::types::meters;

/// Reads the current configuration.
pub type ReadConfig = Box<dyn Fn() -> anyhow::Result<Config> + Send + Sync>;

/// Maximum time to search for subjects of a removed plan. Enough for some millions.
const LOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// What a reload replaces.
pub(super) struct Reloaded {
    pub(super) plans: Plans,
    pub(super) tokens: CurrentTokens,
    pub(super) rules: CurrentRules,
}

pub(super) struct PlanReloader {
    read: ReadConfig,
    plans: Plans,
    tokens: CurrentTokens,
    rules: CurrentRules,
    /// A partition on the servers that hold the settings of subjects.
    first: Partition,
    /// The configuration at the start: other differences wait for the next start.
    started: Config,
    started_files: FileDigests,
    /// The servers in `redis.url` at the start, without user and password.
    started_redis: String,
    /// Whether the last configuration had settings of the operator. The lock allows one reload at a time.
    had_settings: tokio::sync::Mutex<bool>,
    /// Readers with cached settings of subjects, which include the plans.
    holders: Mutex<Vec<ChangeFeed>>,
}

impl PlanReloader {
    /// For a daemon that was started with `config` and has these plans, tokens and rules. Reads the files that the
    /// configuration names.
    pub(super) fn new(
        read: ReadConfig,
        config: &Config,
        Reloaded { plans, tokens, rules }: Reloaded,
        redis: &RedisEndpoint,
        first: Partition,
    ) -> Self {
        begin_alert_counters(&plans);
        Self {
            read,
            plans,
            tokens,
            rules,
            first,
            started: config.clone(),
            started_files: FileDigests::from_config(config),
            started_redis: redis.to_string(),
            had_settings: tokio::sync::Mutex::new(config.has_file_settings()),
            holders: Mutex::default(),
        }
    }

    /// Notifies a reader of this feed of each reload.
    pub(super) fn add_feed(&self, holder: ChangeFeed) {
        lock(&self.holders).push(holder);
    }

    /// Notifies every reader that the settings of any subject may have changed.
    pub(super) fn tell_readers(&self) {
        lock(&self.holders).iter().for_each(ChangeFeed::all_changed);
    }

    /// Reloads on every signal.
    pub(super) async fn on_signal(self: Arc<Self>, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            // The log tells the result.
            let _ = Arc::clone(&self).reload(ReloadMode::Guarded).await;
        }
    }

    /// Reloads the configuration and logs the result.
    pub(super) async fn reload(self: Arc<Self>, mode: ReloadMode) -> Result<ReloadedPlans, ReloadError> {
        let mut had_settings = self.had_settings.lock().await;
        let reader = Arc::clone(&self);
        // Reading files blocks.
        let read = tokio::task::spawn_blocking(move || (reader.read)().map_err(|error| refused(&error))).await;
        let mut reloaded = read.unwrap_or_else(|error| Err(ReloadError(error.to_string())));
        if let (Ok(config), ReloadMode::Guarded) = (&reloaded, mode)
            && let Err(reason) = self.check_in_use(config, *had_settings).await
        {
            reloaded = Err(ReloadError(format!("{reason}; `quotabell reload --force` puts it into effect")));
        }
        let reloaded = reloaded.and_then(|config| {
            let applied = self.apply(&config)?;
            *had_settings = config.has_file_settings();
            Ok(applied)
        });
        // Counted first, so that the metrics are up to date when the log line appears.
        let outcome = if reloaded.is_ok() { "applied" } else { "refused" };
        counter!(meters::RELOADS, "outcome" => outcome).increment(1);
        match &reloaded {
            Ok(ReloadedPlans { fingerprint, changed, .. }) => {
                tracing::info!(fingerprint, changed, "plans were read again and are in effect");
            }
            Err(ReloadError(reason)) => tracing::error!(
                reason,
                "plans were not reloaded: the configuration is invalid, and the old plans stay in effect"
            ),
        }
        reloaded
    }

    /// Whether the configuration keeps everything that is in use.
    async fn check_in_use(&self, config: &Config, had_settings: bool) -> Result<(), String> {
        if had_settings && !config.has_file_settings() {
            return Err("the configuration file sets nothing any more".to_owned());
        }
        if self.tokens.is_set() && config.tokens().is_ok_and(|tokens| tokens.is_empty()) {
            return Err("http.token is gone, and /v1/check would be open to everybody".to_owned());
        }
        let dropped: Vec<String> =
            self.plans.names().into_iter().filter(|name| !config.plans.contains_key(name)).collect();
        if dropped.is_empty() {
            return Ok(());
        }
        let looking = first_subject_naming(&self.first.client, &self.first.keys, &dropped);
        match tokio::time::timeout(LOOK_TIMEOUT, looking).await {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(NamedPlan { subject, plan }))) => {
                Err(format!("plans.{plan} is gone, and subjects name it, such as {subject:?}"))
            }
            Ok(Err(error)) => Err(format!(
                "could not check whether subjects name plans that are gone ({}): {error}",
                dropped.join(", ")
            )),
            Err(_) => Err(format!(
                "could not check within {LOOK_TIMEOUT:?} whether subjects name plans that are gone ({})",
                dropped.join(", ")
            )),
        }
    }

    fn apply(&self, config: &Config) -> Result<ReloadedPlans, ReloadError> {
        let plans = config.plans().map_err(|error| refused(&error.into()))?;
        let tokens = config.tokens().map_err(|error| refused(&error.into()))?;
        config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        let settings = self.started.changed_until_restart(config).join(", ");
        if !settings.is_empty() {
            tracing::warn!(settings, "other settings changed too: they take effect at the next start");
        }
        let mut files = self.started_files.changed(&FileDigests::from_config(config));
        if config.endpoint().is_ok_and(|redis| redis.to_string() == self.started_redis)
            && let Some(at) = files.iter().position(|setting| *setting == UrlSource::URL_FILE)
        {
            files.remove(at);
            tracing::info!(
                "the file of {} has changed: new connections use its user and password",
                UrlSource::URL_FILE
            );
        }
        if !files.is_empty() {
            let files = files.join(", ");
            tracing::warn!(
                files,
                "the contents of files that settings name have changed: they take effect at the next start"
            );
        }
        let warnings: Vec<String> = tokens.warnings().collect();
        let tokens_changed = self.tokens.replace(tokens);
        if tokens_changed {
            warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            tracing::info!("the tokens of the API have changed and are in effect");
        }
        let rules_changed = self.rules.replace(&config.events);
        if rules_changed {
            tracing::info!("the rules of events.types have changed and are in effect");
        }
        let (changed, fingerprint) = (!self.plans.has_same_plans_as(&plans), plans.fingerprint().to_string());
        begin_alert_counters(&plans);
        self.plans.replace(&plans);
        self.tell_readers();
        Ok(ReloadedPlans { fingerprint, changed, tokens_changed, rules_changed })
    }
}

/// Digests of the files that settings name, by setting, because the contents may be secrets. An unreadable file has no
/// digest.
#[derive(Debug, PartialEq, Eq)]
struct FileDigests(BTreeMap<&'static str, Option<[u8; 32]>>);

impl FileDigests {
    /// Reads the files; blocks briefly.
    fn from_config(config: &Config) -> Self {
        let digest = |bytes: Vec<u8>| Sha256::digest(bytes).into();
        Self(
            config.named_files().iter().map(|file| (file.setting, std::fs::read(file.path).ok().map(digest))).collect(),
        )
    }

    /// The settings whose file has new contents. A new file name is a changed setting and reported as such.
    fn changed(&self, now: &Self) -> Vec<&'static str> {
        let differs = |(setting, digest): &(&&'static str, _)| now.0.get(**setting).is_some_and(|now| now != *digest);
        self.0.iter().filter(differs).map(|(setting, _)| *setting).collect()
    }
}

fn refused(error: &anyhow::Error) -> ReloadError {
    ReloadError(format!("{error:#}"))
}

/// Starts the counters of alerts that these plans may raise at 0, because a rate over a series that appears with its
/// first alert misses that alert.
fn begin_alert_counters(plans: &Plans) {
    for (threshold, window) in plans.thresholds() {
        let (threshold, window) = (threshold.meter_label(), window.as_str());
        counter!(meters::ALERTS_RAISED, "threshold" => threshold, "window" => window).increment(0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
