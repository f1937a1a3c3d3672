//! Outgoing notifications: fan-out to deliveries, the schedule of due times, leases, attempts, and their settlement.
//!
//! Owns the outbox stream and all data of deliveries in Redis. Every change of a delivery is one script, so that at
//! every moment deliveries made = ended + pending. Never renders or sends: [`notifier`] calls the channels for that.
//! At-least-once with a stable id: no attempt starts after success was recorded, and no delivery is lost with a worker,
//! because the schedule is in Redis and a lease ends by itself.
//!
//! ```text
//! outbox --fan_out--> due --lease--> leased --settle--> delivered | dead | muted | expired | cancelled
//!                      ^  ^            |                             |
//!                      |  +--- retry --+                             |
//!                      +---------------- replay, retry --------------+
//! ```
//!
//! A notification for one contact only, such as a request for consent, is created by [`enqueue()`] and follows the same
//! path from `due` on.
//!
//! Read next: [`fan_out_loop`], then [`dispatcher`].

pub mod action;
pub mod alert_log;
mod attempt_request;
pub mod config;
pub mod consent;
pub mod contact_change_listener;
mod contact_health;
mod context;
mod counting_backlog;
pub mod counting_lag;
mod delivery_log;
mod delivery_worker;
mod destination_health;
pub mod digest;
mod disabling;
pub mod dispatcher;
mod end_recipients;
pub mod enqueue;
mod entry;
mod error;
pub mod fan_out;
pub mod fan_out_loop;
pub mod forget;
pub mod forget_in_alerts;
pub mod forget_in_digests;
pub mod lease;
mod lease_clock;
mod leased_message;
mod leased_recipients;
pub mod message_group;
mod message_labels;
mod new_deliveries;
pub mod notice_judge;
mod notifier;
pub mod pause;
mod pending_outcomes;
pub mod recipients;
mod recording;
mod redis_outage;
pub mod retry_policy;
mod schedule;
mod set_worker;
pub mod settle;
mod settle_queue;
pub mod slots;
pub mod subject_deliveries;
pub mod told;
pub mod totals;
pub mod wake;

use std::time::Duration;

use crate::types::{QuotaNotification, ResolvedScope, UnixMs, Window};

pub use action::{ActionReply, DeliveryAction, act};
pub use attempt_request::AttemptRequest;
pub use config::{AlertsConfig, DeliveryConfig, MultiplePolicy, RetryConfig};
pub use consent::{ConsentRequestError, ConsentRequests};
pub use contact_change_listener::ContactChangeListener;
pub use context::{DispatcherConfig, OutboxContext};
pub use counting_lag::CountingLag;
pub use digest::DigestLoop;
pub use end_recipients::recipients_of_each;
pub use enqueue::{EnqueueReply, NewDelivery, enqueue};
pub use error::{Operation, OutboxError};
pub use fan_out::{FanOutReply, FanOutRequest, FanOutResult, FanOutSource, SourceDisposition, fan_out};
pub use fan_out_loop::FanOutLoop;
pub use lease::{DeliverySet, LeaseReply, LeaseRequest, LeaseTimes, LeasedDelivery, lease};
pub use new_deliveries::NewDeliveries;
pub use notice_judge::{AlertVerdict, NoticeJudge, RESOLVED_AFTER, ResolvedVerdict, Verdict};
pub use notifier::{ChannelNotifier, Notifier};
pub use pause::{Pause, pause, paused_for, read_pause, resume};
pub use recipients::Recipients;
pub use recording::RECORD_OUTCOME_TIMEOUT;
pub use settle::{SettleReply, SettleRequest, SettledLeases, Settlement, settle};
pub use slots::Slots;
pub use totals::{DestinationCounts, Totals, totals};
pub use wake::{wake_subject, wake_subjects, wake_waiting};

/// How long an ended delivery stays readable: 14 days.
pub const ENDED_DELIVERY_TTL: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// How much longer a lease lasts than the channel's deadline: time to look up the contact before the attempt and to
/// record the outcome after it.
pub const LEASE_MARGIN: Duration = Duration::from_secs(5);

/// Interval at which a delivery with unreadable contacts is tried again.
const UNREADABLE_CONTACT_WAIT: Duration = Duration::from_secs(60);

/// Number of hours after the end of its period after which an alert without an attempt expires: it is recorded but not
/// sent. An old stream must not cause alerts about last month, and an alert without a contact must not wait forever. An
/// hour loses its relevance sooner than a day. An alert of a total never expires: it stays true, and no later period
/// repeats it.
pub const fn expires_after_hours(window: Window) -> i64 {
    match window {
        Window::Hour => 2,
        _ => 48,
    }
}

/// When a notification without an attempt expires: a notice that units expire, with the units.
pub fn expires_at(notification: QuotaNotification<'_>) -> UnixMs {
    match notification {
        QuotaNotification::Alert(alert) => {
            let ends = alert.resets_at.map_or_else(|| alert.period.ends_everywhere(), |end| end.0);
            ends.plus(expires_after_hours(alert.window) * 3_600_000)
        }
        QuotaNotification::GrantExpires(notice) => notice.expires_at.0,
        QuotaNotification::Usage(notice) => notice.valid_until(),
        // For what waits until a contact can be read again, or for a digest. After its period the records of its alerts
        // are kept as long, and without them nobody knows whether it is true.
        QuotaNotification::Resolved(notice) => {
            let is_judged = notice.scope == ResolvedScope::Quota;
            let known_from =
                notice.resets_at.filter(|_| is_judged).map_or(notice.raised_at, |end| end.min(notice.raised_at));
            known_from.0.plus(48 * 3_600_000)
        }
    }
}

/// Maximum sleep of a loop, because other processes can create work without being able to notify this one.
const IDLE: Duration = Duration::from_secs(1);

/// A duration in milliseconds for scripts. Below 2^53 for all durations in use.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 11)
}
