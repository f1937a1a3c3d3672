//! Mails that are no alert: a contact is disabled, the operator's digest of a day. Pure.

use std::fmt::Write as _;

use super::templates::Rendered;
use crate::types::{DailyDigest, DeadDelivery, DisabledNotice, UnixMs};

/// The mail that tells of a contact that is disabled.
pub(super) fn contact_disabled(notice: &DisabledNotice) -> Rendered {
    let DisabledNotice { subject, contact, channel, address, state, .. } = notice;
    let text = format!(
        "Quota alerts about {subject} are no longer sent to {address}, because {because}.\n\n  \
         Contact  {contact} ({channel})\n  \
         Reason   {detail}\n  \
         Since    {since}\n\n\
         Its alerts go to the other contacts. Whoever manages the contacts can enable it again once the cause is mended.\n",
        because = state.reason.sentence(),
        channel = channel.as_str(),
        detail = state.detail,
        since = minute(state.at),
    );
    plain(format!("{subject}: no more quota alerts to {address}"), text)
}

/// The mail with the digest of a day.
pub(super) fn digest(digest: &DailyDigest) -> Rendered {
    let DailyDigest { from_ms, until_ms, dead, dead_first, waiting, waiting_first, .. } = digest;
    let mut text = format!("From {} to {}:\n\n", minute(*from_ms), minute(*until_ms));
    let _ = writeln!(text, "{dead} {} given up.", if *dead == 1 { "delivery was" } else { "deliveries were" });
    for DeadDelivery { id, subject, channel, error, at_ms } in dead_first {
        let subject = if subject.is_empty() { "-" } else { subject };
        let _ = writeln!(text, "  {}  {subject}  {}: {error}  {id}", minute(*at_ms), channel.as_str());
    }
    let _ = write!(text, "{}", more(*dead, dead_first.len()));
    let _ =
        writeln!(text, "\n{waiting} {} without a contact.", if *waiting == 1 { "alert waits" } else { "alerts wait" });
    for subject in waiting_first {
        let _ = writeln!(text, "  {subject}");
    }
    let _ = writeln!(
        text,
        "\n`quotabell deliveries list --state dead` lists the first, \
         `quotabell deliveries list --state pending --channel none` the others."
    );
    let line = format!("quotabell: {dead} dead deliveries, {waiting} alerts without a contact");
    plain(line, text)
}

fn more(all: u64, shown: usize) -> String {
    match all.saturating_sub(shown as u64) {
        0 => String::new(),
        left => format!("  and {left} more\n"),
    }
}

/// The time to the minute, in UTC.
fn minute(at: UnixMs) -> String {
    at.to_utc().map_or_else(|| at.to_string(), |at| at.format("%Y-%m-%d %H:%M UTC").to_string())
}

/// The same text in both parts.
fn plain(subject_line: String, text: String) -> Rendered {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let html =
        format!("<!doctype html>\n<meta charset=\"utf-8\">\n<pre style=\"white-space: pre-wrap\">\n{escaped}</pre>\n");
    Rendered { subject_line, text, html }
}
