//! Wakes deliveries that wait for a contact: the wrapper of `wake.lua`.

use std::sync::LazyLock;

use super::context::OutboxContext;
use super::error::{Operation, OutboxError};
use super::schedule;
use crate::contacts::resolver::ContactResolver;
use crate::redis_client::{RedisClient, Script};
use crate::types::{Destination, Keys, Separator, Subject};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| schedule::script(include_str!("wake.lua")));

/// Maximum number of deliveries per call of the script, which blocks the server for one or two milliseconds.
pub const WAKE_MAX: usize = 500;

/// Makes the deliveries of `subject` that wait for a contact due now. Call it when the subject changed, and notify the
/// dispatcher afterwards. Returns the number of woken deliveries. Repeatable.
///
/// # Errors
///
/// [`OutboxError`]; the deliveries then wait for the next change.
pub async fn wake_subject(client: &RedisClient, keys: &Keys, subject: &Subject) -> Result<u64, OutboxError> {
    wake(client, keys, Members::for_subject(subject)).await
}

/// Like [`wake_subject`] for many subjects of one partition. A subject without waiting deliveries, the usual case in an
/// import, costs one range of the waiting index. If nothing waits at all, all subjects together cost one read.
///
/// # Errors
///
/// [`OutboxError`]; some of them may be woken.
pub async fn wake_subjects(client: &RedisClient, keys: &Keys, subjects: &[Subject]) -> Result<u64, OutboxError> {
    let failed = |error| OutboxError::redis(Operation::Wake, keys.stream())(error);
    let waiting: u64 = client.query(redis::cmd("ZCARD").arg(keys.waiting())).await.map_err(failed)?;
    if waiting == 0 {
        return Ok(0);
    }
    let mut woken = 0;
    for subjects in subjects.chunks(WAKE_MAX) {
        let mut pipeline = redis::pipe();
        for subject in subjects {
            let Members { least, greatest } = Members::for_subject(subject);
            pipeline.cmd("ZRANGEBYLEX").arg(keys.waiting()).arg(least).arg(greatest).arg("LIMIT").arg(0).arg(1);
        }
        let first: Vec<Vec<Vec<u8>>> = client.pipe(&pipeline).await.map_err(failed)?;
        for (subject, _) in subjects.iter().zip(first).filter(|(_, first)| !first.is_empty()) {
            woken += wake_subject(client, keys, subject).await?;
        }
    }
    // The levels below may have inherited a contact.
    for members in subjects.iter().filter_map(|subject| Members::below(keys.separator(), subject)) {
        woken += wake(client, keys, members).await?;
    }
    Ok(woken)
}

/// Wakes deliveries of these subjects that wait although their subject has a contact, and notifies the dispatcher. Such
/// a contact was added after the contacts were read and before the deliveries were written, so its wake-up found no
/// delivery.
///
/// With this, no delivery waits beside a contact: a contact is written before its change is noticed, and the deliveries
/// are written before this reads contacts. If the contact was written before this read, this wakes them; otherwise the
/// change is noticed after the deliveries were written, and the search for waiting deliveries finds them.
///
/// # Errors
///
/// [`OutboxError`]; call it again.
pub(super) async fn wake_reachable(outbox: &OutboxContext, subjects: &[Subject]) -> Result<(), OutboxError> {
    let OutboxContext { client, keys, contacts, new_deliveries, .. } = outbox;
    let found = contacts.contacts_of_each(client, &subjects.iter().collect::<Vec<_>>()).await?;
    for (subject, _) in subjects.iter().zip(&found).filter(|(_, contacts)| !contacts.readable.is_empty()) {
        if wake_subject(client, keys, subject).await? > 0 {
            new_deliveries.notify_one();
        }
    }
    Ok(())
}

/// Wakes all waiting deliveries of subjects with a contact; the others keep waiting. Calls `woken` after each slice
/// with the number of woken deliveries, so that they are sent meanwhile. Repeatable.
///
/// # Errors
///
/// As [`wake_subject`]; some slices may be done.
pub async fn wake_waiting(
    client: &RedisClient,
    keys: &Keys,
    contacts: &ContactResolver,
    mut woken: impl FnMut(u64),
) -> Result<(), OutboxError> {
    // Start of the next slice, in the form of ZRANGEBYLEX.
    let mut from = b"-".to_vec();
    loop {
        let mut command = redis::cmd("ZRANGEBYLEX");
        command.arg(keys.waiting()).arg(&from).arg("+").arg("LIMIT").arg(0).arg(WAKE_MAX);
        let members: Vec<Vec<u8>> =
            client.query(&command).await.map_err(OutboxError::redis(Operation::Wake, keys.stream()))?;
        let Some(last) = members.last() else { return Ok(()) };
        let named = |member: &Vec<u8>| Subject::parse(member.split(|byte| *byte == 0).next()?).ok();
        let mut subjects: Vec<Subject> = members.iter().filter_map(named).collect();
        subjects.dedup();
        let found = contacts.contacts_of_each(client, &subjects.iter().collect::<Vec<_>>()).await?;
        let reachable = || subjects.iter().zip(&found).filter(|(_, contacts)| !contacts.readable.is_empty());
        let mut count = 0;
        if reachable().count() == subjects.len() {
            let [least, greatest] = [from, [b"[".as_slice(), last].concat()];
            count = wake(client, keys, Members { least, greatest }).await?;
        } else {
            for (subject, _) in reachable() {
                count += wake_subject(client, keys, subject).await?;
            }
        }
        from = [b"(".as_slice(), last].concat();
        woken(count);
    }
}

/// A range of the waiting index, in the form of ZRANGEBYLEX.
struct Members {
    least: Vec<u8>,
    greatest: Vec<u8>,
}

impl Members {
    /// The members of all levels below a subject; `None` if subjects have no levels.
    fn below(separator: Separator, subject: &Subject) -> Option<Self> {
        let least = format!("[{subject}{separator}").into_bytes();
        let mut greatest = least.clone();
        *greatest.last_mut()? += 1;
        greatest[0] = b'(';
        (!separator.is_none()).then_some(Self { least, greatest })
    }

    /// The members of a subject: a member is the subject, NUL, the delivery id. A subject contains no control
    /// character, so SOH ends exactly its members.
    fn for_subject(subject: &Subject) -> Self {
        Self { least: format!("[{subject}\0").into_bytes(), greatest: format!("({subject}\u{1}").into_bytes() }
    }
}

async fn wake(client: &RedisClient, keys: &Keys, mut members: Members) -> Result<u64, OutboxError> {
    let mut woken = 0;
    loop {
        let call = schedule::call(&SCRIPT, keys).arg(members.least.as_slice()).arg(members.greatest.as_slice());
        let call = call.arg(WAKE_MAX).arg(Destination::none().as_str());
        let (now_woken, last): (u64, Option<Vec<u8>>) =
            call.run(client).await.map_err(OutboxError::redis(Operation::Wake, keys.stream()))?;
        woken += now_woken;
        // Woken deliveries stay in the index until they are fanned out, so the next call begins after the last one.
        // Each step advances, so this ends.
        let Some(last) = last else { return Ok(woken) };
        members.least = [b"(".as_slice(), &last].concat();
    }
}
