//! The bodies of webhooks: one file for each format. Pure.
//!
//! Each keeps the length limits of its receiver, and escapes what comes from outside for it. Read next: [`alert_text`],
//! the facts that the chats show.

mod alert_text;
mod cloudevents;
mod discord;
mod pagerduty;
mod slack;
mod teams;
pub mod templates;

use super::payload;
use crate::channels::channel::AlertPurpose;
use crate::channels::notice_text::{self, NoticeText};
use crate::contacts::{ContactOptions, MessageFormat};
use crate::types::{Alert, DailyDigest, DisabledNotice, Secret, Subject, UnixMs};

pub use templates::WebhookTemplates;

/// The media type of most bodies.
const JSON: &str = "application/json";
/// The media type of a structured CloudEvent.
const CLOUDEVENT_JSON: &str = "application/cloudevents+json";

/// The body of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookBody {
    /// The media type.
    pub content_type: &'static str,
    /// The JSON.
    pub json: String,
}

impl WebhookBody {
    /// A body of plain JSON.
    pub const fn json(json: String) -> Self {
        Self { content_type: JSON, json }
    }

    fn from_json(format: &MessageFormat, json: String) -> Self {
        let content_type = if *format == MessageFormat::CloudEvents { CLOUDEVENT_JSON } else { JSON };
        Self { content_type, json }
    }
}

/// Writes the body about an alert in a format that is built in; `None` for a template.
pub fn alert(options: &ContactOptions, alert: &Alert, purpose: AlertPurpose) -> Option<WebhookBody> {
    let json = match options.format {
        MessageFormat::Standard => payload::alert(alert, purpose),
        MessageFormat::CloudEvents => cloudevents::alert(alert, purpose),
        MessageFormat::Slack => slack::alert(alert, purpose),
        MessageFormat::Discord => discord::alert(alert, purpose),
        MessageFormat::Teams => teams::alert(alert, purpose),
        MessageFormat::PagerDuty => pagerduty::alert(alert, purpose, routing_key(options)),
        MessageFormat::Template(_) => return None,
    };
    Some(WebhookBody::from_json(&options.format, json))
}

/// Writes the question whether a receiver wants alerts about a subject; `None` for a format whose receivers can't send
/// the challenge back.
pub fn challenge(
    format: &MessageFormat,
    id: &str,
    subject: &Subject,
    challenge: &str,
    now: UnixMs,
) -> Option<WebhookBody> {
    let json = match format {
        MessageFormat::Standard => payload::challenge(subject, challenge, now),
        MessageFormat::CloudEvents => cloudevents::challenge(id, subject, challenge, now),
        _ => return None,
    };
    Some(WebhookBody::from_json(format, json))
}

/// Writes a notice that a contact is disabled.
pub fn contact_disabled(options: &ContactOptions, notice: &DisabledNotice) -> WebhookBody {
    let text = notice_text::contact_disabled(notice);
    written(options, &notice.id, &text, payload::contact_disabled(notice))
}

/// Writes the operator's digest of a day.
pub fn digest(options: &ContactOptions, digest: &DailyDigest) -> WebhookBody {
    written(options, &digest.id, &notice_text::digest(digest), payload::digest(digest))
}

/// Writes what is no alert: chats get the text, a template, which knows alerts alone, the standard body.
fn written(options: &ContactOptions, id: &str, text: &NoticeText, standard: String) -> WebhookBody {
    let json = match options.format {
        MessageFormat::Standard | MessageFormat::Template(_) => standard,
        MessageFormat::CloudEvents => cloudevents::notice(id, &standard),
        MessageFormat::Slack => slack::notice(text),
        MessageFormat::Discord => discord::notice(text),
        MessageFormat::Teams => teams::notice(text),
        MessageFormat::PagerDuty => pagerduty::notice(id, text, routing_key(options)),
    };
    WebhookBody::from_json(&options.format, json)
}

fn routing_key(options: &ContactOptions) -> &str {
    options.secret.as_ref().map_or("", Secret::reveal)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::types::{Channel, ContactId, DisableReason, DisabledState};

    /// A chat that is sent the standard body refuses it, and nobody hears that a contact is disabled.
    #[test]
    fn every_format_can_tell_a_notice() {
        let subject = "<@all>".parse().expect("legal");
        let state = DisabledState { reason: DisableReason::Gone, detail: "HTTP 410".to_owned(), at: UnixMs(1) };
        let to = (Channel::Webhook, "https://x.test/".to_owned());
        let notice = DisabledNotice::new(&subject, &ContactId::from_stored("main"), to, state);
        let body = |format: MessageFormat| {
            let options =
                ContactOptions { secret: Some(Secret::new("KEY".to_owned())), format, ..ContactOptions::default() };
            let written = contact_disabled(&options, &notice);
            serde_json::from_str::<Value>(&written.json).expect("JSON")
        };
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        assert_eq!(body(MessageFormat::Standard)["type"], "contact.disabled");
        assert_eq!(body(MessageFormat::Template("x".to_owned()))["type"], "contact.disabled");
        let event = body(MessageFormat::CloudEvents);
        assert_eq!((&event["type"], &event["id"]), (&"contact.disabled".into(), &notice.id.as_str().into()));
        assert_eq!(event["data"]["reason"], "gone");
        assert!(text(&body(MessageFormat::Slack)["text"]).contains("&lt;@all&gt;"));
        let discord = body(MessageFormat::Discord);
        assert!(text(&discord["content"]).contains("\\<\\@all\\>"), "{discord}");
        assert!(body(MessageFormat::Teams).to_string().contains("https://x.test/"));
        let event = body(MessageFormat::PagerDuty);
        assert_eq!((&event["routing_key"], &event["dedup_key"]), (&"KEY".into(), &notice.id.as_str().into()));
    }
}
