//! The names of the daemons that read the partitions of a stream.

use std::fmt;
use std::net::SocketAddr;

use crate::types::text_form::text_id;

/// Precedes the number of a daemon that sends nothing.
const NO_SEND: &str = "no-send-";

text_id! {
    /// `<host>/<address>/<random number>`, or `<host>/<address>/no-send-<random number>` for a daemon that sends
    /// nothing. It is used in the leases that the daemon holds and in the list of live daemons.
    DaemonName
}

impl DaemonName {
    /// Creates a unique name for the daemon that listens on `address` of `host`.
    pub fn new(host: &str, address: SocketAddr) -> Self {
        Self(format!("{host}/{address}/{:016x}", rand::random::<u64>()))
    }

    /// Marks the daemon as one that counts and sends nothing, so that others can tell why deliveries wait.
    #[must_use]
    pub fn without_sending(self) -> Self {
        let (prefix, number) = self.0.split_at(self.address_prefix().len());
        Self(format!("{prefix}{NO_SEND}{number}"))
    }

    /// Whether the daemon sends deliveries.
    pub fn sends(&self) -> bool {
        !self.0[self.address_prefix().len()..].starts_with(NO_SEND)
    }

    /// `<host>/<address>/`: the prefix of the names of all daemons that ever listened there. No two processes can
    /// listen there at once, so every other daemon with this prefix is dead.
    pub fn address_prefix(&self) -> &str {
        let end = self.0.rfind('/').map_or(self.0.len(), |slash| slash + 1);
        &self.0[..end]
    }
}

/// A member of the list of live daemons, `<name> <stream> <fingerprint of its plans>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonEntry {
    /// The daemon.
    pub name: DaemonName,
    /// The stream that it reads.
    pub stream: String,
    /// The fingerprint of its plans.
    pub plans: String,
}

impl DaemonEntry {
    /// Parses a member; returns `None` if it has another form. The name of a stream may contain spaces.
    pub fn parse(member: &str) -> Option<Self> {
        let (name, rest) = member.split_once(' ')?;
        let (stream, plans) = rest.rsplit_once(' ')?;
        Some(Self { name: DaemonName::from_stored(name), stream: stream.to_owned(), plans: plans.to_owned() })
    }
}

impl fmt::Display for DaemonEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.stream, self.plans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The daemons of a stream whose name has a space must not be taken for those of another stream.
    #[test]
    fn a_member_is_read_back() {
        let name = DaemonName::from_stored("host/127.0.0.1:1/ab");
        let entry = DaemonEntry { name, stream: "my usage".to_owned(), plans: "cd".to_owned() };
        assert_eq!(DaemonEntry::parse(&entry.to_string()), Some(entry));
        assert_eq!(DaemonEntry::parse("host/127.0.0.1:1/ab usage"), None);
    }
}
