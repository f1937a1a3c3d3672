//! Slack's incoming webhooks: blocks of plain text, which knows no mark-up.
//!
//! <https://docs.slack.dev/messaging/formatting-message-text>: `&`, `<` and `>` are written as entities, so that no
//! `<!channel>` calls anybody. A text has at most 3,000 characters, a field 2,000.

use serde_json::{Value, json};

use super::alert_text::AlertText;
use crate::channels::channel::AlertPurpose;
use crate::channels::notice_text::NoticeText;
use crate::types::Alert;

/// Writes the message.
pub(super) fn alert(alert: &Alert, purpose: AlertPurpose) -> String {
    let text = AlertText::from_alert(alert, purpose, escaped);
    let fields: Vec<Value> = text.facts.iter().map(|(name, value)| plain(&format!("{name}\n{value}"))).collect();
    // `text` is what a notification shows, and who reads without blocks.
    json!({
        "text": text.sentence,
        "mrkdwn": false,
        "blocks": [
            {"type": "header", "text": plain(text.heading)},
            {"type": "section", "text": plain(&text.sentence)},
            {"type": "section", "fields": fields},
            {"type": "context", "elements": [plain(&text.note)]},
        ],
    })
    .to_string()
}

/// Writes a notice.
pub(super) fn notice(NoticeText { heading, text }: &NoticeText) -> String {
    json!({"text": format!("{}\n\n{}", escaped(heading), escaped(text)), "mrkdwn": false}).to_string()
}

fn plain(text: &str) -> Value {
    json!({"type": "plain_text", "text": text, "emoji": false})
}

fn escaped(name: &str) -> String {
    name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
