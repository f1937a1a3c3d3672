//! The address of Redis and the login: the `[redis]` section, validated.
//!
//! Reads the files that the section names. Never prints a password. Read next: [`super::redis_url`], for the forms of
//! the URL.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use redis::{RedisError, RedisResult};
use rustls::pki_types::ServerName;
use tokio_util::sync::CancellationToken;

use super::client::RedisClient;
use super::cluster::ClusterNodes;
use super::config::{EMBEDDED, RedisConfig};
use super::deployment_error::DeploymentError;
use super::embedded_password;
use super::hash_slots::HashSlot;
use super::login::{LoginOf, RedisLogin, first_line};
use super::node::RedisNode;
use super::redis_url::{self, ConnectionSecurity, RedisAddress, RedisUrl, RedisUrlError, SCHEMES, UrlServers};
use super::router::Router;
use super::sentinel::Sentinels;
use super::tls::{TlsError, TlsSettings};
pub use super::topology::{Deployment, TOPOLOGY_REFRESH_INTERVAL};
use super::topology::{Topology, TopologySource};

/// Redis as configured. All clones share the knowledge about primaries.
#[derive(Debug, Clone)]
pub struct RedisEndpoint {
    /// `None` for one server.
    topology: Option<Arc<Topology>>,
    /// One of its servers: the only one, or a template with the first address of the URL.
    node: Arc<RedisNode>,
    /// The URL without user and password, for logs and errors.
    shown: Arc<str>,
}

/// A primary, according to the latest information.
#[derive(Debug, Clone)]
pub struct Primary {
    node: Arc<RedisNode>,
    topology: Option<Arc<Topology>>,
}

impl Primary {
    /// The server.
    pub fn node(&self) -> &RedisNode {
        &self.node
    }

    /// Marks the primary as unreachable or demoted: the next caller asks for the primary again.
    pub fn suspect(&self) {
        if let Some(topology) = &self.topology {
            topology.suspect(&self.node.address);
        }
    }

    /// Whether another server has replaced it.
    pub fn is_replaced(&self) -> bool {
        self.topology.as_ref().is_some_and(|topology| topology.is_replaced(&self.node.address))
    }
}

/// What is wrong with the `[redis]` section, and what is allowed. Never holds any part of the URL.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("read redis.url_file {}", .path.display())]
    UrlFile { path: PathBuf, source: io::Error },
    #[error("{from}: {problem}")]
    Url { from: UrlSource, problem: RedisUrlError },
    #[error("{from} is empty; allowed: {EMBEDDED}, or a URL that begins with {}://", SCHEMES.join("://, "))]
    Empty { from: UrlSource },
    #[error(
        "redis.ca_file is set, but {from} does not begin with rediss; allowed: a URL that begins with rediss://, \
         rediss+sentinel:// or rediss+cluster://, or no redis.ca_file"
    )]
    CaFileWithoutTls { from: UrlSource },
    #[error("{from}: a host of the URL with TLS is neither a DNS name nor an IP address")]
    ServerName { from: UrlSource },
    #[error("read the password of the embedded Redis from {}", .path.display())]
    Password { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("prepare the redis client")]
    Client(#[source] RedisError),
}

impl EndpointError {
    /// The setting that is wrong; `None` if the machine is at fault.
    pub const fn setting(&self) -> Option<&'static str> {
        match self {
            Self::UrlFile { .. } => Some(UrlSource::URL_FILE),
            Self::Password { .. } => Some("redis.data_dir"),
            Self::Url { from, .. } | Self::Empty { from } | Self::ServerName { from } => Some(from.setting()),
            Self::CaFileWithoutTls { .. } | Self::Tls(TlsError::CaFile { .. } | TlsError::NoCertificate { .. }) => {
                Some("redis.ca_file")
            }
            Self::Tls(TlsError::NoSystemRoots | TlsError::Rustls(_)) | Self::Client(_) => None,
        }
    }
}

/// The source of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UrlSource {
    /// `redis.url`
    Setting,
    /// `redis.url_file`
    File(PathBuf),
}

impl UrlSource {
    /// The setting that names the file.
    pub const URL_FILE: &str = "redis.url_file";

    const fn setting(&self) -> &'static str {
        match self {
            Self::Setting => "redis.url",
            Self::File(_) => Self::URL_FILE,
        }
    }
}

impl fmt::Display for UrlSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting => f.write_str(self.setting()),
            Self::File(path) => write!(f, "{} {}", self.setting(), path.display()),
        }
    }
}

impl RedisEndpoint {
    /// Validates the section. `url_file` wins over `url`; `embedded` is the server on 127.0.0.1 at `embedded_port`.
    ///
    /// # Errors
    ///
    /// An unreadable file, an invalid URL, or unusable certificate authorities.
    pub fn from_config(config: &RedisConfig) -> Result<Self, EndpointError> {
        let (from, text) = match &config.url_file {
            Some(path) => {
                let line = first_line(path).map_err(|source| EndpointError::UrlFile { path: path.clone(), source })?;
                (UrlSource::File(path.clone()), line)
            }
            None => (UrlSource::Setting, config.url.reveal().trim().to_owned()),
        };
        if text.is_empty() {
            return Err(EndpointError::Empty { from });
        }
        if config.is_embedded() {
            let password = embedded_password::read(&config.data_dir).map_err(|source| EndpointError::Password {
                path: embedded_password::password_file(&config.data_dir),
                source,
            })?;
            return Ok(Self::of_node(embedded_password::node(config.embedded_port, &config.data_dir, password)));
        }
        let url = redis_url::parse(&text).map_err(|problem| EndpointError::Url { from: from.clone(), problem })?;
        let login = |of| RedisLogin::of_url(&url, config.url_file.as_deref(), of);
        let (login, sentinel_login) = (login(LoginOf::Servers), login(LoginOf::Sentinels));
        let RedisUrl { servers, security, db, .. } = url;
        let ca_file = config.ca_file.as_deref();
        if ca_file.is_some() && security == ConnectionSecurity::Plain {
            return Err(EndpointError::CaFileWithoutTls { from });
        }
        let node = |address: RedisAddress| -> Result<RedisNode, EndpointError> {
            let tls = match (&address, security) {
                (RedisAddress::Tcp { host, .. }, ConnectionSecurity::Tls) => {
                    let name = ServerName::try_from(host.clone())
                        .map_err(|_| EndpointError::ServerName { from: from.clone() })?;
                    Some(TlsSettings::new(name, ca_file)?)
                }
                _ => None,
            };
            Ok(RedisNode { address, tls, db, login: login.clone() })
        };
        let nodes = |addresses: Vec<RedisAddress>| addresses.into_iter().map(node).collect::<Result<Vec<_>, _>>();
        let shown_scheme = if security == ConnectionSecurity::Tls { "rediss" } else { "redis" };
        match servers {
            UrlServers::One(address) => Ok(Self::of_node(node(address)?)),
            UrlServers::Sentinel { sentinels, service, .. } => {
                let nodes = nodes(sentinels)?;
                let shown = format!("{shown_scheme}+sentinel://{}/{service}/{db}", listed(&nodes));
                let template = nodes[0].clone();
                let sentinels: Vec<RedisNode> =
                    nodes.into_iter().map(|node| RedisNode { db: 0, login: sentinel_login.clone(), ..node }).collect();
                let sentinels =
                    Sentinels::new(&sentinels, &service, template.clone()).map_err(EndpointError::Client)?;
                Ok(Self::routed(TopologySource::Sentinel(sentinels), template, shown))
            }
            UrlServers::Cluster(nodes_of_url) => {
                let nodes = nodes(nodes_of_url)?;
                let shown = format!("{shown_scheme}+cluster://{}", listed(&nodes));
                let template = nodes[0].clone();
                Ok(Self::routed(TopologySource::Cluster(ClusterNodes::new(nodes)), template, shown))
            }
        }
    }

    /// The server on 127.0.0.1 at `port`, without a password.
    pub fn local(port: u16) -> Self {
        Self::of_node(RedisNode::local(port))
    }

    /// An endpoint of this server.
    pub fn of_node(node: RedisNode) -> Self {
        Self { topology: None, shown: node.to_string().into(), node: Arc::new(node) }
    }

    fn routed(source: TopologySource, template: RedisNode, shown: String) -> Self {
        Self { topology: Some(Arc::new(Topology::new(source))), node: Arc::new(template), shown: shown.into() }
    }

    /// The kind of deployment, according to the URL.
    pub fn deployment(&self) -> Deployment {
        self.topology.as_ref().map_or(Deployment::Standalone, |topology| topology.deployment())
    }

    /// The ACL user; `None` for the default one.
    pub fn username(&self) -> Option<String> {
        self.node.login.current()?.username
    }

    /// Number of the database.
    pub fn db(&self) -> u32 {
        self.node.db
    }

    /// The port, if the URL names one server on TCP.
    pub fn port(&self) -> Option<u16> {
        match (&self.topology, &self.node.address) {
            (None, RedisAddress::Tcp { port, .. }) => Some(*port),
            _ => None,
        }
    }

    /// A client of the partition with the stream `default_key`: commands without a key go to the primary of that key.
    /// Connects nowhere yet.
    ///
    /// # Errors
    ///
    /// [`EndpointError::Client`]
    pub fn client(&self, default_key: &str) -> Result<RedisClient, EndpointError> {
        match &self.topology {
            None => RedisClient::to(&self.node).map_err(EndpointError::Client),
            Some(topology) => Ok(RedisClient::routed(Router::new(Arc::clone(topology), default_key))),
        }
    }

    /// Returns the primary that serves `key`. Always asks the Sentinels or nodes.
    ///
    /// # Errors
    ///
    /// No Sentinel or node knows it, or no primary serves the key.
    pub async fn ask_primary_of(&self, key: &str) -> RedisResult<Primary> {
        let node = match &self.topology {
            None => Arc::clone(&self.node),
            Some(topology) => topology.ask_primary_of(HashSlot::of_key(key.as_bytes())).await?,
        };
        Ok(Primary { node, topology: self.topology.clone() })
    }

    /// Every primary, always in the same order.
    ///
    /// # Errors
    ///
    /// No Sentinel or node knows them.
    pub async fn primaries(&self) -> RedisResult<Vec<Primary>> {
        let nodes = match &self.topology {
            None => vec![Arc::clone(&self.node)],
            Some(topology) => topology.map().await?.primaries().to_vec(),
        };
        Ok(nodes.into_iter().map(|node| Primary { node, topology: self.topology.clone() }).collect())
    }

    /// Checks that a primary serves every slot; the error lists the others, such as `0-5460, 16383`.
    ///
    /// # Errors
    ///
    /// No Sentinel or node knows them, or a slot has no primary.
    pub async fn check_slots(&self) -> RedisResult<()> {
        let Some(topology) = &self.topology else { return Ok(()) };
        match topology.map().await?.uncovered() {
            None => Ok(()),
            Some(slots) => Err(DeploymentError::UncoveredSlots { slots }.into()),
        }
    }

    /// Forgets the primaries: the next caller asks for them. Before [`Self::watch`] runs nobody else asks, and a
    /// primary may have become a replica without a failed call.
    pub fn forget_primaries(&self) {
        if let Some(topology) = &self.topology {
            topology.outdate();
        }
    }

    /// Keeps asking which servers are primaries, until stopped. Ends at once if the URL names one server.
    pub async fn watch(self, stop: CancellationToken) {
        if let Some(topology) = &self.topology {
            topology.watch(stop).await;
        }
    }

    /// The endpoint and its primaries, for logs.
    pub fn connected_to(&self) -> String {
        let Some(topology) = &self.topology else { return self.shown.to_string() };
        let primaries = topology.known().map_or_else(|| "unknown".to_owned(), |map| map.addresses());
        format!("{}, primary {primaries}", self.shown)
    }
}

impl PartialEq for Primary {
    /// The same server.
    fn eq(&self, other: &Self) -> bool {
        self.node.address == other.node.address
    }
}

fn listed(nodes: &[RedisNode]) -> String {
    nodes.iter().map(|node| node.address.to_string()).collect::<Vec<_>>().join(",")
}

impl fmt::Display for RedisEndpoint {
    /// The endpoint as a URL without user and password, for logs and errors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> RedisConfig {
        RedisConfig { url: url.into(), url_file: None, data_dir: "data".into(), embedded_port: 6399, ca_file: None }
    }

    fn problem(config: &RedisConfig) -> String {
        RedisEndpoint::from_config(config).expect_err("it is refused").to_string()
    }

    /// Logs and errors show Redis as an endpoint.
    #[test]
    fn an_endpoint_is_described_without_user_and_password() {
        for (url, described) in [
            ("embedded", "redis://127.0.0.1:6399/0"),
            (" redis://alice:hunter2@cache/4 ", "redis://cache:6379/4"),
            ("redis://:hunter2@[fd00::1]:7000", "redis://[fd00::1]:7000/0"),
            ("unix:///run/r.sock?pass=hunter2", "redis+unix:///run/r.sock"),
            ("redis+unix:///run/r.sock?pass=hunter2&db=1", "redis+unix:///run/r.sock?db=1"),
        ] {
            let endpoint = RedisEndpoint::from_config(&config(url)).expect("it is allowed");
            assert_eq!(endpoint.to_string(), described);
            let client = endpoint.node.client().expect("a client");
            assert!(client.get_connection_info().tcp_settings().nodelay());
            for printed in [format!("{endpoint:?}"), format!("{client:?}")] {
                assert!(!printed.contains("hunter2"), "{printed}");
            }
        }
    }

    /// Container platforms provide secrets as files.
    #[test]
    fn a_url_file_wins_over_the_url() {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("url");
        let mut config = config("redis://elsewhere");
        config.url_file = Some(path.clone());
        assert!(problem(&config).contains(&path.display().to_string()));
        std::fs::write(&path, "  redis://:hunter2@cache:1/2 \nsecond line\n").expect("a file");
        assert_eq!(RedisEndpoint::from_config(&config).expect("it is allowed").to_string(), "redis://cache:1/2");
        std::fs::write(&path, "\nredis://cache").expect("a file");
        assert!(problem(&config).contains("is empty"));
        std::fs::write(&path, "redis://:hunter2/@cache").expect("a file");
        let said = problem(&config);
        assert!(said.contains(&path.display().to_string()) && !said.contains("hunter2"), "{said}");
        // Only the setting starts the embedded server.
        std::fs::write(&path, EMBEDDED).expect("a file");
        assert!(problem(&config).contains("not a URL"), "{}", problem(&config));
    }

    /// An unused file of authorities would give a false sense of encryption.
    #[test]
    fn authorities_need_tls_and_a_certificate() {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("ca.pem");
        let with = |url| RedisConfig { ca_file: Some(path.clone()), ..config(url) };
        assert!(problem(&with("redis://cache")).contains("does not begin with rediss;"));
        assert!(problem(&with("rediss://cache")).starts_with("read redis.ca_file"));
        std::fs::write(&path, "no certificate").expect("a file");
        assert!(problem(&with("rediss://cache")).contains("holds no certificate"));
    }
}
