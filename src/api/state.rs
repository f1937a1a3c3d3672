//! What the handlers share.

use std::sync::Arc;

use super::check_service::CheckService;
use super::delivery_service::DeliveryService;
use super::gauges::Gauges;
use super::plan_reload::PlanReload;
use super::read_service::ReadService;
use super::ready::Readiness;
use super::subject_service::SubjectService;
use super::token::Token;
use crate::verification::VerificationService;

/// What the handlers share.
#[derive(Debug)]
pub struct ApiState {
    /// Whether the daemon is ready.
    pub readiness: Arc<Readiness>,
    /// Gauges that are read from Redis at each scrape.
    pub gauges: Gauges,
    /// The counters of this process.
    pub recorder: metrics_exporter_prometheus::PrometheusHandle,
    /// The token that callers need, where the operator has set one.
    pub token: Option<Token>,
    /// Reads the plans again.
    pub plans: Arc<dyn PlanReload>,
    /// Decides checks.
    pub checks: Arc<CheckService>,
    /// Reads subjects and counters.
    pub reads: ReadService,
    /// Lists, shows and changes deliveries.
    pub deliveries: DeliveryService,
    /// Replaces, mutes and erases subjects.
    pub subjects: SubjectService,
    /// Contacts that a subject's own side adds, and their verification.
    pub verification: Arc<VerificationService>,
}
