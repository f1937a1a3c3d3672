//! Stores the code and the confirm link of a message (the wrapper of `issue.lua`), and lists what was sent to contacts
//! of a subject.
//!
//! Codes and links are stored under digests without names. A sorted set per subject lists the contacts that were asked
//! and the tokens of their links, so an erasure finds them without a scan of all keys. Nothing is stored for an
//! unlisted contact: a message in progress during an erasure leaves nothing behind.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{RedisError, RedisResult};

use super::{code, confirm_link};
use crate::redis_client::{Partition, Script};
use crate::types::alert::digest_of;
use crate::types::{ConsentId, Keys, Subject, UnixMs, VerificationRequest, nonce};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("issue.lua")));

/// Something that was sent to a contact of a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sent {
    /// A contact was asked. This id finds its code.
    Request(ConsentId),
    /// The token of a confirm link, as a digest.
    Token(String),
}

/// Why nothing was stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssueError {
    #[error("the subject was erased")]
    Erased,
    #[error(transparent)]
    Redis(#[from] RedisError),
}

/// Stores the code of a request, and the token of its confirm link if there is one, for this lifetime. Repeatable.
///
/// # Errors
///
/// [`IssueError`]; nothing was written if Redis answered with an error.
pub(super) async fn issue(
    Partition { client, keys }: &Partition,
    request: &VerificationRequest,
    lifetime: Duration,
    code: &str,
    token: Option<&str>,
) -> Result<(), IssueError> {
    let VerificationRequest { subject, consent, .. } = request;
    let holder = code::holder(subject, consent);
    // PX requires at least 1.
    let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX).max(1);
    let mut call = SCRIPT.call().key(key(keys, subject)).key(keys.verify_code(&holder));
    call = call.arg(Sent::Request(consent.clone()).to_member()).arg(lifetime_ms);
    call = call.arg(code::stored_form(&nonce(), &holder, code));
    if let Some(digest) = token.map(confirm_link::stored_form) {
        let request = serde_json::to_string(request).expect("strings and numbers are JSON");
        call = call.key(keys.verify_link(&digest)).arg(Sent::Token(digest).to_member()).arg(request);
    }
    let answer: String = call.run(client).await?;
    if answer == "issued" { Ok(()) } else { Err(IssueError::Erased) }
}

/// Records that a contact is asked, until `until`. Call it before the first message. Repeatable.
pub(super) async fn note_request(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    consent: &ConsentId,
    until: UnixMs,
) -> RedisResult<()> {
    let key = key(keys, subject);
    let mut pipeline = redis::pipe();
    pipeline.cmd("ZADD").arg(&key).arg(until.0).arg(Sent::Request(consent.clone()).to_member()).ignore();
    // GT treats a key without a TTL as one that never expires.
    pipeline.cmd("PEXPIREAT").arg(&key).arg(until.0).arg("NX").ignore();
    pipeline.cmd("PEXPIREAT").arg(&key).arg(until.0).arg("GT").ignore();
    client.pipe(&pipeline).await
}

/// The items sent to contacts of a subject that may still be stored.
pub(super) async fn sent_to(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<Vec<Sent>> {
    let members: Vec<String> = client.query(redis::cmd("ZRANGE").arg(key(keys, subject)).arg(0).arg(-1)).await?;
    Ok(members.iter().filter_map(|member| Sent::parse(member)).collect())
}

/// Removes an item from the list. From then on nothing is stored for that contact.
pub(super) async fn forget(Partition { client, keys }: &Partition, subject: &Subject, sent: &Sent) -> RedisResult<()> {
    client.query(redis::cmd("ZREM").arg(key(keys, subject)).arg(sent.to_member())).await
}

fn key(keys: &Keys, subject: &Subject) -> String {
    keys.verify_sent(&digest_of(&[subject.as_str()]))
}

impl Sent {
    fn to_member(&self) -> String {
        match self {
            Self::Request(consent) => format!("request:{}", consent.as_str()),
            Self::Token(digest) => format!("token:{digest}"),
        }
    }

    fn parse(member: &str) -> Option<Self> {
        let (kind, id) = member.split_once(':')?;
        match kind {
            "request" => Some(Self::Request(ConsentId::from_stored(id))),
            "token" => Some(Self::Token(id.to_owned())),
            _ => None,
        }
    }
}
