//! The log of stored settings that can't be read. Knows no address.

use std::fmt;

use crate::types::{ContactId, Subject, meters};

/// A contact, of which the id may be known.
pub(super) fn contact(subject: &Subject, id: Option<&ContactId>, why: &str) {
    metrics::counter!(meters::SUBJECTS_UNREADABLE).increment(1);
    let contact = id.map_or("unknown", ContactId::as_str);
    tracing::warn!(%subject, contact, why, "contact is unreadable and gets nothing until it is mended");
}

/// A locale.
pub(super) fn locale(subject: &Subject, why: &str) {
    metrics::counter!(meters::SUBJECTS_UNREADABLE).increment(1);
    tracing::warn!(%subject, why, "locale is unreadable, the default one is used");
}

/// A mute of the subject or of one of its metrics.
pub(super) fn mute(subject: &Subject, error: &impl fmt::Display) {
    tracing::warn!(%subject, %error, "a mute can't be read and mutes nothing");
}
