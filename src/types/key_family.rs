//! Keys without their partition: what the same key is called in another one. For what copies a deployment.

use super::keys::{FAMILY_PREFIX, Keys};
use super::text::glob_literal;

/// A key without its partition: `usage` and `:requests:2026-11-21:0a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyFamily<'a> {
    /// What stands before the tag.
    pub name: &'a str,
    /// What stands behind it, with its colon.
    pub rest: &'a str,
}

impl Keys {
    /// A pattern of SCAN that every key of the partition but its stream matches.
    #[must_use]
    pub fn pattern(&self) -> String {
        format!("{FAMILY_PREFIX}*:{}*", glob_literal(&self.tag))
    }

    /// Which family a key of this partition belongs to, and what stands behind the tag; `None` for a key of another partition.
    #[must_use]
    pub fn family_of<'a>(&self, key: &'a str) -> Option<KeyFamily<'a>> {
        let (name, rest) = key.strip_prefix(FAMILY_PREFIX)?.split_once(':')?;
        let rest = rest.strip_prefix(&self.tag)?;
        (rest.is_empty() || rest.starts_with(':')).then_some(KeyFamily { name, rest })
    }

    /// The key of this family in this partition.
    #[must_use]
    pub fn in_family(&self, KeyFamily { name, rest }: KeyFamily<'_>) -> String {
        format!("{FAMILY_PREFIX}{name}:{}{rest}", self.tag)
    }
}
