//! How often somebody may ask: an address in a period, whoever asks, and a contact once a minute.
//!
//! What is answered is judged by what was named, never by what is stored, so that nobody learns what is. Whether a message leaves is
//! judged by the address that it goes to ([`super::claim`]), so that no other name of it brings another. A request that led to no
//! message stands in nobody's way: only a message that is about to leave does. Read next: [`super::desk`].

use std::time::Duration;

use redis::RedisResult;

use super::desk::DeskError;
use super::{Candidate, Event, VerificationConfig, added_as, counted_as, fingerprint};
use crate::contacts::{Contact, Endpoint};
use crate::throttle::{Cooldown, CooldownDecision, ExpiringSet, ExpiringSetDecision, TooManyMembers};
use crate::types::alert::digest_of;
use crate::types::{ContactId, Keys, Subject, nonce};
use crate::wire::RedisClient;

/// Time for the message before to arrive.
const ASKED_EVERY: Duration = Duration::from_secs(60);

/// Holds no state: that is in Redis.
#[derive(Debug)]
pub(super) struct Pace {
    keys: Keys,
    requests: ExpiringSet,
    period: Duration,
}

/// Whether a message may be sent for a contact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asks {
    /// Its address has room for one: this is the request.
    Now(String),
    /// Its address was asked as often as it may be. Nobody is told, as it was not the address that was named.
    Never,
}

/// The minute of an add.
#[derive(Debug)]
enum Turn {
    /// This is its request.
    Taken(String),
    /// Another spelling of the mailbox has it.
    Anothers {
        /// For how long.
        left: Duration,
    },
}

impl Pace {
    pub(super) fn new(keys: &Keys, config: &VerificationConfig) -> Result<Self, TooManyMembers> {
        let requests = u32::try_from(config.requests.limit().get()).unwrap_or(u32::MAX);
        Ok(Self { keys: keys.clone(), requests: ExpiringSet::new(requests)?, period: config.requests.window() })
    }

    /// Whether a contact that was named is asked for again too early.
    pub(super) async fn again(&self, client: &RedisClient, named: &Candidate) -> Result<(), DeskError> {
        match Cooldown::new(ASKED_EVERY).try_start(client, &self.keys.verify_resent(&named.digest())).await? {
            CooldownDecision::Started => Ok(()),
            CooldownDecision::Active { retry_after } => Err(throttled(retry_after)),
        }
    }

    /// Counts a request for a message that is asked for again: under the name, for the answer, and under the address of the contact that
    /// was found, for the message. For an id that follows from an address in lower case that is the same.
    pub(super) async fn count_again(
        &self,
        client: &RedisClient,
        named: &Candidate,
        found: Option<&Contact>,
    ) -> Result<Asks, DeskError> {
        let this = nonce();
        let name = by_name(&self.keys, named);
        let address = found.map_or_else(|| name.clone(), |found| by_address(&self.keys, &counted_as(found)));
        self.count(client, &name, &this).await?;
        Ok(match self.requests.add(client, &address, &this, self.period).await? {
            ExpiringSetDecision::Added { .. } => Asks::Now(this),
            ExpiringSetDecision::Full { .. } => Asks::Never,
        })
    }

    /// Counts a request for a contact that is added, once for all that add it within a minute: whoever tries again after a failure, or
    /// sends a form twice, asks for the same message. Returns the request.
    pub(super) async fn count_added(
        &self,
        client: &RedisClient,
        named: &Candidate,
        contact: &Contact,
    ) -> Result<String, DeskError> {
        // Two for an address with capitals, whose id is counted by itself when it is asked for again.
        let CountedUnder { address, name } = counted_under(&self.keys, named, contact);
        let turn = match self.turn(client, &named.subject, contact).await? {
            Turn::Taken(turn) => turn,
            Turn::Anothers { left } => return Err(self.longest(client, &[&address, &name], left).await?),
        };
        for (key, other) in [(&address, &name), (&name, &address)] {
            if let ExpiringSetDecision::Full { retry_after } =
                self.requests.add(client, key, &turn, self.period).await?
            {
                return Err(self.longest(client, &[other], retry_after).await?);
            }
        }
        Cooldown::new(ASKED_EVERY).try_start(client, &self.keys.verify_resent(&named.digest())).await?;
        Ok(turn)
    }

    /// The request that all adds of one contact share within a minute. A webhook has one for each secret: a challenge that was signed
    /// with another says nothing about this one. A mailbox has one, and waits for another spelling of it.
    async fn turn(&self, client: &RedisClient, subject: &Subject, contact: &Contact) -> RedisResult<Turn> {
        let endpoint = fingerprint(&contact.endpoint);
        let key = turn_key(&self.keys, subject, contact);
        let this = request_for(contact);
        let mut command = redis::cmd("SET");
        command.arg(&key).arg(&this).arg("NX").arg("GET").arg("PX").arg(ASKED_EVERY.as_millis() as u64);
        let before: Option<String> = client.query(&command).await?;
        match before {
            Some(before) if before.ends_with(&endpoint) => Ok(Turn::Taken(before)),
            Some(_) => {
                let left_ms: i64 = client.query(redis::cmd("PTTL").arg(&key)).await?;
                Ok(Turn::Anothers { left: Duration::from_millis(left_ms.max(1).unsigned_abs()) })
            }
            None => Ok(Turn::Taken(this)),
        }
    }

    /// Ends the minute of contacts that were removed, and that of the one that was named: whoever adds one again is asked again, as
    /// what was sent before is no longer good. How often in a period stays bounded.
    pub(super) async fn forget(&self, client: &RedisClient, named: &Candidate, removed: &[Contact]) -> RedisResult<()> {
        let mut minutes = vec![self.keys.verify_resent(&named.digest())];
        for contact in removed {
            let added = Candidate { subject: named.subject.clone(), contact: added_as(contact) };
            minutes.push(self.keys.verify_resent(&added.digest()));
            minutes.push(turn_key(&self.keys, &named.subject, contact));
        }
        let _: u64 = client.query(redis::cmd("UNLINK").arg(&minutes)).await?;
        Ok(())
    }

    /// What is told to somebody who has to wait, and for room under these keys as well: the longest of it, so that whoever waits as
    /// long as they were told is not told to wait again.
    async fn longest(&self, client: &RedisClient, keys: &[&str], wait: Duration) -> RedisResult<DeskError> {
        let mut longest = wait;
        for key in keys {
            longest = longest.max(self.requests.wait(client, key, self.period).await?);
        }
        Ok(throttled(longest))
    }

    async fn count(&self, client: &RedisClient, key: &str, request: &str) -> Result<(), DeskError> {
        match self.requests.add(client, key, request, self.period).await? {
            ExpiringSetDecision::Added { .. } => Ok(()),
            ExpiringSetDecision::Full { retry_after } => Err(throttled(retry_after)),
        }
    }
}

/// The keys under which a request counts.
#[derive(Debug)]
pub(super) struct CountedUnder {
    /// That of the address, which protects it.
    pub(super) address: String,
    /// That of what was named, for the answer. Often the same.
    pub(super) name: String,
}

/// Where requests for this contact count that was named so.
pub(super) fn counted_under(keys: &Keys, named: &Candidate, contact: &Contact) -> CountedUnder {
    CountedUnder { address: by_address(keys, &counted_as(contact)), name: by_name(keys, named) }
}

fn by_address(keys: &Keys, counted: &ContactId) -> String {
    keys.verify_requests(&digest_of(&[counted.as_str()]))
}

/// An id that follows from an address stands for it, whichever subject names it; any other means something to its subject alone.
fn by_name(keys: &Keys, named: &Candidate) -> String {
    let derived = named.contact.is_derived();
    if derived { by_address(keys, &named.contact) } else { keys.verify_requests(&named.digest()) }
}

/// The minute that adds of one mailbox share, or of one webhook and secret.
pub(super) fn turn_key(keys: &Keys, subject: &Subject, contact: &Contact) -> String {
    keys.verify_turn(&match &contact.endpoint {
        Endpoint::Email { .. } => digest_of(&[subject.as_str(), counted_as(contact).as_str()]),
        Endpoint::Webhook { .. } => digest_of(&[subject.as_str(), &fingerprint(&contact.endpoint)]),
    })
}

/// A request that adds of this contact share, unique to it; it tells the spelling that was named.
pub(super) fn request_for(contact: &Contact) -> String {
    format!("{}.{}", nonce(), fingerprint(&contact.endpoint))
}

fn throttled(retry_after: Duration) -> DeskError {
    Event::Throttled.count();
    DeskError::Throttled { retry_after }
}
