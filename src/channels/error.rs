//! Why a channel can't be set up.

use std::error::Error;
use std::fmt;

/// A channel refuses its settings. Retrying does not mend it. The texts are those of the channel's own error.
#[derive(Debug)]
pub struct ChannelError {
    /// The setting that is wrong, as `email.templates`; `None` where the machine is at fault.
    pub setting: Option<&'static str>,
    /// What to do about it, where the error does not say it.
    pub hint: Option<&'static str>,
    error: Box<dyn Error + Send + Sync>,
}

impl ChannelError {
    /// An error about this setting.
    pub(super) fn new(setting: Option<&'static str>, error: impl Error + Send + Sync + 'static) -> Self {
        Self { setting, hint: None, error: Box::new(error) }
    }

    /// The same with what to do about it.
    pub(super) fn with_hint(self, hint: Option<&'static str>) -> Self {
        Self { hint, ..self }
    }
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for ChannelError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The display is the inner error's own, so the chain goes on below it.
        self.error.source()
    }
}
