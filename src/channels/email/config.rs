//! The section `[email]`.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::types::{Locale, SecretUrl, Units, duration};

/// How e-mail is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmailConfig {
    /// `smtp://host:port`, `smtps://user:pass@host:465`, `smtp://host:587?tls=required`. A secret, since it may hold a
    /// password. Empty where a file is named later than any URL.
    #[serde(default, skip_serializing_if = "SecretUrl::is_empty")]
    pub smtp_url: SecretUrl,
    /// A file whose first line is the URL; wins over `smtp_url`, of which the configuration leaves none beside it.
    pub smtp_url_file: Option<PathBuf>,
    /// The From header, `Name <local@domain>`.
    pub from: String,
    /// The name that we greet the mail server with; unset: the name of this machine.
    pub helo_name: Option<String>,
    /// The deadline of one attempt: the whole SMTP conversation.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// The language of mails to whoever has no other: a subject without a locale, or with one that has no templates.
    pub locale: Locale,
    /// A directory whose files replace the embedded templates one by one; its folders are those of locales.
    pub templates: Option<PathBuf>,
    /// A PEM file of certificate authorities to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// The key that signs mails (RFC 6376); unset: none does.
    pub dkim: Option<DkimSettings>,
    /// How long after the mail server first said that there is no such mailbox it has to say so again before the
    /// contact is disabled; zero: it is disabled at the first.
    #[serde(with = "duration")]
    pub unknown_mailbox_after: Duration,
    /// The most attempts in a minute, all addresses together; unset: no cap.
    pub per_minute: Option<Units>,
}

/// The section `[email.dkim]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DkimSettings {
    /// Whose DNS has the public key: the domain of `email.from`, or one above it.
    pub domain: String,
    /// The name of the key there: `<selector>._domainkey.<domain>`.
    pub selector: String,
    /// A PEM file with the private key, RSA.
    pub key_file: PathBuf,
}
