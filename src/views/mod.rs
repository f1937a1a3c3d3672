//! Read models: what people and programs are shown of usage, history, rankings, alerts, deliveries, refused events and
//! subjects, and why those stand as they do.
//!
//! Each view is one type with one JSON form, and the reading from Redis beside it, so that the command line and HTTP
//! show the same. A field is only ever added to a form. Times stand in it twice: as text (RFC 3339, UTC), and in
//! milliseconds under the same name with `_ms`. Reads only, with bounded work per call, and never prints.

pub mod alerts;
pub mod deliveries;
pub mod explain;
pub mod history;
pub mod refused;
pub mod subject;
pub mod subject_list;
pub mod top;
pub mod usage;

mod id_prefix;
mod mute;
mod rfc3339;

pub use alerts::{AlertCursor, AlertFilter, AlertView};
pub use deliveries::{DeliveryDetailView, DeliveryFilter, DeliveryView};
pub use history::HistoryView;
pub use id_prefix::{AlertIdPrefix, DeliveryIdMatches, DeliveryIdPrefix, IdPrefixError, short_id};
pub use mute::MuteView;
pub use refused::RefusedEventView;
pub use rfc3339::Rfc3339;
pub use subject::{SubjectSettings, SubjectView};
pub use subject_list::{SubjectCursor, SubjectSlice};
pub use top::TopView;
pub use usage::UsageView;
