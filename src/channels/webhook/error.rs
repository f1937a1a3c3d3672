//! Why webhooks can't be set up.

use crate::channels::authorities::CaFileError;
use crate::channels::error::ChannelError;
use crate::throttle::TooManyMembers;

/// Why webhooks can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// `webhook.ca_file`.
    #[error(transparent)]
    CaFile(#[from] CaFileError),
    /// `webhook.per_destination`.
    #[error("webhook.per_destination: {0}")]
    Cap(#[source] TooManyMembers),
    /// The HTTP client does not start.
    #[error("build the webhook client")]
    HttpClient(#[source] reqwest::Error),
    /// TLS does not start.
    #[error("build TLS for webhooks")]
    Tls(#[source] rustls::Error),
}

impl WebhookError {
    /// The setting that is wrong; `None` where the machine is at fault.
    #[must_use]
    pub const fn setting(&self) -> Option<&'static str> {
        match self {
            Self::CaFile(error) => Some(error.setting()),
            Self::Cap(_) => Some("webhook.per_destination"),
            Self::HttpClient(_) | Self::Tls(_) => None,
        }
    }
}

impl From<WebhookError> for ChannelError {
    fn from(error: WebhookError) -> Self {
        Self::new(error.setting(), error)
    }
}
