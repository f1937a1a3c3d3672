//! Forgetting what was asked of the contacts of a subject, and the codes that were sent to them. Confirm links can't be
//! found, because only a digest of each is stored; without their contact they confirm nothing, and they expire.

use redis::RedisResult;

use super::{code, open_requests, unverified};
use crate::contacts::ContactArray;
use crate::types::Subject;
use crate::wire::{Partition, Partitions};

/// Removes the codes of these contacts, with the guesses at them, and what is noted of their requests; says how many
/// codes there were. Repeatable.
pub async fn forget_requests(partitions: &Partitions, subject: &Subject, contacts: &ContactArray) -> RedisResult<u64> {
    // Where the service keeps them.
    let Partition { client, keys } = partitions.first();
    let mut removed = 0;
    let of_subject = partitions.of(subject);
    let () = of_subject.client.query(redis::cmd("UNLINK").arg(open_requests::key(of_subject, subject))).await?;
    for contact in contacts.contacts() {
        let member = unverified::member(subject, &contact.consent);
        let () = client.query(redis::cmd("ZREM").arg(keys.unverified()).arg(member)).await?;
        let key = keys.verify_code(&code::holder(subject, &contact.consent));
        let Some(stored) = client.query::<Option<String>>(redis::cmd("GET").arg(&key)).await? else { continue };
        // The guesses first: without the code nobody would find them again.
        if let Some(nonce) = code::nonce_of(&stored) {
            let () = client.query(redis::cmd("UNLINK").arg(keys.verify_guesses(nonce))).await?;
        }
        removed += client.query::<u64>(redis::cmd("UNLINK").arg(&key)).await?;
    }
    Ok(removed)
}
