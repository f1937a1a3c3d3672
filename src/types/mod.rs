//! The words of the product as types: subjects, metrics, units, windows, periods, alerts, contacts, deliveries, and the keys they live under.
//!
//! Owns every name and every pure rule that more than one folder needs. Never talks to Redis, to a clock or to the network.
//! Read next: [`keys`], the one place where a Redis key is spelled.

pub mod alert;
pub mod billing_day;
mod bucket;
pub mod channel;
pub mod contact_id;
pub mod day;
pub mod delivery;
pub mod destination;
pub mod duration;
pub mod event_id;
pub mod instance;
pub mod key_family;
pub mod keys;
pub mod limits;
pub mod log_limiter;
pub mod meters;
pub mod metric;
pub mod mute;
pub mod nonce;
pub mod notification;
pub mod outcome;
pub mod partition;
pub mod percent;
pub mod period;
pub mod rate;
pub mod refusal;
pub mod secret;
pub mod stream_id;
pub mod subject;
pub mod text;
mod text_id;
pub mod timestamp;
pub mod units;
pub mod window;

pub use alert::{Alert, AlertId, AlertKey, RaisedRecord};
pub use billing_day::BillingDay;
pub use channel::Channel;
pub use contact_id::{ConsentId, ContactId};
pub use day::{Day, DaySpan};
pub use delivery::{Attempt, DeliveryId, DeliveryState};
pub use destination::Destination;
pub use event_id::EventId;
pub use instance::Instance;
pub use key_family::KeyFamily;
pub use keys::Keys;
pub use limits::{Limits, WindowLimit};
pub use log_limiter::{LOG_INTERVAL, LogLimiter};
pub use metric::Metric;
pub use mute::{Mute, MuteEnd, MuteError};
pub use nonce::nonce;
pub use notification::{Notification, NotificationKind, VerificationRequest};
pub use outcome::{Class, DisableReason, Outcome};
pub use partition::{PARTITIONS_MAX, PartitionNumber};
pub use percent::Percent;
pub use period::{Period, PeriodSpan};
pub use rate::Rate;
pub use refusal::RefusalReason;
pub use secret::Secret;
pub use stream_id::StreamId;
pub use subject::Subject;
pub use timestamp::UnixMs;
pub use units::Units;
pub use window::Window;
