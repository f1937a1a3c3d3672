//! Workflows of Microsoft Teams: an Adaptive Card in the envelope of a message.
//!
//! <https://adaptivecards.io/explorer>: runs of a RichTextBlock are shown as they are, while a TextBlock reads
//! Markdown. A message has at most 28 KB.

use serde_json::{Value, json};

use super::alert_text::{AlertText, Severity};
use crate::channels::channel::AlertPurpose;
use crate::channels::notice_text::NoticeText;
use crate::types::Alert;

/// Writes the message.
pub(super) fn alert(alert: &Alert, purpose: AlertPurpose) -> String {
    let text = AlertText::from_alert(alert, purpose, str::to_owned);
    let color = match Severity::from_alert(alert, purpose) {
        Severity::Test => "Accent",
        Severity::Warning => "Warning",
        Severity::Exceeded => "Attention",
    };
    let heading = json!({"type": "TextRun", "text": text.heading, "weight": "Bolder", "size": "Large", "color": color});
    let mut body = vec![block(vec![heading]), block(vec![run(&text.sentence)])];
    body.extend(text.facts.iter().map(|(name, value)| {
        let name = json!({"type": "TextRun", "text": format!("{name}: "), "weight": "Bolder"});
        block(vec![name, run(value)])
    }));
    body.push(block(vec![json!({"type": "TextRun", "text": text.note, "isSubtle": true, "size": "Small"})]));
    message(&text.lines(), &body)
}

/// Writes a notice.
pub(super) fn notice(NoticeText { heading, text }: &NoticeText) -> String {
    let heading = json!({"type": "TextRun", "text": heading, "weight": "Bolder", "size": "Large"});
    let mut body = vec![block(vec![heading])];
    body.extend(text.lines().filter(|line| !line.is_empty()).map(|line| block(vec![run(line)])));
    message(text, &body)
}

fn message(fallback: &str, body: &[Value]) -> String {
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "fallbackText": fallback,
                "body": body,
            },
        }],
    })
    .to_string()
}

fn block(inlines: Vec<Value>) -> Value {
    json!({"type": "RichTextBlock", "inlines": inlines})
}

fn run(text: &str) -> Value {
    json!({"type": "TextRun", "text": text})
}
