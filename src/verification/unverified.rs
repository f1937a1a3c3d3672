//! Removes unconfirmed contacts, because callers that add contacts would otherwise fill Redis.
//!
//! A sorted set lists them, and is written before the contact, so that none is missed. The set only says where to look:
//! the stored contact decides whether it is removed, by one conditional write ([`edit_contacts`]) that a concurrent
//! confirmation wins or loses as a whole. A separate key with a TTL would not work: it would be in another slot of a
//! cluster than the subject's key, and no script could move the contact between them.
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

/// How long a contact stays after its last code and link have expired, so that its owner can still request another code
/// the next morning.
pub(super) const KEPT_UNVERIFIED: Duration = Duration::from_secs(24 * 3600);

/// Interval of looking for expired contacts.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Maximum number of contacts per read.
const READ_MAX: usize = 500;

impl VerificationService {
    /// Removes unconfirmed contacts until `stop`. Safe to cancel at any time, and many daemons may run it.
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

    /// Removes the contacts that nobody confirmed in time, and returns their number. Repeatable.
    ///
    /// # Errors
    ///
    /// [`VerificationError`]; some contacts may already be removed.
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
                    // It was asked again meanwhile.
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
            tracing::info!(removed, "removed contacts that nobody confirmed in time");
        }
        Ok(removed)
    }

    /// When an unconfirmed contact that was asked at `now` is removed. A message may leave until the request expires,
    /// and its code and link are valid for the same time again.
    pub(super) fn unverified_until(&self, now: UnixMs) -> UnixMs {
        now.after(self.config.lifetime * 2 + KEPT_UNVERIFIED)
    }

    /// Schedules a check of an unverified contact. Call it before the contact is written.
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

/// The member of a contact in the sorted set.
pub(super) fn member(subject: &Subject, consent: &ConsentId) -> Vec<u8> {
    [subject.as_str().as_bytes(), b"\0", consent.as_str().as_bytes()].concat()
}

fn parse(member: &[u8]) -> Option<(Subject, ConsentId)> {
    let at = member.iter().position(|byte| *byte == 0)?;
    let consent = std::str::from_utf8(&member[at + 1..]).ok()?;
    Some((Subject::parse(&member[..at]).ok()?, ConsentId::from_stored(consent)))
}
