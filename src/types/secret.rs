//! Text that must never appear in a log, a page or a terminal.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use subtle::ConstantTimeEq;

use super::text::masked_url;

/// Compares two secrets, or digests of secrets, in constant time.
pub fn same_secret(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// A secret. Prints and serializes as `***`; only [`Secret::reveal`] returns the text.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for the code that uses it.
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

/// A URL that may hold a password. Prints and serializes with `***` in its place, so serialized URLs can't be read
/// back; only [`SecretUrl::reveal`] returns the URL.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// The URL, for the code that uses it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether the text is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for SecretUrl {
    fn from(url: String) -> Self {
        Self(url)
    }
}

impl From<&str> for SecretUrl {
    fn from(url: &str) -> Self {
        Self(url.to_owned())
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&masked_url(&self.0))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked_url(&self.0))
    }
}
