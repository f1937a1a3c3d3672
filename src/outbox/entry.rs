//! The entries of the outbox. Pure.

use crate::types::{Notification, NotificationKind};

/// Parses one field of an entry: its name is the kind of a notification, its value the JSON. `None` for a field that
/// holds no notification which is fanned out; a later version may know it.
pub(super) fn parse_field(name: &[u8], json: &[u8]) -> Option<Result<Notification, serde_json::Error>> {
    let kind = NotificationKind::from_stored(std::str::from_utf8(name).ok()?)?;
    match Notification::from_json(kind, json) {
        Ok(notification) => notification.quota().is_some().then_some(Ok(notification)),
        Err(error) => Some(Err(error)),
    }
}
