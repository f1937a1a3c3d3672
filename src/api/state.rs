//! What the handlers share.

use std::sync::Arc;
use std::time::Duration;

use super::check_service::CheckService;
use super::plan_reload::ReloadPlans;
use super::ready::Readiness;
use super::token::Token;
use super::top_cache::TopCache;
use crate::outbox::NewDeliveries;
use crate::subjects::Plans;
use crate::verification::VerificationService;
use crate::views::explain::Explainer;
use crate::wire::Partitions;

pub struct ApiState {
    pub readiness: Arc<Readiness>,
    /// The counters of this process.
    pub recorder: metrics_exporter_prometheus::PrometheusHandle,
    /// The token that callers need, where the operator has set one.
    pub token: Option<Token>,
    pub reload_plans: Arc<ReloadPlans>,
    pub checks: Arc<CheckService>,
    pub reads: ReadState,
    /// Redis, for the other routes.
    pub partitions: Partitions,
    /// What says why a delivery stands as it does.
    pub explainer: Explainer,
    /// Wakes the dispatchers when deliveries are due.
    pub new_deliveries: NewDeliveries,
    /// Contacts that a subject's own side adds, and their verification.
    pub verification: Arc<VerificationService>,
}

#[derive(Debug)]
pub struct ReadState {
    /// Redis, on connections for these reads alone: a long list never delays a delivery.
    pub partitions: Partitions,
    pub plans: Plans,
    /// How long after its day an event may arrive.
    pub late_max: Duration,
    /// How many days of history are kept.
    pub history_days: u32,
    pub top: TopCache,
}
