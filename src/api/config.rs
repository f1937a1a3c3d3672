//! The `[http]` section.

use serde::{Deserialize, Serialize};

/// The HTTP interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// `address:port` to listen on.
    pub listen: String,
}
