//! Read models: usage, history, rankings, alerts, deliveries, refused events and subjects for people and programs, with
//! explanations.
//!
//! Each view is one type with one JSON form and its reading from Redis, so that the command line and HTTP show the
//! same. Fields are only added to a form, never removed. Times are text (RFC 3339, UTC). Views only read, in bounded
//! calls to Redis, and do not print.

pub(crate) mod actions;
pub(crate) mod alert_list;
pub mod alert_log;
pub(crate) mod alert_outcomes;
pub(crate) mod alerts;
pub(crate) mod changed_separator;
pub(crate) mod children;
mod contact;
pub mod deliveries;
pub(crate) mod explain;
pub mod forecast;
pub mod grants;
pub(crate) mod history;
pub(crate) mod mutes;
pub(crate) mod near;
pub(crate) mod near_ranking;
pub(crate) mod overview;
pub(crate) mod portal;
pub(crate) mod refused;
pub(crate) mod subject;
pub(crate) mod subject_index;
pub(crate) mod subject_list;
pub(crate) mod system;
pub(crate) mod top;
pub(crate) mod usage;
pub(crate) mod whatif;

mod cursor;
mod id_prefix;
mod message_count;
mod notification_id;
mod observer;

pub use alerts::kept_periods;
pub(crate) use alerts::{AlertCursor, AlertFilter};
pub(crate) use contact::ContactView;
pub use cursor::Cursor;
pub use deliveries::{DeliveryDetailView, DeliveryFilter, DeliveryView};
pub use grants::GrantView;
pub(crate) use id_prefix::{IdPrefix, short_id};
pub(crate) use notification_id::{NotificationId, without_message_id};
pub use observer::Observer;
pub(crate) use subject::{SubjectSettings, SubjectView};
pub(crate) use subject_list::{SubjectCursor, SubjectSlice};
pub use top::RankingOrder;
pub(crate) use top::TopView;
pub(crate) use usage::UsageView;
