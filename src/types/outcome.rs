//! How one attempt ended.

use std::fmt;
use std::time::Duration;

/// What an outcome means for the delivery. Decided where the attempt is made, never guessed from text afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The other side took it.
    Delivered,
    /// Trying again can't help: the delivery is dead.
    Permanent,
    /// Trying again may help.
    Transient,
}

impl Class {
    /// The class as it stands in the attempt log and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Permanent => "permanent",
            Self::Transient => "transient",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How one attempt ended: its class, what the other side said, how long it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The class.
    pub class: Class,
    /// HTTP status or SMTP reply code, when there was one.
    pub status: Option<u16>,
    /// What went wrong in a few words, without address, URL or body; `None` when delivered.
    pub error: Option<String>,
    /// How long the receiver asked us to wait (Retry-After).
    pub retry_after: Option<Duration>,
    /// How long the attempt took.
    pub took: Duration,
}
