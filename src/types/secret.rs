//! Text that must not reach a log, a page or a terminal.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use subtle::ConstantTimeEq;

/// Whether two secrets, or digests of secrets, are equal, compared in constant time.
pub fn same_secret(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// A secret. Prints and serialises as `***`; [`Secret::reveal`] is the one way to read it.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the place that uses it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
