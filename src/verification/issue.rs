//! Stores the code and the confirm link of a message (the wrapper of `issue.lua`), and knows what was sent to contacts
//! of a subject.
//!
//! Codes and links are stored under digests that name nobody. A sorted set for each subject lists the contacts that
//! were asked and the tokens of their links, so an erasure finds them without a walk over all keys. Nothing is stored
//! for a contact that it does not list: a message that was under way during an erasure leaves nothing behind.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{RedisError, RedisResult};

use crate::redis_client::{Partition, Script};
use crate::types::alert::digest_of;
use crate::types::{ConsentId, Keys, Subject, UnixMs};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("issue.lua")));

/// Something that was sent to a contact of a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sent {
    /// A contact was asked. Its code is found by this.
    Request(ConsentId),
    /// The token of a confirm link, by its digest.
    Token(String),
}

/// A code, and a confirm link if pages have an address, as they are stored.
#[derive(Debug)]
pub(super) struct Issued<'a> {
    pub(super) subject: &'a Subject,
    pub(super) consent: &'a ConsentId,
    pub(super) lifetime: Duration,
    pub(super) code_key: String,
    pub(super) code: String,
    pub(super) token: Option<IssuedToken>,
}

/// The token of a confirm link.
#[derive(Debug)]
pub(super) struct IssuedToken {
    pub(super) digest: String,
    /// The request that it answers, JSON.
    pub(super) request: String,
}

/// Why nothing was stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssueError {
    #[error("the subject was erased")]
    Erased,
    #[error(transparent)]
    Redis(#[from] RedisError),
}

/// Stores a code and a token for as long as their message is good. Repeatable.
///
/// # Errors
///
/// [`IssueError`]; nothing was written if Redis answered with an error.
pub(super) async fn issue(Partition { client, keys }: &Partition, issued: Issued<'_>) -> Result<(), IssueError> {
    let Issued { subject, consent, lifetime, code_key, code, token } = issued;
    // PX takes at least 1.
    let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX).max(1);
    let mut call = SCRIPT.call().key(key(keys, subject)).key(code_key);
    call = call.arg(Sent::Request(consent.clone()).to_member()).arg(lifetime_ms).arg(code);
    if let Some(IssuedToken { digest, request }) = token {
        call = call.key(keys.verify_link(&digest)).arg(Sent::Token(digest).to_member()).arg(request);
    }
    let answer: String = call.run(client).await?;
    if answer == "issued" { Ok(()) } else { Err(IssueError::Erased) }
}

/// Notes that a contact is asked, until then. Comes before its first message. Repeatable.
pub(super) async fn note_request(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    consent: &ConsentId,
    until: UnixMs,
) -> RedisResult<()> {
    let key = key(keys, subject);
    let mut pipeline = redis::pipe();
    pipeline.cmd("ZADD").arg(&key).arg(until.0).arg(Sent::Request(consent.clone()).to_member()).ignore();
    // GT takes a key without an end for one that never ends.
    pipeline.cmd("PEXPIREAT").arg(&key).arg(until.0).arg("NX").ignore();
    pipeline.cmd("PEXPIREAT").arg(&key).arg(until.0).arg("GT").ignore();
    client.pipe(&pipeline).await
}

/// What was sent to contacts of a subject, as far as it may still be stored.
pub(super) async fn sent_to(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<Vec<Sent>> {
    let members: Vec<String> = client.query(redis::cmd("ZRANGE").arg(key(keys, subject)).arg(0).arg(-1)).await?;
    Ok(members.iter().filter_map(|member| Sent::parse(member)).collect())
}

/// Takes one of them off the list. Nothing is stored for a contact from then on.
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
