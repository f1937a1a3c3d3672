//! How often somebody may ask: an address in a period, whoever asks, and a contact once a minute.
//!
//! What is answered is judged by what was named, never by what is stored, so that nobody learns what is. Whether a message leaves is
//! judged by the address that it goes to ([`leaves`]), so that no other name of it brings another. A request that led to no
//! message stands in nobody's way: only a message that is about to leave does. Read next: [`super::desk`].

use std::time::Duration;

use redis::RedisResult;

use super::desk::DeskError;
use super::{Candidate, Event, VerificationConfig, added_as, counted_as, fingerprint};
use crate::throttle::{Added, Cooldown, ExpiringSet, Passage, TooManyMembers};
use crate::types::alert::digest_of;
use crate::types::{Contact, ContactId, Endpoint, Keys, Subject};
use crate::wire::Link;

/// Time for the message before to arrive.
const ASKED_EVERY: Duration = Duration::from_secs(60);
/// A little less: who comes back after a minute, as they were told, must not find that the message before left some seconds after it
/// was asked for.
const SENT_EVERY: Duration = Duration::from_secs(55);
/// How an id that follows from an address begins, and how many hex digits follow.
const DERIVED: (&str, usize) = ("c_", 16);

/// Holds no state: that is in Redis.
#[derive(Debug)]
pub(super) struct Pace {
    keys: Keys,
    requests: ExpiringSet,
    period: Duration,
}

/// Whether a message may be sent for a contact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// Its address has room for one.
    Now,
    /// Its address was asked as often as it may be. Nobody is told, as it was not the address that was named.
    Never,
}

impl Pace {
    pub(super) fn new(keys: &Keys, config: &VerificationConfig) -> Result<Self, TooManyMembers> {
        let requests = u32::try_from(config.requests.limit().get()).unwrap_or(u32::MAX);
        Ok(Self { keys: keys.clone(), requests: ExpiringSet::new(requests)?, period: config.requests.window() })
    }

    /// Whether a contact that was named is asked for again too early.
    pub(super) async fn again(&self, link: &Link, named: &Candidate) -> Result<(), DeskError> {
        match Cooldown::new(ASKED_EVERY).pass(link, &self.keys.verify_resent(&named.digest())).await? {
            Passage::Through => Ok(()),
            Passage::Cooling { retry_after } => Err(throttled(retry_after)),
        }
    }

    /// Counts a request for a message that is asked for again: under the name, for the answer, and under the address of the contact that
    /// was found, for the message. For an id that follows from an address in lower case that is the same.
    pub(super) async fn count_again(
        &self,
        link: &Link,
        named: &Candidate,
        found: Option<&Contact>,
    ) -> Result<Asks, DeskError> {
        let this = unique();
        let by_name = self.by_name(named);
        let by_address = found.map_or_else(|| by_name.clone(), |found| self.by_address(&counted_as(found)));
        self.count(link, &by_name, &this).await?;
        Ok(match self.requests.add(link, &by_address, &this, self.period).await? {
            Added::Alive { .. } => Asks::Now,
            Added::Full { .. } => Asks::Never,
        })
    }

    /// Counts a request for a contact that is added, once for all that add it within a minute: whoever tries again after a failure, or
    /// sends a form twice, asks for the same message.
    pub(super) async fn count_added(&self, link: &Link, named: &Candidate, contact: &Contact) -> Result<(), DeskError> {
        let turn = self.turn(link, &named.subject, contact).await?;
        self.count(link, &self.by_address(&counted_as(contact)), &turn).await?;
        // Another one for an address with capitals, whose id is counted by itself when it is asked for again.
        self.count(link, &self.by_name(named), &turn).await?;
        Cooldown::new(ASKED_EVERY).pass(link, &self.keys.verify_resent(&named.digest())).await?;
        Ok(())
    }

    /// The request that all adds of one contact share within a minute. A webhook has one for each secret: a challenge that was signed
    /// with another says nothing about this one. A mailbox has one, and waits for another spelling of it.
    async fn turn(&self, link: &Link, subject: &Subject, contact: &Contact) -> Result<String, DeskError> {
        let endpoint = fingerprint(&contact.endpoint);
        let key = turn_key(&self.keys, subject, contact);
        let this = format!("{}.{endpoint}", unique());
        let mut command = redis::cmd("SET");
        command.arg(&key).arg(&this).arg("NX").arg("GET").arg("PX").arg(ASKED_EVERY.as_millis() as u64);
        let before: Option<String> = link.query(&command).await?;
        match before {
            Some(before) if before.ends_with(&endpoint) => Ok(before),
            Some(_) => {
                let left_ms: i64 = link.query(redis::cmd("PTTL").arg(&key)).await?;
                Err(throttled(Duration::from_millis(left_ms.max(1).unsigned_abs())))
            }
            None => Ok(this),
        }
    }

    /// Ends the minute of contacts that were removed, and that of the one that was named: whoever adds one again is asked again, as
    /// what was sent before is no longer good. How often in a period stays bounded.
    pub(super) async fn forget(&self, link: &Link, named: &Candidate, removed: &[Contact]) -> RedisResult<()> {
        let mut minutes = vec![self.keys.verify_resent(&named.digest())];
        for contact in removed {
            let added = Candidate { subject: named.subject.clone(), contact: added_as(contact) };
            minutes.push(self.keys.verify_resent(&added.digest()));
            minutes.push(turn_key(&self.keys, &named.subject, contact));
            minutes.push(asked_key(&self.keys, &named.subject, contact));
        }
        let _: u64 = link.query(redis::cmd("UNLINK").arg(&minutes)).await?;
        Ok(())
    }

    async fn count(&self, link: &Link, key: &str, request: &str) -> Result<(), DeskError> {
        match self.requests.add(link, key, request, self.period).await? {
            Added::Alive { .. } => Ok(()),
            Added::Full { retry_after } => Err(throttled(retry_after)),
        }
    }

    fn by_address(&self, counted: &ContactId) -> String {
        self.keys.verify_requests(&digest_of(&[counted.as_str()]))
    }

    /// An id that follows from an address stands for it, whichever subject names it; any other means something to its subject alone.
    fn by_name(&self, named: &Candidate) -> String {
        let (prefix, digits) = DERIVED;
        let derived = named.contact.as_str().strip_prefix(prefix).is_some_and(|digest| {
            digest.len() == digits && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        });
        if derived { self.by_address(&named.contact) } else { self.keys.verify_requests(&named.digest()) }
    }
}

/// Lets a message for this contact through that is about to leave, if none did just now.
pub(super) async fn leaves(link: &Link, keys: &Keys, subject: &Subject, contact: &Contact) -> RedisResult<Passage> {
    Cooldown::new(SENT_EVERY).pass(link, &asked_key(keys, subject, contact)).await
}

fn turn_key(keys: &Keys, subject: &Subject, contact: &Contact) -> String {
    keys.verify_turn(&match &contact.endpoint {
        Endpoint::Email { .. } => holder(subject, contact).digest(),
        Endpoint::Webhook { .. } => digest_of(&[subject.as_str(), &fingerprint(&contact.endpoint)]),
    })
}

fn asked_key(keys: &Keys, subject: &Subject, contact: &Contact) -> String {
    keys.verify_asked(&digest_of(&[subject.as_str(), &fingerprint(&contact.endpoint)]))
}

/// Under what a contact's password is kept: its address, whatever id it bears.
pub(super) fn holder(subject: &Subject, contact: &Contact) -> Candidate {
    Candidate { subject: subject.clone(), contact: counted_as(contact) }
}

fn unique() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn throttled(retry_after: Duration) -> DeskError {
    Event::Throttled.count();
    DeskError::Throttled { retry_after }
}
