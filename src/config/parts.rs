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
use crate::channels::{self, ChannelError, Channels, Preview};
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

    /// The channels with these settings. Loads and checks the templates, reads the files that the sections of channels name.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Refused`]
    pub fn channels(&self) -> Result<Channels, ConfigError> {
        Channels::new(&self.channel_settings()).map_err(|error| self.refused_by_channel(error))
    }

    /// What would be sent about an alert. Reads the templates, contacts nobody.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Refused`]
    pub fn preview(&self, alert: &Alert) -> Result<Vec<Preview>, ConfigError> {
        channels::preview(&self.channel_settings(), alert).map_err(|error| self.refused_by_channel(error))
    }

    /// The token of `[http]`, if it has one. Reads the file that the section names.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Refused`]
    pub fn token(&self) -> Result<Option<Token>, ConfigError> {
        Token::from_config(&self.http).map_err(|error| self.refused(Some(error.setting()), None, error))
    }

    /// The server of `[redis]`. Reads the files that the section names.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Refused`]
    pub fn target(&self) -> Result<RedisEndpoint, ConfigError> {
        RedisEndpoint::from_config(&self.redis).map_err(|error| self.refused(error.setting(), None, error))
    }

    fn refused_by_channel(&self, error: ChannelError) -> ConfigError {
        self.refused(error.setting, error.hint, error)
    }

    fn refused(
        &self,
        key: Option<&'static str>,
        hint: Option<&'static str>,
        error: impl Error + Send + Sync + 'static,
    ) -> ConfigError {
        let place = key.and_then(|key| self.places.0.get(key)).cloned();
        ConfigError::Refused(Refused { key, place, error: Box::new(error), hint })
    }
}
