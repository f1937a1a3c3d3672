//! How often an address is asked: not again within a minute, and only so often in a period.
//!
//! Adding and asking again share both bounds, so that a form that is sent twice costs one message and one request, and the password of
//! the first stays good. Judges by what was named, never by what is stored, so that nobody learns what is. Read next: [`super::desk`].

use std::time::Duration;

use redis::{RedisError, RedisResult};

use super::desk::DeskError;
use super::{Candidate, Event, VerificationConfig, added_as, fingerprint};
use crate::throttle::{Added, Cooldown, ExpiringSet, Passage, TooManyMembers};
use crate::types::alert::digest_of;
use crate::types::{Contact, ContactId, Endpoint, Keys};
use crate::wire::Link;

/// Time for the message before to arrive.
const ASKED_EVERY: Duration = Duration::from_secs(60);

/// Holds no state: that is in Redis.
#[derive(Debug)]
pub(super) struct Pace {
    keys: Keys,
    requests: ExpiringSet,
    period: Duration,
}

/// Whether somebody who adds a contact has its address asked.
#[derive(Debug)]
pub(super) struct Turn {
    asks: Asks,
    /// The cooldowns that this call began.
    begun: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// The address is to be asked.
    Now,
    /// It was asked just now.
    WasAsked,
}

impl Pace {
    pub(super) fn new(keys: &Keys, config: &VerificationConfig) -> Result<Self, TooManyMembers> {
        let requests = u32::try_from(config.requests.limit().get()).unwrap_or(u32::MAX);
        Ok(Self { keys: keys.clone(), requests: ExpiringSet::new(requests)?, period: config.requests.window() })
    }

    /// Takes a turn for a message that is asked for again.
    pub(super) async fn again(&self, link: &Link, candidate: &Candidate) -> Result<(), DeskError> {
        match self.pass(link, &self.keys.verify_resent(&candidate.digest())).await? {
            Passage::Through => Ok(()),
            Passage::Cooling { retry_after } => Err(throttled(retry_after)),
        }
    }

    /// Takes a turn for a contact that is added. A webhook has one for each secret: a challenge that was signed with another says
    /// nothing about this one.
    pub(super) async fn added(&self, link: &Link, candidate: &Candidate, contact: &Contact) -> RedisResult<Turn> {
        let mut turn = Turn { asks: Asks::Now, begun: Vec::new() };
        self.take(link, self.keys.verify_resent(&candidate.digest()), &mut turn).await?;
        if let Some(with_secret) = self.with_secret(candidate, contact) {
            turn.asks = Asks::Now;
            self.take(link, with_secret, &mut turn).await?;
        }
        Ok(turn)
    }

    /// Ends the minute of contacts that were removed, and that of the one that was named: whoever adds one again is asked again, as
    /// what was sent before is no longer good. How often in a period stays bounded.
    pub(super) async fn forget(&self, link: &Link, named: &Candidate, removed: &[Contact]) -> RedisResult<()> {
        let mut cooldowns = vec![self.keys.verify_resent(&named.digest())];
        for contact in removed {
            let added = Candidate { subject: named.subject.clone(), contact: added_as(contact) };
            cooldowns.extend(self.with_secret(&added, contact));
            cooldowns.push(self.keys.verify_resent(&added.digest()));
        }
        let _: u64 = link.query(redis::cmd("UNLINK").arg(&cooldowns)).await?;
        Ok(())
    }

    /// The cooldown of a webhook with its secret.
    fn with_secret(&self, candidate: &Candidate, contact: &Contact) -> Option<String> {
        let webhook = matches!(contact.endpoint, Endpoint::Webhook { .. });
        let digest = || digest_of(&[&candidate.digest(), &fingerprint(&contact.endpoint)]);
        webhook.then(|| self.keys.verify_resent(&digest()))
    }

    /// Gives a turn back of which nothing came, so that whoever tries again is asked. Where Redis fails, it stays until it cools down.
    pub(super) async fn give_back(&self, link: &Link, turn: &Turn) {
        if turn.begun.is_empty() {
            return;
        }
        // No longer than the caller's deadline after they were begun: they are still this call's own.
        let given: Result<u64, RedisError> = link.query(redis::cmd("UNLINK").arg(&turn.begun)).await;
        if let Err(error) = given {
            tracing::debug!(%error, "a cooldown could not be given back");
        }
    }

    /// Counts a request for an address.
    pub(super) async fn count(&self, link: &Link, counted: &ContactId) -> Result<(), DeskError> {
        let key = self.keys.verify_requests(&digest_of(&[counted.as_str()]));
        let this = format!("{:032x}", rand::random::<u128>());
        match self.requests.add(link, &key, &this, self.period).await? {
            Added::Alive { .. } => Ok(()),
            Added::Full { retry_after } => Err(throttled(retry_after)),
        }
    }

    async fn take(&self, link: &Link, cooldown: String, turn: &mut Turn) -> RedisResult<()> {
        match self.pass(link, &cooldown).await? {
            Passage::Through => turn.begun.push(cooldown),
            Passage::Cooling { .. } => turn.asks = Asks::WasAsked,
        }
        Ok(())
    }

    async fn pass(&self, link: &Link, cooldown: &str) -> RedisResult<Passage> {
        Cooldown::new(ASKED_EVERY).pass(link, cooldown).await
    }
}

impl Turn {
    pub(super) const fn asks(&self) -> Asks {
        self.asks
    }
}

fn throttled(retry_after: Duration) -> DeskError {
    Event::Throttled.count();
    DeskError::Throttled { retry_after }
}
