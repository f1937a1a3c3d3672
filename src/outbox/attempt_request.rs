//! What an attempt needs to know.

use std::time::Duration;

use tokio::time::Instant;

use crate::contacts::Contact;
use crate::contacts::resolver::ContactsSource;
use crate::types::{DeliveryId, DisplayName, Notification, UnixMs};
use crate::zones::Zone;

/// A delivery with a due attempt.
#[derive(Debug, Clone, Copy)]
pub struct AttemptRequest<'a> {
    /// The delivery; the Message-ID of emails is derived from it.
    pub delivery: &'a DeliveryId,
    /// The notification.
    pub notification: &'a Notification,
    /// The contact in its current form.
    pub contact: &'a Contact,
    /// The display name of the subject.
    pub subject_name: Option<&'a DisplayName>,
    /// The zone of the subject, if it is known.
    pub zone: Option<Zone>,
    /// The origin of the subject's contacts. Only the subject's own can unsubscribe.
    pub source: ContactsSource,
    /// Whether more is due at the same healthy destination.
    pub more_follows: bool,
    /// Number of attempts since its creation, including this one. Only the first one checks the alert's expiry.
    pub attempts: u32,
    /// Number of this attempt since the last replay, from 1: the delays restart with a replay.
    pub attempt_since_replay: u32,
    /// Start of the first attempt since the last replay, server time; this attempt's start if it is the first.
    pub first_attempt: UnixMs,
    /// Duration of pauses since then.
    pub paused: Duration,
    /// Whether the receiver may have accepted an earlier attempt.
    pub may_have_arrived: bool,
    /// Until when it waited for a digest, or for the end of a quiet time, if it did.
    pub waited_until: Option<UnixMs>,
    /// Whether what a notice tells was fixed before.
    pub is_told: bool,
    /// Start of this attempt, server time.
    pub now: UnixMs,
    /// The latest start of sending, so that the deadline is within the lease.
    pub start_by: Instant,
}
