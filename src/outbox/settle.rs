//! Ends leases: the wrapper of `settle.lua`.

use std::sync::LazyLock;
use std::time::Duration;

use super::config::DeliveryConfig;
use super::contact_health::{ContactHealth, UNKNOWN_KEPT};
use super::destination_health::DestinationHealth;
use super::error::{Operation, OutboxError};
use super::{ENDED_DELIVERY_TTL, millis, schedule};
use crate::redis_client::{RedisClient, Script};
use crate::types::{
    Attempt, Channel, ContactId, DeliveryId, DeliveryState, Destination, Keys, Outcome, OutcomeClass, Subject, UnixMs,
};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| schedule::script(include_str!("settle.lua")));

/// Number of latest attempts that stay readable. With the default schedule a delivery has about 20 in three days.
pub const ATTEMPTS_KEPT: usize = 100;

/// Number of leases per call, which blocks the server for a few milliseconds; more by those of one message.
pub const SETTLE_MAX: usize = 100;

/// Maximum number of ids that one call trims from each list. A settlement adds at most one, so the lists shrink while
/// there is work.
const TRIM_MAX: usize = 16;

/// How a lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// The receiver accepted it.
    Delivered(Outcome),
    /// Given up after this attempt.
    Dead(Outcome),
    /// Given up without an attempt: the stored data can't be sent, for this reason.
    Unsendable(String),
    /// The next attempt is due after this delay.
    Retry(Outcome, Duration),
    /// The contact, the subject or the metric is muted, with this text; nothing was sent.
    Muted(String),
    /// Its period ended too long ago; nothing was sent.
    Expired,
    /// This attempt failed, and the next one would come after the expiry.
    ExpiredAfter(Outcome),
    /// Its contact is gone or disabled; nothing was sent.
    Cancelled,
    /// This attempt disabled its contact: the alert goes to others.
    ContactDisabled(Outcome),
    /// A cap is exhausted: no attempt took place; due again after this delay.
    Throttled(Duration),
    /// No attempt took place; due again after this delay. Used for a drain, a cap that can't be asked, and unreadable
    /// contacts.
    Released(Duration),
    /// Like [`Self::Released`], until the end of a quiet time. It is stored, so that the delivery does not expire
    /// meanwhile.
    Quiet(Duration),
    /// Like [`Self::Released`], and the message in which it was to leave with others goes without it.
    SetAside(Duration),
}

impl Settlement {
    /// The state of the delivery afterwards.
    pub const fn state(&self) -> DeliveryState {
        match self {
            Self::Delivered(_) => DeliveryState::Delivered,
            Self::Dead(_) | Self::Unsendable(_) => DeliveryState::Dead,
            Self::Retry(..) | Self::Throttled(_) | Self::Released(_) | Self::Quiet(_) | Self::SetAside(_) => {
                DeliveryState::Pending
            }
            Self::Muted(_) => DeliveryState::Muted,
            Self::Expired | Self::ExpiredAfter(_) => DeliveryState::Expired,
            Self::Cancelled | Self::ContactDisabled(_) => DeliveryState::Cancelled,
        }
    }

    /// Takes a delivery that waits out of its message.
    pub(super) fn set_aside(&mut self) {
        if let Self::Released(wait) = *self {
            *self = Self::SetAside(wait);
        }
    }

    /// The outcome of the attempt, if one took place.
    pub const fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Delivered(outcome)
            | Self::Dead(outcome)
            | Self::ExpiredAfter(outcome)
            | Self::Retry(outcome, _)
            | Self::ContactDisabled(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// The script's word for it.
    const fn word(&self) -> &'static str {
        match self {
            Self::Retry(..) => "retry",
            Self::Throttled(_) | Self::Released(_) => "released",
            Self::Quiet(_) => "quiet",
            Self::SetAside(_) => "set_aside",
            ended => ended.state().as_str(),
        }
    }

    const fn wait(&self) -> Duration {
        match self {
            Self::Retry(_, wait)
            | Self::Throttled(wait)
            | Self::Released(wait)
            | Self::Quiet(wait)
            | Self::SetAside(wait) => *wait,
            _ => Duration::ZERO,
        }
    }

    /// What the attempt revealed about its contact. A disabled contact starts again when somebody enables it.
    fn contact_health(&self, channel: Channel) -> Option<ContactHealth> {
        match self {
            Self::ContactDisabled(_) => Some(ContactHealth::Reached),
            _ => ContactHealth::from_outcome(channel, self.outcome()?),
        }
    }

    fn error(&self) -> &str {
        match self {
            Self::Unsendable(why) | Self::Muted(why) => why,
            _ => self.outcome().and_then(|outcome| outcome.error.as_deref()).unwrap_or_default(),
        }
    }
}

/// The script's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleReply {
    /// The outcome is recorded, at this server time.
    Done(UnixMs),
    /// It was already recorded: an earlier call with this token succeeded, and only its reply was lost.
    Repeated,
    /// Another worker has leased the delivery since, or it was ended or replayed: nothing was written.
    Stale,
    /// The delivery's key has another type: nothing was written.
    WrongType,
}

/// The result of a call of [`settle`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledLeases {
    /// A reply for each lease.
    pub answers: Vec<SettleReply>,
    /// The destinations whose circuits were opened.
    pub circuits_opened: Vec<Destination>,
    /// The destinations whose circuits were closed.
    pub circuits_closed: Vec<Destination>,
}

/// A lease and how it ends.
#[derive(Debug, Clone)]
pub struct SettleRequest {
    /// The delivery.
    pub id: DeliveryId,
    /// The channel on which the attempt was made.
    pub channel: Channel,
    /// The lease's token.
    pub token: String,
    /// How it ends.
    pub settlement: Settlement,
    /// For an inherited contact, the level above that it belongs to, and its id there.
    pub inherited: Option<(Subject, ContactId)>,
    /// To where the attempt went, as [`logged_address`](crate::contacts::logged_address) shortens it.
    pub address: Option<String>,
    /// The message in which it was sent with the requests beside it, so that its destination learns of one attempt.
    pub message_id: Option<String>,
}

/// Records how leases ended and, for retries, when the next attempts are due; about [`SETTLE_MAX`] per call. Also
/// adjusts the bounds of the destinations by the results of the attempts.
///
/// A lease that has ended is still ours until another worker takes it. Repeatable: a second call returns
/// [`SettleReply::Repeated`] or [`SettleReply::Stale`] and changes nothing. Also runs when memory is full. `settle.lua`
/// explains why.
///
/// # Errors
///
/// [`OutboxError`]; the deliveries then stay leased and are attempted again when their leases end.
pub async fn settle(
    client: &RedisClient,
    keys: &Keys,
    config: &DeliveryConfig,
    ends: &[&SettleRequest],
) -> Result<SettledLeases, OutboxError> {
    let mut call = schedule::bounded_call(&SCRIPT, keys, config.per_destination_max);
    call = call.arg(ENDED_DELIVERY_TTL.as_secs()).arg(ATTEMPTS_KEPT).arg(TRIM_MAX);
    call = call.arg(millis(config.probe_first)).arg(millis(config.probe_max));
    call = call.arg(keys.failing_prefix()).arg(config.disable_after.as_secs().max(1)).arg(UNKNOWN_KEPT.as_secs());
    let mut learned = None;
    for SettleRequest { id, channel, token, settlement, inherited, address, message_id } in ends {
        let outcome = settlement.outcome();
        let is_repeated = message_id.is_some() && learned == *message_id;
        learned = if outcome.is_some() { message_id.clone() } else { learned };
        let health = outcome.filter(|_| !is_repeated).and_then(DestinationHealth::from_outcome);
        let health = health.map_or("", DestinationHealth::as_str);
        call = call.arg(id.as_str()).arg(token).arg(settlement.word()).arg(millis(settlement.wait()));
        call = call.arg(outcome.map(attempt_tail).unwrap_or_default()).arg(settlement.error()).arg(health);
        call = call.arg(settlement.contact_health(*channel).map_or("", ContactHealth::as_str));
        let (level, contact) = inherited.as_ref().map_or(("", ""), |(level, id)| (level.as_str(), id.as_str()));
        call = call.arg(level).arg(contact).arg(address.as_deref().unwrap_or_default());
        let was_refused = outcome.is_some_and(|of| of.class != OutcomeClass::Delivered && !of.may_have_arrived);
        call = call.arg(if was_refused { "refused" } else { "" });
    }
    let of = || match ends {
        [SettleRequest { id, .. }] => format!("delivery {id} of {}", keys.stream()),
        _ => format!("{} deliveries of {}", ends.len(), keys.stream()),
    };
    let reply: Vec<String> = call.run(client).await.map_err(OutboxError::redis(Operation::Settle, of()))?;
    let settled = settled_of(&reply).filter(|settled| settled.answers.len() == ends.len());
    settled.ok_or_else(|| {
        OutboxError::answer(Operation::Settle, of(), reply.into_iter().take(8).collect::<Vec<_>>().join(" "))
    })
}

/// The script's reply; `None` if the script and this wrapper do not match.
fn settled_of(reply: &[String]) -> Option<SettledLeases> {
    let [now, opened, closed, rest @ ..] = reply else { return None };
    let now = UnixMs(now.parse().ok()?);
    let (opened, rest) = rest.split_at_checked(opened.parse().ok()?)?;
    let (closed, answers) = rest.split_at_checked(closed.parse().ok()?)?;
    let named = |names: &[String]| names.iter().map(|name| Destination::from_stored(name)).collect();
    let answer_of = |answer: &String| match answer.as_str() {
        "settled" => Some(SettleReply::Done(now)),
        "repeated" => Some(SettleReply::Repeated),
        "stale" => Some(SettleReply::Stale),
        "wrong_type" => Some(SettleReply::WrongType),
        _ => None,
    };
    let answers = answers.iter().map(answer_of).collect::<Option<_>>()?;
    Some(SettledLeases { answers, circuits_opened: named(opened), circuits_closed: named(closed) })
}

/// The JSON of the attempt without its opening brace and its time, which only the script knows.
fn attempt_tail(outcome: &Outcome) -> String {
    let attempt = Attempt {
        at_ms: 0,
        outcome: outcome.class.as_str().to_owned(),
        status: outcome.status,
        duration_ms: millis(outcome.took),
        error: outcome.error.clone(),
        hint: outcome.hint.map(str::to_owned),
        peer: outcome.peer.clone(),
        reply: outcome.reply.clone(),
    };
    let json = serde_json::to_string(&attempt).expect("plain strings and numbers serialise");
    json.strip_prefix("{\"at_ms\":0,").expect("at_ms is the first field").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The script prepends the time; the resulting JSON must parse as the same attempt.
    #[test]
    fn the_tail_completed_by_the_script_reads_back() {
        let outcome = Outcome {
            status: Some(503),
            reply: Some("busy \"now\"".to_owned()),
            peer: Some("b.test:443".to_owned()),
            took: Duration::from_millis(12),
            ..Outcome::failed(OutcomeClass::Transient, "a \"quoted\" reason")
        };
        let attempt: Attempt =
            serde_json::from_str(&format!("{{\"at_ms\":7,{}", attempt_tail(&outcome))).expect("JSON");
        assert_eq!((attempt.at_ms, attempt.status, attempt.duration_ms), (7, Some(503), 12));
        assert_eq!((attempt.error, attempt.reply, attempt.peer), (outcome.error, outcome.reply, outcome.peer));
    }
}
