//! Who may enter the portal: makes, verifies and revokes its tokens. Everything is in the first partition.

use std::time::Duration;

use redis::{RedisError, RedisResult};

use super::portal_token::{PortalClaims, PortalRight, UnverifiedToken};
use super::stored_key::stored_key;
use crate::redis_client::Partition;
use crate::types::alert::digest_of;
use crate::types::{Keys, Locale, Metric, Subject, UnixMs};

/// Maximum lifetime of a token: a revocation is kept for longer.
pub const PORTAL_LIFETIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long revocations are kept after the last one.
const REVOCATIONS_TTL: Duration = Duration::from_secs(8 * 24 * 3600);

const _: () = assert!(PORTAL_LIFETIME_MAX.as_secs() < REVOCATIONS_TTL.as_secs());

/// What a verified token permits. Only [`open`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortalAccess(PortalClaims);

/// Why a token opens nothing.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum PortalRefusal {
    #[error("the token is not whole, or this deployment did not sign it")]
    Unsigned,
    #[error("the token ended at {0}")]
    Expired(UnixMs),
    #[error("the token was revoked")]
    Revoked,
    #[error(transparent)]
    Redis(#[from] RedisError),
}

impl PortalAccess {
    /// The only subject that may be shown.
    pub const fn subject(&self) -> &Subject {
        &self.0.subject
    }

    /// Whether the visitor may change the subject's own contacts.
    pub fn may_change_contacts(&self) -> bool {
        self.0.right == PortalRight::Contacts
    }

    /// Whether the metric may be shown.
    pub fn shows(&self, metric: &Metric) -> bool {
        self.0.metrics.as_ref().is_none_or(|metrics| metrics.contains(metric))
    }

    /// The language of the pages, if the token names one.
    pub const fn locale(&self) -> Option<&Locale> {
        self.0.locale.as_ref()
    }

    /// Where the pages lead back to.
    pub fn return_url(&self) -> Option<&str> {
        self.0.return_url.as_deref()
    }

    /// When it ends.
    pub const fn expires_at(&self) -> UnixMs {
        self.0.expires_at
    }
}

/// Verifies a token, with two calls. Nothing is read for a text that is no token.
///
/// # Errors
///
/// [`PortalRefusal`].
pub async fn open(Partition { client, keys }: &Partition, token: &str) -> Result<PortalAccess, PortalRefusal> {
    let token = UnverifiedToken::read(token).ok_or(PortalRefusal::Unsigned)?;
    let subject = &token.claims.subject;
    let mut pipeline = redis::pipe();
    pipeline.cmd("GET").arg(keys.portal_key());
    pipeline.cmd("HMGET").arg(keys.portal_revoked()).arg(revocation_fields(keys, subject));
    let (key, revoked): (Option<String>, Vec<Option<i64>>) = client.pipe(&pipeline).await?;
    if !key.is_some_and(|key| token.is_signed_with(&key)) {
        return Err(PortalRefusal::Unsigned);
    }
    let PortalClaims { issued_at, expires_at, .. } = token.claims;
    if revoked.into_iter().flatten().any(|revoked| issued_at <= UnixMs(revoked)) {
        return Err(PortalRefusal::Revoked);
    }
    if expires_at <= client.server_time().await? {
        return Err(PortalRefusal::Expired(expires_at));
    }
    Ok(PortalAccess(token.claims))
}

/// When a token that is made now is made: now, but after the last revocation, also within its millisecond or after a
/// clock was set back.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn issue_time(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<UnixMs> {
    let mut read = redis::cmd("HMGET");
    read.arg(keys.portal_revoked()).arg(revocation_fields(keys, subject));
    let revoked: Vec<Option<i64>> = client.query(&read).await?;
    let now = client.server_time().await?;
    Ok(revoked.into_iter().flatten().map(|revoked| UnixMs(revoked).plus(1)).fold(now, UnixMs::max))
}

/// Ends all tokens of a subject. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection: they may have ended.
pub async fn revoke(partition: &Partition, subject: &Subject) -> RedisResult<()> {
    store_revocation(partition, subject.as_str()).await
}

/// Ends all tokens of a subject that is erased. The name is not kept: a digest of it is. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection: they may have ended.
pub async fn end_tokens_of_erased(partition: &Partition, subject: &Subject) -> RedisResult<()> {
    let Partition { client, keys } = partition;
    // Nothing was ever signed without a key.
    if client.query::<u64>(redis::cmd("EXISTS").arg(keys.portal_key())).await? > 0 {
        store_revocation(partition, &digest_of(&[subject.as_str()])).await?;
    }
    client.query(redis::cmd("HDEL").arg(keys.portal_revoked()).arg(subject.as_str())).await
}

/// What may end a token of the subject: a revocation, or an erasure of it or of a level above it.
fn revocation_fields(keys: &Keys, subject: &Subject) -> Vec<String> {
    let ancestors = keys.separator().ancestors(subject);
    let erased = std::iter::once(subject).chain(&ancestors).map(|level| digest_of(&[level.as_str()]));
    std::iter::once(subject.to_string()).chain(erased).collect()
}

async fn store_revocation(Partition { client, keys }: &Partition, field: &str) -> RedisResult<()> {
    let (key, now) = (keys.portal_revoked(), client.server_time().await?);
    let mut pipeline = redis::pipe();
    pipeline.cmd("HSET").arg(&key).arg(field).arg(now.0).ignore();
    pipeline.cmd("EXPIRE").arg(&key).arg(REVOCATIONS_TTL.as_secs()).ignore();
    client.pipe(&pipeline).await
}

/// The URL of a token.
pub(super) async fn signed(Partition { client, keys }: &Partition, claims: &PortalClaims) -> RedisResult<String> {
    Ok(claims.signed(&stored_key(client, &keys.portal_key()).await?))
}
