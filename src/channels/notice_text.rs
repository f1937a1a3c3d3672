//! The texts of notices: units that expire, usage that no threshold reports, the end of alerts, a disabled contact, and
//! the operator's daily digest. Pure.

use std::sync::LazyLock;

use minijinja::{Environment, Value, context};

use super::channel::Content;
use super::grant_text;
use super::labels::Labels;
use super::resolved_text;
use super::sample::{SAMPLE_AT, Sample};
use super::templating;
use super::usage_text;
use crate::contacts::Contact;
use crate::types::text::printable;
use crate::types::{DailyDigest, DeadDelivery, DisableReason, DisabledNotice, DisabledState, UnixMs};

/// Maximum length of a name in a line of its own, in characters.
const NAME_CHARS: usize = 28;

/// A text with its heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoticeText {
    /// The heading, on one line.
    pub(super) heading: String,
    /// The text, in lines.
    pub(super) text: String,
}

/// The templates of notices for receivers, in English.
static ENGLISH: LazyLock<Environment<'static>> = LazyLock::new(|| {
    templating::environment(&[
        ("alert_subject", include_str!("../../templates/subject.txt")),
        ("grant_expires_subject", include_str!("../../templates/grant_expires_subject.txt")),
        ("grant_expires", include_str!("../../templates/grant_expires.txt")),
        ("usage_notice_subject", include_str!("../../templates/usage_notice_subject.txt")),
        ("usage_notice", include_str!("../../templates/usage_notice.txt")),
        ("resolved_subject", include_str!("../../templates/resolved_subject.txt")),
        ("resolved", include_str!("../../templates/resolved.txt")),
        ("disabled_subject", include_str!("../../templates/disabled_subject.txt")),
        ("disabled", include_str!("../../templates/disabled.txt")),
        ("digest_subject", include_str!("../../templates/digest_subject.txt")),
        ("digest", include_str!("../../templates/digest.txt")),
    ])
});

/// Renders a notice in English. `now` is the time of sending.
pub(super) fn render(content: Content<'_>, labels: &Labels, now: UnixMs) -> NoticeText {
    let (name, variables) = template_of(content, labels, now);
    NoticeText { heading: one_line(&part(&format!("{name}_subject"), &variables)), text: part(name, &variables) }
}

/// The name of the templates of an alert or a notice, without `_subject` and the ending, and their variables. `now` is
/// the time of sending.
pub(super) fn template_of(content: Content<'_>, labels: &Labels, now: UnixMs) -> (&'static str, Value) {
    match content {
        Content::Alert(alert, purpose) => ("alert", templating::variables(alert, labels, purpose, printable)),
        Content::GrantExpires(notice, purpose) => {
            ("grant_expires", grant_text::variables(notice, labels, purpose, now))
        }
        Content::Usage(notice, purpose) => ("usage_notice", usage_text::variables(notice, labels, purpose)),
        Content::Resolved(notice, purpose) => ("resolved", resolved_text::variables(notice, labels, purpose)),
        Content::ContactDisabled(notice) => ("disabled", disabled_variables(notice)),
        Content::Digest(digest) => ("digest", digest_variables(digest)),
        Content::Verification(_) | Content::Set(_) => unreachable!("it is neither an alert nor a notice"),
    }
}

/// An alert or a notice in one line of English, with short names.
pub(super) fn line(content: Content<'_>, labels: &Labels, now: UnixMs) -> String {
    let line = match content {
        Content::Alert(alert, purpose) => {
            let short = |name: &str| printable(name).chars().take(NAME_CHARS).collect();
            part("alert_subject", &templating::variables(alert, labels, purpose, short))
        }
        notice => render(notice, labels, now).heading,
    };
    one_line(&line)
}

/// The text with a space for each line break, as the templates of headings have them.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn part(name: &str, variables: &Value) -> String {
    let template = ENGLISH.get_template(name);
    template.and_then(|template| template.render(variables)).expect("a test renders it")
}

/// The variables of the notice of a disabled contact. They are documented in `templates/disabled.txt`.
fn disabled_variables(notice: &DisabledNotice) -> Value {
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

/// A sample notice for each reason. Templates are checked with them.
pub(super) fn disabled_samples() -> impl Iterator<Item = DisabledNotice> {
    DisableReason::ALL.into_iter().map(|reason| {
        let subject = Sample::example().subject;
        let contact = Contact::email("bob@example.com");
        let state = DisabledState { reason, detail: "SMTP 550 5.1.1 to RCPT".to_owned(), at: SAMPLE_AT };
        DisabledNotice::new(&subject, &contact.id, (contact.channel(), contact.address().to_owned()), state)
    })
}

/// The sample for `preview`: a reason that a mail server gives.
pub(super) fn disabled_sample() -> DisabledNotice {
    let mut samples = disabled_samples();
    samples.find(|notice| notice.state.reason == DisableReason::NoMailbox).expect("there is one for each reason")
}

fn digest_variables(digest: &DailyDigest) -> Value {
    let time = |at| templating::local(at, "UTC");
    let dead = |DeadDelivery { id, subject, channel, error, at_ms }: &DeadDelivery| {
        context! {
            id => id.as_str(),
            subject => printable(subject),
            channel => channel.as_str(),
            error => printable(error),
            at => time(*at_ms),
        }
    };
    context! {
        since => time(digest.from_ms),
        until => time(digest.until_ms),
        dead => digest.dead,
        dead_first => digest.dead_first.iter().map(dead).collect::<Vec<_>>(),
        waiting => digest.waiting,
        waiting_first => digest.waiting_first.iter().map(|subject| printable(subject.as_str())).collect::<Vec<_>>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Channel, ContactId, DeliveryId};

    const AT: UnixMs = UnixMs(1_795_250_220_123);

    /// A chat would show a heading in pieces: the templates of notices have line breaks.
    #[test]
    fn a_heading_is_one_line() {
        for (notice, labels, purpose) in usage_text::samples() {
            let NoticeText { heading, .. } = render(Content::Usage(&notice, purpose), &labels, AT);
            assert!(!heading.is_empty() && !heading.contains('\n'), "{heading:?}");
        }
    }

    /// The notice must say which address, why, since when, and what follows.
    #[test]
    fn a_notice_tells_which_contact_and_why() {
        let state = DisabledState { reason: DisableReason::Gone, detail: "HTTP <410>".to_owned(), at: AT };
        let (subject, id) = ("alice".parse().expect("legal"), ContactId::from_stored("main"));
        let to = (Channel::Webhook, "https://x.test/hook".to_owned());
        let notice =
            render(Content::ContactDisabled(&DisabledNotice::new(&subject, &id, to, state)), &Labels::default(), AT);
        assert_eq!(notice.heading, "alice: no more quota alerts to https://x.test/hook");
        let expected = "Quota alerts about alice are no longer sent to https://x.test/hook, because its receiver is gone.\n\n  \
             Contact  main (webhook)\n  Reason   HTTP <410>\n  Since    2026-11-21 08:37 UTC\n\n\
             Its alerts go to the other contacts. Whoever manages the contacts can enable it again once the cause is mended.";
        assert_eq!(notice.text, expected);
    }

    /// The digest must give the numbers and name the first items.
    #[test]
    fn a_digest_counts_and_names_the_first() {
        let dead = |subject: &str| DeadDelivery {
            id: DeliveryId::from_stored("delivery_6f1e"),
            subject: subject.to_owned(),
            channel: Channel::Email,
            error: "SMTP 550".to_owned(),
            at_ms: AT,
        };
        let notice = render(
            Content::Digest(&DailyDigest {
                id: "digest_1".to_owned(),
                from_ms: AT,
                until_ms: AT.plus(86_400_000),
                dead: 3,
                dead_first: vec![dead("alice"), dead("")],
                waiting: 1,
                waiting_first: vec!["bob".parse().expect("legal")],
            }),
            &Labels::default(),
            AT,
        );
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
