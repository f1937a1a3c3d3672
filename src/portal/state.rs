//! What the pages share.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use tokio::sync::Semaphore;

use super::html::PortalHtml;
use crate::channels::Channels;
use crate::html::last_pages::LastPages;
use crate::signing::PortalAccess;
use crate::verification::VerificationService;
use crate::views::Observer;
use crate::views::portal::PortalView;

/// Maximum number of pages that are read at the same time.
pub const READS_MAX: usize = 8;
/// Maximum number of pages that are kept, of some 20 kB each.
pub const PAGES_MAX: usize = 256;

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
    /// Bounds the pages that are read at the same time: each needs many calls.
    pub reads: Semaphore,
    /// What visitors see while Redis is away, by their tokens.
    pub last_pages: LastPages<String, ReadPortal>,
    /// Templates and branding.
    pub html: PortalHtml,
}

/// A page that was read: what the token permits, and what it shows.
#[derive(Debug)]
pub struct ReadPortal {
    pub(super) access: PortalAccess,
    pub(super) language: String,
    pub(super) view: PortalView,
}

pub(super) type WithPortal = State<Arc<PortalState>>;
