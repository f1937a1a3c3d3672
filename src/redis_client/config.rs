//! The `[redis]` section.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::types::SecretUrl;

/// The word in place of a URL for the server that the daemon starts by itself.
pub const EMBEDDED: &str = "embedded";

/// How Redis is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// `embedded`, or a URL: of one server, of Sentinels or of a cluster, with user and password. A secret, since it
    /// may hold a password; printed without it. Empty where a file is named later than any URL.
    #[serde(default, skip_serializing_if = "SecretUrl::is_empty")]
    pub url: SecretUrl,
    /// A file whose first line is the URL; wins over `url`, of which the configuration leaves none beside it.
    pub url_file: Option<PathBuf>,
    /// Where the embedded server keeps its data.
    pub data_dir: PathBuf,
    /// The port of the embedded server, on 127.0.0.1.
    pub embedded_port: u16,
    /// A PEM file of certificate authorities to trust instead of the system's, with TLS.
    pub ca_file: Option<PathBuf>,
}

impl RedisConfig {
    /// Whether the daemon starts the server by itself.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self.url_file.is_none() && self.url.reveal().trim() == EMBEDDED
    }
}
