//! One delivery: recheck the contact's mute, render, send, classify, decide what comes next. Knows no queue.

use std::time::Duration;

use crate::types::{Alert, Contact, DeliveryId, Outcome, UnixMs};

pub mod config;

/// What the sender needs to know about a delivery that is due.
#[derive(Debug)]
pub struct Due<'a> {
    /// The delivery; e-mail derives its Message-ID from it.
    pub delivery: &'a DeliveryId,
    /// The frozen facts.
    pub alert: &'a Alert,
    /// The contact as it stands now.
    pub contact: &'a Contact,
    /// Which attempt this is, 1 for the first.
    pub attempt: u32,
    /// When the first attempt began, server time; this attempt's own start if it is the first.
    pub first_attempt: UnixMs,
    /// Server time at which this attempt starts.
    pub now: UnixMs,
}

/// What the queue is to record.
#[derive(Debug)]
pub enum Verdict {
    /// The other side took it.
    Delivered(Outcome),
    /// Try again after this long, jitter and Retry-After included.
    Retry(Outcome, Duration),
    /// Given up: a permanent outcome, or `give_up_after` is over.
    Dead(Outcome),
    /// The contact is muted: nothing was sent.
    Muted,
    /// The day ended more than 48 h before the first attempt: nothing was sent.
    Expired,
}
