//! The outside world: e-mail and webhooks. Touches no Redis.
//!
//! Owns one attempt: one deadline round the whole conversation, the address filter, the signature, and the class of the outcome,
//! decided here where the attempt is made. Never decides when to try again, never renders, never keeps a receiver's answer.
//! Read next: [`webhook`], [`email`], and [`address`] for what may be called at all.

use std::path::PathBuf;

pub mod address;
mod authorities;
pub mod config;
pub mod email;
mod message;
pub mod recipient;
mod retry_after;
pub mod secret;
mod smtp;
mod smtp_url;
mod trouble;
pub mod webhook;

pub use config::{EmailConfig, WebhookConfig};
pub use email::{Arrival, Mail, Mailer, Posted};
pub use smtp_url::SmtpUrlError;
pub use webhook::{Challenged, Webhook, WebhookRequest};

/// Why the transports cannot be set up. All of it is configuration: retrying does not mend it.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A file that a setting names cannot be read.
    #[error("{setting}: read {path:?}")]
    Read {
        /// The setting that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file of certificates holds none.
    #[error("{setting}: {path:?} holds no certificate, allowed is a PEM file with \"BEGIN CERTIFICATE\" blocks")]
    NoCertificate {
        /// The setting that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// A certificate is not one.
    #[error("{setting}: {path:?} holds a broken certificate")]
    BadCertificate {
        /// The setting that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
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
    /// The HTTP client does not start.
    #[error("build the webhook client")]
    HttpClient(#[source] reqwest::Error),
    /// TLS for SMTP does not start.
    #[error("build TLS for the mail server")]
    SmtpTls(#[source] lettre::transport::smtp::Error),
    /// TLS for webhooks does not start.
    #[error("build TLS for webhooks")]
    WebhookTls(#[source] rustls::Error),
}

impl TransportError {
    /// The setting that is wrong; `None` where the machine is at fault.
    #[must_use]
    pub const fn setting(&self) -> Option<&'static str> {
        match self {
            Self::Read { setting, .. }
            | Self::NoCertificate { setting, .. }
            | Self::BadCertificate { setting, .. }
            | Self::SmtpUrl { setting, .. } => Some(setting),
            Self::From(_) => Some("email.from"),
            Self::HttpClient(_) | Self::SmtpTls(_) | Self::WebhookTls(_) => None,
        }
    }
}
