//! Where Redis is and how to log in: the `[redis]` section, validated.
//!
//! Reads the files that the section names, and connects nowhere. Never prints a password. Read next:
//! [`super::redis_url`], for the forms of the URL.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisError,
    TlsCertificates,
};
use rustls::pki_types::ServerName;

use super::config::RedisConfig;
use super::redis_url::{self, ConnectionSecurity, RedisUrl, RedisUrlError};
pub use super::redis_url::{RedisAddress, RedisCredentials};
use super::tls::{TlsError, TlsSettings, install_crypto};

/// The word in place of a URL for the server that the daemon starts by itself.
pub const EMBEDDED: &str = "embedded";
/// A silent connection is probed after this time, so that one whose other end vanished is noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A server that can be connected to.
#[derive(Debug, Clone)]
pub struct RedisEndpoint {
    /// Where it listens.
    pub address: RedisAddress,
    /// How it is known to be the right one; `None` without TLS.
    pub tls: Option<TlsSettings>,
    /// Number of the database.
    pub db: u32,
    login: Option<RedisCredentials>,
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
    #[error(
        "{from} is empty; allowed: {EMBEDDED}, or a URL that begins with redis://, rediss://, redis+unix:// or unix://"
    )]
    Empty {
        /// Where it was given.
        from: UrlSource,
    },
    /// Authorities for a connection that is not encrypted.
    #[error(
        "redis.ca_file is set, but {from} does not begin with rediss://; allowed: a rediss:// URL, or no redis.ca_file"
    )]
    CaFileWithoutTls {
        /// Where the URL was given.
        from: UrlSource,
    },
    /// The host can't stand in a certificate.
    #[error("{from}: the host of the rediss:// URL is neither a DNS name nor an IP address")]
    ServerName {
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
            Self::Url { from, .. } | Self::Empty { from } | Self::ServerName { from } => Some(from.setting()),
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
        let RedisUrl { address, security, login, db } = match redis_url::parse(&text) {
            Ok(url) => url,
            Err(problem) => return Err(EndpointError::Url { from, problem }),
        };
        let ca_file = config.ca_file.as_deref();
        let tls = match (&address, security) {
            (RedisAddress::Tcp { host, .. }, ConnectionSecurity::Tls) => {
                let name = ServerName::try_from(host.clone()).map_err(|_| EndpointError::ServerName { from })?;
                Some(TlsSettings::new(name, ca_file)?)
            }
            _ if ca_file.is_some() => return Err(EndpointError::CaFileWithoutTls { from }),
            _ => None,
        };
        Ok(Self { address, tls, db, login })
    }

    /// The server on 127.0.0.1 at `port`, without a password.
    #[must_use]
    pub fn local(port: u16) -> Self {
        Self { address: RedisAddress::Tcp { host: "127.0.0.1".to_owned(), port }, tls: None, db: 0, login: None }
    }

    /// User and password.
    #[must_use]
    pub const fn login(&self) -> Option<&RedisCredentials> {
        self.login.as_ref()
    }

    /// A client of the redis crate that speaks RESP2.
    ///
    /// # Errors
    ///
    /// [`EndpointError::Client`]
    pub fn client(&self) -> Result<Client, EndpointError> {
        self.client_speaking(ProtocolVersion::RESP2)
    }

    /// A client of the redis crate that speaks RESP3, as messages pushed by the server need it.
    ///
    /// # Errors
    ///
    /// [`EndpointError::Client`]
    pub fn client_resp3(&self) -> Result<Client, EndpointError> {
        self.client_speaking(ProtocolVersion::RESP3)
    }

    /// The endpoint as a URL without user and password, for logs and errors.
    #[must_use]
    pub fn describe(&self) -> String {
        let db = self.db;
        match &self.address {
            RedisAddress::Unix { path } if db == 0 => format!("redis+unix://{}", path.display()),
            RedisAddress::Unix { path } => format!("redis+unix://{}?db={db}", path.display()),
            RedisAddress::Tcp { host, port } => {
                let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
                if host.contains(':') {
                    format!("{scheme}://[{host}]:{port}/{db}")
                } else {
                    format!("{scheme}://{host}:{port}/{db}")
                }
            }
        }
    }

    fn client_speaking(&self, protocol: ProtocolVersion) -> Result<Client, EndpointError> {
        let info = self.connection_info(protocol).map_err(EndpointError::Client)?;
        let client = match &self.tls {
            None => Client::open(info),
            Some(tls) => {
                // The crate asks for the provider of the process.
                install_crypto();
                let root_cert = tls.roots_pem().map(<[u8]>::to_vec);
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })
            }
        };
        client.map_err(EndpointError::Client)
    }

    fn connection_info(&self, protocol: ProtocolVersion) -> Result<ConnectionInfo, RedisError> {
        let address = match &self.address {
            RedisAddress::Unix { path } => ConnectionAddr::Unix(path.clone()),
            RedisAddress::Tcp { host, port } if self.tls.is_none() => ConnectionAddr::Tcp(host.clone(), *port),
            RedisAddress::Tcp { host, port } => {
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            }
        };
        // CLIENT SETINFO is a right that an ACL of Redis 7.0 can't grant, since it does not know the command.
        let mut settings =
            RedisConnectionInfo::default().set_db(i64::from(self.db)).set_protocol(protocol).set_skip_set_lib_name();
        if let Some(login) = &self.login {
            settings = settings.set_password(&login.password);
            if let Some(username) = &login.username {
                settings = settings.set_username(username);
            }
        }
        // Off by default in the crate: small commands would wait for the acknowledgement of the one before.
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE));
        Ok(address.into_connection_info()?.set_tcp_settings(tcp).set_redis_settings(settings))
    }
}

impl fmt::Display for RedisEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
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
            assert_eq!(endpoint.describe(), described);
            assert_eq!(endpoint.to_string(), described);
            let client = endpoint.client().expect("a client");
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
        assert_eq!(RedisEndpoint::from_config(&config).expect("it is allowed").describe(), "redis://cache:1/2");
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
        assert!(problem(&with("redis://cache")).contains("does not begin with rediss://"));
        assert!(problem(&with("rediss://cache")).starts_with("read redis.ca_file"));
        std::fs::write(&path, "no certificate").expect("a file");
        assert!(problem(&with("rediss://cache")).contains("holds no certificate"));
    }
}
