//! Redis URLs taken apart. Pure.
//!
//! No error repeats any part of the URL: a password with an unescaped `/`, `#` or `@` moves into what looks like a host, a path
//! or a parameter.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use url::Url;

/// The port where the URL names none.
const DEFAULT_PORT: u16 = 6379;

/// Where the server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// What a URL says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// Where the server listens.
    pub address: RedisAddress,
    /// Whether TLS is spoken there.
    pub security: ConnectionSecurity,
    /// User and password.
    pub login: Option<RedisCredentials>,
    /// Number of the database.
    pub db: u32,
}

/// Whether TLS is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionSecurity {
    /// `redis://` and Unix sockets.
    Plain,
    /// `rediss://`
    Tls,
}

/// What is wrong with a URL, and what is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RedisUrlError {
    /// It can't be read at all.
    #[error(
        "not a URL ({0}); allowed: redis://[user][:password]@host[:port][/database], where a user or password writes \
         characters like / ? # @ : % percent-encoded (%23 for #)"
    )]
    NotAUrl(#[source] url::ParseError),
    /// It begins with something else.
    #[error("unknown scheme; allowed: embedded, redis://, rediss://, redis+unix:// and unix://")]
    Scheme,
    /// Nothing to connect to.
    #[error("no host; allowed: redis://host, redis://host:port, redis://[ipv6-address]:port")]
    NoHost,
    /// Port 0.
    #[error("port 0; allowed: 1 to 65535")]
    Port,
    /// What stands behind the host is no database number.
    #[error(
        "what follows the host is not a database number; allowed: redis://host:port/0 (a / in a user or password is written %2F)"
    )]
    Database,
    /// `?` in a TCP URL, or an unknown parameter in another.
    #[error(
        "unknown parameter; allowed: db, user and pass after redis+unix:///path? (a ? in a user or password is written %3F)"
    )]
    Parameter,
    /// `#`
    #[error("a part after #; allowed: none (a # in a user or password is written %23)")]
    Fragment,
    /// Broken percent-encoding.
    #[error("broken percent-encoding; allowed: % followed by two hex digits (a % itself is written %25), giving UTF-8")]
    Encoding,
    /// A Unix URL without an absolute path.
    #[error("no absolute path of a socket; allowed: redis+unix:///path/to/redis.sock?db=0&user=name&pass=password")]
    Path,
}

/// Takes a URL apart.
///
/// # Errors
///
/// See [`RedisUrlError`].
pub fn parse(text: &str) -> Result<RedisUrl, RedisUrlError> {
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
    let host = match url.host() {
        Some(url::Host::Domain(name)) => decoded(name)?,
        Some(url::Host::Ipv4(address)) => address.to_string(),
        // Without the brackets, which belong to the URL.
        Some(url::Host::Ipv6(address)) => address.to_string(),
        None => String::new(),
    };
    if host.is_empty() {
        return Err(RedisUrlError::NoHost);
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
    Ok(RedisUrl { address: RedisAddress::Tcp { host, port }, security, login, db })
}

fn unix(url: &Url) -> Result<RedisUrl, RedisUrlError> {
    if url.fragment().is_some() {
        return Err(RedisUrlError::Fragment);
    }
    let path = PathBuf::from(OsString::from_vec(unescaped(url.path())?));
    // A host here means that the third slash is missing.
    if url.host().is_some() || !path.is_absolute() || path.file_name().is_none() {
        return Err(RedisUrlError::Path);
    }
    let mut db = 0;
    let mut user = None;
    let mut password = None;
    // Not as a form: a + in a password is a +.
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
        address: RedisAddress::Unix { path },
        security: ConnectionSecurity::Plain,
        login: login(user, password),
        db,
    })
}

/// Empty is absent. A user alone logs in with an empty password, which is right for a user with `nopass`.
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
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|digit| char::from(digit).to_digit(16)).ok_or(RedisUrlError::Encoding);
        let (high, low) = (digit()?, digit()?);
        out.push(u8::try_from(high * 16 + low).map_err(|_| RedisUrlError::Encoding)?);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn login_of(text: &str) -> Option<RedisCredentials> {
        parse(text).expect("a URL").login
    }

    fn tcp_of(text: &str) -> (String, u16) {
        match parse(text).expect("a URL").address {
            RedisAddress::Tcp { host, port } => (host, port),
            RedisAddress::Unix { path } => panic!("{}", path.display()),
        }
    }

    /// A host with its brackets can't be connected to.
    #[test]
    fn hosts_ports_and_databases_are_read() {
        assert_eq!(tcp_of("redis://cache"), ("cache".to_owned(), 6379));
        assert_eq!(tcp_of("rediss://10.0.0.1:7000/3"), ("10.0.0.1".to_owned(), 7000));
        assert_eq!(tcp_of("redis://u:p@[::1]:6380/"), ("::1".to_owned(), 6380));
        assert_eq!(parse("redis://cache/15").expect("a URL").db, 15);
        assert_eq!(parse("rediss://cache").expect("a URL").security, ConnectionSecurity::Tls);
        let unix = parse("redis+unix:///run/my%20redis/r.sock?db=2&user=a%40b&pass=x+y%26z").expect("a URL");
        assert_eq!(unix.address, RedisAddress::Unix { path: "/run/my redis/r.sock".into() });
        assert_eq!(unix.db, 2);
        assert_eq!(
            unix.login,
            Some(RedisCredentials { username: Some("a@b".to_owned()), password: "x+y&z".to_owned() })
        );
        assert_eq!(parse("unix:///r.sock").expect("a URL").login, None);
    }

    /// A password that is cut or decoded wrongly looks like a wrong password.
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

    /// A typing error has to be named, and must not put the password into a log.
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
        ] {
            assert_eq!(parse(text), Err(problem), "{text}");
            assert!(!problem.to_string().contains("hunter2"));
        }
        let Err(problem @ RedisUrlError::NotAUrl(_)) = parse("redis://:hunter2/#@h") else { panic!("it is a URL") };
        assert!(!problem.to_string().contains("hunter2"), "{problem}");
        assert!(matches!(parse("redis"), Err(RedisUrlError::NotAUrl(_))));
    }

    proptest! {
        /// Whatever a password holds, its percent-encoded form has to give it back.
        #[test]
        fn any_password_survives_percent_encoding(password in "\\PC{1,40}") {
            let encoded: String = password.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let expected = Some(RedisCredentials { username: Some("u".to_owned()), password });
            prop_assert_eq!(login_of(&format!("rediss://u:{encoded}@h:1/1")), expected.clone());
            prop_assert_eq!(login_of(&format!("unix:///r.sock?user=u&pass={encoded}")), expected);
        }

        /// A panic here would be a crash at start.
        #[test]
        fn any_text_is_judged(text in "(redis|rediss|unix|redis\\+unix)?(://)?\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
