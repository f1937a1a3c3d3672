//! The verbs' way to Redis: one connection, whose errors say what was tried and where.

use std::fmt;
use std::fs;

use anyhow::Context as _;
use redis::{Client, Cmd, FromRedisValue, Pipeline, RedisError, RedisResult};

use super::hint::{self, Hint as _};
use crate::config::{Config, masked_url};
use crate::wire::{Fault, Link, RedisConfig, fault_of};

/// The value of `redis.url` that means our own server.
const EMBEDDED: &str = "embedded";

/// A connection for verbs. Connects when first used; starts no server.
#[derive(Debug)]
pub struct Redis {
    link: Link,
    /// The URL as it may be shown.
    shown: String,
    embedded: bool,
}

/// The connection that the configuration names.
///
/// # Errors
///
/// When the URL's file can't be read or the URL is none.
pub fn redis(config: &Config) -> anyhow::Result<Redis> {
    let url = url(&config.redis)?;
    let shown = masked_url(&url);
    let client = Client::open(url.as_str()).map_err(|error| {
        hint::misconfigured(
            format_args!("redis.url {shown} is not a URL of Redis: {error}"),
            "redis.url takes \"embedded\", redis://, rediss:// or redis+unix://",
        )
    })?;
    Ok(Redis { link: Link::new(client), shown, embedded: is_embedded(&config.redis) })
}

fn is_embedded(config: &RedisConfig) -> bool {
    config.url_file.is_none() && config.url == EMBEDDED
}

fn url(config: &RedisConfig) -> anyhow::Result<String> {
    if is_embedded(config) {
        return Ok(format!("redis://127.0.0.1:{}", config.embedded_port));
    }
    let Some(path) = &config.url_file else { return Ok(config.url.clone()) };
    let text = fs::read_to_string(path).map_err(|error| {
        hint::misconfigured(
            format_args!("cannot read the file of redis.url_file, {}: {error}", path.display()),
            "redis.url_file takes the path of a file whose first line is the URL",
        )
    })?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Of a pipeline's or a transaction's failures the first: the rest usually says the same a thousand times.
#[must_use]
pub fn first_failure(error: RedisError) -> RedisError {
    match error.clone().into_server_errors() {
        Some(failures) => failures.first().map_or(error, |(_, failure)| failure.clone().into()),
        None => error,
    }
}

impl Redis {
    /// Runs one command; `what` says in the error what was tried, as "read subject alice".
    ///
    /// # Errors
    ///
    /// What Redis or the connection said, with what was tried, where, and a hint.
    pub async fn query<T: FromRedisValue>(&self, what: impl fmt::Display, command: &Cmd) -> anyhow::Result<T> {
        self.judged(what, self.link.query(command).await)
    }

    /// Runs several commands in one write.
    ///
    /// # Errors
    ///
    /// As [`Self::query`]; the first failing command's error.
    pub async fn pipe<T: FromRedisValue>(&self, what: impl fmt::Display, pipeline: &Pipeline) -> anyhow::Result<T> {
        self.judged(what, self.link.pipe(pipeline).await)
    }

    /// The link below, for functions of other modules.
    #[must_use]
    pub const fn link(&self) -> &Link {
        &self.link
    }

    /// The URL as it may be shown.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether this is the server that `run` starts by itself.
    #[must_use]
    pub const fn is_embedded(&self) -> bool {
        self.embedded
    }

    /// Adds to the error of a call what was tried, where, and a hint.
    ///
    /// # Errors
    ///
    /// The same error with more words.
    pub fn judged<T>(&self, what: impl fmt::Display, reply: RedisResult<T>) -> anyhow::Result<T> {
        let reply = reply.map_err(first_failure);
        let fault = reply.as_ref().err().map(fault_of);
        let advice = match fault {
            Some(Fault::Away) if self.embedded => {
                "the embedded server runs while `quotabell run` does; start that, or name a server in redis.url"
            }
            Some(fault) => hint::of_fault(fault),
            None => "",
        };
        reply.with_context(|| format!("{what} ({})", self.shown)).hint(advice)
    }
}
