//! The sections `[http]` and `[check]`.

use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use axum::http::HeaderName;
use axum::http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use serde::{Deserialize, Serialize};
use url::Url;

use super::scope::Scope;
use crate::types::{Secret, duration};

/// The headers of gateways beside the subject's: metric, units, id of the event, and whether to record it.
pub const QUOTA_HEADERS: [&str; 4] = ["X-Quota-Metric", "X-Quota-Units", "X-Quota-Id", "X-Quota-Record"];

/// Headers that HTTP itself reads, that end at each hop, or that carry secrets.
const NO_SUBJECT_HEADERS: [HeaderName; 12] = [
    AUTHORIZATION,
    CONNECTION,
    CONTENT_LENGTH,
    COOKIE,
    HOST,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The HTTP interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// `address:port` to listen on.
    pub listen: String,
    /// The token that callers of the API must send. Without one the API is read-only.
    pub token: Option<Secret>,
    /// A file with one or two such tokens, one in each line. The configuration keeps only one of `token` and this.
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

impl CheckConfig {
    /// Why the setting is no header that can name the subject.
    pub fn subject_header_problem(&self) -> Option<&'static str> {
        let Ok(name) = HeaderName::from_str(&self.subject_header) else { return Some("is not the name of a header") };
        let has_another_meaning =
            NO_SUBJECT_HEADERS.contains(&name) || QUOTA_HEADERS.iter().any(|other| name == *other);
        has_another_meaning.then_some("has another meaning in the requests of gateways")
    }
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
