//! The sections `[http]` and `[check]`.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::Url;

use super::scope::Scope;
use crate::types::{Secret, duration};

/// The HTTP interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// `address:port` to listen on.
    pub listen: String,
    /// The token that callers of the API must send. Without one the API is read-only.
    pub token: Option<Secret>,
    /// A file whose first line is the token. The configuration keeps only one of `token` and this.
    pub token_file: Option<PathBuf>,
    /// Tokens with names and scopes, beside the one above, which may do everything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<TokenConfig>,
    /// The URL of this interface for people, such as `https://quota.example.com`: the start of confirm links.
    pub public_url: Option<String>,
}

/// A token of a caller that may not do everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    /// The name of the caller, in logs and metrics.
    pub name: String,
    /// A file with the token in its first line, and perhaps another valid one in its second line.
    pub file: PathBuf,
    /// What its bearer may do.
    pub scopes: Vec<Scope>,
}

impl HttpConfig {
    /// The start of confirm links: `public_url`, to which a path can be appended. `None` if it is not set, or is not an
    /// http or https URL of a host, without user, query and fragment.
    pub fn confirm_links_below(&self) -> Option<Url> {
        base_url(self.public_url.as_deref())
    }
}

/// A URL to which a path can be appended. `None` if it is not set, or is not an http or https URL of a host, without
/// user, query and fragment.
pub fn base_url(text: Option<&str>) -> Option<Url> {
    let url = Url::parse(text?).ok()?;
    let bare = url.query().is_none() && url.fragment().is_none();
    let anonymous = url.username().is_empty() && url.password().is_none();
    (matches!(url.scheme(), "https" | "http") && url.has_host() && bare && anonymous).then_some(url)
}

/// The section `[check]`: how checks of API nodes are answered if Redis is away, or the subject's settings can't be
/// read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckConfig {
    /// The answer if no limit can be judged in time.
    pub on_error: OnError,
    /// The header that names the subject in requests of gateways.
    pub subject_header: String,
    /// Timeout of a check, including the read of the subject's settings.
    #[serde(with = "duration")]
    pub timeout: Duration,
}

/// The answer if no limit can be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The request may proceed: the API outlives its limiter.
    Allow,
    /// It may not: nothing passes uncounted.
    Deny,
}
