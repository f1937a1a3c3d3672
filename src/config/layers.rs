//! The sources laid over each other: the embedded defaults, the file, the variables.
//!
//! Of a setting and the one that names a file with it, the one from the later layer counts. Read next:
//! [`read`](super::read), which turns the tree into the settings.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;

use config::{Environment, Source as _};

use super::allowed::{PREFIX, SEPARATOR, variable, variable_meant_by};
use super::error::Mistake;
use super::place::Place;
use super::tree::{Node, NotJson, Value};
use crate::channels::REGISTRY;
use crate::contacts::config::{FALLBACK_KEYS, OPERATOR_KEYS};

/// What the environment says: our variables by the path of their setting, `section.key`, and what is wrong with others.
///
/// The `config` crate knows how a name becomes a path; its guessing of types stays off, since it would turn a token
/// `007` into 7.
fn variables(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    mistakes: &mut Vec<Mistake>,
) -> BTreeMap<String, String> {
    let mut ours = HashMap::new();
    for (name, value) in environment {
        let Ok(name) = name.into_string() else { continue };
        let place = Place::Variable(name.as_str().into());
        match (name.starts_with(&format!("{PREFIX}{SEPARATOR}")), value.into_string()) {
            // Compose files write `${NAME:-}` for a variable that is not set.
            (true, Ok(value)) if value.is_empty() => {}
            (true, Ok(value)) => drop(ours.insert(name, value)),
            (true, Err(_)) => mistakes.push(Mistake::NotUtf8 { place }),
            (false, _) => mistakes.extend(variable_meant_by(&name).map(|meant| Mistake::Misspelt { place, meant })),
        }
    }
    let source = Environment::with_prefix(PREFIX).prefix_separator(SEPARATOR).separator(SEPARATOR).source(Some(ours));
    let collected = source.collect().expect("every variable is text, and nothing else is judged here");
    let text = |value: config::Value| value.into_string().expect("without guessing, a variable stays text");
    collected.into_iter().map(|(path, value)| (path, text(value))).collect()
}

impl Node {
    /// Lays another source over this one: section by section, and in it key by key. What stands below that, as the
    /// limits of a plan, is replaced whole.
    pub(super) fn lay_over(&mut self, over: Self) {
        let (Value::Table(sections), Value::Table(over)) = (&mut self.value, over.value) else { return };
        for (name, section) in over {
            match sections.get_mut(&name) {
                Some(base) => base.lay_over_section(section),
                None => drop(sections.insert(name, section)),
            }
        }
    }

    fn lay_over_section(&mut self, over: Self) {
        match (&mut self.value, over) {
            (Value::Table(keys), Self { value: Value::Table(over), .. }) => keys.extend(over),
            (_, over) => *self = over,
        }
    }

    /// Lays variables named `QUOTABELL__SECTION__KEY` over this tree; others are left alone.
    pub(super) fn lay_variables_over(
        &mut self,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        mistakes: &mut Vec<Mistake>,
    ) {
        // Sorted by path, so that a whole table comes before a key inside it.
        for (path, text) in variables(environment, mistakes) {
            let place = Place::Variable(variable(&path.split('.').collect::<Vec<_>>()).into());
            let set = self.set_variable(&path, text, &place);
            mistakes.extend(set.err().map(|error| Mistake::Syntax { place, why: error.to_string() }));
        }
    }

    fn set_variable(&mut self, path: &str, text: String, place: &Place) -> Result<(), NotJson> {
        let segments: Vec<&str> = path.split('.').collect();
        let over = Self { place: place.clone(), value: Value::Untyped(text) };
        let mut node = self;
        for segment in &segments {
            let missing = || Self { place: place.clone(), value: Value::Table(BTreeMap::new()) };
            node = node.table_mut(place)?.entry((*segment).to_owned()).or_insert_with(missing);
        }
        if segments.len() == 1 && matches!(&node.value, Value::Table(keys) if !keys.is_empty()) {
            node.lay_over_section(over.into_parsed()?);
        } else {
            *node = over;
        }
        Ok(())
    }

    /// The entries of this table. A variable's text becomes the table that it writes; anything else becomes an empty
    /// one, whose place is the variable that took it for a table, so that the reader of the tree refuses it there.
    fn table_mut(&mut self, place: &Place) -> Result<&mut BTreeMap<String, Self>, NotJson> {
        if matches!(self.value, Value::Untyped(_)) {
            *self = self.clone().into_parsed()?;
        }
        if !matches!(self.value, Value::Table(_)) {
            *self = Self { place: place.clone(), value: Value::Table(BTreeMap::new()) };
        }
        match &mut self.value {
            Value::Table(entries) => Ok(entries),
            _ => unreachable!("made a table just above"),
        }
    }
}

/// Takes keys that are none out of the contacts of the configuration. In those of subjects they are notes of the
/// platform's; here they are mistakes, because nobody else writes into the file.
pub(super) fn refuse_unknown_contact_keys(tree: &mut Node, mistakes: &mut Vec<Mistake>) {
    for (section, allowed) in [("fallback", FALLBACK_KEYS), ("operator", OPERATOR_KEYS)] {
        let path = [section, "contacts"].map(str::to_owned);
        // What can't be read is told by whoever reads the settings.
        let Some(Ok(contacts)) = tree.get(&path).cloned().map(Node::into_parsed) else { continue };
        let Value::List(items) = &contacts.value else { continue };
        let mut unknown = Vec::new();
        for (index, item) in items {
            let Value::Table(entries) = &item.value else { continue };
            // Which keys there are is for the channel to say: one that is none is the first thing to mend.
            if names_no_channel(entries) {
                continue;
            }
            for (key, node) in entries.iter().filter(|(key, _)| !allowed.contains(&key.as_str())) {
                let path = path.iter().cloned().chain([format!("[{index}]"), key.clone()]).collect();
                unknown.push(Mistake::UnknownKey { path, place: node.place.clone(), allowed });
            }
        }
        tree.replace(&path, Some(contacts));
        unknown.iter().for_each(|mistake| tree.replace(mistake.path(), None));
        mistakes.extend(unknown);
    }
}

fn names_no_channel(contact: &BTreeMap<String, Node>) -> bool {
    let Some(Value::Text(channel)) = contact.get("channel").map(|node| &node.value) else { return false };
    REGISTRY.into_iter().all(|definition| definition.channel.as_str() != channel)
}

/// A setting and the one that names a file with it.
struct ValueOrFile {
    section: &'static str,
    value: &'static str,
    file: &'static str,
}

const VALUES_OR_FILES: [ValueOrFile; 2] = [
    ValueOrFile { section: "redis", value: "url", file: "url_file" },
    ValueOrFile { section: "http", value: "token", file: "token_file" },
];

/// Of a value and the key that names its file, keeps the one set in the later layer: what an operator sets last counts.
/// Where one layer sets both, nobody can tell which was meant: a mistake, and the default stands in their place.
pub(super) fn drop_earlier(tree: &mut Node, defaults: &Node, mistakes: &mut Vec<Mistake>) {
    let of_channels = REGISTRY.into_iter().flat_map(|definition| {
        let section = definition.channel.as_str();
        definition.file_settings.iter().map(move |pair| ValueOrFile { section, value: pair.value, file: pair.file })
    });
    for either in VALUES_OR_FILES.into_iter().chain(of_channels) {
        mistakes.extend(either.drop_earlier(tree, defaults));
    }
}

impl ValueOrFile {
    fn drop_earlier(&self, tree: &mut Node, defaults: &Node) -> Option<Mistake> {
        let path = |key: &str| [self.section.to_owned(), key.to_owned()];
        let set = |key: &str| tree.get(&path(key)).filter(|node| is_set(node)).map(|node| node.place.clone());
        let dropped = match (set(self.value), set(self.file)) {
            (_, None) => self.file,
            (None, Some(_)) => self.value,
            (Some(value), Some(file)) if value.layer() > file.layer() => self.file,
            (Some(value), Some(file)) if value.layer() < file.layer() => self.value,
            (Some(value_place), Some(file_place)) => {
                tree.replace(&path(self.value), defaults.get(&path(self.value)).cloned());
                tree.replace(&path(self.file), None);
                let Self { section, value, file } = *self;
                return Some(Mistake::Both { section, value, value_place, file, file_place });
            }
        };
        tree.replace(&path(dropped), None);
        None
    }
}

/// An empty variable sets nothing: compose files write `${NAME:-}` for that.
fn is_set(node: &Node) -> bool {
    !matches!(&node.value, Value::Untyped(text) if text.is_empty())
}
