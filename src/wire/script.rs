//! Calling Lua scripts: by hash, with the source sent when the server does not know it yet.

use redis::{Cmd, FromRedisValue, RedisResult, ToRedisArgs};

use super::link::Link;

/// A script and the hash under which the server knows it.
#[derive(Debug)]
pub struct Script {
    source: &'static str,
    sha1: String,
}

impl Script {
    /// Takes the source, usually by `include_str!`.
    #[must_use]
    pub fn new(source: &'static str) -> Self {
        Self { sha1: redis::Script::new(source).get_hash().to_owned(), source }
    }

    /// Begins a call. Keys first, then arguments.
    #[must_use]
    pub fn call(&self) -> Call<'_> {
        Call { script: self, keys: Vec::new(), arguments: Vec::new() }
    }
}

/// A call that is being put together.
#[derive(Debug)]
pub struct Call<'a> {
    script: &'a Script,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

impl Call<'_> {
    /// Adds the next key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.keys.push(key.into());
        self
    }

    /// Adds the next argument (or several, for a slice).
    #[must_use]
    pub fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.arguments.extend(argument.to_redis_args());
        self
    }

    /// Runs the script. Where the server does not know it (a restart, SCRIPT FLUSH), loads it and runs it once more.
    ///
    /// # Errors
    ///
    /// As [`Link::query`]. After a broken connection the script may or may not have run; each of ours is safe to run again.
    pub async fn run<T: FromRedisValue>(self, link: &Link) -> RedisResult<T> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.script.sha1).arg(self.keys.len()).arg(&self.keys);
        for argument in &self.arguments {
            command.arg(argument);
        }
        run(link, self.script, &command).await
    }
}

impl Script {
    /// The source, for callers that load it by themselves.
    #[must_use]
    pub const fn source(&self) -> &'static str {
        self.source
    }

    /// The hash, for callers that write `EVALSHA` by themselves.
    #[must_use]
    pub fn sha1(&self) -> &str {
        &self.sha1
    }
}

/// Runs a prepared `EVALSHA` of `script`, loading the script where the server does not know it.
///
/// # Errors
///
/// As [`Call::run`].
pub async fn run<T: FromRedisValue>(link: &Link, script: &Script, command: &Cmd) -> RedisResult<T> {
    match link.query(command).await {
        Err(error) if error.code() == Some("NOSCRIPT") => {
            let () = link.query(redis::cmd("SCRIPT").arg("LOAD").arg(script.source)).await?;
            link.query(command).await
        }
        reply => reply,
    }
}
