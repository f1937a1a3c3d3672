//! Why a channel can't be set up.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::path::Path;

/// A channel refuses its settings. Retrying does not mend it. Shows no password.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct ChannelError {
    /// The setting that is wrong, as `email.templates`; `None` where the machine is at fault.
    pub setting: Option<&'static str>,
    /// What to do about it, where the problem does not say it.
    pub hint: Option<&'static str>,
    problem: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ChannelError {
    /// This setting is wrong.
    pub(super) fn of_setting(setting: &'static str, problem: impl Display) -> Self {
        Self { setting: Some(setting), hint: None, problem: format!("{setting}: {problem}"), source: None }
    }

    /// The file that this setting names can't be read.
    pub(super) fn unreadable(setting: &'static str, path: &Path, source: io::Error) -> Self {
        Self::of_setting(setting, format_args!("read {path:?}")).caused_by(source)
    }

    /// Something does not work that no setting is about.
    pub(super) fn of_machine(problem: &str, source: impl Error + Send + Sync + 'static) -> Self {
        Self { setting: None, hint: None, problem: problem.to_owned(), source: Some(Box::new(source)) }
    }

    /// The same with what to do about it.
    pub(super) fn with_hint(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }

    /// The same with its cause.
    fn caused_by(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Box::new(source)), ..self }
    }
}
