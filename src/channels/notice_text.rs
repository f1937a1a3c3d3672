//! What is told that is no alert, in words: a contact is disabled, the operator's digest of a day. Pure.

use std::fmt::Write as _;

use crate::types::{DailyDigest, DeadDelivery, DisabledNotice, UnixMs};

/// A text with what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoticeText {
    /// What it is about, on one line.
    pub(super) heading: String,
    /// All of it, in lines.
    pub(super) text: String,
}

/// Tells of a contact that is disabled.
pub(super) fn contact_disabled(notice: &DisabledNotice) -> NoticeText {
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
    NoticeText { heading: format!("{subject}: no more quota alerts to {address}"), text }
}

/// The digest of a day.
pub(super) fn digest(digest: &DailyDigest) -> NoticeText {
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
    NoticeText { heading: format!("quotabell: {dead} dead deliveries, {waiting} alerts without a contact"), text }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Channel, ContactId, DeliveryId, DisableReason, DisabledState};

    const AT: UnixMs = UnixMs(1_795_250_220_123);

    /// Whoever gets it must know which address, why, since when, and what comes of it.
    #[test]
    fn a_notice_tells_which_contact_and_why() {
        let state = DisabledState { reason: DisableReason::Gone, detail: "HTTP <410>".to_owned(), at: AT };
        let (subject, id) = ("alice".parse().expect("legal"), ContactId::from_stored("main"));
        let to = (Channel::Webhook, "https://x.test/hook".to_owned());
        let notice = contact_disabled(&DisabledNotice::new(&subject, &id, to, state));
        assert_eq!(notice.heading, "alice: no more quota alerts to https://x.test/hook");
        let expected = "Quota alerts about alice are no longer sent to https://x.test/hook, because its receiver is gone.\n\n  \
             Contact  main (webhook)\n  Reason   HTTP <410>\n  Since    2026-11-21 08:37 UTC\n\n\
             Its alerts go to the other contacts. Whoever manages the contacts can enable it again once the cause is mended.\n";
        assert_eq!(notice.text, expected);
    }

    /// A morning's mail must say how much it is, and name the first of it.
    #[test]
    fn a_digest_counts_and_names_the_first() {
        let dead = |subject: &str| DeadDelivery {
            id: DeliveryId::from_stored("delivery_6f1e"),
            subject: subject.to_owned(),
            channel: Channel::Email,
            error: "SMTP 550".to_owned(),
            at_ms: AT,
        };
        let notice = digest(&DailyDigest {
            id: "digest_1".to_owned(),
            from_ms: AT,
            until_ms: AT.plus(86_400_000),
            dead: 3,
            dead_first: vec![dead("alice"), dead("")],
            waiting: 1,
            waiting_first: vec!["bob".parse().expect("legal")],
        });
        assert_eq!(notice.heading, "quotabell: 3 dead deliveries, 1 alerts without a contact");
        let expected = "From 2026-11-21 08:37 UTC to 2026-11-22 08:37 UTC:\n\n3 deliveries were given up.\n  \
             2026-11-21 08:37 UTC  alice  email: SMTP 550  delivery_6f1e\n  \
             2026-11-21 08:37 UTC  -  email: SMTP 550  delivery_6f1e\n  and 1 more\n\n\
             1 alert waits without a contact.\n  bob\n\n\
             `quotabell deliveries list --state dead` lists the first, \
             `quotabell deliveries list --state pending --channel none` the others.\n";
        assert_eq!(notice.text, expected);
    }
}
