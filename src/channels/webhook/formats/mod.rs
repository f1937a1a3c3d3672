//! The bodies of webhooks: one file for each format. Pure.
//!
//! Each keeps the length limits of its receiver, and escapes what comes from outside for it. Read next: [`alert_text`], the facts that
//! the chats show.

mod alert_text;
mod cloudevents;
mod discord;
mod pagerduty;
mod slack;
mod teams;
pub mod templates;

use super::payload;
use crate::channels::channel::AlertPurpose;
use crate::contacts::{ContactOptions, MessageFormat};
use crate::types::{Alert, Secret, Subject, UnixMs};

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
    #[must_use]
    pub const fn json(json: String) -> Self {
        Self { content_type: JSON, json }
    }
}

/// Writes the body about an alert in a format that is built in; `None` for a template.
#[must_use]
pub fn alert(options: &ContactOptions, alert: &Alert, purpose: AlertPurpose) -> Option<WebhookBody> {
    let json = match options.format {
        MessageFormat::Standard => payload::alert(alert, purpose),
        MessageFormat::CloudEvents => {
            let json = cloudevents::alert(alert, purpose);
            return Some(WebhookBody { content_type: CLOUDEVENT_JSON, json });
        }
        MessageFormat::Slack => slack::alert(alert, purpose),
        MessageFormat::Discord => discord::alert(alert, purpose),
        MessageFormat::Teams => teams::alert(alert, purpose),
        MessageFormat::PagerDuty => {
            let routing_key = options.secret.as_ref().map_or("", Secret::reveal);
            pagerduty::alert(alert, purpose, routing_key)
        }
        MessageFormat::Template(_) => return None,
    };
    Some(WebhookBody::json(json))
}

/// Writes the question whether a receiver wants alerts about a subject; `None` for a format whose receivers can't send the challenge
/// back.
#[must_use]
pub fn challenge(
    format: &MessageFormat,
    id: &str,
    subject: &Subject,
    challenge: &str,
    now: UnixMs,
) -> Option<WebhookBody> {
    match format {
        MessageFormat::Standard => Some(WebhookBody::json(payload::challenge(subject, challenge, now))),
        MessageFormat::CloudEvents => {
            let json = cloudevents::challenge(id, subject, challenge, now);
            Some(WebhookBody { content_type: CLOUDEVENT_JSON, json })
        }
        _ => None,
    }
}
