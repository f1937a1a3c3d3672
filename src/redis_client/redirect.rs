//! Redirects: the node to which a cluster sends a command that a node does not serve. Pure.

use redis::{Arg, Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

/// A redirect that a node sent in place of a reply. The node ran nothing of the command.
#[derive(Debug, PartialEq, Eq)]
pub struct Redirect {
    /// For this command only, or for all later commands.
    pub kind: RedirectKind,
    /// The host of the other node; empty if the sender does not know it.
    pub host: String,
    /// The port of the other node.
    pub port: u16,
}

/// How long a redirect holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectKind {
    /// The slot belongs to the other node.
    Moved,
    /// The slot is moving, and this node does not have the key: the other node has it, or nobody.
    Ask,
}

impl Redirect {
    /// Parses a redirect such as `MOVED 5205 127.0.0.1:7001` from the kind and the text behind it.
    fn read(kind: ServerErrorKind, detail: Option<&str>) -> Option<Self> {
        let kind = match kind {
            ServerErrorKind::Moved => RedirectKind::Moved,
            ServerErrorKind::Ask => RedirectKind::Ask,
            _ => return None,
        };
        let (host, port) = detail?.split_ascii_whitespace().nth(1)?.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Self { kind, host, port: port.parse().ok()? })
    }

    /// The redirect for `command`, which failed with this error.
    pub fn from_error(command: &Cmd, error: &RedisError) -> Option<Self> {
        match error.kind() {
            ErrorKind::Server(kind) => Self::read(kind, error.detail())?.if_allowed_for(command),
            _ => None,
        }
    }

    /// The redirect for a command of a pipeline with this reply.
    pub fn in_pipeline(command: &Cmd, reply: &Value) -> Option<Self> {
        let Value::ServerError(error) = reply else { return None };
        Self::read(error.kind()?, error.details())?.if_allowed_for(command)
    }

    /// The redirect for a transaction that the node discarded because it redirected the first command.
    pub fn of_transaction(error: &RedisError) -> Option<Self> {
        let failures = error.clone().into_server_errors()?;
        let (_, first) = failures.first()?;
        Self::read(first.kind()?, first.details()).filter(|redirect| redirect.kind == RedirectKind::Moved)
    }

    /// A script reads keys that it does not declare. At the node to which a slot moves, keys that have not arrived look
    /// missing: the script would raise an alert again, or take a delivery for lost.
    fn if_allowed_for(self, command: &Cmd) -> Option<Self> {
        let is_script = has_name(command, "EVALSHA") || has_name(command, "EVAL");
        (self.kind == RedirectKind::Moved || !is_script).then_some(self)
    }
}

/// Whether the command has this name.
pub fn has_name(command: &Cmd, name: &str) -> bool {
    matches!(command.args_iter().next(), Some(Arg::Simple(first)) if first.eq_ignore_ascii_case(name.as_bytes()))
}

/// Adds a command for a node to which the command's slot is still moving.
pub fn add_asking(pipeline: &mut Pipeline, command: &Cmd) {
    pipeline.cmd("ASKING").ignore().add_command(command.clone());
}
