//! Taking deliveries that are due: the wrapper of `lease.lua`.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

use super::error::{Operation, OutboxError};
use super::lease_clock::LeaseClock;
use super::{ENDED_DELIVERY_TTL, LEASE_MARGIN, millis, schedule};
use crate::redis_client::{RedisClient, Script};
use crate::types::{Channel, ContactId, DeliveryId, Destination, Keys, Notification, NotificationKind, UnixMs};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| schedule::script(include_str!("lease.lua")));

/// The most deliveries one call takes: it holds the server one to two milliseconds, and four where each has a
/// destination of its own.
pub const LEASE_MAX: usize = 150;

/// How long the lease of a delivery without contact lasts, beside the margin: looking up contacts takes two calls to
/// Redis.
const NO_CONTACT_LEASE: Duration = crate::redis_client::client::RESPONSE_TIMEOUT;

/// Strings in the script's answer for each delivery.
const FIELDS: usize = 14;

/// The script's answer, in its order.
type Reply = (i64, Option<i64>, Option<i64>, Vec<u8>, Vec<String>, Vec<String>, u8);

/// How long a lease lasts, by channel, in the order of [`Channel::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimes([Duration; Channel::ALL.len()]);

impl LeaseTimes {
    /// The channel's deadline for one attempt and `margin` (see [`LEASE_MARGIN`]).
    pub fn from_timeouts(timeout: impl Fn(Channel) -> Duration, margin: Duration) -> Self {
        Self(Channel::ALL.map(|channel| match channel {
            Channel::None => NO_CONTACT_LEASE + LEASE_MARGIN,
            sending => timeout(sending) + margin,
        }))
    }

    /// The same time for every delivery.
    pub const fn all(time: Duration) -> Self {
        Self([time; Channel::ALL.len()])
    }

    /// The time of one channel.
    pub const fn get(&self, channel: Channel) -> Duration {
        self.0[channel as usize]
    }
}

/// What to lease.
#[derive(Debug, Clone, Copy)]
pub struct LeaseRequest<'a> {
    /// The most deliveries to take; at most [`LEASE_MAX`] are.
    pub deliveries_max: usize,
    /// The most of these for destinations that failed last time or were never tried.
    pub unhealthy_max: usize,
    /// The most attempts in flight at one destination.
    pub per_destination_max: u32,
    /// The most deliveries that follow others, each in the place of an attempt that has ended.
    pub followers_max: usize,
    /// A token that no other call ever used.
    pub token: &'a str,
    /// How long the leases last.
    pub times: LeaseTimes,
    /// How long a delivery is tried: one that waits behind an open circuit for longer ends dead.
    pub give_up_after: Duration,
}

/// What a call found.
#[derive(Debug)]
pub struct LeaseReply {
    /// Server time of the call: the leases began then.
    pub now: UnixMs,
    /// When something may leave for a destination whose last attempt was answered; `None` when nothing is scheduled for
    /// any. At or before `now`: more may leave already.
    pub next_healthy: Option<UnixMs>,
    /// The same for the other destinations.
    pub next_unhealthy: Option<UnixMs>,
    /// The deliveries taken.
    pub leased: Vec<LeasedDelivery>,
    /// Ids that were due without a delivery behind them. They are out of the schedule.
    pub dropped: Vec<DroppedDelivery>,
    /// Deliveries that ended dead, because the circuit of their destination was open until their time was over.
    pub given_up: Vec<GivenUpDelivery>,
    /// Whether sending is paused: then nothing is leased, whatever is due.
    pub is_paused: bool,
}

/// A delivery that ended dead without an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUpDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// Its channel.
    pub channel: Channel,
}

/// A delivery that is ours until its lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasedDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// The notification, or why the stored text is none.
    pub notification: Result<Notification, String>,
    /// The stored text.
    pub json: Vec<u8>,
    /// Whom it is about, as stored; for the log of a notification that can't be read.
    pub subject: String,
    /// Its channel.
    pub channel: Channel,
    /// Its contact.
    pub contact: ContactId,
    /// Attempts since it was made, this one included (without contact: not included, none takes place).
    pub attempts: u32,
    /// Attempts since it was made or last replayed, this one included: what the schedule of delays goes by.
    pub attempt_since_replay: u32,
    /// When the first attempt since then began, server time.
    pub first_attempt: UnixMs,
    /// How long sending was paused since then.
    pub paused: Duration,
    /// What the settlement must show.
    pub token: String,
    /// When the lease ends, server time.
    pub lease_end: UnixMs,
    /// In whose queue it is.
    pub destination: Destination,
    /// Whether the last attempt there was answered.
    pub is_healthy: bool,
    /// Whether that one is healthy, and more was due there at the same time.
    pub more_follows: bool,
    /// Whether it may be attempted only in the place of an attempt that has ended at the same destination.
    pub follows: bool,
    /// How long the lease is still ours.
    pub(super) clock: LeaseClock,
}

/// An id that was due without a readable delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedDelivery {
    /// The id.
    pub id: DeliveryId,
    /// `missing`, `malformed` or `ended`.
    pub why: String,
}

/// Takes up to `request.deliveries_max` deliveries that are due by server time. Nobody else attempts them until their
/// lease ends. Destinations take turns, and none has more attempts in flight than its bound.
///
/// Repeatable: a second call takes others. Refused when memory is full (`ErrorKind::Full`), so that nothing is sent
/// whose outcome might not be recorded.
///
/// # Errors
///
/// [`OutboxError`]; what an answer that was lost had leased becomes due again when those leases end.
pub async fn lease(client: &RedisClient, keys: &Keys, request: LeaseRequest<'_>) -> Result<LeaseReply, OutboxError> {
    let deliveries_max = request.deliveries_max.min(LEASE_MAX);
    let mut call = schedule::bounded_call(&SCRIPT, keys, request.per_destination_max).key(keys.paused());
    call = call.key(keys.checkpoint());
    call = call.arg(deliveries_max).arg(request.unhealthy_max.min(deliveries_max));
    call = call.arg(request.token).arg(ENDED_DELIVERY_TTL.as_secs()).arg(millis(request.give_up_after));
    call = call.arg(request.followers_max.min(LEASE_MAX));
    for channel in Channel::ALL {
        call = call.arg(channel.as_str()).arg(millis(request.times.get(channel)));
    }
    let called = Instant::now();
    let (now, next_healthy, next_unhealthy, leased, dropped, given_up, paused): Reply =
        call.run(client).await.map_err(OutboxError::redis(Operation::Lease, keys.stream()))?;
    let (now, answered) = (UnixMs(now), Instant::now());
    let clock_of = |channel| LeaseClock { called, length: request.times.get(channel), answered, server_now: now };
    let malformed = || OutboxError::Answer {
        operation: Operation::Lease,
        of: keys.stream().to_owned(),
        answer: String::from_utf8_lossy(&leased).into_owned(),
    };
    Ok(LeaseReply {
        now,
        next_healthy: next_healthy.map(UnixMs),
        next_unhealthy: next_unhealthy.map(UnixMs),
        leased: all_leased_of(&leased, clock_of).ok_or_else(malformed)?,
        dropped: dropped
            .chunks_exact(2)
            .map(|pair| DroppedDelivery { id: DeliveryId::from_stored(&pair[0]), why: pair[1].clone() })
            .collect(),
        given_up: given_up
            .chunks_exact(2)
            .map(|pair| GivenUpDelivery {
                id: DeliveryId::from_stored(&pair[0]),
                channel: Channel::from_stored(&pair[1]).unwrap_or(Channel::None),
            })
            .collect(),
        is_paused: paused == 1,
    })
}

/// All deliveries of the answer; `None` when the script and this wrapper do not fit together.
fn all_leased_of(mut packed: &[u8], clock_of: impl Fn(Channel) -> LeaseClock) -> Option<Vec<LeasedDelivery>> {
    let count = rmp::decode::read_array_len(&mut packed).ok()? as usize;
    let mut next = || {
        let length = rmp::decode::read_str_len(&mut packed).ok()? as usize;
        let (field, rest) = packed.split_at_checked(length)?;
        packed = rest;
        Some(field)
    };
    let mut leased = Vec::with_capacity(count / FIELDS);
    for _ in 0..count / FIELDS {
        let mut fields: [&[u8]; FIELDS] = [b""; FIELDS];
        for field in &mut fields {
            *field = next()?;
        }
        leased.push(leased_of(fields, &clock_of)?);
    }
    count.is_multiple_of(FIELDS).then_some(leased)
}

/// One delivery from its fields.
fn leased_of(fields: [&[u8]; FIELDS], clock_of: impl Fn(Channel) -> LeaseClock) -> Option<LeasedDelivery> {
    let [id, kind, json, subject, channel, contact, attempts, before, first, paused, token, end, destination, health] =
        fields;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<i64>().ok();
    let attempts = u32::try_from(number(attempts)?).ok()?;
    let before = u32::try_from(number(before)?).unwrap_or(0);
    let channel = Channel::from_stored(&text(channel))?;
    Some(LeasedDelivery {
        id: DeliveryId::from_stored(&text(id)),
        notification: notification_of(&text(kind), json),
        json: json.to_owned(),
        subject: text(subject),
        channel,
        contact: ContactId::from_stored(&text(contact)),
        attempts,
        attempt_since_replay: attempts.saturating_sub(before).max(1),
        first_attempt: UnixMs(number(first)?),
        paused: Duration::from_millis(u64::try_from(number(paused)?).unwrap_or(0)),
        token: text(token),
        lease_end: UnixMs(number(end)?),
        destination: Destination::from_stored(&text(destination)),
        is_healthy: health != b"unhealthy",
        more_follows: health == b"busy" || health == b"following",
        follows: health == b"following",
        clock: clock_of(channel),
    })
}

fn notification_of(kind: &str, json: &[u8]) -> Result<Notification, String> {
    let known = NotificationKind::from_stored(kind).ok_or_else(|| format!("its type is {kind:?}"))?;
    Notification::from_json(known, json).map_err(|error| error.to_string())
}
