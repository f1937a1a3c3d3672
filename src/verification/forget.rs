//! Forgetting what was asked of the contacts of a subject, and the codes and confirm links that were sent to them, also
//! to contacts that were removed since.
//!
//! What is kept of each contact that was asked ([`unverified`]) outlives its codes, so the codes are found by it. Only
//! a digest of a link's token is stored, so links are looked through: they are few, and live for
//! `verification.lifetime`.

use redis::RedisResult;

use super::{code, open_requests, unverified};
use crate::types::text::glob_literal;
use crate::types::{Subject, VerificationRequest};
use crate::wire::{Partition, Partitions, Scan};

/// What was removed of requests for consent.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForgottenRequests {
    pub codes: u64,
    pub links: u64,
}

/// Removes what is noted of the requests to a subject's contacts, with the codes, the guesses at them and the confirm
/// links. Repeatable; to be called once nothing is left by which a message could be sent.
///
/// # Errors
///
/// What Redis or the connection said; a part may be removed.
pub async fn forget_requests(partitions: &Partitions, subject: &Subject) -> RedisResult<ForgottenRequests> {
    let of_subject = partitions.of(subject);
    let () = of_subject.client.query(redis::cmd("UNLINK").arg(open_requests::key(of_subject, subject))).await?;
    // Where the service keeps the rest.
    let first = partitions.first();
    Ok(ForgottenRequests { links: forget_links(first, subject).await?, codes: forget_codes(first, subject).await? })
}

/// Removes the codes of the subject's contacts, and what they are found by behind them.
async fn forget_codes(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<u64> {
    let mut removed = 0;
    let mut scan = Scan::sorted_set(&keys.unverified()).matching(format!("{}\0*", glob_literal(subject.as_str())));
    while let Some(members) = scan.next::<(Vec<u8>, f64)>(client).await? {
        for (member, _) in members {
            if let Some((subject, consent)) = unverified::parse(&member) {
                let key = keys.verify_code(&code::holder(&subject, &consent));
                let stored: Option<String> = client.query(redis::cmd("GET").arg(&key)).await?;
                // The guesses first: without the code nobody would find them again.
                if let Some(nonce) = stored.as_deref().and_then(code::nonce_of) {
                    let () = client.query(redis::cmd("UNLINK").arg(keys.verify_guesses(nonce))).await?;
                }
                removed += client.query::<u64>(redis::cmd("UNLINK").arg(&key)).await?;
            }
            let () = client.query(redis::cmd("ZREM").arg(keys.unverified()).arg(&member)).await?;
        }
    }
    Ok(removed)
}

async fn forget_links(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<u64> {
    let is_of = |stored: &Option<String>| {
        let request = stored.as_deref().and_then(|json| serde_json::from_str::<VerificationRequest>(json).ok());
        request.is_some_and(|request| request.subject == *subject)
    };
    let mut removed = 0;
    // A server whose slot has moved away answers that it has none. So all of them are asked.
    for server in client.primaries().await? {
        let mut scan = Scan::keys(keys.verify_link_pattern());
        while let Some(links) = scan.next::<String>(&server).await? {
            let mut read = redis::pipe();
            for link in &links {
                read.cmd("GET").arg(link);
            }
            let stored: Vec<Option<String>> = client.pipe(&read).await?;
            for (link, _) in links.iter().zip(&stored).filter(|(_, stored)| is_of(stored)) {
                removed += client.query::<u64>(redis::cmd("UNLINK").arg(link)).await?;
            }
        }
    }
    Ok(removed)
}
