//! The place where a setting was written.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The place of a value, ordered by layer and then by line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In `config/default.toml`; lines count from 1.
    Embedded { line: usize },
    /// In the configuration file, with the path as given.
    File { path: Arc<Path>, line: usize },
    /// In an environment variable.
    Variable(Arc<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded { line } => write!(f, "embedded default.toml, line {line}"),
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Variable(name) => write!(f, "variable {name}"),
        }
    }
}

impl Place {
    /// Whether somebody wrote it: it is not a default.
    pub(super) const fn is_own(&self) -> bool {
        !matches!(self, Self::Embedded { .. })
    }

    /// The layer of the place.
    pub(super) const fn layer(&self) -> Layer {
        match self {
            Self::Embedded { .. } => Layer::Defaults,
            Self::File { .. } => Layer::File,
            Self::Variable(_) => Layer::Variables,
        }
    }
}

/// The layers, in the order in which they override each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    Defaults,
    File,
    Variables,
}

/// The place of each key of a table, by the key's segments. Holds no value, so that printing it shows no secret.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Places(pub(super) BTreeMap<Vec<String>, Place>);

impl Places {
    /// Whether the configuration file sets any key.
    pub(super) fn any_in_file(&self) -> bool {
        self.0.values().any(|place| place.layer() == Layer::File)
    }

    /// The place of the key with these segments. If the key is unset, or is inside one variable, the place of its
    /// nearest table.
    pub(super) fn place_of(&self, path: &[String]) -> Place {
        let nearest = (1..=path.len()).rev().find_map(|depth| self.0.get(&path[..depth]));
        nearest.cloned().unwrap_or(Place::Embedded { line: 1 })
    }

    /// Removes this key and everything below it, because another layer replaces it.
    pub(super) fn remove(&mut self, path: &[String]) {
        self.0.retain(|key, _| !key.starts_with(path));
    }
}
