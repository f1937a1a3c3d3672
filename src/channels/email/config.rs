//! The section `[email]`.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::types::{Locale, SecretUrl, Units, duration};

/// How the daemon sends email.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmailConfig {
    /// `smtp://host:port`, `smtps://user:pass@host:465`, `smtp://host:587?tls=required`. A secret, because it may
    /// contain a password. Empty if a later layer of the configuration names a file.
    #[serde(default, skip_serializing_if = "SecretUrl::is_empty")]
    pub smtp_url: SecretUrl,
    /// A file whose first line is the URL. The configuration keeps only one of `smtp_url` and this.
    pub smtp_url_file: Option<PathBuf>,
    /// The From header, `Name <local@domain>`.
    pub from: String,
    /// The name in EHLO; unset: the name of this machine.
    pub helo_name: Option<String>,
    /// The deadline of one attempt: the whole SMTP conversation.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// The language of emails to subjects without a locale, or with a locale that has no templates.
    pub locale: Locale,
    /// A directory whose files replace the embedded templates one by one; its folders are those of locales.
    pub templates: Option<PathBuf>,
    /// A PEM file of certificate authorities to trust in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// The key that signs emails (RFC 6376); unset: emails are not signed.
    pub dkim: Option<DkimSettings>,
    /// How long after the mail server first reported a missing mailbox it must report it again before the contact is
    /// disabled; zero: the contact is disabled at once.
    #[serde(with = "duration")]
    pub unknown_mailbox_after: Duration,
    /// Maximum number of attempts per minute to all addresses; unset: no cap.
    pub per_minute: Option<Units>,
}

/// The section `[email.dkim]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DkimSettings {
    /// The domain whose DNS has the public key: that of `email.from`, or a parent domain.
    pub domain: String,
    /// The name of the key there: `<selector>._domainkey.<domain>`.
    pub selector: String,
    /// A PEM file with the private key, RSA.
    pub key_file: PathBuf,
}
