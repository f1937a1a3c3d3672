//! The `[redis]` section.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::types::SecretUrl;

/// The word that replaces a URL if the daemon starts its own server.
pub const EMBEDDED: &str = "embedded";

/// How to reach Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// `embedded`, or a URL of one server, of Sentinels or of a cluster, with user and password. A secret, because it
    /// may hold a password; printed without it. Empty if a later layer of the configuration names a file.
    #[serde(default, skip_serializing_if = "SecretUrl::is_empty")]
    pub url: SecretUrl,
    /// A file whose first line is the URL. It overrides `url`; the configuration empties `url` beside it.
    pub url_file: Option<PathBuf>,
    /// The data folder of the embedded server.
    pub data_dir: PathBuf,
    /// The port of the embedded server, on 127.0.0.1.
    pub embedded_port: u16,
    /// With TLS: a PEM file of certificate authorities to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
}

impl RedisConfig {
    /// Whether the daemon starts the server itself.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self.url_file.is_none() && self.url.reveal().trim() == EMBEDDED
    }
}
