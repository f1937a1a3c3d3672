//! User and password of Redis: from the current content of `redis.url_file`, or from the configured URL.
//!
//! Each new connection reads the file, so a new password needs no restart. Read next: [`super::connection`] and
//! [`super::raw`], which log in.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::redis_url::{self, RedisCredentials, RedisUrl, UrlServers};

/// User and password, shared by all connections that use them.
#[derive(Debug, Clone, Default)]
pub struct RedisLogin(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The latest values.
    credentials: Mutex<Option<RedisCredentials>>,
    file: Option<LoginFile>,
    /// The file with the password of the embedded server, read after a refusal.
    password_file: Option<PathBuf>,
    is_refused: AtomicBool,
}

#[derive(Debug)]
struct LoginFile {
    path: PathBuf,
    /// What the URL named at the start, without user and password. If the file now names other servers, its password
    /// belongs to them, and only a restart connects to them.
    servers: RedisUrl,
    of: LoginOf,
}

/// Which servers the user and password are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginOf {
    /// The servers that hold the data.
    Servers,
    /// The Sentinels.
    Sentinels,
}

impl RedisLogin {
    /// A login that never changes. `None`: no login.
    pub fn fixed(credentials: Option<RedisCredentials>) -> Self {
        Self(Arc::new(Shared { credentials: Mutex::new(credentials), ..Shared::default() }))
    }

    /// The login of this URL; if the URL came from a file, each login reads the file again.
    pub fn of_url(url: &RedisUrl, file: Option<&Path>, of: LoginOf) -> Self {
        let file = file.map(|path| LoginFile { path: path.to_path_buf(), servers: url.without_logins(), of });
        let credentials = Mutex::new(of.credentials(url));
        Self(Arc::new(Shared { credentials, file, ..Shared::default() }))
    }

    /// A login that is read from the file again after a server refused it.
    pub fn of_password_file(credentials: Option<RedisCredentials>, path: PathBuf) -> Self {
        let credentials = Mutex::new(credentials);
        Self(Arc::new(Shared { credentials, password_file: Some(path), ..Shared::default() }))
    }

    /// User and password for a new connection. Reads the file; an unreadable file changes nothing.
    pub fn current(&self) -> Option<RedisCredentials> {
        let read = self.0.file.as_ref().and_then(LoginFile::read);
        let mut credentials = self.0.credentials.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = read {
            *credentials = read;
        }
        credentials.clone()
    }

    /// Logs that the server at `node` refused a login, once until a login succeeds.
    pub fn refused(&self, node: &dyn fmt::Display, user: Option<&str>, error: &dyn fmt::Display) {
        if let Some(Ok(password)) = self.0.password_file.as_deref().map(first_line)
            && let Some(known) = &mut *self.0.credentials.lock().unwrap_or_else(PoisonError::into_inner)
            && !password.is_empty()
        {
            known.password = password;
        }
        if self.0.is_refused.swap(true, Ordering::Relaxed) {
            return;
        }
        let user = user.unwrap_or("default");
        let mend = match (&self.0.file, &self.0.password_file) {
            (None, Some(path)) => format!("correct {}: the daemon reads it after each refusal", path.display()),
            (Some(LoginFile { path, .. }), _) => {
                format!("correct redis.url_file {}: the daemon reads it at each try", path.display())
            }
            (None, None) => "correct redis.url and start the daemon again".to_owned(),
        };
        tracing::error!(%node, user, %error, mend, "Redis refused the user or the password");
    }

    /// Logs that a login succeeded after others were refused.
    pub fn accepted(&self) {
        if self.0.is_refused.swap(false, Ordering::Relaxed) {
            tracing::info!("Redis accepted the user and the password again");
        }
    }
}

impl LoginFile {
    /// The current login in the file; `None` if the file is unreadable or names other servers.
    fn read(&self) -> Option<Option<RedisCredentials>> {
        let url = redis_url::parse(&first_line(&self.path).ok()?).ok()?;
        (url.without_logins() == self.servers).then(|| self.of.credentials(&url))
    }
}

impl LoginOf {
    fn credentials(self, url: &RedisUrl) -> Option<RedisCredentials> {
        match (self, &url.servers) {
            (Self::Servers, _) => url.login.clone(),
            (Self::Sentinels, UrlServers::Sentinel { sentinel_login, .. }) => sentinel_login.clone(),
            (Self::Sentinels, UrlServers::One(_) | UrlServers::Cluster(_)) => None,
        }
    }
}

/// The first line of a file, trimmed.
///
/// # Errors
///
/// The file can't be read.
pub fn first_line(path: &Path) -> io::Result<String> {
    let text = std::fs::read_to_string(path)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While the file is being written, or if it names another server, no wrong password may be sent.
    #[test]
    fn a_file_changes_the_login_if_it_names_the_same_servers() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("url");
        let url = |text: &str| redis_url::parse(text).expect("a URL");
        let start = url("redis+sentinel://u:one@a,b/m?sentinel_pass=s1");
        let [servers, sentinels] =
            [LoginOf::Servers, LoginOf::Sentinels].map(|of| RedisLogin::of_url(&start, Some(&path), of));
        let passwords = || [&servers, &sentinels].map(|login| login.current().map(|found| found.password));
        let are = |words: [&str; 2]| words.map(|word| Some(word.to_owned()));
        assert_eq!(passwords(), are(["one", "s1"]), "no file");
        for (text, expected) in [
            ("redis+sentinel://u:two@a,b/m?sentinel_pass=s2\n", ["two", "s2"]),
            ("redis+sentinel://u:three@a/m?sentinel_pass=s3", ["two", "s2"]),
            ("redis+sentinel://u:three", ["two", "s2"]),
            ("", ["two", "s2"]),
            ("redis+sentinel://u:four@a,b/m/0?sentinel_pass=s4", ["four", "s4"]),
        ] {
            std::fs::write(&path, text).expect("written");
            assert_eq!(passwords(), are(expected), "{text}");
        }
        std::fs::write(&path, "redis+sentinel://a,b/m").expect("written");
        assert_eq!(passwords(), [None, None], "a server that asks for none");
        assert_eq!(RedisLogin::default().current(), None);
    }

    /// If the password file was deleted and the embedded server restarted with a new password, clients must not be
    /// refused until the daemon restarts.
    #[test]
    fn a_refused_password_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("password");
        let credentials = |password: &str| RedisCredentials { username: None, password: password.to_owned() };
        let login = RedisLogin::of_password_file(Some(credentials("one")), path.clone());
        login.refused(&"here", None, &"no");
        assert_eq!(login.current(), Some(credentials("one")), "no file");
        for password in ["two", "three"] {
            let before = login.current();
            std::fs::write(&path, format!("{password}\n")).expect("written");
            assert_eq!(login.current(), before, "a server that runs keeps its password");
            login.refused(&"here", None, &"no");
            assert_eq!(login.current(), Some(credentials(password)));
        }
    }
}
