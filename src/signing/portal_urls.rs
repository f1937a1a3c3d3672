//! URLs of the portal, for the platform and for messages.

use std::time::Duration;

use redis::RedisResult;
use url::Url;

use super::portal_gate::signed;
use super::portal_token::{PortalClaims, PortalRight};
use crate::redis_client::Partition;
use crate::types::url_template::URL_BYTES_MAX;
use crate::types::{Subject, UnixMs};

/// Makes URLs of the portal.
#[derive(Debug, Clone)]
pub struct PortalUrls {
    /// The first partition.
    pub first: Partition,
    /// The URL below which the daemon is public.
    pub public_url: Url,
    /// How long a URL in a message is valid; zero: messages have none.
    pub link_lifetime: Duration,
}

impl PortalUrls {
    /// The URL of these claims.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection.
    pub async fn url_of(&self, claims: &PortalClaims) -> RedisResult<String> {
        let token = signed(&self.first, claims).await?;
        // A slash at the end, so that the links of the page are below it.
        Ok(format!("{}/portal/{token}/", self.public_url.as_str().trim_end_matches('/')))
    }

    /// The URL in a message, with which people only look. It is the same when the message is repeated. `None` if
    /// messages have none, or if it is too long for a chat.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection.
    pub async fn url_in_messages(
        &self,
        message: &str,
        subject: &Subject,
        happened_at: UnixMs,
    ) -> RedisResult<Option<String>> {
        if self.link_lifetime.is_zero() {
            return Ok(None);
        }
        let claims = PortalClaims {
            subject: subject.clone(),
            id: message.to_owned(),
            issued_at: happened_at,
            expires_at: happened_at.after(self.link_lifetime),
            right: PortalRight::View,
            metrics: None,
            locale: None,
            return_url: None,
        };
        Ok(Some(self.url_of(&claims).await?).filter(|url| url.len() <= URL_BYTES_MAX))
    }
}
