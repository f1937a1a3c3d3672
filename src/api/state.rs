//! What the handlers share.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check_service::CheckService;
use super::ready::Readiness;
use super::token::CurrentToken;
use super::top_cache::TopCache;
use crate::channels::Channels;
use crate::outbox::NewDeliveries;
use crate::redis_client::Partitions;
use crate::subjects::Plans;
use crate::verification::VerificationService;
use crate::views::explain::Explainer;

pub struct ApiState {
    pub readiness: Arc<Readiness>,
    /// The OpenAPI document.
    pub openapi: &'static str,
    /// The counters of this process.
    pub recorder: metrics_exporter_prometheus::PrometheusHandle,
    /// The token that callers need, where the operator has set one.
    pub token: CurrentToken,
    pub reload_plans: Arc<ReloadPlans>,
    pub checks: Arc<CheckService>,
    pub reads: QueryState,
    /// Redis, for the other routes.
    pub partitions: Partitions,
    /// What says why a delivery stands as it does.
    pub explainer: Explainer,
    /// Wakes the dispatchers when deliveries are due.
    pub new_deliveries: NewDeliveries,
    /// What says of a contact whether it can ever be reached.
    pub channels: Arc<Channels>,
    /// Contacts that a subject's own side adds, and their verification.
    pub verification: Arc<VerificationService>,
}

#[derive(Debug)]
pub struct QueryState {
    /// Redis, on connections for these reads alone: a long list never delays a delivery.
    pub partitions: Partitions,
    pub plans: Plans,
    /// How long after its day an event may arrive.
    pub late_max: Duration,
    /// How old an event may be when it is counted.
    pub event_age_max: Duration,
    /// How many days of history are kept.
    pub history_days: u32,
    pub top: TopCache,
}

/// Reads the configuration, and puts its plans and its token into effect. If it is refused, those before stay in
/// effect.
pub type ReloadPlans =
    dyn Fn(ReloadMode) -> Pin<Box<dyn Future<Output = Result<ReloadedPlans, ReloadError>> + Send>> + Send + Sync;

/// Whether a reload may take something away that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadMode {
    /// A configuration that has become empty, removes the token or drops a plan which a subject names is refused.
    Guarded,
    /// The operator has said that this is meant.
    Forced,
}

/// Plans that are in effect from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadedPlans {
    /// Tells limits and thresholds from others, as `/metrics` and the checkpoint show it.
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    pub fingerprint: String,
    /// Whether limits or thresholds are others than before.
    pub changed: bool,
}

/// Why a configuration is refused: every mistake, with its place and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReloadError(pub String);
