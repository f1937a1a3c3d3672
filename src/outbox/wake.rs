//! Deliveries that wait for a contact look again: the wrapper of `wake.lua`.

use std::sync::LazyLock;

use super::error::{Operation, OutboxError};
use super::schedule;
use crate::types::{Destination, Keys, Subject};
use crate::wire::{RedisClient, Script};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| schedule::script(include_str!("wake.lua")));

/// The most deliveries one call of the script wakes: it holds the server a millisecond or two.
pub const WAKE_MAX: usize = 500;

/// Makes the deliveries of `subject` that wait for a contact due now. For whoever notices that the subject changed; the dispatcher
/// should be notified afterwards. Returns how many were woken. Repeatable.
///
/// # Errors
///
/// [`OutboxError`]; the deliveries then look by themselves within [`super::NO_CONTACT_WAIT`].
pub async fn wake_subject(client: &RedisClient, keys: &Keys, subject: &Subject) -> Result<u64, OutboxError> {
    // A member is the subject, NUL, the delivery id; a subject holds no control character, so SOH ends exactly this subject's.
    let members = Members { least: member("[", subject, '\0'), greatest: member("(", subject, '\u{1}') };
    wake(client, keys, members).await
}

/// Makes every delivery that waits for a contact due now: when a fallback contact appeared. Returns how many were woken. Works in
/// bounded calls; repeatable.
///
/// # Errors
///
/// As [`wake_subject`].
pub async fn wake_all(client: &RedisClient, keys: &Keys) -> Result<u64, OutboxError> {
    wake(client, keys, Members { least: b"-".to_vec(), greatest: b"+".to_vec() }).await
}

/// A range of the waiting index, as ZRANGEBYLEX takes it.
struct Members {
    least: Vec<u8>,
    greatest: Vec<u8>,
}

fn member(edge: &str, subject: &Subject, end: char) -> Vec<u8> {
    format!("{edge}{subject}{end}").into_bytes()
}

async fn wake(client: &RedisClient, keys: &Keys, mut members: Members) -> Result<u64, OutboxError> {
    let mut woken = 0;
    loop {
        let call = schedule::call(&SCRIPT, keys);
        let call = call.arg(members.least.as_slice()).arg(members.greatest.as_slice()).arg(WAKE_MAX);
        let (now_woken, last): (u64, Option<Vec<u8>>) = call
            .arg(Destination::none().as_str())
            .run(client)
            .await
            .map_err(OutboxError::redis(Operation::Wake, keys.stream()))?;
        woken += now_woken;
        // Woken deliveries stay in the index until they are fanned out, so the next call begins behind the last one. Each step moves
        // on, so this ends.
        let Some(last) = last else { return Ok(woken) };
        members.least = [b"(".as_slice(), &last].concat();
    }
}
