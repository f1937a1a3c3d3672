//! One Redis server: its address, its TLS settings, its login.
//!
//! Connects nowhere, and never prints a password. Read next: [`super::connection`], which connects.

use std::fmt;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisError,
    RedisResult, TlsCertificates,
};

use super::login::RedisLogin;
use super::redis_url::RedisAddress;
use super::tls::{TlsSettings, install_crypto};

/// A silent connection is probed after this time, to detect a peer that vanished.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A server to connect to.
#[derive(Debug, Clone)]
pub struct RedisNode {
    /// Its address.
    pub address: RedisAddress,
    /// How TLS verifies the server; `None` without TLS.
    pub tls: Option<TlsSettings>,
    /// Number of the database.
    pub db: u32,
    /// User and password.
    pub login: RedisLogin,
}

impl RedisNode {
    /// The server on 127.0.0.1 at `port`, without a password.
    pub fn local(port: u16) -> Self {
        let address = RedisAddress::Tcp { host: "127.0.0.1".to_owned(), port };
        Self { address, tls: None, db: 0, login: RedisLogin::default() }
    }

    /// Another server with the same database, login and authorities.
    ///
    /// # Errors
    ///
    /// TLS is used and the host can't appear in a certificate.
    pub fn with_address(&self, address: RedisAddress) -> RedisResult<Self> {
        let tls = match (&self.tls, &address) {
            (Some(tls), RedisAddress::Tcp { host, .. }) => Some(tls.for_host(host)?),
            _ => None,
        };
        Ok(Self { address, tls, db: self.db, login: self.login.clone() })
    }

    /// A client of the redis crate that uses RESP2.
    ///
    /// # Errors
    ///
    /// The crate rejects the settings.
    pub fn client(&self) -> RedisResult<Client> {
        self.client_speaking(ProtocolVersion::RESP2)
    }

    /// A client of the redis crate that uses RESP3, which is necessary for messages that the server pushes.
    ///
    /// # Errors
    ///
    /// The crate rejects the settings.
    pub fn client_resp3(&self) -> RedisResult<Client> {
        self.client_speaking(ProtocolVersion::RESP3)
    }

    fn client_speaking(&self, protocol: ProtocolVersion) -> RedisResult<Client> {
        let info = self.connection_info(protocol)?;
        match &self.tls {
            None => Client::open(info),
            Some(tls) => {
                // The crate requires the provider of the process.
                install_crypto();
                let root_cert = tls.roots_pem().map(<[u8]>::to_vec);
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })
            }
        }
    }

    fn connection_info(&self, protocol: ProtocolVersion) -> Result<ConnectionInfo, RedisError> {
        let address = match &self.address {
            RedisAddress::Unix { path } => ConnectionAddr::Unix(path.clone()),
            RedisAddress::Tcp { host, port } if self.tls.is_none() => ConnectionAddr::Tcp(host.clone(), *port),
            RedisAddress::Tcp { host, port } => {
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            }
        };
        // CLIENT SETINFO needs a right that an ACL of Redis 7.0 can't grant, because it does not know the command.
        let mut settings =
            RedisConnectionInfo::default().set_db(i64::from(self.db)).set_protocol(protocol).set_skip_set_lib_name();
        if let Some(login) = self.login.current() {
            settings = settings.set_password(&login.password);
            if let Some(username) = login.username {
                settings = settings.set_username(username);
            }
        }
        // Off by default in the crate: small commands would wait for the acknowledgment of the previous one.
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE));
        Ok(address.into_connection_info()?.set_tcp_settings(tcp).set_redis_settings(settings))
    }
}

impl fmt::Display for RedisNode {
    /// The server as a URL without user and password, for logs and errors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, db, tls, .. } = self;
        match address {
            RedisAddress::Unix { .. } if *db == 0 => write!(f, "redis+unix://{address}"),
            RedisAddress::Unix { .. } => write!(f, "redis+unix://{address}?db={db}"),
            RedisAddress::Tcp { .. } => {
                write!(f, "{}://{address}/{db}", if tls.is_some() { "rediss" } else { "redis" })
            }
        }
    }
}
