//! What every verb is given beside its own arguments.

use std::path::PathBuf;

use crate::config::{Config, ConfigError};

/// What every verb is given beside its own arguments.
#[derive(Debug)]
pub struct CliContext {
    config_file: Option<PathBuf>,
}

impl CliContext {
    /// The context of a call with this `--config`.
    #[must_use]
    pub const fn new(config_file: Option<PathBuf>) -> Self {
        Self { config_file }
    }

    /// Reads the configuration: defaults, file, environment.
    ///
    /// # Errors
    ///
    /// As [`Config::load`].
    pub fn config(&self) -> Result<Config, ConfigError> {
        // Compose files write `QUOTABELL_CONFIG=${CONFIG:-}`: an empty name is none.
        let file = self.config_file.as_deref().filter(|path| !path.as_os_str().is_empty());
        Config::load(file, std::env::vars_os())
    }
}
