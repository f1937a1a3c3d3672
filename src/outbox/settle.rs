//! Ending a lease: the wrapper of `settle.lua`.

use std::sync::LazyLock;
use std::time::Duration;

use super::error::{Operation, OutboxError};
use super::{KEPT, millis};
use crate::types::{Attempt, DeliveryId, DeliveryState, Keys, Outcome, UnixMs};
use crate::wire::{RedisClient, Script};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("settle.lua")));

/// The newest attempts that stay readable. With the default schedule a delivery has about 20 in its three days.
pub const ATTEMPTS_KEPT: usize = 100;

/// The most ids that one call trims from each list. A settlement adds at most one, so the lists shrink while there is work.
const TRIM_MAX: usize = 16;

/// How a lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// The other side took it.
    Delivered(Outcome),
    /// Given up after this attempt.
    Dead(Outcome),
    /// Given up without an attempt: what is stored can't be sent, for this reason.
    Unsendable(String),
    /// The next attempt is due after this long.
    Retry(Outcome, Duration),
    /// The contact is muted; nothing was sent.
    Muted,
    /// Its day ended too long ago; nothing was sent.
    Expired,
    /// Its contact is gone; nothing was sent.
    Cancelled,
    /// A cap is used up: no attempt took place; it is due again after this long.
    Throttled(Duration),
    /// No attempt took place; it is due again after this long. For a drain, a cap that can't be asked, contacts that can't be read.
    Released(Duration),
}

impl Settlement {
    /// The state in which the delivery is afterwards.
    #[must_use]
    pub const fn state(&self) -> DeliveryState {
        match self {
            Self::Delivered(_) => DeliveryState::Delivered,
            Self::Dead(_) | Self::Unsendable(_) => DeliveryState::Dead,
            Self::Retry(..) | Self::Throttled(_) | Self::Released(_) => DeliveryState::Pending,
            Self::Muted => DeliveryState::Muted,
            Self::Expired => DeliveryState::Expired,
            Self::Cancelled => DeliveryState::Cancelled,
        }
    }

    /// The outcome of the attempt, when one took place.
    #[must_use]
    pub const fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Delivered(outcome) | Self::Dead(outcome) | Self::Retry(outcome, _) => Some(outcome),
            _ => None,
        }
    }

    /// The script's word for it.
    const fn word(&self) -> &'static str {
        match self {
            Self::Retry(..) => "retry",
            Self::Throttled(_) | Self::Released(_) => "released",
            ended => ended.state().as_str(),
        }
    }

    const fn wait(&self) -> Duration {
        match self {
            Self::Retry(_, wait) | Self::Throttled(wait) | Self::Released(wait) => *wait,
            _ => Duration::ZERO,
        }
    }

    fn error(&self) -> &str {
        match self {
            Self::Unsendable(why) => why,
            _ => self.outcome().and_then(|outcome| outcome.error.as_deref()).unwrap_or_default(),
        }
    }
}

/// What the script answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleAnswer {
    /// The outcome stands, since this server time.
    Done(UnixMs),
    /// It stood already: an earlier call with this token came through, only its answer was lost.
    Repeated,
    /// Another worker has leased the delivery since, or it was ended or replayed: nothing was written.
    Stale,
}

/// Records how a lease ended and, for a retry, when the next attempt is due.
///
/// `token` is the lease's. A lease that ran out is still ours until another worker takes it. Repeatable: a second call is
/// [`SettleAnswer::Repeated`] or [`SettleAnswer::Stale`] and changes nothing. Also runs when memory is full. The argument is in `settle.lua`.
///
/// # Errors
///
/// [`OutboxError`]; the delivery then stays leased and is attempted again when the lease ends.
pub async fn settle(
    client: &RedisClient,
    keys: &Keys,
    id: &DeliveryId,
    token: &str,
    settlement: &Settlement,
) -> Result<SettleAnswer, OutboxError> {
    let mut call = SCRIPT.call().key(keys.due()).key(keys.pending()).key(keys.waiting()).key(keys.dead());
    call = call.key(keys.deliveries()).key(keys.totals()).key(keys.delivery(id));
    call = call.arg(id.as_str()).arg(token).arg(settlement.word()).arg(millis(settlement.wait()));
    call = call.arg(settlement.outcome().map(attempt_tail).unwrap_or_default()).arg(settlement.error());
    call = call.arg(KEPT.as_secs()).arg(ATTEMPTS_KEPT).arg(TRIM_MAX).arg(keys.delivery_prefix());
    let of = || format!("delivery {id} of {}", keys.stream());
    let (answer, now): (String, i64) = call.run(client).await.map_err(OutboxError::redis(Operation::Settle, of()))?;
    match answer.as_str() {
        "settled" => Ok(SettleAnswer::Done(UnixMs(now))),
        "repeated" => Ok(SettleAnswer::Repeated),
        "stale" => Ok(SettleAnswer::Stale),
        _ => Err(OutboxError::Answer { operation: Operation::Settle, of: of(), answer }),
    }
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
    use crate::types::Class;

    /// The script puts the time in front by hand; what it makes must read back as the same attempt.
    #[test]
    fn the_tail_completed_by_the_script_reads_back() {
        let outcome = Outcome {
            status: Some(503),
            reply: Some("busy \"now\"".to_owned()),
            peer: Some("b.test:443".to_owned()),
            took: Duration::from_millis(12),
            ..Outcome::failed(Class::Transient, "a \"quoted\" reason")
        };
        let attempt: Attempt =
            serde_json::from_str(&format!("{{\"at_ms\":7,{}", attempt_tail(&outcome))).expect("JSON");
        assert_eq!((attempt.at_ms, attempt.status, attempt.duration_ms), (7, Some(503), 12));
        assert_eq!((attempt.error, attempt.reply, attempt.peer), (outcome.error, outcome.reply, outcome.peer));
    }
}
