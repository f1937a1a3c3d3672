//! What is told that is no alert, in words: a contact is disabled, the operator's digest of a day. Pure.

use std::fmt::Write as _;
use std::sync::LazyLock;

use minijinja::{Environment, Value, context};

use super::sample::{SAMPLE_AT, Sample};
use super::templating;
use crate::contacts::Contact;
use crate::types::text::{pluralize, printable};
use crate::types::{DailyDigest, DeadDelivery, DisableReason, DisabledNotice, DisabledState, UnixMs};

/// A text with what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoticeText {
    /// What it is about, on one line.
    pub(super) heading: String,
    /// All of it, in lines.
    pub(super) text: String,
}

/// The templates that tell of a disabled contact, for receivers that read one language.
static ENGLISH: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = templating::environment();
    for (name, source) in [
        ("heading", include_str!("../../templates/disabled_subject.txt")),
        ("text", include_str!("../../templates/disabled.txt")),
    ] {
        environment.add_template(name, source).expect("a test reads it");
    }
    environment
});

/// Tells of a contact that is disabled, in English.
pub(super) fn contact_disabled(notice: &DisabledNotice) -> NoticeText {
    let render = |name| {
        let template = ENGLISH.get_template(name);
        template.and_then(|template| template.render(disabled_variables(notice))).expect("a test renders it")
    };
    NoticeText { heading: render("heading"), text: render("text") }
}

/// What a template sees that tells of a disabled contact. The doc of each is in `templates/disabled.txt`.
pub(super) fn disabled_variables(notice: &DisabledNotice) -> Value {
    let DisabledNotice { subject, contact, channel, address, state, .. } = notice;
    context! {
        subject => printable(subject.as_str()),
        contact => printable(contact.as_str()),
        channel => channel.as_str(),
        address => printable(address),
        reason => state.reason.as_str(),
        because => state.reason.sentence(),
        detail => printable(&state.detail),
        since => templating::local(state.at, "UTC"),
    }
}

/// A notice for each reason, made up: what templates are checked with.
pub(super) fn disabled_samples() -> impl Iterator<Item = DisabledNotice> {
    DisableReason::ALL.into_iter().map(|reason| {
        let subject = Sample::example().subject;
        let contact = Contact::email("bob@example.com");
        let state = DisabledState { reason, detail: "SMTP 550 5.1.1 to RCPT".to_owned(), at: SAMPLE_AT };
        DisabledNotice::new(&subject, &contact.id, (contact.channel(), contact.address().to_owned()), state)
    })
}

/// What `preview` shows: the reason that a mail server gives.
pub(super) fn disabled_sample() -> DisabledNotice {
    let mut samples = disabled_samples();
    samples.find(|notice| notice.state.reason == DisableReason::NoMailbox).expect("there is one for each reason")
}

/// The digest of a day.
pub(super) fn digest(digest: &DailyDigest) -> NoticeText {
    let DailyDigest { from_ms, until_ms, dead, dead_first, waiting, waiting_first, .. } = digest;
    let mut text = format!("From {} to {}:\n\n", minute(*from_ms), minute(*until_ms));
    let _ = writeln!(text, "{} given up.", pluralize(*dead, "delivery was", "deliveries were"));
    for DeadDelivery { id, subject, channel, error, at_ms } in dead_first {
        let subject = if subject.is_empty() { "-" } else { &printable(subject) };
        let error = printable(error);
        let _ = writeln!(text, "  {}  {subject}  {}: {error}  {id}", minute(*at_ms), channel.as_str());
    }
    let _ = write!(text, "{}", more(*dead, dead_first.len()));
    let _ = writeln!(text, "\n{} without a contact.", pluralize(*waiting, "alert waits", "alerts wait"));
    for subject in waiting_first {
        let _ = writeln!(text, "  {}", printable(subject.as_str()));
    }
    let _ = writeln!(
        text,
        "\n`quotabell deliveries list --state dead` lists the first, \
         `quotabell deliveries list --state pending --channel none` the others."
    );
    let dead = pluralize(*dead, "dead delivery", "dead deliveries");
    let waiting = pluralize(*waiting, "alert", "alerts");
    NoticeText { heading: format!("quotabell: {dead}, {waiting} without a contact"), text }
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
    use crate::types::{Channel, ContactId, DeliveryId};

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
             Its alerts go to the other contacts. Whoever manages the contacts can enable it again once the cause is mended.";
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
        assert_eq!(notice.heading, "quotabell: 3 dead deliveries, 1 alert without a contact");
        let expected = "From 2026-11-21 08:37 UTC to 2026-11-22 08:37 UTC:\n\n3 deliveries were given up.\n  \
             2026-11-21 08:37 UTC  alice  email: SMTP 550  delivery_6f1e\n  \
             2026-11-21 08:37 UTC  -  email: SMTP 550  delivery_6f1e\n  and 1 more\n\n\
             1 alert waits without a contact.\n  bob\n\n\
             `quotabell deliveries list --state dead` lists the first, \
             `quotabell deliveries list --state pending --channel none` the others.\n";
        assert_eq!(notice.text, expected);
    }
}
