//! The state that the pages share, and the listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use tokio::net::TcpListener;
use url::Url;

use super::config::{ConsoleConfig, OFF};
use super::counting_rate::CountingRate;
use super::last_pages::LastConsolePages;
use super::near_file::NearFiles;
use super::top_rankings::TopRankings;
use crate::actions::portal::PortalLinks;
use crate::api::recent_reads::RecentReads;
use crate::api::server::ServerLimits;
use crate::api::state::ReloadPlans;
use crate::api::token::CurrentTokens;
use crate::channels::Channels;
use crate::outbox::NewDeliveries;
use crate::views::Observer;
use crate::views::explain::Explainer;
use crate::views::overview::OverviewView;
use crate::views::subject_index::SubjectIndex;

/// What the pages are rendered from, and what their forms change.
pub struct ConsoleState {
    /// With connections to Redis that only the console uses.
    pub observer: Observer,
    pub explainer: Explainer,
    pub tokens: CurrentTokens,
    /// How long after the end of its day an event may arrive.
    pub late_max: Duration,
    /// Number of days of history.
    pub history_days: u32,
    pub top: Arc<TopRankings>,
    pub overview: OverviewCache,
    pub near_files: NearFiles,
    pub subjects: SubjectIndex,
    pub counting_rate: CountingRate,
    /// What visitors see while Redis is away.
    pub last_pages: LastConsolePages,
    /// How old an event may be when it is counted.
    pub event_age_max: Duration,
    /// Maximum number of contacts of a subject.
    pub contacts_max: usize,
    /// Sends test messages.
    pub channels: Arc<Channels>,
    pub reload_plans: Arc<ReloadPlans>,
    /// Wakes the dispatchers of this daemon.
    pub new_deliveries: NewDeliveries,
    pub started_with: StartedWith,
    /// Makes links to the portal.
    pub portal_links: PortalLinks,
    /// The address on which the console listens.
    pub listen: SocketAddr,
    /// The URL at which a proxy serves it.
    pub public_url: Option<Url>,
}

/// The configuration at the start, for admins.
pub struct StartedWith {
    /// As `check-config` prints it, without secrets.
    pub settings: String,
    /// What `check-config` warns of without a connection.
    pub warnings: Vec<String>,
}

pub(super) type WithConsole = State<Arc<ConsoleState>>;

/// One overview for all who look at it, with the number of erasures before it. A page that refreshes itself every 3 s
/// gets a new one each time.
pub type OverviewCache = RecentReads<u64, OverviewView>;

/// How long an overview is shown to others.
pub const OVERVIEW_TTL: Duration = Duration::from_secs(2);

/// Far fewer connections than the API has: people look at pages.
pub const LIMITS: ServerLimits = ServerLimits { connections_max: 128, probes_max: 0, idle: ServerLimits::DAEMON.idle };

/// Binds the listener. A console that can't listen must not stop the daemon, so this is a warning.
pub async fn listen(config: &ConsoleConfig) -> Option<(TcpListener, SocketAddr)> {
    if config.listen == OFF {
        return None;
    }
    let bound = TcpListener::bind(&config.listen).await;
    let bound = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
    match bound {
        Ok((address, listener)) => {
            tracing::info!(%address, "the console listens");
            Some((listener, address))
        }
        Err(error) => {
            let address = &config.listen;
            tracing::warn!(%error, address, "the console can't listen and is off: set console.listen to a free address, or to \"off\"");
            None
        }
    }
}
