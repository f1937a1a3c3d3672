//! What `POST /v1/reload` asks for: reading the plans again. The daemon does it, which knows its configuration.

use serde::{Deserialize, Serialize};

/// What reads the plans again.
pub trait PlanReload: std::fmt::Debug + Send + Sync {
    /// Reads the configuration, and puts its plans into effect. Reads files, so it blocks.
    ///
    /// # Errors
    ///
    /// The configuration is refused; the plans before stay in effect.
    fn reload(&self) -> Result<ReloadedPlans, ReloadError>;
}

/// Plans that are in effect from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadedPlans {
    /// Tells limits and thresholds from others, as `/metrics` and the checkpoint show it.
    pub fingerprint: String,
    /// Whether limits or thresholds are others than before.
    pub changed: bool,
}

/// Why a configuration is refused: every mistake, with its place and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReloadError(pub String);
