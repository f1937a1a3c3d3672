//! Removes contacts that nobody has confirmed: otherwise whoever can add contacts fills Redis for ever.
//!
//! Which contacts those are stands in a sorted set, noted before the contact is written, so none is missed. The set
//! only says where to look. Whether a contact goes is judged by the stored contact and decided by one conditional write
//! ([`edit_contacts`]), which a confirmation at the same moment wins or loses whole. Why not a key of its own with a
//! time to live: it would lie in another slot of a cluster than the subject's, and no script could move the contact
//! from one to the other.
//!
//! [`edit_contacts`]: crate::contacts::store::edit_contacts

use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;
use tokio_util::sync::CancellationToken;

use super::issue::{self, Sent};
use super::{VerificationError, VerificationService};
use crate::contacts::ContactArray;
use crate::redis_client::ErrorKind;
use crate::redis_client::Partition;
use crate::types::{ConsentId, Subject, UnixMs};

/// How long a contact stays once nothing that was sent to it can confirm it any more. Whoever comes back the next
/// morning finds it and asks for another code.
pub(super) const KEPT_UNVERIFIED: Duration = Duration::from_secs(24 * 3600);

/// How often the loop looks for contacts whose time is over.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How many of them one look reads at once.
const READ_MAX: usize = 500;

impl VerificationService {
    /// Removes contacts that nobody has confirmed, until `stop`. May be dropped at any moment, and run by many daemons.
    pub async fn run_removal(self: Arc<Self>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let removed = match self.partitions.first().client.server_time().await {
                Ok(now) => self.remove_unverified(now).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = removed {
                let kind = if let VerificationError::Redis { kind, .. } = &error { *kind } else { ErrorKind::Other };
                kind.count("verification");
                let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                tracing::warn!(%error, source, "could not remove contacts that nobody confirmed; trying again");
            }
            let _ = tokio::time::timeout(LOOK_EVERY, stop.cancelled()).await;
        }
    }

    /// Removes the contacts that nobody has confirmed in time, and says how many. Repeatable.
    ///
    /// # Errors
    ///
    /// [`VerificationError`]; a part may be removed.
    pub async fn remove_unverified(&self, now: UnixMs) -> Result<usize, VerificationError> {
        let mut removed = 0;
        loop {
            let due = self.due(now).await?;
            for member in &due {
                let Some((subject, consent)) = parse(member) else {
                    self.forget_member(member).await?;
                    continue;
                };
                let edit = |array: &mut ContactArray| {
                    let removed = array.remove_unverified(now);
                    Ok((removed.len(), array.unverified_until(&consent)))
                };
                match self.edit(&subject, edit).await {
                    // It was asked again since.
                    Ok((_, Some(until))) => self.note_unverified(&subject, &consent, until).await?,
                    Ok((count, None)) => {
                        removed += count;
                        self.forget_member(member).await?;
                    }
                    Err(VerificationError::Unreadable | VerificationError::Contended) => {
                        self.note_unverified(&subject, &consent, now.after(KEPT_UNVERIFIED)).await?;
                    }
                    Err(error) => return Err(error),
                }
            }
            if due.len() < READ_MAX {
                break;
            }
        }
        if removed > 0 {
            tracing::info!(removed, "contacts that nobody confirmed in time are removed");
        }
        Ok(removed)
    }

    /// When a contact is removed that was asked at `now` and that nobody confirms. A message may leave until the
    /// request's lifetime is over, and its code and link are good for another.
    pub(super) fn unverified_until(&self, now: UnixMs) -> UnixMs {
        now.after(self.config.lifetime * 2 + KEPT_UNVERIFIED)
    }

    /// Notes that an unverified contact is to be looked at then. Comes before the write of the contact.
    pub(super) async fn note_unverified(&self, subject: &Subject, consent: &ConsentId, at: UnixMs) -> RedisResult<()> {
        let first = self.partitions.first();
        issue::note_request(first, subject, consent, at).await?;
        let Partition { client, keys } = first;
        client.query(redis::cmd("ZADD").arg(keys.unverified()).arg(at.0).arg(member(subject, consent))).await
    }

    async fn due(&self, now: UnixMs) -> RedisResult<Vec<Vec<u8>>> {
        let Partition { client, keys } = self.partitions.first();
        let mut command = redis::cmd("ZRANGEBYSCORE");
        command.arg(keys.unverified()).arg("-inf").arg(now.0).arg("LIMIT").arg(0).arg(READ_MAX);
        client.query(&command).await
    }

    async fn forget_member(&self, member: &[u8]) -> RedisResult<()> {
        let first = self.partitions.first();
        if let Some((subject, consent)) = parse(member) {
            issue::forget(first, &subject, &Sent::Request(consent)).await?;
        }
        let Partition { client, keys } = first;
        client.query(redis::cmd("ZREM").arg(keys.unverified()).arg(member)).await
    }
}

/// A contact as the sorted set holds it.
pub(super) fn member(subject: &Subject, consent: &ConsentId) -> Vec<u8> {
    [subject.as_str().as_bytes(), b"\0", consent.as_str().as_bytes()].concat()
}

fn parse(member: &[u8]) -> Option<(Subject, ConsentId)> {
    let at = member.iter().position(|byte| *byte == 0)?;
    let consent = std::str::from_utf8(&member[at + 1..]).ok()?;
    Some((Subject::parse(&member[..at]).ok()?, ConsentId::from_stored(consent)))
}
