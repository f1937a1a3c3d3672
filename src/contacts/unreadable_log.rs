//! The log of stored settings that can't be read where somebody is to be told. Each has a line, up to a thousand a
//! minute of each kind, and the others are told with their number: a platform that writes one wrong field for every
//! subject must not fill a disk. Knows no address.

use std::fmt;
use std::time::Instant;

use crate::types::{ContactId, LOG_INTERVAL, LOG_LINES, LogLimiter, Subject, meters};

/// One for the process: the same subject is read by many. By what can't be read.
static LINES: LogLimiter<&str> = LogLimiter::of_lines(LOG_INTERVAL, LOG_LINES);

const CONTACT: &str = "contact";
const LOCALE: &str = "locale";
const MUTE: &str = "mute";

/// A contact, of which the id may be known.
pub(super) fn contact(subject: &Subject, id: Option<&ContactId>, why: &str) {
    metrics::counter!(meters::SUBJECTS_UNREADABLE).increment(1);
    if has_a_line(CONTACT) {
        let contact = id.map_or("unknown", ContactId::as_str);
        tracing::warn!(%subject, contact, why, "contact is unreadable and gets nothing until it is mended");
    }
}

/// A locale.
pub(super) fn locale(subject: &Subject, why: &str) {
    metrics::counter!(meters::SUBJECTS_UNREADABLE).increment(1);
    if has_a_line(LOCALE) {
        tracing::warn!(%subject, why, "locale is unreadable, the default one is used");
    }
}

/// A mute of the subject or of one of its metrics.
pub(super) fn mute(subject: &Subject, error: &impl fmt::Display) {
    if has_a_line(MUTE) {
        tracing::warn!(%subject, %error, "a mute can't be read and mutes nothing");
    }
}

/// Says how many had no line, once their minute is over.
pub fn say_rest() {
    let now = Instant::now();
    for setting in [CONTACT, LOCALE, MUTE] {
        say_more(setting, LINES.overdue(&setting, now).unwrap_or(0));
    }
}

fn has_a_line(setting: &'static str) -> bool {
    let unsaid = LINES.admit(setting, Instant::now());
    say_more(setting, unsaid.unwrap_or(0));
    unsaid.is_some()
}

fn say_more(setting: &str, readings: u64) {
    if readings > 0 {
        tracing::warn!(setting, readings, "more unreadable settings, not logged one by one");
    }
}
