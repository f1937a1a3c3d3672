//! The configuration: gathers each part's settings, layers their sources, checks relations between them.
//!
//! Layers, each over the one before: `config/default.toml` (embedded, the one place where defaults stand), the file named with
//! `--config` or `QUOTABELL_CONFIG`, and variables `QUOTABELL__SECTION__KEY`. Every error names the key, the place where it was
//! written and what is allowed. Connects nowhere; other files are read only where `parts` builds what needs them. Read next: `tree`.

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api::config::{CheckConfig, HttpConfig};
use crate::channels::ChannelSettings;
use crate::channels::email::EmailConfig;
use crate::channels::webhook::WebhookConfig;
use crate::contacts::FallbackConfig;
use crate::events::config::StreamConfig;
use crate::outbox::{DeliveryConfig, RetryConfig};
use crate::subjects::config::{PlanConfig, SubjectsConfig};
use crate::types::duration;
use crate::verification::VerificationConfig;
use crate::wire::RedisConfig;

mod allowed;
mod check;
mod error;
mod mask;
mod parts;
mod read;
mod tree;
mod twin;

pub use error::{ConfigError, nearest};
pub use parts::Refused;
pub use tree::Place;

/// `config/default.toml`.
pub const DEFAULTS: &str = include_str!("../config/default.toml");

/// Every setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The plan of subjects that name none; a key of `plans`.
    pub default_plan: String,
    /// `[redis]`.
    pub redis: RedisConfig,
    /// `[stream]`.
    pub stream: StreamConfig,
    /// `[subjects]`.
    pub subjects: SubjectsConfig,
    /// `[plans.*]`.
    pub plans: BTreeMap<String, PlanConfig>,
    /// `[fallback]`.
    pub fallback: FallbackConfig,
    /// `[delivery]`.
    pub delivery: DeliveryConfig,
    /// `[retry]`.
    pub retry: RetryConfig,
    /// `[webhook]`.
    pub webhook: WebhookConfig,
    /// `[email]`.
    pub email: EmailConfig,
    /// `[http]`.
    pub http: HttpConfig,
    /// `[check]`.
    pub check: CheckConfig,
    /// `[verification]`.
    pub verification: VerificationConfig,
    /// `[log]`.
    pub log: LogConfig,
    /// `[shutdown]`.
    pub shutdown: ShutdownConfig,
    /// Where each key was written, for the parts that judge their own settings.
    #[serde(skip)]
    places: parts::Places,
}

/// The section `[log]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// How a line looks.
    pub format: LogFormat,
    /// The least level that is written.
    pub level: LogLevel,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// How important an event must be to be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Something failed that somebody must mend.
    Error,
    /// Something is odd.
    Warn,
    /// What happened.
    Info,
    /// How it happened.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The level as the filter of `tracing-subscriber` writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// The section `[shutdown]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShutdownConfig {
    /// How long attempts that are under way may take after SIGTERM before they are left to the next start.
    #[serde(with = "duration")]
    pub drain: Duration,
}

impl Config {
    /// The sections that belong to channels: a new channel's is added here.
    #[must_use]
    pub fn channel_settings(&self) -> ChannelSettings<'_> {
        ChannelSettings::new([&self.email as &dyn Any, &self.webhook])
    }

    /// Reads the defaults, the file (if one is named) and the variables among `environment`, and checks every relation.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: the first thing that is wrong, with its key, its place and what is allowed.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let mut tree = tree::from_toml(DEFAULTS, &tree::Origin::Embedded)?;
        if let Some(path) = file {
            let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
            let text = std::fs::read_to_string(path).map_err(unreadable)?;
            tree.lay_over(tree::from_toml(&text, &tree::Origin::File(path.into()))?);
        }
        tree.lay_variables_over(environment)?;
        twin::settle(&mut tree)?;
        refuse_lists_of_urls(&tree)?;
        let config: Self = read::read(&tree)?;
        check::check(&config, &tree)?;
        Ok(Self { places: parts::Places::of(&tree), ..config })
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

/// A list of URLs means a cluster or sentinels. It gets words of its own, because the list itself is no mistake.
fn refuse_lists_of_urls(tree: &tree::Node) -> Result<(), ConfigError> {
    let path = ["redis", "url"];
    let is_list = match tree.get(&path).map(|node| &node.value) {
        Some(tree::Value::List(_)) => true,
        Some(tree::Value::Untyped(text)) => text.trim_start().starts_with('['),
        _ => false,
    };
    if !is_list {
        return Ok(());
    }
    Err(ConfigError::Value {
        path: path.map(str::to_owned).to_vec(),
        place: tree.place_of(&path),
        problem: "a list of URLs (cluster or sentinel) is not supported yet".to_owned(),
    })
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

    /// The example is what people copy first.
    #[test]
    fn the_example_is_valid() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/config/example.toml");
        let config = Config::load(Some(Path::new(example)), []).expect("valid");
        assert_eq!(config.plans["pro"].limits.len(), 2);
    }
}
