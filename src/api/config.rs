//! The sections `[http]` and `[check]`.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::Url;

use crate::types::{Secret, duration};

/// The HTTP interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// `address:port` to listen on.
    pub listen: String,
    /// What callers of the API must show. Without one nothing can be written through it.
    pub token: Option<Secret>,
    /// A file whose first line is the token; wins over `token`, of which the configuration leaves none beside it.
    pub token_file: Option<PathBuf>,
    /// Where people reach this interface, `https://quota.example.com`: what confirm links begin with.
    pub public_url: Option<String>,
}

impl HttpConfig {
    /// What confirm links begin with: `public_url` as a URL that another path can follow. `None` where it is not set,
    /// or is not one: an http or https URL of a host, without user, query and fragment.
    pub fn confirm_links_below(&self) -> Option<Url> {
        let url = Url::parse(self.public_url.as_deref()?).ok()?;
        let bare = url.query().is_none() && url.fragment().is_none();
        let anonymous = url.username().is_empty() && url.password().is_none();
        (matches!(url.scheme(), "https" | "http") && url.has_host() && bare && anonymous).then_some(url)
    }
}

/// The section `[check]`: how questions of API nodes are answered when Redis is away, or the subject's settings can't
/// be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckConfig {
    /// What is answered when nobody can judge in time.
    pub on_error: OnError,
    /// How long a check may take, the subject's settings included.
    #[serde(with = "duration")]
    pub timeout: Duration,
}

/// What is answered when nobody can judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The request may proceed: the API outlives its limiter.
    Allow,
    /// It may not: nothing passes uncounted.
    Deny,
}
