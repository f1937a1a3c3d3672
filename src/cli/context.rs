//! The input of every command beside its own arguments.

use std::path::{Path, PathBuf};

use crate::config::{Config, ConfigError, DEFAULT_FILE, file_in_effect};

/// The variable with the path of the configuration file, used without `--config`.
const VARIABLE: &str = "QUOTABELL_CONFIG";

/// The input of every command beside its own arguments.
#[derive(Debug, Clone)]
pub struct CliContext {
    /// `None`: only the defaults and the environment are used.
    config_file: Option<PathBuf>,
}

impl CliContext {
    /// The context of a call with this `--config`.
    pub fn new(option: Option<PathBuf>) -> Self {
        // Read here and not by the argument parser, whose usage lines would then show the option as required.
        let named = option.or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
        // Compose files write `QUOTABELL_CONFIG=${CONFIG:-}`, so an empty name counts as unset.
        let named = named.filter(|path| !path.as_os_str().is_empty());
        Self { config_file: file_in_effect(named, Path::new(DEFAULT_FILE)) }
    }

    /// Reads the configuration: defaults, file, environment.
    pub fn config(&self) -> Result<Config, ConfigError> {
        Config::load(self.config_file.as_deref(), std::env::vars_os())
    }

    /// Like [`Self::config`], and also checks the files that settings name.
    pub fn config_with_files(&self) -> Result<Config, ConfigError> {
        Config::load_with_files(self.config_file.as_deref(), std::env::vars_os())
    }
}
