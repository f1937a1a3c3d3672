//! Read models: what people and programs are shown of usage, history, rankings, alerts, deliveries, refused events and
//! subjects, and why those stand as they do.
//!
//! Each view is one type with one JSON form, and the reading from Redis beside it, so that the command line and HTTP
//! show the same. A field is only ever added to a form. Times are text (RFC 3339, UTC). Reads only, with bounded work
//! per call, and never prints.

pub(crate) mod alerts;
mod contact;
pub mod deliveries;
pub(crate) mod explain;
pub(crate) mod history;
pub(crate) mod refused;
pub(crate) mod subject;
pub(crate) mod subject_list;
pub(crate) mod top;
pub(crate) mod usage;

mod cursor;
mod id_prefix;

pub use alerts::kept_periods;
pub(crate) use alerts::{AlertCursor, AlertFilter};
pub(crate) use contact::ContactView;
pub use cursor::Cursor;
pub use deliveries::{DeliveryDetailView, DeliveryFilter, DeliveryView};
pub(crate) use id_prefix::{IdPrefix, short_id};
pub(crate) use subject::{SubjectSettings, SubjectView};
pub(crate) use subject_list::{SubjectCursor, SubjectSlice};
pub use top::RankingOrder;
pub(crate) use top::TopView;
pub(crate) use usage::UsageView;
