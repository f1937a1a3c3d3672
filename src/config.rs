//! The configuration: gathers the settings of all parts, merges their sources, checks relations between them.
//!
//! The layers, from the lowest: `config/default.toml` (embedded, the only place for defaults), the file named with
//! `--config` or `QUOTABELL_CONFIG` (else [`DEFAULT_FILE`] if it exists), and variables `QUOTABELL__SECTION__KEY`. An
//! error names the key, the place where it was written and what is allowed. Connects nowhere. Read next: `layers`,
//! `read`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod allowed;
mod check;
mod error;
mod layers;
mod parts;
mod place;
mod read;
mod settings;
mod warnings;

pub(crate) use error::ConfigError;
pub use settings::Config;
pub(crate) use settings::{LogConfig, LogFormat};

use layers::Layers;
use place::Place;

/// `config/default.toml`.
pub const DEFAULTS: &str = include_str!("../config/default.toml");

/// The file to read if none is named; it need not exist.
pub(crate) const DEFAULT_FILE: &str = "/etc/quotabell/quotabell.toml";

/// The file to read: the named one, else `default` if it exists. An inaccessible file counts as existing, so that a
/// user without the right to read the daemon's configuration gets an error instead of the defaults.
pub(crate) fn file_in_effect(named: Option<PathBuf>, default: &Path) -> Option<PathBuf> {
    named.or_else(|| default.try_exists().unwrap_or(true).then(|| default.to_owned()))
}

/// What to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The configuration only.
    Settings,
    /// Also the files that it names.
    SettingsAndFiles,
}

impl Config {
    /// Reads the defaults, the file (if one is named) and the variables among `environment`, and checks every relation.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: the first mistake, with its key, its place and what is allowed.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        load(file, environment, Scope::Settings)
    }

    /// As [`Self::load`], and also checks the files that settings name: templates, certificates, secrets.
    ///
    /// # Errors
    ///
    /// As [`Self::load`].
    pub fn load_with_files(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        load(file, environment, Scope::SettingsAndFiles)
    }

    /// The defaults alone.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], only when the embedded file is broken, which a test rules out.
    pub fn defaults() -> Result<Self, ConfigError> {
        Self::load(None, [])
    }
}

fn load(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    scope: Scope,
) -> Result<Config, ConfigError> {
    let mut layers = Layers::from_toml(DEFAULTS, |line| Place::Embedded { line })?;
    if let Some(path) = file {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let path: Arc<Path> = path.into();
        layers.lay_over(Layers::from_toml(&text, |line| Place::File { path: Arc::clone(&path), line })?);
    }
    layers.lay_variables_over(environment)?;
    layers.drop_earlier()?;
    layers.refuse_unknown_contact_keys()?;
    let config = layers.read()?;
    check::check(&config)?;
    if scope == Scope::SettingsAndFiles {
        config.check_parts()?;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A default that breaks its own rules would stop every start.
    #[test]
    fn the_defaults_are_valid() {
        let config = Config::defaults().expect("valid");
        assert_eq!((config.default_plan.as_str(), config.stream.batch_entries), ("free", 2000));
    }

    /// People copy the example first.
    #[test]
    fn the_example_is_valid() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/config/example.toml");
        let config = Config::load(Some(Path::new(example)), []).expect("valid");
        assert_eq!(config.plans["pro"].limits.len(), 2);
    }

    /// A command that reads another configuration than the daemon works on another stream.
    #[test]
    fn a_named_file_wins_over_the_default_one_which_need_not_be_there() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let default = folder.path().join("quotabell.toml");
        let named = || Some(PathBuf::from("other.toml"));
        assert_eq!((file_in_effect(named(), &default), file_in_effect(None, &default)), (named(), None));
        std::fs::write(&default, "").expect("the folder is writable");
        assert_eq!((file_in_effect(named(), &default), file_in_effect(None, &default)), (named(), Some(default)));
    }
}
