//! Why e-mail can't be set up.

use std::path::PathBuf;

use super::smtp_url::SmtpUrlError;
use super::templates::TemplateError;
use crate::channels::authorities::CaFileError;
use crate::channels::error::ChannelError;

/// Why e-mail can't be set up. Shows no password.
#[derive(Debug, thiserror::Error)]
pub enum EmailError {
    /// `email.ca_file`.
    #[error(transparent)]
    CaFile(#[from] CaFileError),
    /// A template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The file with the URL cannot be read.
    #[error("{setting}: read {path:?}")]
    UrlFile {
        /// The setting that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The mail server's URL says something that is not allowed. It may hold a password and is never shown.
    #[error("{setting}: {problem}")]
    SmtpUrl {
        /// The setting that holds the URL or names its file.
        setting: &'static str,
        /// What is wrong.
        problem: SmtpUrlError,
    },
    /// `email.from` is not a mailbox.
    #[error("email.from: {0:?} is not a mailbox, allowed are \"alerts@example.com\" and \"Name <alerts@example.com>\"")]
    From(String),
    /// TLS does not start.
    #[error("build TLS for the mail server")]
    Tls(#[source] lettre::transport::smtp::Error),
}

impl EmailError {
    /// The setting that is wrong; `None` where the machine is at fault.
    #[must_use]
    pub const fn setting(&self) -> Option<&'static str> {
        match self {
            Self::UrlFile { setting, .. } | Self::SmtpUrl { setting, .. } => Some(setting),
            Self::CaFile(error) => Some(error.setting()),
            Self::Template(_) => Some("email.templates"),
            Self::From(_) => Some("email.from"),
            Self::Tls(_) => None,
        }
    }
}

impl From<EmailError> for ChannelError {
    fn from(error: EmailError) -> Self {
        let hint = matches!(error, EmailError::Template(TemplateError::Template { .. })).then_some(
            "mend the template (`quotabell preview text` renders it), or leave email.templates out for the embedded ones",
        );
        Self::new(error.setting(), error).with_hint(hint)
    }
}
