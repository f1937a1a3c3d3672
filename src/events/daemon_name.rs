//! The name of a daemon among those that read the partitions of one stream.

use std::fmt;
use std::net::SocketAddr;

/// What stands before the number of a daemon that sends nothing.
const NO_SEND: &str = "no-send-";

/// `<host>/<address>/<random number>`, or `<host>/<address>/no-send-<random number>` of one that sends nothing: in the
/// leases that it holds, and in the list of live daemons.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DaemonName {
    name: String,
}

impl DaemonName {
    /// A name for the daemon that listens on `address` of `host`; no two are equal.
    pub fn new(host: &str, address: SocketAddr) -> Self {
        Self { name: format!("{host}/{address}/{:016x}", rand::random::<u64>()) }
    }

    /// The same daemon as one that reads and sends nothing, so that others can tell why deliveries wait.
    #[must_use]
    pub fn without_sending(self) -> Self {
        let (prefix, number) = self.name.split_at(self.address_prefix().len());
        Self { name: format!("{prefix}{NO_SEND}{number}") }
    }

    /// Whether it sends what is due.
    pub fn sends(&self) -> bool {
        !self.name[self.address_prefix().len()..].starts_with(NO_SEND)
    }

    /// The name as it was stored.
    pub fn from_stored(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// `<host>/<address>/`, with which the names of every daemon begin that ran there. No two processes can listen
    /// there at once, so whoever else has a name that begins so is dead.
    pub fn address_prefix(&self) -> &str {
        let end = self.name.rfind('/').map_or(self.name.len(), |slash| slash + 1);
        &self.name[..end]
    }
}

/// A member of the list of live daemons, `<name> <stream> <fingerprint of its plans>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonEntry {
    /// The daemon.
    pub name: DaemonName,
    /// Which stream it reads.
    pub stream: String,
    /// The fingerprint of its plans.
    pub plans: String,
}

impl DaemonEntry {
    /// Reads a member; `None` if it is none. The name of a stream may contain spaces.
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

impl fmt::Display for DaemonName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream whose name holds a space must not have its daemons taken for those of another one.
    #[test]
    fn a_member_is_read_back() {
        let name = DaemonName::from_stored("host/127.0.0.1:1/ab");
        let entry = DaemonEntry { name, stream: "my usage".to_owned(), plans: "cd".to_owned() };
        assert_eq!(DaemonEntry::parse(&entry.to_string()), Some(entry));
        assert_eq!(DaemonEntry::parse("host/127.0.0.1:1/ab usage"), None);
    }
}
