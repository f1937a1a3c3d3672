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

impl fmt::Display for DaemonName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
