//! Leases due deliveries: the wrapper of `lease.lua`.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

use super::error::{Operation, OutboxError};
use super::lease_clock::LeaseClock;
use super::{ENDED_DELIVERY_TTL, LEASE_MARGIN, millis, schedule};
use crate::redis_client::{RedisClient, Script};
use crate::types::{Channel, ContactId, DeliveryId, Destination, Keys, Notification, NotificationKind, UnixMs};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| schedule::script(include_str!("lease.lua")));

/// Maximum number of deliveries per call, which blocks the server for one to two milliseconds, or four if all have
/// different destinations.
pub const LEASE_MAX: usize = 150;

/// Length of the lease of a delivery without a contact, without the margin: the lookup of contacts needs two calls to
/// Redis.
const NO_CONTACT_LEASE: Duration = crate::redis_client::client::RESPONSE_TIMEOUT;

/// Number of strings per delivery in the script's reply.
const FIELDS: usize = 19;

/// The script's reply, in its order.
type Reply = (i64, Option<i64>, Option<i64>, Vec<u8>, Vec<String>, Vec<String>, u8);

/// The length of leases by channel, in the order of [`Channel::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimes([Duration; Channel::ALL.len()]);

impl LeaseTimes {
    /// The channel's deadline of one attempt plus `margin` (see [`LEASE_MARGIN`]).
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

/// A request for leases.
#[derive(Debug, Clone, Copy)]
pub struct LeaseRequest<'a> {
    /// Maximum number of deliveries; at most [`LEASE_MAX`].
    pub deliveries_max: usize,
    /// Maximum number of these for destinations that failed last time or were never attempted.
    pub unhealthy_max: usize,
    /// Maximum number of attempts in flight at one destination.
    pub per_destination_max: u32,
    /// Maximum number of followers, each in the place of an ended attempt.
    pub followers_max: usize,
    /// A token that no other call ever used.
    pub token: &'a str,
    /// The length of the leases.
    pub times: LeaseTimes,
    /// How long a delivery is retried: one that waits behind an open circuit for longer ends dead.
    pub give_up_after: Duration,
}

/// The result of a call.
#[derive(Debug)]
pub struct LeaseReply {
    /// Server time of the call, at which the leases began.
    pub now: UnixMs,
    /// When something is due for a healthy destination; `None` if nothing is scheduled for any. At or before `now`:
    /// more may be due already.
    pub next_healthy: Option<UnixMs>,
    /// The same for unhealthy destinations.
    pub next_unhealthy: Option<UnixMs>,
    /// The leased deliveries.
    pub leased: Vec<LeasedDelivery>,
    /// Ids that were due without a readable delivery: each is `missing`, `malformed` or `ended`. They are out of the
    /// schedule.
    pub dropped: Vec<(DeliveryId, String)>,
    /// Deliveries that ended dead, because the circuit of their destination was open until their time was over.
    pub given_up: Vec<(DeliveryId, Channel)>,
    /// Whether sending is paused: then nothing is leased.
    pub is_paused: bool,
}

/// The message in which a delivery leaves with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliverySet {
    /// The id of the message, the same on every attempt: `digest_` and 32 hex digits.
    pub message_id: String,
    /// The number of this attempt of the message, from 1. The members do not change after the first one, except that
    /// ended deliveries leave.
    pub attempt: u32,
}

/// A delivery that this worker holds until the lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasedDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// The notification, or why the stored text is invalid.
    pub notification: Result<Notification, String>,
    /// The stored text.
    pub json: Vec<u8>,
    /// The stored subject, for the log of an unreadable notification.
    pub subject: String,
    /// Its channel.
    pub channel: Channel,
    /// Its contact.
    pub contact: ContactId,
    /// Number of attempts since its creation, including this one, which takes place only if there is a contact.
    pub attempts: u32,
    /// Number of attempts since its creation or last replay, including this one; it determines the delay.
    pub attempt_since_replay: u32,
    /// Start of the first attempt since then, server time.
    pub first_attempt: UnixMs,
    /// Duration of pauses since then.
    pub paused: Duration,
    /// Whether the receiver may have accepted an earlier attempt, as far as is known.
    pub may_have_arrived: bool,
    /// Until when it waited for a digest, or for the end of a quiet time, if it did.
    pub waited_until: Option<UnixMs>,
    /// Whether what it tells is stored: an attempt may have been made, and another one tells the same.
    pub is_told: bool,
    /// The token that the settlement must present.
    pub token: String,
    /// End of the lease, server time.
    pub lease_end: UnixMs,
    /// Its queue.
    pub destination: Destination,
    /// Whether the last attempt there was answered.
    pub is_healthy: bool,
    /// Whether that destination is healthy and had more due deliveries.
    pub more_follows: bool,
    /// Whether it may be attempted only in the place of an ended attempt at the same destination.
    pub follows: bool,
    /// The message in which it leaves with the others of the same set, which follow each other in the reply; `None` if
    /// it leaves alone.
    pub set: Option<DeliverySet>,
    /// Clock of the lease.
    pub(super) clock: LeaseClock,
}

/// Leases up to `request.deliveries_max` deliveries that are due by server time. Nobody else attempts them until their
/// leases end. Destinations take turns, and none has more attempts in flight than its bound.
///
/// Repeatable: a second call leases others. Refused when memory is full (`ErrorKind::Full`), because the outcomes of
/// attempts might then not be recorded.
///
/// # Errors
///
/// [`OutboxError`]; if a reply was lost, its deliveries become due again when their leases end.
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
    let id_of = |pair: &[String]| DeliveryId::from_stored(&pair[0]);
    let channel_of = |pair: &[String]| Channel::from_stored(&pair[1]).unwrap_or(Channel::None);
    let malformed = || OutboxError::answer(Operation::Lease, keys.stream(), String::from_utf8_lossy(&leased));
    Ok(LeaseReply {
        now,
        next_healthy: next_healthy.map(UnixMs),
        next_unhealthy: next_unhealthy.map(UnixMs),
        leased: all_leased_of(&leased, clock_of).ok_or_else(malformed)?,
        dropped: dropped.chunks_exact(2).map(|pair| (id_of(pair), pair[1].clone())).collect(),
        given_up: given_up.chunks_exact(2).map(|pair| (id_of(pair), channel_of(pair))).collect(),
        is_paused: paused == 1,
    })
}

/// All deliveries of the reply; `None` if the script and this wrapper do not match.
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
    let [id, kind, json, subject, channel, contact, attempts, before, first, paused, token, end, ..] = fields;
    let [.., destination, health, message_id, message_attempt, waited_until, refused, told] = fields;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<i64>().ok();
    let attempts = u32::try_from(number(attempts)?).ok()?;
    let before = u32::try_from(number(before)?).unwrap_or(0);
    let message_attempt = u32::try_from(number(message_attempt)?).unwrap_or(1);
    let refused = number(refused).and_then(|refused| u32::try_from(refused).ok()).unwrap_or(0);
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
        may_have_arrived: attempts.saturating_sub(1) > refused,
        waited_until: number(waited_until).map(UnixMs),
        is_told: !told.is_empty(),
        token: text(token),
        lease_end: UnixMs(number(end)?),
        destination: Destination::from_stored(&text(destination)),
        is_healthy: health != b"unhealthy",
        more_follows: health == b"busy" || health == b"following",
        follows: health == b"following",
        set: (!message_id.is_empty()).then(|| DeliverySet { message_id: text(message_id), attempt: message_attempt }),
        clock: clock_of(channel),
    })
}

fn notification_of(kind: &str, json: &[u8]) -> Result<Notification, String> {
    let known = NotificationKind::from_stored(kind).ok_or_else(|| format!("its type is {kind:?}"))?;
    Notification::from_json(known, json).map_err(|error| error.to_string())
}
