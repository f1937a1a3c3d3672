//! The section `[webhook]`.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::blocked_networks::CallRules;
use crate::types::{Rate, duration};

/// How webhooks are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// The deadline of one attempt: DNS, connection, TLS, request and answer together.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// Whether `http://` URLs may be called.
    pub allow_http: bool,
    /// Whether loopback, private and link-local addresses may be called.
    pub allow_private_networks: bool,
    /// Those of them that may be called even so, as `10.1.0.0/16`.
    pub allowed_networks: Vec<IpNet>,
    /// A directory with templates of bodies, `<name>.json` each.
    pub templates: Option<PathBuf>,
    /// A PEM file of certificate authorities to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// The most attempts to one destination in any window of this length; unset: no cap. A destination is a URL's
    /// origin.
    pub per_destination: Option<Rate>,
}

impl WebhookConfig {
    /// What may be called.
    pub(super) fn call_rules(&self) -> CallRules {
        CallRules {
            allow_http: self.allow_http,
            allow_private_networks: self.allow_private_networks,
            allowed_networks: self.allowed_networks.as_slice().into(),
        }
    }
}
