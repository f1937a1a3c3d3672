//! Errors: no Sentinel or node knows the primary, or the deployment differs from `redis.url`.

use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::RedisError;

/// What is wrong with the deployment. It travels inside a [`RedisError`], as every failure of a call does.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum DeploymentError {
    /// For example an HTTP or TLS server answers, or something on the way has changed a reply, so the message includes
    /// the crate's parse error.
    #[error("the server at {node} is no Redis: it does not speak the protocol ({})", on_one_line(parse_error))]
    NotRedis { node: String, parse_error: RedisError },
    #[error("the Sentinel at {sentinel} watches no service {service:?}, only {known}")]
    UnknownService { sentinel: String, service: String, known: String },
    /// A data server, or another kind of server, answers at the address of a Sentinel.
    #[error("the server at {sentinel} is no Sentinel")]
    NotASentinel { sentinel: String },
    /// The Sentinel rejects the login or the command.
    #[error("the Sentinel at {sentinel} refuses the login: {source}")]
    SentinelLogin { sentinel: String, source: RedisError },
    #[error("no Sentinel answers; the one at {sentinel}: {source}")]
    NoSentinel { sentinel: String, source: RedisError },
    #[error("the server at {node}, which Sentinel names, is a replica")]
    NotPrimary { node: String },
    #[error("the server at {node} is no node of a cluster")]
    NotACluster { node: String },
    #[error("no node of the cluster answers; the one at {node}: {source}")]
    NoNode { node: String, source: RedisError },
    #[error("no primary of the cluster serves slots {slots}")]
    UncoveredSlots { slots: String },
    #[error("the answer of {node} to CLUSTER SHARDS can't be read: {what}")]
    Unreadable { node: String, what: &'static str },
}

impl DeploymentError {
    /// Returns the error inside a failed call if it is one of these.
    pub fn find_in(error: &RedisError) -> Option<&Self> {
        // The crate wraps the error in an Arc and returns that as the source.
        let shared = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
        shared.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
    }

    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NotRedis { .. } => {
                "is that the port of Redis? redis.url names host and port, and begins with rediss:// if the server uses TLS"
            }
            Self::UnknownService { .. } => {
                "redis.url names the service after the hosts, such as redis+sentinel://host:26379/mymaster/0: the name in the \
                 Sentinels' `sentinel monitor` line"
            }
            Self::NotASentinel { .. } => {
                "use redis://host:6379 for a server that holds data; redis+sentinel:// lists Sentinels, whose port is \
                 26379 by default"
            }
            Self::SentinelLogin { .. } => {
                "if the Sentinels have another user or password than the servers, end redis.url with \
                 ?sentinel_user=...&sentinel_pass=..."
            }
            Self::NoSentinel { .. } => "are the Sentinels running there? redis.url lists them",
            Self::NotPrimary { .. } => "a failover is under way: try again in a moment",
            Self::NotACluster { .. } => "use redis://host:6379 for a server without cluster mode",
            Self::NoNode { .. } => "is the cluster running there? redis.url lists some of its nodes",
            Self::UncoveredSlots { .. } => {
                "`redis-cli --cluster check HOST:PORT` shows them, `redis-cli --cluster fix HOST:PORT` assigns them to nodes"
            }
            Self::Unreadable { .. } => "docs/deployments.md says which servers are supported",
        }
    }
}

fn on_one_line(parse_error: &RedisError) -> String {
    parse_error.detail().unwrap_or_default().lines().collect::<Vec<_>>().join(", ")
}

impl From<DeploymentError> for RedisError {
    fn from(error: DeploymentError) -> Self {
        io::Error::other(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis_client::{ErrorKind, error_kind};

    /// If the daemon did not recognize this error inside a failed call, it would retry forever.
    #[test]
    fn it_is_found_inside_a_failed_call() {
        let failed: RedisError = DeploymentError::NotACluster { node: "h:1".to_owned() }.into();
        let copy = failed.clone();
        assert_eq!(error_kind(&copy), ErrorKind::Deployment);
        let found = DeploymentError::find_in(&copy).expect("it is inside");
        assert_eq!(found.to_string(), copy.to_string());
        assert!(DeploymentError::find_in(&io::Error::other("something else").into()).is_none());
    }
}
