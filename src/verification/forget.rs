//! Forgetting what was asked of the contacts of a subject, and the codes and confirm links that were sent to them, also
//! to contacts that were removed since.

use redis::RedisResult;

use super::issue::{self, Sent, sent_to};
use super::{code, open_requests, unverified};
use crate::redis_client::{Partition, Partitions};
use crate::types::{ConsentId, Subject};

/// How often what was sent is looked for: its contacts leave first, so no more can be sent.
const PASSES_MAX: usize = 10;

/// What was removed of requests for consent.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForgottenRequests {
    pub codes: u64,
    pub links: u64,
}

/// Removes what is noted of the requests to a subject's contacts, with the codes, the guesses at them and the confirm
/// links. Repeatable.
///
/// # Errors
///
/// What Redis or the connection said; a part may be removed.
pub async fn forget_requests(partitions: &Partitions, subject: &Subject) -> RedisResult<ForgottenRequests> {
    let of_subject = partitions.partition_of(subject);
    let () = of_subject.client.query(redis::cmd("UNLINK").arg(open_requests::key(of_subject, subject))).await?;
    // Where the service keeps the rest.
    let first = partitions.first();
    let Partition { client, keys } = first;
    let mut forgotten = ForgottenRequests::default();
    for _ in 0..PASSES_MAX {
        let sent = sent_to(first, subject).await?;
        if sent.is_empty() {
            break;
        }
        for sent in &sent {
            match sent {
                Sent::Request(consent) => forgotten.codes += forget_code(first, subject, consent).await?,
                Sent::Token(digest) => {
                    forgotten.links += client.query::<u64>(redis::cmd("UNLINK").arg(keys.verify_link(digest))).await?;
                }
            }
            // Last: it would not be found again.
            issue::forget(first, subject, sent).await?;
        }
    }
    Ok(forgotten)
}

/// Removes the code of a contact, and the note by which the contact would be removed.
async fn forget_code(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    consent: &ConsentId,
) -> RedisResult<u64> {
    let key = keys.verify_code(&code::holder(subject, consent));
    let stored: Option<String> = client.query(redis::cmd("GET").arg(&key)).await?;
    // The guesses first: without the code nobody would find them again.
    if let Some(nonce) = stored.as_deref().and_then(code::nonce_of) {
        let () = client.query(redis::cmd("UNLINK").arg(keys.verify_guesses(nonce))).await?;
    }
    let removed = client.query(redis::cmd("UNLINK").arg(&key)).await?;
    let () = client.query(redis::cmd("ZREM").arg(keys.unverified()).arg(unverified::member(subject, consent))).await?;
    Ok(removed)
}
