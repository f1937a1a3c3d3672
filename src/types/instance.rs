//! Which deployment this is.

use std::fmt;

/// A random name that a deployment gets at its first start and keeps, so that no two deployments share the id of an alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance(String);

impl Instance {
    /// A name that no other deployment has.
    #[must_use]
    pub fn random() -> Self {
        Self(super::nonce::nonce())
    }

    /// Takes a name that was read back from Redis.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
