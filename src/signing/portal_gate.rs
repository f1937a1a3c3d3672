//! Who may enter the portal: makes, verifies and revokes its tokens. Everything is in the first partition.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Pipeline, RedisError, RedisResult};

use super::portal_token::{PortalClaims, PortalRight, UnverifiedToken};
use super::stored_key::stored_key;
use crate::redis_client::{Partition, Script};
use crate::types::alert::digest_of;
use crate::types::{Keys, Locale, Metric, Subject, UnixMs};

/// Maximum lifetime of a token: a revocation is kept for longer.
pub const PORTAL_LIFETIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a revocation is kept.
const REVOCATION_TTL: Duration = Duration::from_secs(8 * 24 * 3600);

const _: () = assert!(PORTAL_LIFETIME_MAX.as_secs() < REVOCATION_TTL.as_secs());

static REVOKE: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("portal_gate.lua")));

/// What a verified token permits. Only [`open`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortalAccess(PortalClaims);

/// Why a token opens nothing.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum PortalRefusal {
    #[error("the token is incomplete, or this deployment did not sign it")]
    Unsigned,
    #[error("the token ended at {at}")]
    Expired { at: UnixMs, return_url: Option<String> },
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

    /// The address that the pages link back to.
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
    let mut pipeline = redis::pipe();
    pipeline.cmd("GET").arg(keys.portal_key());
    let mut stored: Vec<Option<String>> = client.pipe(&with_revocations(pipeline, keys, &token.claims.subject)).await?;
    if !stored.remove(0).is_some_and(|key| token.is_signed_with(&key)) {
        return Err(PortalRefusal::Unsigned);
    }
    let PortalClaims { issued_at, expires_at: at, .. } = token.claims;
    if last_of(&stored).is_some_and(|revoked| issued_at <= revoked) {
        return Err(PortalRefusal::Revoked);
    }
    if at <= client.server_time().await? {
        return Err(PortalRefusal::Expired { at, return_url: token.claims.return_url });
    }
    Ok(PortalAccess(token.claims))
}

/// The server's time, and when a token that is made now is made: now, but after the last revocation, also within its
/// millisecond or after a clock was set back.
///
/// # Errors
///
/// The error of Redis or of the connection.
pub async fn issue_time(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<(UnixMs, UnixMs)> {
    let stored: Vec<Option<String>> = client.pipe(&with_revocations(redis::pipe(), keys, subject)).await?;
    let now = client.server_time().await?;
    Ok((now, last_of(&stored).map_or(now, |revoked| now.max(revoked.plus(1)))))
}

/// Ends all tokens of a subject and of the subjects below it. A digest of the name is kept, so that it may be erased.
/// Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection: they may have ended.
pub async fn revoke(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<()> {
    // Nothing was ever signed without a key.
    if client.query::<u64>(redis::cmd("EXISTS").arg(keys.portal_key())).await? == 0 {
        return Ok(());
    }
    REVOKE.call().key(revocation_key(keys, subject)).arg(REVOCATION_TTL.as_secs()).run(client).await
}

/// The pipeline, with what may end a token of the subject: a revocation of it or of a level above it.
fn with_revocations(mut pipeline: Pipeline, keys: &Keys, subject: &Subject) -> Pipeline {
    let ancestors = keys.separator().ancestors(subject);
    for level in std::iter::once(subject).chain(&ancestors) {
        pipeline.cmd("GET").arg(revocation_key(keys, level));
    }
    pipeline
}

fn last_of(revocations: &[Option<String>]) -> Option<UnixMs> {
    revocations.iter().flatten().filter_map(|stored| stored.parse().ok().map(UnixMs)).max()
}

fn revocation_key(keys: &Keys, subject: &Subject) -> String {
    keys.portal_revoked(&digest_of(&[subject.as_str()]))
}

/// The key with which tokens are signed now.
pub(super) async fn signing_key(Partition { client, keys }: &Partition) -> RedisResult<String> {
    stored_key(client, &keys.portal_key()).await
}
