//! Limits: requests per address, and guesses per code. Both are counted in Redis.

use std::time::Duration;

use redis::RedisResult;

use super::VerificationConfig;
use crate::contacts::Contact;
use crate::throttle::{ExpiringSet, ExpiringSetDecision, TooManyMembers};
use crate::types::alert::digest_of;
use crate::types::{Keys, nonce};
use crate::wire::RedisClient;

/// Guesses at one code: one in 200,000 is found so.
const GUESSES_MAX: u32 = 5;

#[derive(Debug)]
pub(super) struct VerificationLimits {
    keys: Keys,
    requests: ExpiringSet,
    request_window: Duration,
    guesses: ExpiringSet,
    code_lifetime: Duration,
}

impl VerificationLimits {
    pub(super) fn new(keys: &Keys, config: &VerificationConfig) -> Result<Self, TooManyMembers> {
        let requests_max = u32::try_from(config.requests.limit().get()).unwrap_or(u32::MAX);
        Ok(Self {
            keys: keys.clone(),
            requests: ExpiringSet::new(requests_max)?,
            request_window: config.requests.window(),
            guesses: ExpiringSet::new(GUESSES_MAX)?,
            code_lifetime: config.lifetime,
        })
    }

    /// Counts a request for a message to this contact's address, whichever subject asks. [`ExpiringSetDecision::Full`] where it may not be sent.
    pub(super) async fn count_request(
        &self,
        client: &RedisClient,
        contact: &Contact,
    ) -> RedisResult<ExpiringSetDecision> {
        let key = self.keys.verify_requests(&digest_of(&[contact.channel().as_str(), &contact.counted_address()]));
        self.requests.add(client, &key, &nonce(), self.request_window).await
    }

    /// Counts a guess at the code of this nonce. [`ExpiringSetDecision::Full`] where it may not be tried.
    pub(super) async fn count_guess(&self, client: &RedisClient, code_nonce: &str) -> RedisResult<ExpiringSetDecision> {
        self.guesses.add(client, &self.keys.verify_guesses(code_nonce), &nonce(), self.code_lifetime).await
    }
}
