//! Links with which a customer opens the portal of one subject: made for a platform that knows its customer.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::{RedisError, RedisResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::redis_client::Partition;
use crate::signing::{PortalClaims, PortalRight, PortalUrls, portal_gate};
use crate::types::duration::HumanDuration;
use crate::types::timestamp::Rfc3339;
use crate::types::url_template::URL_BYTES_MAX;
use crate::types::{Locale, Metric, Subject, duration, nonce};

/// Maximum lifetime.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// Lifetime of a link that asks for none.
const LIFETIME_DEFAULT: Duration = Duration::from_secs(3600);
/// Maximum number of metrics: the URL names them.
pub const METRICS_MAX: usize = 32;

/// What a link permits, and for how long.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct NewPortal {
    /// A number and a unit, such as `30m` or `2h`; at most `24h`, and `1h` if left out.
    #[serde(default, rename = "for")]
    pub lifetime: Option<String>,
    /// What the visitor may do; only `view` if left out. Who may change contacts may also view.
    #[serde(default)]
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub may: Option<Vec<PortalRight>>,
    /// The metrics that are shown; all if left out.
    #[serde(default)]
    #[schemars(length(min = 1, max = METRICS_MAX), extend("uniqueItems" = true))]
    pub metrics: Option<Vec<Metric>>,
    /// The language of the pages; that of the subject if left out, or else that of the browser.
    #[serde(default)]
    pub locale: Option<Locale>,
    /// The https or http URL to which the pages lead back.
    #[serde(default)]
    #[schemars(url, length(max = URL_BYTES_MAX))]
    pub return_url: Option<String>,
}

/// Makes links to the portal.
#[derive(Debug)]
pub struct PortalLinks {
    /// What signs them; `None` without `http.public_url`.
    pub urls: Option<PortalUrls>,
    /// The languages of the pages.
    pub languages: BTreeSet<String>,
}

/// A link to the portal of one subject. Everybody who has it may use it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PortalInvitation {
    /// The address of the page.
    #[schemars(url)]
    pub url: String,
    /// When the link ends.
    pub expires_at: Rfc3339,
}

/// Why no link is made.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum PortalError {
    #[error("http.public_url is not set: without it, nobody can reach the portal")]
    NotPublic,
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Redis(#[from] RedisError),
}

impl PortalLinks {
    /// Makes a link. Stores nothing.
    ///
    /// # Errors
    ///
    /// The first value that is wrong, with what is allowed.
    pub async fn create(&self, new: NewPortal, subject: Subject) -> Result<PortalInvitation, PortalError> {
        let NewPortal { lifetime, may, metrics, locale, return_url } = new;
        let lifetime = lifetime.map_or(Ok(LIFETIME_DEFAULT), |text| match duration::parse(&text) {
            Some(lifetime) if !lifetime.is_zero() && lifetime <= LIFETIME_MAX => Ok(lifetime),
            Some(lifetime) => Err(format!("for: {} is not above 0 and at most 24h", HumanDuration(lifetime))),
            None => Err(format!("for: {text:?} is not a duration, such as \"30m\" or \"2h\"")),
        });
        let lifetime = lifetime.map_err(PortalError::Invalid)?;
        let right = right_of(may.as_deref()).map_err(PortalError::Invalid)?;
        if let Some(metrics) = &metrics {
            let is_twice = |(at, metric): (usize, &Metric)| metrics[..at].contains(metric);
            if metrics.is_empty() || metrics.len() > METRICS_MAX || metrics.iter().enumerate().any(is_twice) {
                let problem = format!("metrics: must be 1 to {METRICS_MAX} metrics, each once");
                return Err(PortalError::Invalid(problem));
            }
        }
        locale.as_ref().map_or(Ok(()), |locale| self.check_locale(locale)).map_err(PortalError::Invalid)?;
        if let Some(url) = return_url.as_deref().filter(|url| !is_web_url(url)) {
            let problem = format!(
                "return_url: {url:?} is not an https or http URL with a host, without a user, of at most {URL_BYTES_MAX} bytes"
            );
            return Err(PortalError::Invalid(problem));
        }
        let urls = self.urls.as_ref().ok_or(PortalError::NotPublic)?;
        let (now, issued_at) = portal_gate::issue_time(&urls.first, &subject).await?;
        let (id, expires_at) = (nonce(), now.after(lifetime));
        let claims = PortalClaims { subject, id, issued_at, expires_at, right, metrics, locale, return_url };
        Ok(PortalInvitation { url: urls.url_of(&claims).await?, expires_at: Rfc3339(expires_at) })
    }

    /// Refuses a locale in whose language there is no page.
    fn check_locale(&self, locale: &Locale) -> Result<(), String> {
        let Self { languages, .. } = self;
        let is_there = locale.fallbacks().any(|locale| languages.contains(locale.as_str()));
        let languages = || languages.iter().map(String::as_str).collect::<Vec<_>>().join(" and ");
        if is_there { Ok(()) } else { Err(format!("locale: no page is in {locale}, only in {}", languages())) }
    }
}

fn right_of(may: Option<&[PortalRight]>) -> Result<PortalRight, String> {
    match may {
        None | Some([PortalRight::View]) => Ok(PortalRight::View),
        Some([PortalRight::View, PortalRight::Contacts] | [PortalRight::Contacts, PortalRight::View]) => {
            Ok(PortalRight::Contacts)
        }
        Some(_) => Err(r#"may: must be ["view"] or ["view", "contacts"]"#.to_owned()),
    }
}

fn is_web_url(text: &str) -> bool {
    let is_web = |url: Url| {
        matches!(url.scheme(), "https" | "http")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    };
    text.len() <= URL_BYTES_MAX && text.contains("://") && Url::parse(text).is_ok_and(is_web)
}

/// Ends all links to the portal of a subject and of those below it, also those in messages. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection: they may have ended.
pub async fn revoke(first: &Partition, subject: &Subject) -> RedisResult<()> {
    portal_gate::revoke(first, subject).await
}
