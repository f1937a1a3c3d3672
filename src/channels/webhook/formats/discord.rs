//! Discord's webhooks: a sentence, and an embed with the numbers.
//!
//! <https://discord.com/developers/docs/resources/message>: content has at most 2,000 characters, the value of a field
//! 1,024, a footer 2,048, and an embed 6,000 in all. `allowed_mentions` without any keeps `@everyone` from calling
//! anybody.

use serde_json::{Value, json};

use super::alert_text::{AlertText, Severity};
use crate::channels::channel::AlertPurpose;
use crate::channels::notice_text::NoticeText;
use crate::types::Alert;
use crate::types::text::backslashed;

/// The most characters of a message.
const CONTENT_MAX: usize = 2000;
/// Letters that are Markdown there, or begin a mention, an emoji or a link.
const MARKUP: &str = r"\*_~`|>#-[]()<:@";

/// Writes the message.
pub(super) fn alert(alert: &Alert, purpose: AlertPurpose) -> String {
    let text = AlertText::from_alert(alert, purpose, escaped);
    let field = |(name, value): &(&str, String)| json!({"name": name, "value": value, "inline": true});
    let fields: Vec<Value> = text.facts.iter().map(field).collect();
    let color = match Severity::from_alert(alert, purpose) {
        Severity::Test => 0x17_5c_d3,
        Severity::Warning => 0xdc_68_03,
        Severity::Exceeded => 0xd9_2d_20,
    };
    json!({
        "content": text.sentence,
        "embeds": [{"title": text.heading, "color": color, "fields": fields, "footer": {"text": text.note}}],
        "allowed_mentions": {"parse": []},
    })
    .to_string()
}

/// Writes a notice, as much of it as a message holds.
pub(super) fn notice(NoticeText { heading, text }: &NoticeText) -> String {
    let content: String = format!("{}\n\n{}", escaped(heading), escaped(text)).chars().take(CONTENT_MAX).collect();
    json!({"content": content, "allowed_mentions": {"parse": []}}).to_string()
}

fn escaped(name: &str) -> String {
    backslashed(name, MARKUP)
}
