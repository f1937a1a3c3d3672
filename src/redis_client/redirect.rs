//! Where a node of a cluster sends a command that it does not serve. Pure.

use redis::{Arg, Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

/// What a node said in place of a reply. It has run nothing of the command.
#[derive(Debug, PartialEq, Eq)]
pub struct Redirect {
    /// For this command, or for good.
    pub kind: RedirectKind,
    /// The host of the other node; empty where a node does not know it.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// For how long a redirect holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectKind {
    /// The slot is the other node's.
    Moved,
    /// The slot is moving, and the key is not here: it is at the other node, or nowhere.
    Ask,
}

impl Redirect {
    /// Reads `MOVED 5205 127.0.0.1:7001`: its kind, and what follows it.
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

    /// Where `command` is to be sent, which failed with this error.
    pub fn from_error(command: &Cmd, error: &RedisError) -> Option<Self> {
        match error.kind() {
            ErrorKind::Server(kind) => Self::read(kind, error.detail())?.if_allowed_for(command),
            _ => None,
        }
    }

    /// Where a command of a pipeline is to be sent that was answered so.
    pub fn in_pipeline(command: &Cmd, reply: &Value) -> Option<Self> {
        let Value::ServerError(error) = reply else { return None };
        Self::read(error.kind()?, error.details())?.if_allowed_for(command)
    }

    /// Where a transaction is to be sent that was given up because its first command was sent away.
    pub fn of_transaction(error: &RedisError) -> Option<Self> {
        let failures = error.clone().into_server_errors()?;
        let (_, first) = failures.first()?;
        Self::read(first.kind()?, first.details()).filter(|redirect| redirect.kind == RedirectKind::Moved)
    }

    /// A script looks at keys that it does not declare. At the node to which a slot moves, those that have not arrived
    /// look as if they were not there: an alert would be raised again, a delivery be taken for lost.
    fn if_allowed_for(self, command: &Cmd) -> Option<Self> {
        let is_script = has_name(command, "EVALSHA") || has_name(command, "EVAL");
        (self.kind == RedirectKind::Moved || !is_script).then_some(self)
    }
}

/// Whether this is the command of that name.
pub fn has_name(command: &Cmd, name: &str) -> bool {
    matches!(command.args_iter().next(), Some(Arg::Simple(first)) if first.eq_ignore_ascii_case(name.as_bytes()))
}

/// Adds a command for a node to which its slot is only about to move.
pub fn add_asking(pipeline: &mut Pipeline, command: &Cmd) {
    pipeline.cmd("ASKING").ignore().add_command(command.clone());
}
