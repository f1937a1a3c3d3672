//! Logs stored settings that can't be read, without addresses.

use std::fmt;

use crate::types::{ContactId, Subject, meters};

/// Logs a contact, with its id if that can be read.
pub(super) fn contact(subject: &Subject, id: Option<&ContactId>, why: &str) {
    metrics::counter!(meters::SUBJECTS_UNREADABLE).increment(1);
    let contact = id.map_or("unknown", ContactId::as_str);
    tracing::warn!(%subject, contact, why, "contact is unreadable and gets nothing until it is mended");
}

/// Logs a locale.
pub(super) fn locale(subject: &Subject, why: &str) {
    metrics::counter!(meters::SUBJECTS_UNREADABLE).increment(1);
    tracing::warn!(%subject, why, "locale is unreadable, the default one is used");
}

/// Logs a mute of the subject or of one of its metrics.
pub(super) fn mute(subject: &Subject, error: &impl fmt::Display) {
    tracing::warn!(%subject, %error, "a mute can't be read and mutes nothing");
}
