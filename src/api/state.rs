//! The state that the handlers share.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check_service::CheckService;
use super::ingestion::shared::Ingestion;
use super::ready::Readiness;
use super::recent_reads::TopCache;
use super::token::CurrentTokens;
use crate::actions::portal::PortalLinks;
use crate::channels::Channels;
use crate::outbox::NewDeliveries;
use crate::redis_client::Partitions;
use crate::subjects::Plans;
use crate::verification::VerificationService;
use crate::views::Observer;
use crate::views::explain::Explainer;

pub struct ApiState {
    pub readiness: Arc<Readiness>,
    /// The OpenAPI document.
    pub openapi: &'static str,
    /// The counters of this process.
    pub recorder: metrics_exporter_prometheus::PrometheusHandle,
    /// The tokens of callers, if the operator has set any.
    pub tokens: CurrentTokens,
    pub reload_plans: Arc<ReloadPlans>,
    pub checks: Arc<CheckService>,
    pub ingestion: Ingestion,
    pub reads: QueryState,
    /// The connections to Redis of the other routes.
    pub partitions: Partitions,
    /// Explains the state of deliveries.
    pub explainer: Explainer,
    /// Reads the state of all subjects.
    pub observer: Observer,
    /// Wakes the dispatchers when deliveries are due.
    pub new_deliveries: NewDeliveries,
    /// Judges whether a contact can be reached at all.
    pub channels: Arc<Channels>,
    /// Makes links to the portal.
    pub portal_links: PortalLinks,
    /// Adds contacts of subjects and verifies them.
    pub verification: Arc<VerificationService>,
}

#[derive(Debug)]
pub struct QueryState {
    /// Connections to Redis that only these reads use, so that a long list does not delay a delivery.
    pub partitions: Partitions,
    pub plans: Plans,
    /// How long after the end of its day an event may arrive.
    pub late_max: Duration,
    /// Maximum age of an event when it is counted.
    pub event_age_max: Duration,
    /// Number of days of history.
    pub history_days: u32,
    pub top: TopCache,
}

/// Reads the configuration and applies its plans and its tokens. If the configuration is refused, the earlier plans and
/// tokens stay in effect.
pub type ReloadPlans =
    dyn Fn(ReloadMode) -> Pin<Box<dyn Future<Output = Result<ReloadedPlans, ReloadError>> + Send>> + Send + Sync;

/// Whether a reload may remove something that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadMode {
    /// Refuses a configuration that is empty, has no token any more, or drops a plan of a subject.
    Guarded,
    /// The operator has confirmed the change.
    Forced,
}

/// Plans that are in effect from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadedPlans {
    /// Tells limits and thresholds from others, as `/metrics` and the checkpoint show it.
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    pub fingerprint: String,
    /// Whether limits or thresholds have changed.
    pub changed: bool,
    /// Whether the tokens of the API have changed.
    pub tokens_changed: bool,
    /// Whether the rules of `events.types` have changed.
    pub rules_changed: bool,
}

/// Why a configuration is refused: every mistake, with its place and the allowed values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReloadError(pub String);
