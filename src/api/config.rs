//! The `[http]` section.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::types::Secret;

/// The HTTP interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// `address:port` to listen on.
    pub listen: String,
    /// What callers of the API must show. Without one nothing can be written through it.
    pub token: Option<Secret>,
    /// A file whose first line is the token; wins over `token`, of which the configuration leaves none beside it.
    pub token_file: Option<PathBuf>,
    /// Where people reach this interface, `https://quota.example.com`: what confirm links begin with.
    pub public_url: Option<String>,
}
