//! The texts of several alerts and notices in one message. Pure.

use minijinja::{Value, context};

use super::channel::{AlertPurpose, Content, MessageSet, SetItem};
use super::labels::Labels;
use super::notice_text::{self, NoticeText};
use crate::types::text::printable;
use crate::types::{Alert, UnixMs, UsageNotice};

/// Maximum length of an item's line, in characters. Thirty of them, with a backslash before each letter, fit into one
/// message of a chat.
const LINE_CHARS: usize = 125;

/// The heading in English, and a line for each item, for formats that show no more.
pub(super) fn notice(set: &MessageSet<'_>, now: UnixMs) -> NoticeText {
    let subject = common_subject(set);
    let before = if subject.is_empty() { String::new() } else { format!("{subject}: ") };
    let marks = [(AlertPurpose::Copy, "[copy] "), (AlertPurpose::Test, "[test] ")];
    let mark = marks.into_iter().find(|(purpose, _)| is_for(set, *purpose)).map_or("", |(_, mark)| mark);
    let count = set.items.len();
    let what = match (are_ends(set), are_notices(set)) {
        (true, _) => format!("the alerts of {count} quotas have ended"),
        (_, true) => format!("{count} quota notices"),
        _ => format!("{count} quota alerts"),
    };
    let heading = format!("{mark}{before}{what}");
    let line = |item: &SetItem<'_>| cut(notice_text::line(item.content, &item.labels, now));
    NoticeText { heading, text: set.items.iter().map(line).collect::<Vec<_>>().join("\n") }
}

/// The links that all items have in common.
pub(super) fn common_links<'a>(set: &'a MessageSet<'_>) -> [Option<&'a str>; 2] {
    let links = |item: &SetItem<'_>| [item.labels.upgrade_url.clone(), item.labels.usage_url.clone()];
    let Some(first) = set.items.first() else { return [None; 2] };
    let is_common = set.items.iter().all(|item| links(item) == links(first));
    let links = [&first.labels.upgrade_url, &first.labels.usage_url];
    links.map(|link| link.as_deref().filter(|_| is_common))
}

/// The variables of the email, with the email of each item. They are documented in `templates/alerts.txt`.
pub(super) fn variables(set: &MessageSet<'_>, emails: &[NoticeText]) -> Value {
    let item = |(item, email): (&SetItem<'_>, &NoticeText)| {
        context! {
            title => email.heading.as_str(),
            text => email.text.as_str(),
            upgrade_url => item.labels.upgrade_url.as_deref().unwrap_or_default(),
            usage_url => item.labels.usage_url.as_deref().unwrap_or_default(),
        }
    };
    context! {
        count => set.items.len(),
        items => set.items.iter().zip(emails).map(item).collect::<Vec<_>>(),
        subject_text => common_subject(set),
        ended => are_ends(set),
        notices => are_notices(set),
        copy => is_for(set, AlertPurpose::Copy),
        test => is_for(set, AlertPurpose::Test),
    }
}

/// A sample: this alert and a notice of usage.
pub(super) fn sample<'a>(alert: &'a Alert, notice: &'a UsageNotice, labels: &Labels) -> MessageSet<'a> {
    sample_for(("digest_00000000000000000000000000000000", AlertPurpose::Alert), alert, notice, labels)
}

/// The same with this id and purpose.
pub(super) fn sample_for<'a>(
    (id, purpose): (&'a str, AlertPurpose),
    alert: &'a Alert,
    notice: &'a UsageNotice,
    labels: &Labels,
) -> MessageSet<'a> {
    let contents = [Content::Alert(alert, purpose), Content::Usage(notice, purpose)];
    let items = contents.map(|content| SetItem { content, labels: labels.clone() });
    MessageSet { id, items: items.into() }
}

/// Whom all items are about, for people; empty if they are about several.
fn common_subject(set: &MessageSet<'_>) -> String {
    let Some(first) = set.items.first() else { return String::new() };
    let subject = first.content.subject();
    if set.items.iter().any(|item| item.content.subject() != subject) {
        return String::new();
    }
    let subject = subject.map(|subject| printable(subject.as_str())).unwrap_or_default();
    match &first.labels.subject_name {
        Some(name) => format!("{} ({subject})", printable(name.as_str())),
        None => subject,
    }
}

/// Whether it tells only that alerts have ended.
fn are_ends(set: &MessageSet<'_>) -> bool {
    set.items.iter().all(|item| matches!(item.content, Content::Resolved(..)))
}

/// Whether it tells of no alert.
fn are_notices(set: &MessageSet<'_>) -> bool {
    !set.items.iter().any(|item| matches!(item.content, Content::Alert(..)))
}

/// Whether it is sent for this purpose.
fn is_for(set: &MessageSet<'_>, purpose: AlertPurpose) -> bool {
    set.items.iter().any(|item| item.content.purpose() == Some(purpose))
}

fn cut(line: String) -> String {
    if line.chars().count() <= LINE_CHARS {
        return line;
    }
    line.chars().take(LINE_CHARS - 1).chain(['…']).collect()
}
