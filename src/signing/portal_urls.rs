//! URLs of the portal, for the platform and for messages.

use std::time::Duration;

use redis::RedisResult;
use url::Url;

use super::portal_gate::signing_key;
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
        Ok(self.url_with(&signing_key(&self.first).await?, claims))
    }

    fn url_with(&self, key: &str, claims: &PortalClaims) -> String {
        // A slash at the end, so that the links of the page are below it.
        format!("{}/portal/{}/", self.public_url.as_str().trim_end_matches('/'), claims.signed(key))
    }

    /// Makes the URLs in a message that leaves, or was to leave, at that time. With them people only look. They are the
    /// same when the message is repeated. `None` if messages have none.
    ///
    /// # Errors
    ///
    /// The error of Redis or of the connection.
    pub async fn in_message<'a>(
        &'a self,
        message: &'a str,
        at: UnixMs,
    ) -> RedisResult<Option<impl Fn(&Subject) -> Option<String> + 'a>> {
        if self.link_lifetime.is_zero() {
            return Ok(None);
        }
        let key = signing_key(&self.first).await?;
        Ok(Some(move |subject: &Subject| {
            let claims = PortalClaims {
                subject: subject.clone(),
                id: message.to_owned(),
                issued_at: at,
                expires_at: at.after(self.link_lifetime),
                right: PortalRight::View,
                metrics: None,
                locale: None,
                return_url: None,
            };
            // Chats bound the length.
            Some(self.url_with(&key, &claims)).filter(|url| url.len() <= URL_BYTES_MAX)
        }))
    }
}
