//! The bodies of webhooks: a message in the format of its contact.
//!
//! Standard Webhooks and CloudEvents are contracts with programs, and are written by code. The formats of chats and
//! PagerDuty are embedded templates from `templates/webhook/`, which an operator may copy and change. Pure, except that
//! the operator's templates are read once. Read next: [`templates`].

pub mod templates;

use minijinja::value::Serde;
use minijinja::{Value, context};

use super::payload::{self, Payload};
use crate::channels::channel::{AlertPurpose, Content};
use crate::channels::error::ChannelError;
use crate::channels::labels::Labels;
use crate::channels::notice_text;
use crate::channels::set_text;
use crate::channels::templating::variables;
use crate::contacts::{ContactOptions, MessageFormat};
use crate::types::{Alert, AlertId, Secret, UnixMs};

pub use templates::WebhookTemplates;

/// The body of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookBody {
    /// The media type.
    pub content_type: &'static str,
    /// The JSON.
    pub json: String,
}

impl WebhookBody {
    /// A body with plain JSON.
    pub const fn json(json: String) -> Self {
        Self { content_type: "application/json", json }
    }
}

impl WebhookTemplates {
    /// Writes the body of a message in the format of its contact. The operator's templates are only used for alerts:
    /// every other message has the standard body.
    ///
    /// # Errors
    ///
    /// The operator's template does not exist, or a part of it that no sample reached is wrong.
    pub fn body(
        &self,
        options: &ContactOptions,
        content: Content<'_>,
        labels: &Labels,
        now: UnixMs,
    ) -> Result<WebhookBody, ChannelError> {
        if let Content::Set(set) = content
            && let Some(only) = set.only()
            && !matches!(options.format, MessageFormat::Standard | MessageFormat::CloudEvents)
        {
            return self.body(options, only.content, &only.labels, now);
        }
        Ok(WebhookBody::json(match (&options.format, content) {
            (MessageFormat::CloudEvents, _) => {
                let json = payload::cloud_event(content, labels, now);
                return Ok(WebhookBody { content_type: "application/cloudevents+json", json });
            }
            (MessageFormat::Template(name), Content::Alert(alert, purpose)) => {
                self.render_own(name, alert_variables(alert, labels, purpose))?
            }
            (MessageFormat::Standard | MessageFormat::Template(_), _) | (_, Content::Verification(_)) => {
                payload::standard(content, labels, now)
            }
            (format, Content::Alert(alert, purpose)) => {
                let variables = alert_variables(alert, labels, purpose);
                let variables = context! { routing_key => routing_key(options), ..variables };
                self.render_shipped(&format!("{format}"), variables)?
            }
            (format, Content::Set(set)) => {
                let text = set_text::notice(set, now);
                let [upgrade_url, usage_url] = set_text::common_links(set);
                let variables = context! {
                    id => set.id, heading => text.heading, text => text.text, routing_key => routing_key(options),
                    class => "quota",
                    upgrade_url => upgrade_url.unwrap_or_default(), usage_url => usage_url.unwrap_or_default(),
                };
                self.render_shipped(&format!("{format}_notice"), variables)?
            }
            (MessageFormat::PagerDuty, Content::Resolved(notice, _)) => {
                let alert_id = notice.alerts.first().map(AlertId::as_str);
                let variables = context! { routing_key => routing_key(options), alert_id };
                self.render_shipped("pagerduty_resolved", variables)?
            }
            (
                format,
                Content::GrantExpires(..)
                | Content::Usage(..)
                | Content::Resolved(..)
                | Content::ContactDisabled(_)
                | Content::Digest(_),
            ) => {
                // The templates add the links: here their marks would be escaped.
                let unlinked = Labels { upgrade_url: None, usage_url: None, ..labels.clone() };
                let text = notice_text::render(content, &unlinked, now);
                let [upgrade_url, usage_url] = [&labels.upgrade_url, &labels.usage_url].map(Option::as_deref);
                let is_quota =
                    matches!(content, Content::GrantExpires(..) | Content::Usage(..) | Content::Resolved(..));
                let variables = context! {
                    id => content.id(), heading => text.heading, text => text.text, routing_key => routing_key(options),
                    class => if is_quota { "quota" } else { "delivery" },
                    upgrade_url => upgrade_url.unwrap_or_default(), usage_url => usage_url.unwrap_or_default(),
                };
                self.render_shipped(&format!("{format}_notice"), variables)?
            }
        }))
    }
}

/// The variables of an alert's template: those of emails, with unchanged names, and the members of the standard body,
/// with a percentage for each kind of threshold.
fn alert_variables(alert: &Alert, labels: &Labels, purpose: AlertPurpose) -> Value {
    let content = Content::Alert(alert, purpose);
    let Payload { kind, timestamp, data, .. } = Payload::new(content, labels, alert.raised_at_ms);
    let mut data: serde_json::Value = serde_json::from_str(&data).expect("it was just written");
    // Receivers of the standard body get it for percentages only; a template would fail without it.
    data["threshold_percent"] = alert.threshold_share().into();
    let facts = variables(alert, labels, purpose, str::to_owned);
    context! { type => kind, timestamp, data => Value::from(Serde(data)), ..facts }
}

fn routing_key(options: &ContactOptions) -> &str {
    options.secret.as_ref().map_or("", Secret::reveal)
}
