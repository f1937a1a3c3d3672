//! One message for one request: the wrapper of `claim.lua`.
//!
//! What is queued carries the request that it was counted as, and claims it right before it leaves: however many messages wait for one
//! request, and whatever becomes of the contact meanwhile, no more leave than are counted. Read next: [`super::pace`], which counts.

use std::sync::LazyLock;
use std::time::Duration;

use redis::RedisResult;

use super::array::Unverified;
use super::{Wanted, pace};
use crate::types::{Keys, nonce};
use crate::wire::{RedisClient, Script};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("claim.lua")));

/// How long a contact gets no other message. A little less than a minute: who comes back after one, as they were told, must not find
/// that the message before left some seconds after it was asked for.
const SENT_EVERY: Duration = Duration::from_secs(55);

/// A message that is about to leave.
#[derive(Debug)]
pub(super) struct Claim {
    keys: [String; 5],
    /// Unique to it.
    message: String,
    request: String,
    /// What adds share from then on, should this one be given back.
    next: String,
    /// How long a request counts.
    period: Duration,
}

/// Whether a message may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claimed {
    /// It may.
    Ours,
    /// Its request has a message already, or its contact got another just now, whose password is good.
    Others,
}

impl Claim {
    /// The claim of a message that is wanted for this contact. Asks nobody.
    pub(super) fn new(keys: &Keys, wanted: &Wanted, unverified: &Unverified, period: Duration) -> Self {
        let Wanted { candidate, request } = wanted;
        let Unverified { contact, asked } = unverified;
        let counted = pace::counted_under(keys, candidate, contact);
        let sent = keys.verify_sent(request);
        let asked = keys.verify_asked(&super::element(&candidate.subject, asked));
        let turn = pace::turn_key(keys, &candidate.subject, contact);
        Self {
            keys: [sent, asked, turn, counted.address, counted.name],
            message: nonce(),
            request: request.clone(),
            next: pace::request_for(contact),
            period,
        }
    }

    /// Takes the request for this message. Repeatable.
    pub(super) async fn take(&self, client: &RedisClient) -> RedisResult<Claimed> {
        let answer = self.run(client, ["claim", &ms(self.period), &ms(SENT_EVERY)]).await?;
        Ok(if answer == "claimed" { Claimed::Ours } else { Claimed::Others })
    }

    /// Gives the request back: the message has certainly not arrived, so it is as if nobody had asked. Repeatable; does nothing where
    /// another message has the request.
    pub(super) async fn give_back(&self, client: &RedisClient) -> RedisResult<()> {
        self.run(client, ["give_back", &self.request, &self.next]).await?;
        Ok(())
    }

    async fn run(&self, client: &RedisClient, [action, third, fourth]: [&str; 3]) -> RedisResult<String> {
        let call = self.keys.iter().fold(SCRIPT.call(), |call, key| call.key(key));
        call.arg(action).arg(&self.message).arg(third).arg(fourth).run(client).await
    }
}

fn ms(duration: Duration) -> String {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1).to_string()
}
