//! The parts of a daemon, built from its configuration. Building connects nowhere and spawns nothing.

use std::net::SocketAddr;
use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Semaphore;

use super::plan_reload::{PlanReloader, ReadConfig, Reloaded};
use crate::api::ingestion::shared::{CurrentRules, Ingestion};
use crate::api::openapi;
use crate::api::recent_reads::{KEPT_TIMES, TopCache};
use crate::api::state::QueryState;
use crate::api::{ApiState, CheckService, CurrentTokens, Readiness};
use crate::channels::Channels;
use crate::config::Config;
use crate::console::{
    ConsoleState, CountingRate, FILE_TTL, LastConsolePages, NearFiles, OVERVIEW_TTL, OverviewCache, StartedWith,
    TopRankings,
};
use crate::events::CountingStatus;
use crate::html::last_pages::LastPages;
use crate::outbox::NewDeliveries;
use crate::portal::{PAGES_MAX, PortalState, READS_MAX};
use crate::redis_client::{Partitions, RedisEndpoint};
use crate::subjects::watch::ChangeFeed;
use crate::subjects::{Plans, SettingsLookup};
use crate::types::Channel;
use crate::verification::VerificationService;
use crate::views::Observer;
use crate::views::subject_index::SubjectIndex;

pub(super) struct Parts<'a> {
    pub(super) config: &'a Config,
    pub(super) plans: Plans,
    pub(super) reloader: Arc<PlanReloader>,
    pub(super) endpoint: RedisEndpoint,
    /// With the connections of everything except reading, commits, checks and views, which have their own.
    pub(super) partitions: Partitions,
    pub(super) channels: Arc<Channels>,
    pub(super) api: Arc<ApiState>,
    pub(super) verification: Arc<VerificationService>,
    /// Wakes the dispatchers after new deliveries.
    pub(super) new_deliveries: NewDeliveries,
    /// Changes of subjects, for the cache of the check API.
    pub(super) check_changes: ChangeFeed,
    /// The same, for the lists of the console.
    pub(super) console_changes: ChangeFeed,
    /// Whether the workers can count.
    pub(super) counting: CountingStatus,
}

impl<'a> Parts<'a> {
    /// The state of the portal.
    pub(super) fn portal(&self) -> anyhow::Result<Arc<PortalState>> {
        let Self { config, channels, verification, api, .. } = self;
        Ok(Arc::new(PortalState {
            observer: api.observer.clone(),
            verification: Arc::clone(verification),
            channels: Arc::clone(channels),
            late_max: config.stream.late_max,
            history_days: config.history.days,
            reads: Semaphore::new(READS_MAX),
            last_pages: LastPages::new(PAGES_MAX),
            html: config.portal_html()?,
        }))
    }

    /// The state of the console, with connections to Redis of its own.
    pub(super) fn console(&self, listen: SocketAddr) -> anyhow::Result<Arc<ConsoleState>> {
        let Self { config, endpoint, channels, plans, api, .. } = self;
        let mut warnings = config.warnings();
        Channel::SENDING.iter().for_each(|channel| warnings.extend_from_slice(channels.warnings(*channel)));
        let started_with = StartedWith { settings: toml::to_string(&config.masked())?, warnings };
        let keys = config.keys();
        let partitions = Partitions::new(&endpoint.client(keys.stream())?, &keys);
        Ok(Arc::new(ConsoleState {
            observer: Observer { near: api.observer.near.clone(), ..config.observer(&partitions, plans.clone()) },
            explainer: config.explainer(&partitions, Arc::clone(channels), plans.clone()),
            tokens: api.tokens.clone(),
            late_max: config.stream.late_max,
            history_days: config.history.days,
            top: Arc::new(TopRankings::default()),
            overview: OverviewCache::new(OVERVIEW_TTL, 1),
            near_files: NearFiles::new(FILE_TTL, KEPT_TIMES),
            subjects: SubjectIndex::new(self.console_changes.clone()),
            counting_rate: CountingRate::default(),
            last_pages: LastConsolePages::default(),
            event_age_max: config.stream.event_age_max(),
            contacts_max: config.subjects.contacts_max,
            channels: Arc::clone(channels),
            reload_plans: Arc::clone(&api.reload_plans),
            new_deliveries: api.new_deliveries.clone(),
            started_with,
            portal_links: config.portal_links(&partitions)?,
            listen,
            public_url: config.console.public_base(),
        }))
    }

    /// Builds the parts, and logs warnings about the configuration.
    pub(super) fn build(config: &'a Config, read: ReadConfig, recorder: PrometheusHandle) -> anyhow::Result<Self> {
        let channels = Arc::new(config.channels()?);
        for warning in Channel::SENDING.iter().flat_map(|channel| channels.warnings(*channel)) {
            tracing::warn!("{warning}");
        }
        let plans = config.plans()?;
        let tokens = config.tokens()?;
        tokens.warnings().for_each(|warning| tracing::warn!("{warning}"));
        let endpoint = config.endpoint()?;
        let keys = config.keys();
        // Clients connect on first use; each of these has its own connections.
        let connect = || -> anyhow::Result<Partitions> { Ok(Partitions::new(&endpoint.client(keys.stream())?, &keys)) };
        let partitions = connect()?;
        let new_deliveries = NewDeliveries::new(partitions.count());
        let verification = Arc::new(VerificationService {
            partitions: partitions.clone(),
            config: config.verification.clone(),
            contacts_max: config.subjects.contacts_max,
            public_url: config.http.confirm_links_below(),
            new_deliveries: new_deliveries.clone(),
        });
        let check_changes = ChangeFeed::default();
        let tokens = CurrentTokens::new(tokens);
        let rules = CurrentRules::new(config.events.clone());
        let reloaded = Reloaded { plans: plans.clone(), tokens: tokens.clone(), rules: rules.clone() };
        let reloader = PlanReloader::new(read, config, reloaded, &endpoint, partitions.first().clone());
        let reloader = Arc::new(reloader);
        reloader.add_feed(check_changes.clone());
        let for_api = Arc::clone(&reloader);
        let checks = CheckService::new(
            config.check.clone(),
            connect()?,
            endpoint.deployment(),
            SettingsLookup::new(keys.clone(), plans.clone(), config.subjects.cache_entries, check_changes.clone()),
        );
        let reads = QueryState {
            partitions: connect()?,
            plans: plans.clone(),
            late_max: config.stream.late_max,
            event_age_max: config.stream.event_age_max(),
            history_days: config.history.days,
            top: TopCache::default(),
        };
        let counting = CountingStatus::default();
        let api = Arc::new(ApiState {
            openapi: &openapi::DOCUMENT,
            readiness: Arc::new(Readiness::new(partitions.clone(), counting.clone())),
            recorder,
            tokens,
            reload_plans: Arc::new(move |mode| Box::pin(Arc::clone(&for_api).reload(mode))),
            checks: Arc::new(checks),
            ingestion: Ingestion::new(connect()?, rules),
            observer: config.observer(&reads.partitions, plans.clone()),
            reads,
            partitions: partitions.clone(),
            explainer: config.explainer(&partitions, Arc::clone(&channels), plans.clone()),
            new_deliveries: new_deliveries.clone(),
            channels: Arc::clone(&channels),
            verification: Arc::clone(&verification),
            portal_links: config.portal_links(&partitions)?,
        });
        Ok(Self {
            config,
            plans,
            reloader,
            endpoint,
            partitions,
            channels,
            api,
            verification,
            new_deliveries,
            check_changes,
            console_changes: ChangeFeed::default(),
            counting,
        })
    }
}
