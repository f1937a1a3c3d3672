//! The meaning of a failed call to Redis: one classification for the shared connection and the stream reader.

use metrics::counter;
use redis::RedisError;

use super::deployment_error::DeploymentError;
use crate::types::meters;
use crate::types::text_form::text_enum;

text_enum! {
    /// What a failed call to Redis means for the caller.
    pub enum ErrorKind {
        /// There is no connection, or it broke: reconnect.
        Unreachable = "unreachable",
        /// The server is not ready (LOADING, BUSY, MASTERDOWN, CLUSTERDOWN), no node serves the key's slot, or the slot
        /// is moving (TRYAGAIN, ASK): wait.
        NotReady = "not_ready",
        /// The server is a replica, or a demoted primary: wait and reconnect.
        ReadOnly = "read_only",
        /// Another node of the cluster serves the key: find it, connect there.
        Moved = "moved",
        /// `maxmemory` is reached: wait until memory is freed.
        Full = "full",
        /// Wrong password or user.
        Login = "login",
        /// The user may not run the command or touch the key.
        Denied = "denied",
        /// The server has no database with the number in the URL.
        Database = "database",
        /// The deployment differs from the URL: no Redis, no cluster, no Sentinel, or no Sentinel that knows the
        /// service.
        Deployment = "deployment",
        /// The partition was moved to another deployment: the caller has to stop.
        MovedAway = "moved_away",
        /// One of our keys has another type, or a value that is not ours.
        WrongType = "wrong_type",
        /// Another error: a bug, or an unexpected kind of server.
        Other = "other",
    }
}

impl ErrorKind {
    /// Whether a later retry may succeed.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Unreachable | Self::NotReady | Self::ReadOnly | Self::Moved | Self::Full)
    }

    /// Counts a failed call. The label `class` separates transient from permanent errors.
    pub fn count(self, operation: &'static str) {
        let class = if self.is_transient() { TRANSIENT } else { PERMANENT };
        counter!(meters::REDIS_ERRORS, "operation" => operation, "class" => class).increment(1);
    }
}

const TRANSIENT: &str = "transient";
const PERMANENT: &str = "permanent";

/// The values of the label `class` of `quotabell_redis_errors_total`.
pub const ERROR_CLASSES: [&str; 2] = [TRANSIENT, PERMANENT];

/// The reply to a client beyond `maxclients`, before the server closes the connection. This reply and the next two have
/// no error code, so their first words decide. Without this check a server with too many clients would look permanently
/// broken.
const TOO_MANY_CLIENTS: &str = "max number of clients";
/// The reply to SELECT with a number that is too high.
const NO_DATABASE: &str = "DB index is out of range";
/// The reply to a script that touches a key of a moving slot, or that runs while the cluster is down. Our scripts touch
/// every key before they write to any.
const SCRIPT_IN_MOVING_SLOT: [&str; 2] =
    ["Script attempted to access a non local key", "Script attempted to execute a"];
/// The reply to a script without the necessary right: from Redis 7.0, and from later versions and Valkey.
const DENIED_IN_SCRIPT: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];

/// The crate's message for bytes that are no Redis reply. A reply of an unexpected type has the same error kind.
const NO_REPLY: &str = "Parse error at";

/// Whether the reply can't come from a Redis server.
pub(super) fn is_no_reply(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Parse && error.detail().is_some_and(|detail| detail.starts_with(NO_REPLY))
}

/// Classifies an error by its kind and code. Free text decides only if the server sends no code.
///
/// For a pipeline the error of the first failing command decides.
pub fn error_kind(error: &RedisError) -> ErrorKind {
    match error.kind() {
        redis::ErrorKind::AuthenticationFailed => return ErrorKind::Login,
        redis::ErrorKind::Io => {
            return DeploymentError::find_in(error).map_or(ErrorKind::Unreachable, kind_of_deployment);
        }
        _ => {}
    }
    // Only this list holds the codes of failed commands in a pipeline or transaction.
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
        // The same as CLUSTERDOWN: the cluster is being created or repaired.
        DeploymentError::UncoveredSlots { .. } => ErrorKind::NotReady,
        DeploymentError::Unreadable { .. } => ErrorKind::Other,
    }
}

/// Classifies an error reply by its first word and the rest of the line.
pub(super) fn error_kind_of_reply(code: &str, text: &str) -> ErrorKind {
    match code {
        "NOAUTH" | "WRONGPASS" => ErrorKind::Login,
        // Protected mode replies DENIED to a client from another host.
        "NOPERM" | "DENIED" => ErrorKind::Denied,
        "WRONGTYPE" => ErrorKind::WrongType,
        // Our own scripts return this error.
        "MOVEDAWAY" => ErrorKind::MovedAway,
        "OOM" => ErrorKind::Full,
        // NOSCRIPT: the server was replaced between loading and calling the script.
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
