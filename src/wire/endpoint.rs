//! Where Redis is and how to log in: the `[redis]` section, validated.
//!
//! Reads the files that the section names. Never prints a password. Read next: [`super::redis_url`], for the forms of the URL.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use redis::RedisError;
use rustls::pki_types::ServerName;

use super::client::RedisClient;
use super::config::RedisConfig;
use super::node::RedisNode;
use super::redis_url::{self, ConnectionSecurity, RedisAddress, RedisUrl, RedisUrlError, SCHEMES, UrlServers};
use super::tls::{TlsError, TlsSettings};

/// The word in place of a URL for the server that the daemon starts by itself.
pub const EMBEDDED: &str = "embedded";

/// Redis as the configuration names it.
#[derive(Debug, Clone)]
pub struct RedisEndpoint {
    deployment: Deployment,
}

/// How Redis is deployed.
#[derive(Debug, Clone)]
enum Deployment {
    /// One server.
    Standalone(Box<RedisNode>),
}

/// What is wrong with the `[redis]` section, and what is allowed. Never holds any part of the URL.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The file with the URL can't be read.
    #[error("read redis.url_file {}", .path.display())]
    UrlFile {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The URL is not one.
    #[error("{from}: {problem}")]
    Url {
        /// Where it was given.
        from: UrlSource,
        /// What is wrong.
        problem: RedisUrlError,
    },
    /// No URL.
    #[error("{from} is empty; allowed: {EMBEDDED}, or a URL that begins with {}://", SCHEMES.join("://, "))]
    Empty {
        /// Where it was given.
        from: UrlSource,
    },
    /// Authorities for a connection that is not encrypted.
    #[error(
        "redis.ca_file is set, but {from} does not begin with rediss; allowed: a URL that begins with rediss://, \
         rediss+sentinel:// or rediss+cluster://, or no redis.ca_file"
    )]
    CaFileWithoutTls {
        /// Where the URL was given.
        from: UrlSource,
    },
    /// The host can't stand in a certificate.
    #[error("{from}: a host of the URL with TLS is neither a DNS name nor an IP address")]
    ServerName {
        /// Where the URL was given.
        from: UrlSource,
    },
    /// Servers that can't be worked with yet.
    #[error("{from}: Sentinel and Cluster are not supported yet; allowed: redis://, rediss://, redis+unix://")]
    NotYet {
        /// Where the URL was given.
        from: UrlSource,
    },
    /// The connection can't be encrypted.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The redis crate refused the settings.
    #[error("prepare the redis client")]
    Client(#[source] RedisError),
}

impl EndpointError {
    /// The setting that is wrong; `None` where the machine is at fault.
    #[must_use]
    pub const fn setting(&self) -> Option<&'static str> {
        match self {
            Self::UrlFile { .. } => Some(UrlSource::URL_FILE),
            Self::Url { from, .. } | Self::Empty { from } | Self::ServerName { from } | Self::NotYet { from } => {
                Some(from.setting())
            }
            Self::CaFileWithoutTls { .. } | Self::Tls(TlsError::CaFile { .. } | TlsError::NoCertificate { .. }) => {
                Some("redis.ca_file")
            }
            Self::Tls(TlsError::NoSystemRoots | TlsError::Rustls(_)) | Self::Client(_) => None,
        }
    }
}

/// Where a URL was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UrlSource {
    /// `redis.url`
    Setting,
    /// `redis.url_file`
    File(PathBuf),
}

impl UrlSource {
    const URL_FILE: &str = "redis.url_file";

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
    /// A file that can't be read, a URL that is none, or authorities that can't be used.
    pub fn from_config(config: &RedisConfig) -> Result<Self, EndpointError> {
        let (from, text) = match &config.url_file {
            Some(path) => (UrlSource::File(path.clone()), first_line(path)?),
            None => (UrlSource::Setting, config.url.trim().to_owned()),
        };
        if text.is_empty() {
            return Err(EndpointError::Empty { from });
        }
        if text == EMBEDDED {
            return Ok(Self::local(config.embedded_port));
        }
        let url = redis_url::parse(&text).map_err(|problem| EndpointError::Url { from: from.clone(), problem })?;
        let RedisUrl { servers, security, login, db } = url;
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
        match servers {
            UrlServers::One(address) => Ok(Self::standalone(node(address)?)),
            UrlServers::Sentinel { .. } | UrlServers::Cluster(_) => Err(EndpointError::NotYet { from }),
        }
    }

    /// The server on 127.0.0.1 at `port`, without a password.
    #[must_use]
    pub fn local(port: u16) -> Self {
        Self::standalone(RedisNode::local(port))
    }

    fn standalone(node: RedisNode) -> Self {
        Self { deployment: Deployment::Standalone(Box::new(node)) }
    }

    /// The ACL user; `None` for the default one.
    #[must_use]
    pub fn username(&self) -> Option<&str> {
        self.node().login.as_ref()?.username.as_deref()
    }

    /// Number of the database.
    #[must_use]
    pub fn db(&self) -> u32 {
        self.node().db
    }

    /// The port, where one server on TCP is named.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match self.node().address {
            RedisAddress::Tcp { port, .. } => Some(port),
            RedisAddress::Unix { .. } => None,
        }
    }

    /// A client of the primary that serves `key`. Connects nowhere yet.
    ///
    /// # Errors
    ///
    /// [`EndpointError::Client`]
    pub fn client(&self, _key: &str) -> Result<RedisClient, EndpointError> {
        self.node().client().map(RedisClient::new).map_err(EndpointError::Client)
    }

    /// The server that serves `key`.
    #[must_use]
    pub fn primary_of(&self, _key: &str) -> &RedisNode {
        self.node()
    }

    fn node(&self) -> &RedisNode {
        let Deployment::Standalone(node) = &self.deployment;
        node
    }
}

impl fmt::Display for RedisEndpoint {
    /// The endpoint as a URL without user and password, for logs and errors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node().fmt(f)
    }
}

fn first_line(path: &Path) -> Result<String, EndpointError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| EndpointError::UrlFile { path: path.to_path_buf(), source })?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> RedisConfig {
        RedisConfig { url: url.to_owned(), url_file: None, data_dir: "data".into(), embedded_port: 6399, ca_file: None }
    }

    fn problem(config: &RedisConfig) -> String {
        RedisEndpoint::from_config(config).expect_err("it is refused").to_string()
    }

    /// An endpoint is what logs and errors show of Redis.
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
            let client = endpoint.node().client().expect("a client");
            assert!(client.get_connection_info().tcp_settings().nodelay());
            for printed in [format!("{endpoint:?}"), format!("{client:?}")] {
                assert!(!printed.contains("hunter2"), "{printed}");
            }
        }
    }

    /// Container platforms hand secrets over as files.
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
    }

    /// A file of authorities that is not used would be taken for encryption.
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
