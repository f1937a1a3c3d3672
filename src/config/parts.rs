//! Parts that judge their own settings when they are built: where one refuses a setting, the error says where that was written.
//!
//! Whoever wants a part asks here and not the part itself. Reads the files that settings name; connects nowhere. Read next:
//! `error`, which shows what was refused.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use super::error::{ConfigError, key};
use super::tree::{Node, Place, Value};
use super::{Config, allowed};
use crate::api::Token;
use crate::sender::{Preview, Sender, SenderError, preview};
use crate::types::{Alert, Keys};
use crate::wire::RedisEndpoint;

/// Where each key of a section was written. Holds no value, so that printing it shows no secret.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Places(BTreeMap<String, Place>);

impl Places {
    /// Of a tree in which every layer is settled.
    pub(super) fn of(tree: &Node) -> Self {
        let mut places = BTreeMap::new();
        for (section, keys) in entries(tree) {
            for (name, node) in entries(keys) {
                places.insert(format!("{section}.{name}"), node.place.clone());
            }
        }
        Self(places)
    }
}

fn entries(node: &Node) -> impl Iterator<Item = (&String, &Node)> {
    let table = if let Value::Table(entries) = &node.value { Some(entries) } else { None };
    table.into_iter().flatten()
}

/// A setting that a part refused.
#[derive(Debug)]
pub struct Refused {
    /// The key, as `email.templates`; `None` where the machine is at fault and no key is.
    key: Option<&'static str>,
    place: Option<Place>,
    error: Box<dyn Error + Send + Sync>,
    hint: Option<&'static str>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.error.to_string();
        match (self.key, &self.place) {
            (Some(key), Some(place)) if text.contains(key) => write!(f, "{text} ({place})"),
            (Some(key), Some(place)) => write!(f, "{text} ({key}: {place})"),
            _ => f.write_str(&text),
        }
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The display above is the error's own and more, so the chain goes on below it.
        self.error.source()
    }
}

impl Refused {
    /// What to do about it, one line; `None` where the error says all there is.
    pub(super) fn hint(&self) -> Option<String> {
        let path = || -> Option<Vec<String>> { Some(self.key?.split('.').map(str::to_owned).collect()) };
        let takes = || path().and_then(|path| Some(format!("{} takes {}", key(&path), allowed::of(&path)?)));
        self.hint.map(str::to_owned).or_else(takes)
    }
}

impl Config {
    /// The keys of the configured partition and of its subjects.
    #[must_use]
    pub fn keys(&self) -> Keys {
        Keys::new(&self.stream.key).with_subject_prefix(&self.subjects.prefix)
    }

    /// The sender of these settings. Loads and checks the templates, reads the files of `[webhook]` and `[email]`.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Refused`]
    pub fn sender(&self) -> Result<Sender, ConfigError> {
        Sender::new(&self.webhook, &self.email, self.retry.clone()).map_err(|error| self.refused_by_sender(error))
    }

    /// What would be sent about an alert. Reads the templates, contacts nobody.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Refused`]
    pub fn preview(&self, alert: &Alert) -> Result<Preview, ConfigError> {
        preview(&self.email, alert).map_err(|error| self.refused_by_sender(error.into()))
    }

    /// The token of `[http]`, if it has one. Reads the file that the section names.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Refused`]
    pub fn token(&self) -> Result<Option<Token>, ConfigError> {
        Token::from_config(&self.http).map_err(|error| self.refused(Some(error.setting()), error, None))
    }

    /// The server of `[redis]`. Reads the files that the section names.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Refused`]
    pub fn target(&self) -> Result<RedisEndpoint, ConfigError> {
        RedisEndpoint::from_config(&self.redis).map_err(|error| self.refused(error.setting(), error, None))
    }

    fn refused_by_sender(&self, error: SenderError) -> ConfigError {
        let hint = error.is_of_a_template().then_some(
            "mend the template (`quotabell preview text` renders it), or leave email.templates out for the embedded ones",
        );
        self.refused(error.setting(), error, hint)
    }

    fn refused(
        &self,
        key: Option<&'static str>,
        error: impl Error + Send + Sync + 'static,
        hint: Option<&'static str>,
    ) -> ConfigError {
        let place = key.and_then(|key| self.places.0.get(key)).cloned();
        ConfigError::Refused(Refused { key, place, error: Box::new(error), hint })
    }
}
