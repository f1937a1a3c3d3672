//! Times in JSON.

use std::fmt;

use crate::types::text_form::inline_schema;
use serde::{Serialize, Serializer};

use crate::types::UnixMs;

/// An instant whose JSON form is text, as `2026-11-21T08:37:00.123Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rfc3339(pub UnixMs);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

inline_schema!(Rfc3339, { "type": "string", "format": "date-time" });

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}
