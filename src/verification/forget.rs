//! Forgets the requests to contacts of a subject, and the codes and confirm links that were sent, including those for
//! removed contacts.

use redis::RedisResult;

use super::issue::{self, Sent, sent_to};
use super::{code, open_requests, unverified};
use crate::redis_client::{Partition, Partitions};
use crate::types::{ConsentId, Subject};

/// Maximum number of passes: the contacts are removed first, so nothing new can be sent.
const PASSES_MAX: usize = 10;

/// Number of removed items.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForgottenRequests {
    pub codes: u64,
    pub links: u64,
}

/// Removes the records of requests to a subject's contacts, with the codes, the guesses and the confirm links.
/// Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection; some items may already be removed.
pub async fn forget_requests(partitions: &Partitions, subject: &Subject) -> RedisResult<ForgottenRequests> {
    let of_subject = partitions.partition_of(subject);
    let () = of_subject.client.query(redis::cmd("UNLINK").arg(open_requests::key(of_subject, subject))).await?;
    // The service stores everything else in the first partition.
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
            // Last, because without it the rest would not be found again.
            issue::forget(first, subject, sent).await?;
        }
    }
    Ok(forgotten)
}

/// Removes the code of a contact, and the record that schedules the contact's removal.
async fn forget_code(
    Partition { client, keys }: &Partition,
    subject: &Subject,
    consent: &ConsentId,
) -> RedisResult<u64> {
    let key = keys.verify_code(&code::holder(subject, consent));
    let stored: Option<String> = client.query(redis::cmd("GET").arg(&key)).await?;
    // Guesses first: without the code they could not be found again.
    if let Some(nonce) = stored.as_deref().and_then(code::nonce_of) {
        let () = client.query(redis::cmd("UNLINK").arg(keys.verify_guesses(nonce))).await?;
    }
    let removed = client.query(redis::cmd("UNLINK").arg(&key)).await?;
    let () = client.query(redis::cmd("ZREM").arg(keys.unverified()).arg(unverified::member(subject, consent))).await?;
    Ok(removed)
}
