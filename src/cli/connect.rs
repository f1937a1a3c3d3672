//! The verbs' way to Redis: one connection, whose errors say what was tried and where.

use std::fmt;

use anyhow::Context as _;
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, RedisResult};

use crate::config::{Config, masked_url};
use crate::terminal::hint::{self, Hint as _};
use crate::wire::endpoint::EMBEDDED;
use crate::wire::{ErrorKind, RedisClient, RedisConfig, RedisEndpoint, error_kind};

/// A connection for verbs. Connects when first used; starts no server.
#[derive(Debug)]
pub struct Redis {
    client: RedisClient,
    /// The URL as it may be shown.
    shown: String,
    /// The number of the database.
    db: u32,
    embedded: bool,
}

/// The connection that the configuration names, made as the daemon makes its own.
///
/// # Errors
///
/// [`ConfigError`](crate::config::ConfigError): a file of `[redis]` that can't be read, or a URL that is none.
pub fn redis(config: &Config) -> anyhow::Result<Redis> {
    let target = config.endpoint()?;
    let embedded = config.redis.url_file.is_none() && config.redis.url.trim() == EMBEDDED;
    Ok(Redis {
        client: RedisClient::new(target.client()?),
        shown: shown(&target, &config.redis),
        db: target.db,
        embedded,
    })
}

/// The URL with its user, without its password. One from a file is shown as what it was understood to be.
fn shown(target: &RedisEndpoint, config: &RedisConfig) -> String {
    match &config.url_file {
        None if config.url.trim() != EMBEDDED => masked_url(&config.url),
        _ => target.describe(),
    }
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
        self.judged(what, self.client.query(command).await)
    }

    /// Runs several commands in one write.
    ///
    /// # Errors
    ///
    /// As [`Self::query`]; the first failing command's error.
    pub async fn pipe<T: FromRedisValue>(&self, what: impl fmt::Display, pipeline: &Pipeline) -> anyhow::Result<T> {
        self.judged(what, self.client.pipe(pipeline).await)
    }

    /// The link below, for functions of other modules.
    #[must_use]
    pub const fn client(&self) -> &RedisClient {
        &self.client
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
        let kind = reply.as_ref().err().map(error_kind);
        let advice = match kind {
            Some(ErrorKind::Unreachable) if self.embedded => {
                "the embedded server runs while `quotabell run` does; start that, or name a server in redis.url"
            }
            Some(kind) => hint::of_error_kind(kind),
            None => "",
        };
        let reply = match kind {
            Some(ErrorKind::Database) => reply.with_context(|| format!("the server has no database {}", self.db)),
            _ => reply.map_err(Into::into),
        };
        reply.with_context(|| format!("{what} ({})", self.shown)).hint(advice)
    }
}
