//! Why a channel can't be set up.

use std::error::Error;
use std::fmt::{self, Display};

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

    /// Something does not work that no setting is about.
    pub(super) fn of_machine(problem: &str, source: impl Error + Send + Sync + 'static) -> Self {
        Self { setting: None, hint: None, problem: problem.to_owned(), source: Some(Box::new(source)) }
    }

    /// The same with what to do about it.
    pub(super) fn with_hint(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }

    /// The same with its cause.
    pub(super) fn caused_by(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Box::new(source)), ..self }
    }
}

/// All that channels refuse of their settings, so that one reading of it is enough to mend them.
#[derive(Debug, Default)]
pub struct ChannelErrors(Vec<ChannelError>);

impl ChannelErrors {
    /// Notes what is wrong; `None` where something is.
    pub(super) fn note<T>(&mut self, result: Result<T, impl Into<Self>>) -> Option<T> {
        result.map_err(|errors| self.0.extend(errors.into())).ok()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<ChannelError> for ChannelErrors {
    fn from(error: ChannelError) -> Self {
        Self(vec![error])
    }
}

impl IntoIterator for ChannelErrors {
    type Item = ChannelError;
    type IntoIter = std::vec::IntoIter<ChannelError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Display for ChannelErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join("; "))
    }
}

impl Error for ChannelErrors {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        if let [error] = self.0.as_slice() { error.source() } else { None }
    }
}
