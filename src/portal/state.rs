//! What the pages share.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;

use super::html::PortalHtml;
use crate::channels::Channels;
use crate::verification::VerificationService;
use crate::views::Observer;

/// What the pages are rendered from, and what their forms change.
pub struct PortalState {
    /// With the connections of the API's other reads.
    pub observer: Observer,
    /// Adds contacts and verifies them.
    pub verification: Arc<VerificationService>,
    /// Sends test messages.
    pub channels: Arc<Channels>,
    /// How long after the end of its day an event may arrive.
    pub late_max: Duration,
    /// Number of days of history.
    pub history_days: u32,
    /// Templates and branding.
    pub html: PortalHtml,
}

pub(super) type WithPortal = State<Arc<PortalState>>;
