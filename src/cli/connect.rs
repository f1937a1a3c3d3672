//! The connection of the commands to Redis. Its errors say what was tried and where.

use std::fmt;

use anyhow::Context as _;
use nix::unistd::{Uid, User};
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, RedisResult};
use url::Url;

use crate::actions::action_log::{self, Action};
use crate::app::startup::check_partition_count;
use crate::config::Config;
use crate::ledger::stored_partitions::stored_partitions;
use crate::redis_client::endpoint::Deployment;
use crate::redis_client::{
    DeploymentError, ErrorKind, Partition, Partitions, RedisClient, RedisConfig, RedisEndpoint, error_kind,
};
use crate::terminal::hint::{self, with_hint};
use crate::terminal::output::say;
use crate::types::text::masked_url;
use crate::types::{Keys, Subject, UnixMs};

/// A connection for commands. Connects at the first call; does not start a server.
#[derive(Debug)]
pub struct CliConnection {
    pub partitions: Partitions,
    /// The URL for output, with host and port.
    pub shown: String,
    pub endpoint: RedisEndpoint,
    /// Whether this is the embedded server that `run` starts.
    pub is_embedded: bool,
}

/// Opens the connection of the configuration, as the daemon does, and checks that the stored number of partitions is
/// the configured one. Warns if the configured plans are not those that the daemon counts with. If Redis can't be
/// reached, the first call fails.
///
/// # Errors
///
/// [`ConfigError`](crate::config::ConfigError): a file of `[redis]` can't be read, or the URL is malformed.
/// [`StartupError`](crate::app::startup::StartupError): another number of partitions is stored.
/// [`DeploymentError::NotRedis`]: a server that replies in this way often closes the connection before it has read a
/// longer call.
pub async fn redis(config: &Config) -> anyhow::Result<CliConnection> {
    let (redis, stored) = open(config).await?;
    if let Err(error) = &stored
        && matches!(DeploymentError::find_in(error), Some(DeploymentError::NotRedis { .. }))
    {
        redis.explained("read the checkpoint", Err(error.clone()))?;
    }
    // A user without the right to read it, such as a producer's user, is not stopped.
    if stored.is_ok_and(|stored| stored != Some(redis.partitions.count()))
        && let Ok(stored) = stored_partitions(&redis.partitions).await
    {
        check_partition_count(&redis.partitions, &stored)?;
    }
    Ok(redis)
}

/// Like [`redis()`], with any number of stored partitions.
pub async fn redis_with_any_partitions(config: &Config) -> anyhow::Result<CliConnection> {
    open(config).await.map(|(redis, _)| redis)
}

/// The connection, and the stored number of partitions.
async fn open(config: &Config) -> anyhow::Result<(CliConnection, RedisResult<Option<u32>>)> {
    let endpoint = config.endpoint()?;
    let keys = config.keys();
    let partitions = Partitions::new(&endpoint.client(keys.stream())?, &keys);
    let is_embedded = config.redis.is_embedded();
    let Partition { client, keys } = partitions.first();
    let mut command = redis::cmd("HMGET");
    command.arg(keys.checkpoint()).arg("fingerprint").arg("partitions").arg("moved_to");
    let stored: RedisResult<(Option<String>, Option<u32>, Option<String>)> = client.query(&command).await;
    let count = stored.map(|(fingerprint, count, moved_to)| {
        match moved_to {
            Some(moved_to) => say(format_args!(
                "warning: everything was moved to {moved_to}: \
                 the data here is old, and changes here have no effect there"
            )),
            None => warn_of_other_plans(fingerprint.as_deref(), config),
        }
        count
    });
    Ok((CliConnection { partitions, shown: display_url(&endpoint, &config.redis), endpoint, is_embedded }, count))
}

/// Compares the plans with those that the daemon has stored beside its checkpoint. Prints nothing if they are equal, if
/// none are stored, or if they are invalid: the code that uses them reports that.
fn warn_of_other_plans(stored: Option<&str>, config: &Config) {
    if let (Some(stored), Ok(plans)) = (stored, config.plans())
        && *stored != *plans.fingerprint()
    {
        say(
            "warning: the plans of this configuration are not those that the daemon last counted with, so limits may differ from those \
             in effect (--config or QUOTABELL_CONFIG names the daemon's file)",
        );
    }
}

/// The URL with user, host and port, but without its password. A URL from a file is shown as it was understood.
fn display_url(endpoint: &RedisEndpoint, config: &RedisConfig) -> String {
    let written = config.url.reveal().trim();
    if config.url_file.is_some() || config.is_embedded() {
        return endpoint.to_string();
    }
    match (endpoint.port(), endpoint.deployment()) {
        (None, Deployment::Standalone) => masked_url(written),
        (None, Deployment::Sentinel | Deployment::Cluster) => endpoint.to_string(),
        (Some(port), _) => with_port(masked_url(written), port).unwrap_or_else(|| endpoint.to_string()),
    }
}

/// The URL with the port of the connection, even if it names none. `None` for a URL without a host.
fn with_port(url: String, port: u16) -> Option<String> {
    let mut parsed = Url::parse(&url).ok()?;
    if parsed.port().is_some() {
        return Some(url);
    }
    parsed.set_port(Some(port)).ok()?;
    Some(parsed.into())
}

/// The first failure of a pipeline or transaction: the others usually say the same a thousand times.
pub fn first_failure(error: RedisError) -> RedisError {
    match error.clone().into_server_errors() {
        Some(failures) => failures.first().map_or(error, |(_, failure)| failure.clone().into()),
        None => error,
    }
}

/// Whether TLS refused the server. The crate keeps only the text of that error.
fn is_about_a_certificate(error: &RedisError) -> bool {
    error.to_string().contains("certificate")
}

impl CliConnection {
    /// Runs one command. `what` says in the error what was tried, such as "read subject alice".
    pub async fn query<T: FromRedisValue>(&self, what: impl fmt::Display, command: &Cmd) -> anyhow::Result<T> {
        self.explained(what, self.client().query(command).await)
    }

    pub async fn pipe<T: FromRedisValue>(&self, what: impl fmt::Display, pipeline: &Pipeline) -> anyhow::Result<T> {
        self.explained(what, self.client().pipe(pipeline).await)
    }

    /// The client of the first partition, for state that belongs to no partition.
    pub fn client(&self) -> &RedisClient {
        &self.partitions.first().client
    }

    /// The keys of subjects, and of state that belongs to no partition.
    pub fn keys(&self) -> &Keys {
        &self.partitions.first().keys
    }

    /// Records what the system's user did. It is done: that it can't be recorded is only a warning.
    pub async fn record(&self, action: &str, subject: Option<&Subject>, target: &str, count: usize) {
        let user = User::from_uid(Uid::effective()).ok().flatten();
        let by = user.map_or_else(|| format!("cli:{}", Uid::effective()), |user| format!("cli:{}", user.name));
        let action = Action { by: &by, action, subject, target, count: count as u64 };
        if let Err(error) = action_log::record(&self.partitions, &action).await {
            say(format_args!("warning: this is missing from the log of actions: {error}"));
        }
    }

    /// The server's clock. The clock of this machine must not decide a day or an age.
    pub async fn server_time(&self) -> anyhow::Result<UnixMs> {
        self.explained("read the server's clock", self.client().server_time().await)
    }

    /// Adds to the error of a call what was tried, where, and a hint.
    pub fn explained<T>(&self, what: impl fmt::Display, reply: RedisResult<T>) -> anyhow::Result<T> {
        let reply = reply.map_err(first_failure);
        let kind = reply.as_ref().err().map(error_kind);
        let advice = match kind {
            Some(ErrorKind::Unreachable) if self.is_embedded => {
                "the embedded server runs while `quotabell run` does; start that, or name a server in redis.url"
            }
            Some(ErrorKind::Login) if self.is_embedded => {
                "its password is in redis-password of the daemon's redis.data_dir: run this in the daemon's folder, as its user"
            }
            Some(ErrorKind::Unreachable) if reply.as_ref().is_err_and(is_about_a_certificate) => {
                "the server's certificate is not trusted or not for this host: redis.ca_file names a PEM file of the authority that \
                 signed it"
            }
            _ => {
                let error = reply.as_ref().err();
                error.map_or("", |error| hint::of_call(error, self.endpoint.deployment()))
            }
        };
        let reply = match kind {
            Some(ErrorKind::Database) => {
                reply.with_context(|| format!("the server has no database {}", self.endpoint.db()))
            }
            _ => reply.map_err(Into::into),
        };
        with_hint(reply.with_context(|| format!("{what} ({})", self.shown)), advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Connection refused" without a port would send the reader to the wrong server.
    #[test]
    fn host_and_port_are_shown_also_where_the_url_names_none() {
        for (url, expected) in [
            ("redis://127.0.0.1", "redis://127.0.0.1:6379"),
            ("redis://user:pass@h.test/2", "redis://user:***@h.test:6379/2"),
            ("rediss://h.test", "rediss://h.test:6379"),
            ("redis://[::1]/1", "redis://[::1]:6379/1"),
            (" redis://h.test:7000/0 ", "redis://h.test:7000/0"),
            ("redis+sentinel://u:p@s1,s2:1/m", "redis+sentinel://s1:26379,s2:1/m/0"),
            ("rediss+cluster://:p@h.test,[::1]:7000", "rediss+cluster://h.test:6379,[::1]:7000"),
            ("redis+unix:///run/r.sock?pass=x", "redis+unix:///run/r.sock?pass=***"),
            ("embedded", "redis://127.0.0.1:6399/0"),
        ] {
            let mut config = Config::defaults().expect("the defaults are good");
            config.redis.url = url.into();
            assert_eq!(display_url(&config.endpoint().expect("a good URL"), &config.redis), expected, "{url}");
        }
    }
}
