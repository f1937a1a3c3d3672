//! Errors of channels with unusable settings.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::path::Path;

/// A channel can't use its settings. Trying again does not help. Shows no password.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct ChannelError {
    /// The faulty setting, such as `email.templates`; `None` if the machine is the cause.
    pub setting: Option<&'static str>,
    /// What to do, if the problem does not say it.
    pub hint: Option<&'static str>,
    problem: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ChannelError {
    /// An error of this setting.
    pub(super) fn of_setting(setting: &'static str, problem: impl Display) -> Self {
        Self { setting: Some(setting), hint: None, problem: format!("{setting}: {problem}"), source: None }
    }

    /// The file of this setting can't be read.
    pub(super) fn unreadable(setting: &'static str, path: &Path, source: io::Error) -> Self {
        Self { source: Some(Box::new(source)), ..Self::of_setting(setting, format_args!("read {path:?}")) }
    }

    /// An error that is not about a setting.
    pub(super) fn of_machine(problem: &str, source: impl Error + Send + Sync + 'static) -> Self {
        Self { setting: None, hint: None, problem: problem.to_owned(), source: Some(Box::new(source)) }
    }

    /// Adds the hint.
    pub(super) fn with_hint(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }
}
