//! The parts of a daemon that its configuration makes. Building them connects nowhere and spawns nothing.

use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Notify;

use crate::api::read_service::ReadParts;
use crate::api::{ApiState, CheckService, Gauges, ReadService, Readiness, SubjectService, Token};
use crate::channels::Channels;
use crate::config::Config;
use crate::ledger::CheckScript;
use crate::subjects::watch::ChangeFeed;
use crate::subjects::{Plans, SettingsLookup};
use crate::types::Keys;
use crate::verification::VerificationService;
use crate::wire::{RedisClient, RedisEndpoint};

/// The parts of one daemon.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) config: &'a Config,
    pub(super) keys: Keys,
    pub(super) plans: Plans,
    pub(super) endpoint: RedisEndpoint,
    /// The connection of everything but reading, commits, checks and views, which have connections of their own.
    pub(super) client: Arc<RedisClient>,
    pub(super) channels: Arc<Channels>,
    pub(super) api: Arc<ApiState>,
    pub(super) verification: Arc<VerificationService>,
    /// Wakes the dispatcher when there are new deliveries.
    pub(super) new_deliveries: Arc<Notify>,
    /// Changes of subjects, for the cache of the check API.
    pub(super) check_changes: ChangeFeed,
}

impl<'a> Parts<'a> {
    /// Builds the parts, and logs what is legal but unwise.
    ///
    /// # Errors
    ///
    /// A setting that the part refuses: a template, a plan, a URL, a token.
    pub(super) fn build(config: &'a Config, recorder: PrometheusHandle) -> anyhow::Result<Self> {
        let channels = Arc::new(config.channels()?);
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        for warning in channels.warnings() {
            tracing::warn!("{warning}");
        }
        let plans = Plans::new(&config.plans, &config.default_plan)?;
        let token = config.token()?;
        if let Some(warning) = token.as_ref().and_then(Token::warning) {
            tracing::warn!("{warning}");
        }
        let endpoint = config.endpoint()?;
        let keys = config.keys();
        // Clients connect when they are first used.
        let client = Arc::new(endpoint.client(keys.stream())?);
        let new_deliveries = Arc::new(Notify::new());
        let verification = Arc::new(VerificationService {
            client: Arc::clone(&client),
            keys: keys.clone(),
            config: config.verification.clone(),
            public_url: config.http.confirm_links_below(),
            new_deliveries: Arc::clone(&new_deliveries),
        });
        let check_changes = ChangeFeed::default();
        let checks = CheckService::new(
            config.check.clone(),
            Arc::new(endpoint.client(keys.stream())?),
            SettingsLookup::new(keys.clone(), plans.clone(), config.subjects.cache_entries, check_changes.clone()),
            CheckScript::new(keys.clone()),
        );
        let reads = ReadService::new(ReadParts {
            client: Arc::new(endpoint.client(keys.stream())?),
            keys: keys.clone(),
            plans: plans.clone(),
            late_max: config.stream.late_max,
            history_days: config.history.days,
        });
        let api = Arc::new(ApiState {
            readiness: Arc::new(Readiness::new(Arc::clone(&client))),
            gauges: Gauges::new(keys.clone(), Arc::clone(&client)),
            recorder,
            token,
            checks: Arc::new(checks),
            reads,
            subjects: SubjectService { client: Arc::clone(&client), keys: keys.clone(), plans: plans.clone() },
            verification: Arc::clone(&verification),
        });
        Ok(Self { config, keys, plans, endpoint, client, channels, api, verification, new_deliveries, check_changes })
    }
}
