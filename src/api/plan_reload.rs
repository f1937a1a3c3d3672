//! What `POST /v1/reload` asks for: reading the plans again. The daemon does it, which knows its configuration.

use serde::{Deserialize, Serialize};

/// Reads the configuration, and puts its plans into effect. Reads files, so it blocks. Where the configuration is
/// refused, the plans before stay in effect.
pub type ReloadPlans = dyn Fn() -> Result<ReloadedPlans, ReloadError> + Send + Sync;

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
