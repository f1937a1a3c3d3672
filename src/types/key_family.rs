//! Families of keys: the name of a key without its partition, for copying a partition to another one.

use super::Keys;
use super::keys::FAMILY_PREFIX;
use super::text::glob_literal;

/// A key without its partition: `usage` and `:requests:2026-11-21:0a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyFamily<'a> {
    /// The part before the tag.
    pub name: &'a str,
    /// The part behind the tag, with its colon.
    pub rest: &'a str,
}

impl<'a> KeyFamily<'a> {
    /// The family of a key; `None` if the key belongs to another partition than `keys`.
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
    /// A pattern of SCAN that matches every key of the partition except its stream.
    pub fn pattern(&self) -> String {
        format!("{FAMILY_PREFIX}*:{}*", glob_literal(&self.tag))
    }
}
