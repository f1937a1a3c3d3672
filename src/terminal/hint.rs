//! How a command fails: the exit code, the `error:` line and the `hint:` line.

use std::fmt;
use std::io;

use crate::app::startup::{CLUSTER_NODE_HINT, NO_DATABASE_HINT, StartupError};
use crate::app::{DrainInterrupted, logging};
use crate::config::ConfigError;
use crate::redis_client::endpoint::Deployment;
use crate::redis_client::{DeploymentError, EmbeddedError, EndpointError, ErrorKind, error_kind};
use crate::types::text::printable;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Done,
    /// Failure, including failed connections.
    Failed,
    /// The command line is wrong.
    Usage,
    /// Something needs attention (`status`).
    Attention,
    /// The configuration or a template is wrong (`EX_CONFIG` of sysexits).
    Configuration,
}

impl Exit {
    /// The number that the shell sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Attention => 3,
            Self::Configuration => 78,
        }
    }
}

/// The command worked, and shows that something needs attention.
#[derive(Debug, thiserror::Error)]
#[error("something needs attention")]
pub struct NeedsAttention;

/// A failure with its hint and its exit code; the inner error is shown unchanged.
#[derive(Debug)]
struct Advised {
    error: anyhow::Error,
    hint: String,
    exit: Exit,
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Advised {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The display above is the inner error's own, so the chain continues with its source.
        self.error.source()
    }
}

/// Adds a hint to a failure; exit code 1.
pub fn with_hint<T, E: Into<anyhow::Error>>(result: Result<T, E>, hint: impl fmt::Display) -> anyhow::Result<T> {
    result.map_err(|error| advised(error.into(), hint, Exit::Failed))
}

/// A failure of the requested operation.
pub fn failed(message: impl fmt::Display, hint: impl fmt::Display) -> anyhow::Error {
    advised(anyhow::anyhow!("{message}"), hint, Exit::Failed)
}

/// An error in the command line that the argument parser can't detect.
pub fn usage(message: impl fmt::Display, hint: impl fmt::Display) -> anyhow::Error {
    advised(anyhow::anyhow!("{message}"), hint, Exit::Usage)
}

fn advised(error: anyhow::Error, hint: impl fmt::Display, exit: Exit) -> anyhow::Error {
    Advised { error, hint: hint.to_string(), exit }.into()
}

/// The result of a command: its exit code and the lines for stderr.
#[derive(Debug, PartialEq, Eq)]
pub struct ExitReport {
    /// The exit code.
    pub exit: Exit,
    /// `error: ...` and `hint: ...`; may be empty.
    pub text: String,
}

impl ExitReport {
    /// Writes the text to stderr, after the log.
    pub fn print(&self) {
        logging::end(&self.text);
    }
}

/// Turns a command's result into its report. Pure.
pub fn report(outcome: &anyhow::Result<()>) -> ExitReport {
    match outcome {
        Ok(()) => ExitReport { exit: Exit::Done, text: String::new() },
        // The command has printed what it is.
        Err(error) if error.is::<NeedsAttention>() => ExitReport { exit: Exit::Attention, text: String::new() },
        // `quotabell alerts | head` is no failure: the reader has seen enough.
        Err(error) if is_broken_pipe(error) => ExitReport { exit: Exit::Done, text: String::new() },
        Err(error) => {
            let (exit, hint) = judged(error);
            ExitReport { exit, text: format!("error: {}\nhint: {hint}\n", causes(error)) }
        }
    }
}

/// The error and its causes, outermost first, without causes that an outer text already contains.
fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(|cause| cause.to_string().split('\n').map(printable).collect::<Vec<_>>().join("\n"))
    {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    // Only our stdout: a broken connection to Redis is a redis error.
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn judged(error: &anyhow::Error) -> (Exit, String) {
    for cause in error.chain() {
        if let Some(advised) = cause.downcast_ref::<Advised>() {
            return (advised.exit, advised.hint.clone());
        }
        if let Some(config) = cause.downcast_ref::<ConfigError>() {
            return (Exit::Configuration, config.hint());
        }
        if let Some(cannot) = cause.downcast_ref::<StartupError>() {
            return (Exit::Failed, cannot.hint.clone());
        }
        if let Some(EmbeddedError::DataDir { .. }) = cause.downcast_ref::<EmbeddedError>() {
            let hint = "redis.data_dir takes the path of a directory that quotabell may write to; instead of a server of its own, \
                        redis.url can name one that already runs, such as redis://127.0.0.1:6379";
            return (Exit::Failed, hint.into());
        }
        if cause.is::<DrainInterrupted>() {
            let hint = "the next daemon sends unsettled deliveries again under the same ids: receivers drop duplicates";
            return (Exit::Failed, hint.to_owned());
        }
        if cause.is::<EmbeddedError>() {
            return (Exit::Failed, "redis.url can name a running server, such as redis://127.0.0.1:6379".into());
        }
        if cause.is::<EndpointError>() {
            return (Exit::Configuration, "docs/configuration.md lists the forms of redis.url".into());
        }
        if let Some(redis) = cause.downcast_ref::<redis::RedisError>() {
            return (Exit::Failed, of_redis(redis).to_owned());
        }
    }
    (
        Exit::Failed,
        "`quotabell --help` lists the commands, `quotabell check-config` checks the configuration".to_owned(),
    )
}

/// Hint for a failed call to Redis.
pub fn of_redis(error: &redis::RedisError) -> &'static str {
    DeploymentError::find_in(error).map_or_else(|| of_error_kind(error_kind(error)), DeploymentError::hint)
}

/// Hint for a failed call to the server of this deployment.
pub fn of_call(error: &redis::RedisError, deployment: Deployment) -> &'static str {
    match (error_kind(error), deployment) {
        // A client in cluster mode follows the redirect.
        (ErrorKind::Moved, Deployment::Standalone | Deployment::Sentinel) => CLUSTER_NODE_HINT,
        _ => of_redis(error),
    }
}

/// Hint for a kind of error.
const fn of_error_kind(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unreachable => {
            "is Redis running there? redis.url in the configuration says where (QUOTABELL__REDIS__URL overrides it); a \
             server that speaks TLS wants rediss://"
        }
        ErrorKind::NotReady => "Redis is starting, busy or without its replicas: try again in a moment",
        ErrorKind::ReadOnly => "this is a replica: name the primary in redis.url",
        ErrorKind::Moved => "the primaries of Redis are changing: try again in a moment",
        ErrorKind::Deployment => "docs/deployments.md says how redis.url names Sentinels and clusters",
        ErrorKind::Full => {
            "Redis is at its maxmemory: free memory or raise maxmemory; the daemon frees what it has counted"
        }
        ErrorKind::Login => "check user and password in redis.url or in the file of redis.url_file",
        ErrorKind::Database => NO_DATABASE_HINT,
        ErrorKind::Denied => "give the Redis user the right to the command and the key (ACL SETUSER)",
        ErrorKind::MovedAway => {
            "name the deployment to which everything was moved in redis.url, and its stream.partitions"
        }
        ErrorKind::WrongType => {
            "a key of quotabell holds unexpected data: inspect it with `redis-cli TYPE KEY`, and rename or delete it"
        }
        ErrorKind::Other => "`quotabell check-config` checks the configuration and the connection",
    }
}

/// Converts a message of the argument parser to our form: `own_hint`, or else the parser's tip, becomes the hint at the
/// end. Pure.
pub fn report_usage(rendered: &str, own_hint: Option<&str>) -> ExitReport {
    const TIP: &str = "tip: ";
    let is_advice = |line: &str| line.trim_start().starts_with(TIP) || line.starts_with("For more information");
    let (advice, rest): (Vec<&str>, Vec<&str>) = rendered.lines().partition(|line| is_advice(line));
    let tip = advice.iter().find_map(|line| line.trim_start().strip_prefix(TIP));
    let hint = own_hint.or(tip).unwrap_or("--help after the command shows its options, with examples");
    let mut text = String::new();
    for line in rest {
        // Removing a tip would leave two blank lines.
        if !(line.is_empty() && (text.is_empty() || text.ends_with("\n\n"))) {
            text.push_str(line);
            text.push('\n');
        }
    }
    ExitReport { exit: Exit::Usage, text: format!("{}\nhint: {hint}\n", text.trim_end()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    /// Each failure must end with its own code and hint, even if context was added.
    #[test]
    fn the_innermost_advice_decides_code_and_hint() {
        let wrapped: anyhow::Result<()> = Err(usage("nothing to set", "name an option")).context("subject set");
        let report = report(&wrapped);
        assert_eq!(report.exit, Exit::Usage);
        assert_eq!(report.text, "error: subject set: nothing to set\nhint: name an option\n");
    }

    /// `quotabell subject list | head` must end quietly.
    #[test]
    fn a_reader_that_left_is_no_failure() {
        let pipe: anyhow::Result<()> = Err(io::Error::from(io::ErrorKind::BrokenPipe)).context("write to stdout");
        assert_eq!(report(&pipe).exit, Exit::Done);
    }

    /// A cause below a hinted error must be shown once, not twice.
    #[test]
    fn causes_are_shown_once() {
        let failed: anyhow::Result<()> = Err(io::Error::from(io::ErrorKind::NotFound)).context("open contacts.csv");
        let io = with_hint(failed, "check the path");
        assert_eq!(report(&io).text, "error: open contacts.csv: entity not found\nhint: check the path\n");
    }
}
