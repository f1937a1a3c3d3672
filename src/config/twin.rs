//! Settings that can stand in a file of their own: of a value and its `_file` twin, the one from the later layer counts.
//!
//! So that what an operator sets last is what they get: a variable wins over the file, whichever of the two either names. Judges
//! only where values were written; the files are read by the parts that need them.

use super::error::ConfigError;
use super::tree::{Node, Value};
use crate::channels::REGISTRY;

/// A value and the key that names a file with it.
struct Twins {
    section: &'static str,
    value: &'static str,
    file: &'static str,
}

const TWINS: [Twins; 2] = [
    Twins { section: "redis", value: "url", file: "url_file" },
    Twins { section: "http", value: "token", file: "token_file" },
];

/// Leaves of each pair only the one from the later layer.
///
/// # Errors
///
/// [`ConfigError::Both`], where one layer sets both: nobody can tell which was meant.
pub(super) fn settle(tree: &mut Node) -> Result<(), ConfigError> {
    let of_channels = REGISTRY.into_iter().flat_map(|definition| {
        let section = definition.channel.as_str();
        definition.file_settings.iter().map(move |pair| Twins { section, value: pair.value, file: pair.file })
    });
    TWINS.into_iter().chain(of_channels).try_for_each(|twins| twins.settle(tree))
}

impl Twins {
    fn settle(&self, tree: &mut Node) -> Result<(), ConfigError> {
        let set = |key: &str| tree.get(&[self.section, key]).filter(|node| is_set(node)).map(|node| &node.place);
        let dropped = match (set(self.value), set(self.file)) {
            (_, None) => self.file,
            (None, Some(_)) => self.value,
            (Some(value), Some(file)) if value.layer() > file.layer() => self.file,
            (Some(value), Some(file)) if value.layer() < file.layer() => self.value,
            (Some(value), Some(file)) => {
                return Err(ConfigError::Both {
                    section: self.section,
                    value: self.value,
                    value_place: value.clone(),
                    file: self.file,
                    file_place: file.clone(),
                });
            }
        };
        tree.remove(self.section, dropped);
        Ok(())
    }
}

/// An empty variable sets nothing: compose files write `${NAME:-}` for that.
fn is_set(node: &Node) -> bool {
    !matches!(&node.value, Value::Untyped(text) if text.is_empty())
}
