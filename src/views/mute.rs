//! A mute as it is shown.

use schemars::JsonSchema;
use serde::Serialize;

use super::Rfc3339;
use crate::types::{Mute, UnixMs};

/// A mute: alerts are recorded and not sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Mute")]
pub struct MuteView {
    /// When it ends by itself, by the server's clock; null for one that lasts.
    pub until: Option<Rfc3339>,
    pub until_ms: Option<UnixMs>,
    /// Why, in somebody's own words.
    pub reason: Option<String>,
}

impl MuteView {
    pub fn mute(&self) -> Mute {
        Mute { until: self.until_ms, reason: self.reason.clone() }
    }
}

impl From<Mute> for MuteView {
    fn from(Mute { until, reason }: Mute) -> Self {
        Self { until: until.map(Rfc3339), until_ms: until, reason }
    }
}
