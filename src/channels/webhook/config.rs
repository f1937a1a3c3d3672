//! The section `[webhook]`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::blocked_networks::EgressPolicy;
use super::proxy::Proxy;
use crate::types::{Rate, SecretUrl, duration};

/// How the daemon sends webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// The deadline of one attempt: DNS, connection, TLS, request and response together.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// Whether `http://` URLs may be called.
    pub allow_http: bool,
    /// Whether loopback, private and link-local addresses may be called.
    pub allow_private_networks: bool,
    /// Networks of these addresses that may be called anyway, such as `10.1.0.0/16`.
    #[serde(deserialize_with = "networks")]
    pub allowed_networks: Vec<IpNet>,
    /// A directory with templates of bodies, one `<name>.json` each.
    pub templates: Option<PathBuf>,
    /// A PEM file of certificate authorities to trust in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// Maximum number of attempts to one destination, and the window in which they count; unset: no cap. A destination
    /// is the origin of a URL.
    pub per_destination: Option<Rate>,
    /// The proxy of all webhooks, `http://user:password@host:port`; unset: none.
    pub proxy: Option<SecretUrl>,
}

impl WebhookConfig {
    /// The rules for addresses that may be called.
    pub(super) fn egress_policy(&self) -> EgressPolicy {
        EgressPolicy {
            allow_http: self.allow_http,
            allow_private_networks: self.allow_private_networks,
            allowed_networks: self.allowed_networks.as_slice().into(),
        }
    }

    /// The proxy of all webhooks.
    ///
    /// # Errors
    ///
    /// The fault of the setting, without the password.
    pub(super) fn proxy(&self) -> Result<Option<Proxy>, String> {
        self.proxy.as_ref().map(|url| Proxy::parse(url.reveal())).transpose()
    }
}

/// Reads the networks one by one, so that an error has the place of the faulty one.
fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let networks = Vec::<Network>::deserialize(deserializer)?;
    Ok(networks.into_iter().map(|Network(network)| network).collect())
}

struct Network(IpNet);

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| D::Error::custom(not_a_network(&text)))
    }
}

/// The fault of a text that is not a network.
fn not_a_network(text: &str) -> String {
    match text.split_once('/').map(|(address, _)| address.parse()) {
        Some(Ok(IpAddr::V4(_))) => format!("{text:?}: the prefix of an IPv4 network is a number from 0 to 32"),
        Some(Ok(IpAddr::V6(_))) => format!("{text:?}: the prefix of an IPv6 network is a number from 0 to 128"),
        _ => format!("{text:?} is not an address with a prefix"),
    }
}
