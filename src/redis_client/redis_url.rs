//! Parses Redis URLs: one server, Sentinels, or a cluster. Pure.
//!
//! No error repeats any part of the URL, because an unescaped `/`, `#` or `@` in a password makes a part of it look
//! like a host, a path or a parameter.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use url::{Host, Url};

pub use super::redis_url_error::RedisUrlError;
use crate::types::text::percent_decoded;

/// The default port of a server.
const DEFAULT_PORT: u16 = 6379;
/// The default port of a Sentinel.
const SENTINEL_PORT: u16 = 26379;

/// The allowed schemes of a URL.
pub const SCHEMES: [&str; 8] =
    ["redis", "rediss", "redis+unix", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"];

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RedisAddress {
    /// A host, without brackets, and a port.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix {
        /// Its path.
        path: PathBuf,
    },
}

/// User and password. Its `Debug` hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisCredentials {
    /// The ACL user; `None` for the default one.
    pub username: Option<String>,
    /// The password; empty for a user that needs none.
    pub password: String,
}

impl fmt::Debug for RedisCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCredentials").field("username", &self.username).field("password", &"***").finish()
    }
}

impl fmt::Display for RedisAddress {
    /// `host:port`, an IPv6 address in brackets, or the path of a socket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix { path } => write!(f, "{}", path.display()),
        }
    }
}

/// The content of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// The servers that it names.
    pub servers: UrlServers,
    /// Whether the servers use TLS.
    pub security: ConnectionSecurity,
    /// User and password of the servers that hold the data.
    pub login: Option<RedisCredentials>,
    /// Number of the database.
    pub db: u32,
}

impl RedisUrl {
    /// The same URL without any user and password.
    pub fn without_logins(&self) -> Self {
        let mut servers = self.servers.clone();
        if let UrlServers::Sentinel { sentinel_login, .. } = &mut servers {
            *sentinel_login = None;
        }
        Self { servers, login: None, ..self.clone() }
    }
}

/// The servers that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UrlServers {
    /// One server.
    One(RedisAddress),
    /// Sentinels, which name the primary.
    Sentinel {
        /// Their addresses; at least one.
        sentinels: Vec<RedisAddress>,
        /// The name under which they watch the primary.
        service: String,
        /// User and password of the Sentinels, if the URL has them.
        sentinel_login: Option<RedisCredentials>,
    },
    /// Nodes of a cluster; at least one.
    Cluster(Vec<RedisAddress>),
}

/// Whether TLS is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionSecurity {
    /// `redis://` and Unix sockets.
    Plain,
    /// `rediss://`
    Tls,
}

/// Parses a URL.
///
/// # Errors
///
/// See [`RedisUrlError`].
pub fn parse(text: &str) -> Result<RedisUrl, RedisUrlError> {
    if let Some(list) = ListUrl::split(text)? {
        return list.parse();
    }
    let url = Url::parse(text).map_err(RedisUrlError::NotAUrl)?;
    match url.scheme() {
        "redis" => tcp(&url, ConnectionSecurity::Plain),
        "rediss" => tcp(&url, ConnectionSecurity::Tls),
        "redis+unix" | "unix" => unix(&url),
        _ => Err(RedisUrlError::Scheme),
    }
}

fn tcp(url: &Url, security: ConnectionSecurity) -> Result<RedisUrl, RedisUrlError> {
    if url.fragment().is_some() {
        return Err(RedisUrlError::Fragment);
    }
    if url.query().is_some() {
        return Err(RedisUrlError::Parameter);
    }
    let host = url.host().map(|host| host_name(host.to_owned())).transpose()?.unwrap_or_default();
    if host.is_empty() {
        return Err(RedisUrlError::NoHost);
    }
    if host.contains(',') {
        return Err(RedisUrlError::SeveralHosts);
    }
    let port = match url.port() {
        Some(0) => return Err(RedisUrlError::Port),
        port => port.unwrap_or(DEFAULT_PORT),
    };
    let db = match url.path().strip_prefix('/').unwrap_or(url.path()) {
        "" => 0,
        number => database(number)?,
    };
    let login = login(Some(decoded(url.username())?), url.password().map(decoded).transpose()?);
    Ok(RedisUrl { servers: UrlServers::One(RedisAddress::Tcp { host, port }), security, login, db })
}

/// The parts of a URL with a list of hosts. The crate `url` accepts one host only.
struct ListUrl<'a> {
    form: ListForm,
    security: ConnectionSecurity,
    user_info: Option<&'a str>,
    hosts: &'a str,
    path: &'a str,
    query: Option<&'a str>,
}

#[derive(Clone, Copy)]
enum ListForm {
    Sentinel,
    Cluster,
}

impl<'a> ListUrl<'a> {
    /// `None` for a URL of one server.
    fn split(text: &'a str) -> Result<Option<Self>, RedisUrlError> {
        let Some((scheme, rest)) = text.split_once("://") else { return Ok(None) };
        let (form, security) = match scheme.to_ascii_lowercase().as_str() {
            "redis+sentinel" => (ListForm::Sentinel, ConnectionSecurity::Plain),
            "rediss+sentinel" => (ListForm::Sentinel, ConnectionSecurity::Tls),
            "redis+cluster" => (ListForm::Cluster, ConnectionSecurity::Plain),
            "rediss+cluster" => (ListForm::Cluster, ConnectionSecurity::Tls),
            _ => return Ok(None),
        };
        if rest.contains('#') {
            return Err(RedisUrlError::Fragment);
        }
        let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (path, query) = match tail.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (tail, None),
        };
        let (user_info, hosts) = match authority.rsplit_once('@') {
            Some((user_info, hosts)) => (Some(user_info), hosts),
            None => (None, authority),
        };
        Ok(Some(Self { form, security, user_info, hosts, path: path.strip_prefix('/').unwrap_or(path), query }))
    }

    fn parse(self) -> Result<RedisUrl, RedisUrlError> {
        let (servers, db) = match self.form {
            ListForm::Sentinel => self.sentinel()?,
            ListForm::Cluster => (self.cluster()?, 0),
        };
        let (user, password) = match self.user_info.map(|info| info.split_once(':').unwrap_or((info, ""))) {
            Some((user, password)) => (Some(decoded(user)?), Some(decoded(password)?)),
            None => (None, None),
        };
        Ok(RedisUrl { servers, security: self.security, login: login(user, password), db })
    }

    fn sentinel(&self) -> Result<(UrlServers, u32), RedisUrlError> {
        let sentinels = self.addresses(SENTINEL_PORT)?;
        let (service, number) = self.path.split_once('/').unwrap_or((self.path, ""));
        if service.is_empty() {
            return Err(RedisUrlError::NoService);
        }
        let db = match number {
            "" => 0,
            number => database(number).map_err(|_| RedisUrlError::SentinelDatabase)?,
        };
        let (mut user, mut password) = (None, None);
        for pair in self.query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sentinel_user", value)) => user = Some(decoded(value)?),
                Some(("sentinel_pass", value)) => password = Some(decoded(value)?),
                _ => return Err(RedisUrlError::SentinelParameter),
            }
        }
        let sentinel_login = login(user, password);
        Ok((UrlServers::Sentinel { sentinels, service: decoded(service)?, sentinel_login }, db))
    }

    fn cluster(&self) -> Result<UrlServers, RedisUrlError> {
        let nodes = self.addresses(DEFAULT_PORT)?;
        if !matches!(self.path, "" | "0") {
            return Err(RedisUrlError::ClusterDatabase);
        }
        if self.query.is_some() {
            return Err(RedisUrlError::ClusterParameter);
        }
        Ok(UrlServers::Cluster(nodes))
    }

    fn addresses(&self, default_port: u16) -> Result<Vec<RedisAddress>, RedisUrlError> {
        self.hosts.split(',').map(|place| list_address(place, default_port)).collect()
    }
}

/// One element of the list: `host`, `host:port`, `[ipv6-address]:port`.
fn list_address(place: &str, default_port: u16) -> Result<RedisAddress, RedisUrlError> {
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    if host.is_empty() {
        return Err(RedisUrlError::EmptyHost);
    }
    let port = match port {
        None => default_port,
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            port.parse().ok().filter(|port| *port != 0).ok_or(RedisUrlError::ListPort)?
        }
        Some(_) => return Err(RedisUrlError::ListPort),
    };
    let host = host_name(Host::parse_opaque(host).map_err(|_| RedisUrlError::Host)?)?;
    Ok(RedisAddress::Tcp { host, port })
}

/// The host to connect to: an IPv6 address without the URL's brackets.
fn host_name(host: Host<impl AsRef<str>>) -> Result<String, RedisUrlError> {
    match host {
        Host::Domain(name) => decoded(name.as_ref()),
        Host::Ipv4(address) => Ok(address.to_string()),
        Host::Ipv6(address) => Ok(address.to_string()),
    }
}

fn unix(url: &Url) -> Result<RedisUrl, RedisUrlError> {
    if url.fragment().is_some() {
        return Err(RedisUrlError::Fragment);
    }
    let path = PathBuf::from(OsString::from_vec(unescaped(url.path())?));
    // A host means that the third slash is missing.
    if url.host().is_some() || !path.is_absolute() || path.file_name().is_none() {
        return Err(RedisUrlError::Path);
    }
    let mut db = 0;
    let mut user = None;
    let mut password = None;
    // Not form-encoded: a + in a password is a +.
    for pair in url.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(RedisUrlError::Parameter)?;
        match name {
            "db" => db = database(value)?,
            "user" => user = Some(decoded(value)?),
            "pass" => password = Some(decoded(value)?),
            _ => return Err(RedisUrlError::Parameter),
        }
    }
    Ok(RedisUrl {
        servers: UrlServers::One(RedisAddress::Unix { path }),
        security: ConnectionSecurity::Plain,
        login: login(user, password),
        db,
    })
}

/// Empty means absent. A user without a password logs in with an empty password, which is correct for a user with
/// `nopass`.
fn login(user: Option<String>, password: Option<String>) -> Option<RedisCredentials> {
    let username = user.filter(|user| !user.is_empty());
    let password = password.filter(|password| !password.is_empty());
    if username.is_none() && password.is_none() {
        return None;
    }
    Some(RedisCredentials { username, password: password.unwrap_or_default() })
}

fn database(number: &str) -> Result<u32, RedisUrlError> {
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RedisUrlError::Database);
    }
    number.parse().map_err(|_| RedisUrlError::Database)
}

fn decoded(text: &str) -> Result<String, RedisUrlError> {
    String::from_utf8(unescaped(text)?).map_err(|_| RedisUrlError::Encoding)
}

fn unescaped(text: &str) -> Result<Vec<u8>, RedisUrlError> {
    percent_decoded(text).ok_or(RedisUrlError::Encoding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn login_of(text: &str) -> Option<RedisCredentials> {
        parse(text).expect("a URL").login
    }

    fn tcp_of(text: &str) -> (String, u16) {
        match parse(text).expect("a URL").servers {
            UrlServers::One(RedisAddress::Tcp { host, port }) => (host, port),
            other => panic!("{other:?}"),
        }
    }

    fn shown(addresses: &[RedisAddress]) -> Vec<String> {
        addresses.iter().map(ToString::to_string).collect()
    }

    /// A host in brackets can't be connected to.
    #[test]
    fn hosts_ports_and_databases_are_read() {
        assert_eq!(tcp_of("redis://cache"), ("cache".to_owned(), 6379));
        assert_eq!(tcp_of("rediss://10.0.0.1:7000/3"), ("10.0.0.1".to_owned(), 7000));
        assert_eq!(tcp_of("redis://u:p@[::1]:6380/"), ("::1".to_owned(), 6380));
        assert_eq!(parse("redis://cache/15").expect("a URL").db, 15);
        assert_eq!(parse("rediss://cache").expect("a URL").security, ConnectionSecurity::Tls);
        let unix = parse("redis+unix:///run/my%20redis/r.sock?db=2&user=a%40b&pass=x+y%26z").expect("a URL");
        assert_eq!(unix.servers, UrlServers::One(RedisAddress::Unix { path: "/run/my redis/r.sock".into() }));
        assert_eq!(unix.db, 2);
        assert_eq!(
            unix.login,
            Some(RedisCredentials { username: Some("a@b".to_owned()), password: "x+y&z".to_owned() })
        );
        assert_eq!(parse("unix:///r.sock").expect("a URL").login, None);
    }

    /// A list that is split at the wrong place would connect to half of the servers, or to none.
    #[test]
    fn lists_of_hosts_are_read() {
        let url = parse("redis+sentinel://alice:p%40,%2F@s1,[::1]:26380,10.0.0.3:1/my%2Fmaster/3").expect("a URL");
        let UrlServers::Sentinel { sentinels, service, sentinel_login } = url.servers else { panic!("no Sentinel") };
        assert_eq!(shown(&sentinels), ["s1:26379", "[::1]:26380", "10.0.0.3:1"]);
        assert_eq!((service.as_str(), url.db, sentinel_login), ("my/master", 3, None));
        let alice = RedisCredentials { username: Some("alice".to_owned()), password: "p@,/".to_owned() };
        assert_eq!((url.login, url.security), (Some(alice), ConnectionSecurity::Plain));
        let url = parse("rediss+sentinel://s/m?sentinel_user=u&sentinel_pass=x+y%26").expect("a URL");
        let UrlServers::Sentinel { sentinel_login, .. } = url.servers else { panic!("no Sentinel") };
        let of_sentinels = RedisCredentials { username: Some("u".to_owned()), password: "x+y&".to_owned() };
        assert_eq!((sentinel_login, url.db, url.login), (Some(of_sentinels), 0, None));
        assert_eq!(url.security, ConnectionSecurity::Tls);
        for (text, nodes, security) in [
            ("redis+cluster://a:7000,b:7001", ["a:7000", "b:7001"], ConnectionSecurity::Plain),
            ("rediss+cluster://:pw@a,b/0", ["a:6379", "b:6379"], ConnectionSecurity::Tls),
            ("REDIS+CLUSTER://a,b/", ["a:6379", "b:6379"], ConnectionSecurity::Plain),
        ] {
            let url = parse(text).expect("a URL");
            let UrlServers::Cluster(found) = url.servers else { panic!("{text} is no cluster") };
            assert_eq!((shown(&found), url.security), (nodes.map(str::to_owned).to_vec(), security), "{text}");
        }
    }

    /// A password that is split or decoded wrongly would look like a wrong password.
    #[test]
    fn users_and_passwords_are_read() {
        assert_eq!(login_of("redis://h"), None);
        assert_eq!(login_of("redis://:@h"), None);
        assert_eq!(
            login_of("redis://:p%23%2F@h"),
            Some(RedisCredentials { username: None, password: "p#/".to_owned() })
        );
        let alice = Some("alice".to_owned());
        assert_eq!(
            login_of("redis://alice:s+%40@h"),
            Some(RedisCredentials { username: alice.clone(), password: "s+@".to_owned() })
        );
        assert_eq!(login_of("redis://alice@h"), Some(RedisCredentials { username: alice, password: String::new() }));
    }

    /// An error must name the typing error and must not put the password into a log.
    #[test]
    fn broken_urls_are_named_without_any_of_their_text() {
        for (text, problem) in [
            ("localhost:6379", RedisUrlError::Scheme),
            ("http://hunter2", RedisUrlError::Scheme),
            ("redis://", RedisUrlError::NoHost),
            ("redis://h:0", RedisUrlError::Port),
            ("redis://user:6379/hunter2@h", RedisUrlError::Database),
            ("redis://h/-1", RedisUrlError::Database),
            ("redis://h/4294967296", RedisUrlError::Database),
            ("redis://user:1?hunter2@h", RedisUrlError::Parameter),
            ("redis://user:1#hunter2@h", RedisUrlError::Fragment),
            ("redis://:%zz@h", RedisUrlError::Encoding),
            ("redis://:%ff@h", RedisUrlError::Encoding),
            ("redis+unix://run/redis.sock", RedisUrlError::Path),
            ("redis+unix:///", RedisUrlError::Path),
            ("redis+unix:///r.sock?hunter2=1", RedisUrlError::Parameter),
            ("redis+unix:///r.sock?db=hunter2", RedisUrlError::Database),
            ("redis://a,b/0", RedisUrlError::SeveralHosts),
            ("redis+sentinel://", RedisUrlError::EmptyHost),
            ("redis+sentinel:///mymaster/0", RedisUrlError::EmptyHost),
            ("redis+sentinel://a:1,,b:1/mymaster", RedisUrlError::EmptyHost),
            ("redis+cluster://a:1,", RedisUrlError::EmptyHost),
            ("redis+cluster://u:hunter2@", RedisUrlError::EmptyHost),
            ("redis+cluster://:7000", RedisUrlError::EmptyHost),
            ("redis+cluster://a:1,b:0", RedisUrlError::ListPort),
            ("redis+cluster://a:1,b:65536", RedisUrlError::ListPort),
            ("redis+cluster://a:", RedisUrlError::ListPort),
            ("redis+cluster://user:hunter2/@h", RedisUrlError::ListPort),
            ("redis+cluster://a:1, b:1", RedisUrlError::Host),
            ("redis+cluster://[::1", RedisUrlError::Host),
            ("redis+cluster://[hunter2]:1", RedisUrlError::Host),
            ("redis+cluster://h/1", RedisUrlError::ClusterDatabase),
            ("redis+cluster://h/hunter2", RedisUrlError::ClusterDatabase),
            ("redis+cluster://h?hunter2", RedisUrlError::ClusterParameter),
            ("redis+cluster://u:hunter2#@h", RedisUrlError::Fragment),
            ("redis+sentinel://h", RedisUrlError::NoService),
            ("redis+sentinel://h:1/", RedisUrlError::NoService),
            ("redis+sentinel://h/m/hunter2", RedisUrlError::SentinelDatabase),
            ("redis+sentinel://h/m/0/1", RedisUrlError::SentinelDatabase),
            ("redis+sentinel://h/m?pass=hunter2", RedisUrlError::SentinelParameter),
            ("redis+sentinel://u:%zz@h/m", RedisUrlError::Encoding),
        ] {
            assert_eq!(parse(text), Err(problem), "{text}");
            assert!(!problem.to_string().contains("hunter2"));
        }
        let Err(problem @ RedisUrlError::NotAUrl(_)) = parse("redis://:hunter2/#@h") else { panic!("it is a URL") };
        assert!(!problem.to_string().contains("hunter2"), "{problem}");
        assert!(matches!(parse("redis"), Err(RedisUrlError::NotAUrl(_))));
    }

    proptest! {
        /// The percent-encoded form of every password must decode to the password.
        #[test]
        fn any_password_survives_percent_encoding(password in "\\PC{1,40}") {
            let encoded: String = password.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let expected = Some(RedisCredentials { username: Some("u".to_owned()), password });
            prop_assert_eq!(login_of(&format!("rediss://u:{encoded}@h:1/1")), expected.clone());
            prop_assert_eq!(login_of(&format!("rediss+cluster://u:{encoded}@h:1,i")), expected.clone());
            prop_assert_eq!(login_of(&format!("redis+sentinel://u:{encoded}@h:1,i/m/2")), expected.clone());
            prop_assert_eq!(login_of(&format!("unix:///r.sock?user=u&pass={encoded}")), expected);
        }

        /// A panic here would crash the start.
        #[test]
        fn any_text_is_judged(text in "(redis|rediss|unix|redis\\+unix|redis\\+sentinel|redis\\+cluster)?(://)?\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
