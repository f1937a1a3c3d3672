//! The cursor of lists: where the next part begins. Callers return it unchanged and need not understand it.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A position in a list as text: the base64 of its JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor<T>(pub T);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not the `next` of a list")]
pub struct CursorError;

impl<T: Serialize> fmt::Display for Cursor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_vec(&self.0).map_err(|_| fmt::Error)?;
        f.write_str(&URL_SAFE_NO_PAD.encode(json))
    }
}

impl<T: DeserializeOwned> FromStr for Cursor<T> {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| CursorError)?;
        serde_json::from_slice(&json).map(Self).map_err(|_| CursorError)
    }
}
