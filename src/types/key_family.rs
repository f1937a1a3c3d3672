//! Families of keys: what a key is called without its partition, for whoever copies a partition to another.

use super::Keys;
use super::keys::FAMILY_PREFIX;
use super::text::glob_literal;

/// A key without its partition: `usage` and `:requests:2026-11-21:0a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyFamily<'a> {
    /// What stands before the tag.
    pub name: &'a str,
    /// What stands behind it, with its colon.
    pub rest: &'a str,
}

impl<'a> KeyFamily<'a> {
    /// Which family a key belongs to; `None` for a key of another partition than that of `keys`.
    pub fn parse(keys: &Keys, key: &'a str) -> Option<Self> {
        let (name, rest) = key.strip_prefix(FAMILY_PREFIX)?.split_once(':')?;
        let rest = rest.strip_prefix(keys.tag.as_str())?;
        (rest.is_empty() || rest.starts_with(':')).then_some(Self { name, rest })
    }

    /// The key of this family in the partition of `keys`.
    pub fn key_in(self, keys: &Keys) -> String {
        format!("{FAMILY_PREFIX}{}:{}{}", self.name, keys.tag, self.rest)
    }
}

impl Keys {
    /// A pattern of SCAN that every key of the partition but its stream matches.
    pub fn pattern(&self) -> String {
        format!("{FAMILY_PREFIX}*:{}*", glob_literal(&self.tag))
    }
}
