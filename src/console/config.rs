//! The section `[console]`.

use serde::{Deserialize, Serialize};
use url::Url;

use crate::api::config::base_url;

/// Turns the console off.
pub const OFF: &str = "off";

/// The console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleConfig {
    /// `address:port` to listen on, or [`OFF`].
    pub listen: String,
    /// The URL at which a proxy serves the console.
    pub public_url: Option<String>,
}

impl ConsoleConfig {
    /// `public_url`; `None` if it is not set, or is not an http or https URL of a host, without user, query and
    /// fragment.
    pub fn public_base(&self) -> Option<Url> {
        base_url(self.public_url.as_deref())
    }
}
