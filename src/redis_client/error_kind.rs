//! What a failed call to Redis means: one classification for the shared connection and for the reader of streams.

use metrics::counter;
use redis::RedisError;

use super::deployment_error::DeploymentError;
use crate::types::meters;
use crate::types::text_form::text_enum;

text_enum! {
    /// What a failed call to Redis means for whoever made it.
    pub enum ErrorKind {
        /// No connection, or it broke: connect again.
        Unreachable = "unreachable",
        /// The server is up but not ready to serve (LOADING, BUSY, MASTERDOWN, CLUSTERDOWN), no node serves the key's
        /// slot, or the slot is moving (TRYAGAIN, ASK): wait.
        NotReady = "not_ready",
        /// A replica, or a primary that was demoted: connect again, wait.
        ReadOnly = "read_only",
        /// Another node of the cluster serves the key: find it, connect there.
        Moved = "moved",
        /// `maxmemory` is reached: wait until memory is freed.
        Full = "full",
        /// Wrong password or user.
        Login = "login",
        /// The user may not run the command or touch the key.
        Denied = "denied",
        /// The server has no database of the number that the URL names.
        Database = "database",
        /// The servers are not deployed as the URL says: no Redis, no cluster, no Sentinel, or none that knows the
        /// service.
        Deployment = "deployment",
        /// Everything of the partition was moved to another deployment: whoever works on it has to stop.
        MovedAway = "moved_away",
        /// A key of ours holds another type, or a value that is not ours.
        WrongType = "wrong_type",
        /// Something else: a bug or a server that is not what we take it for.
        Other = "other",
    }
}

impl ErrorKind {
    /// Whether waiting and trying again can mend it.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Unreachable | Self::NotReady | Self::ReadOnly | Self::Moved | Self::Full)
    }

    /// Counts a failed call. The label `class` tells a Redis that is away from one that refuses for good.
    pub fn count(self, operation: &'static str) {
        let class = if self.is_transient() { TRANSIENT } else { PERMANENT };
        counter!(meters::REDIS_ERRORS, "operation" => operation, "class" => class).increment(1);
    }
}

const TRANSIENT: &str = "transient";
const PERMANENT: &str = "permanent";

/// The values of the label `class` of `quotabell_redis_errors_total`.
pub const ERROR_CLASSES: [&str; 2] = [TRANSIENT, PERMANENT];

/// What a client beyond `maxclients` is told before the server hangs up. It and the next two have no code of their own,
/// so their first words are looked at; without it a server with too many clients would look like one that never works.
const TOO_MANY_CLIENTS: &str = "max number of clients";
/// What SELECT answers for a number that is too high.
const NO_DATABASE: &str = "DB index is out of range";
/// What a script is told that touches a key whose slot is moving, or while the cluster is down. Ours touch every key
/// before they write to any.
const SCRIPT_IN_MOVING_SLOT: [&str; 2] =
    ["Script attempted to access a non local key", "Script attempted to execute a"];
/// What is answered for a script that does what the user may not: by Redis 7.0, and by later ones and Valkey.
const DENIED_IN_SCRIPT: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];

/// What the crate says of bytes that are no reply of Redis. A reply that is not of the wanted type is of the same kind.
const NO_REPLY: &str = "Parse error at";

/// Whether the answer was none that a Redis server gives.
pub(super) fn is_no_reply(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Parse && error.detail().is_some_and(|detail| detail.starts_with(NO_REPLY))
}

/// Classifies an error by its kind and code, never by its free text, except where the server gives no code.
///
/// A pipeline's error is what its first failing command says.
pub fn error_kind(error: &RedisError) -> ErrorKind {
    match error.kind() {
        redis::ErrorKind::AuthenticationFailed => return ErrorKind::Login,
        redis::ErrorKind::Io => {
            return DeploymentError::find_in(error).map_or(ErrorKind::Unreachable, kind_of_deployment);
        }
        _ => {}
    }
    // The crate keeps the codes of a pipeline's or a transaction's failures only in this list.
    if let Some(failures) = error.clone().into_server_errors()
        && let Some((_, failure)) = failures.first()
    {
        return error_kind_of_reply(failure.code(), failure.details().unwrap_or_default());
    }
    error_kind_of_reply(error.code().unwrap_or_default(), error.detail().unwrap_or_default())
}

fn kind_of_deployment(error: &DeploymentError) -> ErrorKind {
    match error {
        DeploymentError::NotRedis { .. }
        | DeploymentError::UnknownService { .. }
        | DeploymentError::NotASentinel { .. }
        | DeploymentError::NotACluster { .. } => ErrorKind::Deployment,
        DeploymentError::SentinelLogin { .. } => ErrorKind::Login,
        DeploymentError::NoSentinel { .. } | DeploymentError::NoNode { .. } => ErrorKind::Unreachable,
        DeploymentError::NotPrimary { .. } => ErrorKind::ReadOnly,
        // As a node that answers CLUSTERDOWN: the cluster is being created, or repaired.
        DeploymentError::UncoveredSlots { .. } => ErrorKind::NotReady,
        DeploymentError::Unreadable { .. } => ErrorKind::Other,
    }
}

/// Classifies an error reply: its first word and the rest of the line.
pub(super) fn error_kind_of_reply(code: &str, text: &str) -> ErrorKind {
    match code {
        "NOAUTH" | "WRONGPASS" => ErrorKind::Login,
        // DENIED is the answer of protected mode to a client from another host.
        "NOPERM" | "DENIED" => ErrorKind::Denied,
        "WRONGTYPE" => ErrorKind::WrongType,
        // Our own scripts answer so.
        "MOVEDAWAY" => ErrorKind::MovedAway,
        "OOM" => ErrorKind::Full,
        // NOSCRIPT: the server was replaced between the loading of a script and its call.
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "ASK" | "MISCONF" | "NOREPLICAS"
        | "NOSCRIPT" => ErrorKind::NotReady,
        "MOVED" => ErrorKind::Moved,
        "READONLY" | "UNBLOCKED" => ErrorKind::ReadOnly,
        "ERR" if text.starts_with(TOO_MANY_CLIENTS) => ErrorKind::Unreachable,
        "ERR" if SCRIPT_IN_MOVING_SLOT.iter().any(|start| text.starts_with(start)) => ErrorKind::NotReady,
        "ERR" if text.starts_with(NO_DATABASE) => ErrorKind::Database,
        "ERR" if DENIED_IN_SCRIPT.iter().any(|start| text.starts_with(start)) => ErrorKind::Denied,
        _ => ErrorKind::Other,
    }
}
