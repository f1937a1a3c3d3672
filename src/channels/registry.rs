//! The functions of each channel, selected by [`Channel`].
//!
//! A new channel needs a line in [`REGISTRY`] and an arm in each `match` here; the compiler reports missing arms.

use std::time::Duration;

use serde_json::Value;

use super::channel::{
    AlertPurpose, ChannelDefinition, Content, InvalidSetting, Message, PreviewPart, PreviewRequest, ProbeResult,
};
use super::email::{self, EmailChannel, EmailConfig};
use super::error::ChannelError;
use super::invalid_contact::InvalidContact;
use super::labels::Labels;
use super::resolver::DnsConfig;
use super::sample::{Sample, TestKind};
use super::webhook::{self, WebhookChannel, WebhookConfig};
use super::{grant_text, resolved_text, set_text, usage_text};
use crate::contacts::{Contact, MessageFormat};
use crate::types::{
    Alert, AlertId, Channel, DeliveryId, Destination, GrantNotice, Locale, Outcome, Percent, Rate, ResolvedNotice,
    Secret, UnixMs, UsageNotice, UsageNoticeKind,
};

/// The channels through which messages are sent.
pub const REGISTRY: [&ChannelDefinition; 2] = [&email::DEFINITION, &webhook::DEFINITION];

/// The threshold of a test message.
const TEST_PERCENT: u16 = 80;

/// The sections of the configuration for the channels.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct ChannelSettings<'a> {
    pub email: &'a EmailConfig,
    pub webhook: &'a WebhookConfig,
    pub dns: &'a DnsConfig,
}

/// The definition of a channel; `None` for [`Channel::None`], which sends nothing.
pub fn definition(channel: Channel) -> Option<&'static ChannelDefinition> {
    REGISTRY.into_iter().find(|definition| definition.channel == channel)
}

/// The destination that deliveries to this contact share with others at the same receiver.
pub fn destination(contact: &Contact) -> Destination {
    let origin = match contact.channel() {
        // All messages go through one server.
        Channel::Email | Channel::None => None,
        Channel::Webhook => webhook::url::origin(contact.address()),
    };
    Destination::derive(contact.channel(), origin.as_deref())
}

/// Judges the form of a contact: address, secret, headers.
///
/// # Errors
///
/// [`InvalidContact`] for the first faulty field.
pub fn check_contact(contact: &Contact) -> Result<(), InvalidContact> {
    contact.channel().check_address(contact.address())?;
    contact.options().map_or(Ok(()), webhook::check_options)
}

/// The warning about a legal contact that these settings may not reach. Shows no secret, even if the address is one.
pub fn contact_warning(contact: &Contact, settings: ChannelSettings<'_>) -> Option<String> {
    match contact.channel() {
        Channel::Email => email::address::warning(contact.address()),
        Channel::Webhook => webhook::warning(contact, settings.webhook),
        Channel::None => None,
    }
}

impl Channel {
    /// Judges the form of an address. The rest is judged at an attempt.
    pub fn check_address(self, address: &str) -> Result<(), InvalidContact> {
        match self {
            Self::Email => email::address::check(address),
            Self::Webhook => webhook::url::check(address),
            Self::None => Ok(()),
        }
    }

    /// Judges an address from somebody who does not know the operator's servers.
    pub fn check_public_address(self, address: &str) -> Result<(), InvalidContact> {
        match self {
            Self::Email => email::address::check_public(address),
            Self::Webhook => webhook::url::check_public(address),
            Self::None => Ok(()),
        }
    }

    /// A JSON Schema for addresses, for the OpenAPI document.
    pub fn address_schema(self) -> Value {
        match self {
            Self::Email => email::address_schema(),
            Self::Webhook => webhook::address_schema(),
            Self::None => Value::Bool(false),
        }
    }

    /// Generates a secret for a contact with this format; `None` if the format needs none, or one from the receiver.
    pub fn generate_secret(self, format: &MessageFormat) -> Option<Secret> {
        match self {
            Self::Email | Self::None => None,
            Self::Webhook => webhook::generate_secret(format),
        }
    }

    /// Checks rules between settings that their types do not express.
    pub fn check_settings(self, settings: ChannelSettings<'_>) -> Result<(), InvalidSetting> {
        match self {
            Self::Email => email::check_settings(settings.email),
            Self::Webhook => webhook::check_settings(settings.webhook),
            Self::None => Ok(()),
        }
    }

    /// Whether the server of all messages was configured: its settings differ from the defaults.
    pub fn has_own_server(self, settings: ChannelSettings<'_>, defaults: ChannelSettings<'_>) -> bool {
        match self {
            Self::Email => email::has_own_server(settings.email, defaults.email),
            Self::Webhook | Self::None => false,
        }
    }

    /// The warning about messages to other machines with settings that still have their defaults.
    pub fn default_warning(self, settings: ChannelSettings<'_>, defaults: ChannelSettings<'_>) -> Option<String> {
        match self {
            Self::Email => email::default_warning(settings.email, defaults.email),
            Self::Webhook | Self::None => None,
        }
    }

    /// The hint for a message that did not arrive, if its outcome has none.
    pub fn hint(self, outcome: &Outcome) -> &'static str {
        match self {
            Self::Email => email::hint(outcome),
            Self::Webhook => webhook::hint(outcome),
            Self::None => "",
        }
    }
}

/// A rendered text of an alert.
#[derive(Debug, Clone)]
pub struct Preview {
    /// Which text it is.
    pub part: PreviewPart,
    /// The text.
    pub text: String,
}

/// Renders the texts of every channel. Reads templates, but does not connect.
pub fn preview(settings: ChannelSettings<'_>, request: PreviewRequest<'_>) -> Result<Vec<Preview>, ChannelError> {
    let texts = [email::preview(settings.email, request)?, webhook::preview(settings.webhook, request)?];
    let parts = REGISTRY.into_iter().flat_map(|definition| definition.preview_parts);
    Ok(parts.zip(texts.into_iter().flatten()).map(|(part, text)| Preview { part: *part, text }).collect())
}

/// The channels with their settings.
#[derive(Debug)]
pub struct Channels {
    email: EmailChannel,
    webhook: WebhookChannel,
}

impl Channels {
    /// Sets up every channel: reads the files of its settings and checks templates. Does not connect.
    ///
    /// # Errors
    ///
    /// The first faulty setting: exit 78.
    pub fn new(settings: ChannelSettings<'_>) -> Result<Self, ChannelError> {
        let ChannelSettings { email, webhook, dns } = settings;
        Ok(Self { email: EmailChannel::new(email, dns)?, webhook: WebhookChannel::new(webhook, dns)? })
    }

    /// Checks that the template of a contact exists.
    pub fn check(&self, contact: &Contact) -> Result<(), InvalidContact> {
        self.webhook.check(contact)
    }

    /// The deadline of one attempt. Without a contact nothing is sent, so there is nothing to wait for.
    pub fn timeout(&self, channel: Channel) -> Duration {
        match channel {
            Channel::Email => self.email.mailer.timeout,
            Channel::Webhook => self.webhook.timeout,
            Channel::None => Duration::ZERO,
        }
    }

    /// The cap on messages: for all of them together if they share one server, otherwise for each destination; `None`
    /// without a cap.
    pub fn cap(&self, channel: Channel) -> Option<Rate> {
        match channel {
            Channel::Email => self.email.per_minute,
            Channel::Webhook => self.webhook.per_destination,
            Channel::None => None,
        }
    }

    /// Renders and sends one message, and returns the outcome within [`Self::timeout`]. A repeated call sends it again,
    /// with the same id.
    ///
    /// A question that the receiver answers itself ([`ConsentMethod::Challenge`](super::ConsentMethod::Challenge)) is
    /// only delivered if the answer is right.
    pub async fn send(&self, message: Message<'_>) -> Outcome {
        match message.contact.channel() {
            Channel::Email => self.email.send(message).await,
            Channel::Webhook => self.webhook.send(message).await,
            Channel::None => unreachable!("every contact has a channel"),
        }
    }

    /// Sends a test message about `sample` to one contact, muted or not, and returns the outcome. It is not recorded or
    /// repeated, and caps do not apply to it.
    ///
    /// Each test has its own id, `test_` and the time in milliseconds: a receiver that drops known ids would otherwise
    /// accept only the first test. Tests of a contact with incidents share one id.
    pub async fn send_test(
        &self,
        contact: &Contact,
        kind: TestKind,
        (sample, labels): (&Sample, &Labels),
        now: UnixMs,
    ) -> Outcome {
        let (percent, purpose) = (Percent::new(TEST_PERCENT).expect("a legal percentage"), AlertPurpose::Test);
        let id = &match contact.has_incidents() {
            // An end must close the incident of an earlier test.
            true => format!("test_{}", contact.derived_id()),
            false => format!("test_{}", now.0),
        };
        let alert = &Alert { id: AlertId::from_stored(id), ..sample.alert(percent, now) };
        let grant = &GrantNotice { id: id.clone(), ..grant_text::sample_for(alert) };
        let resolved = &ResolvedNotice { id: id.clone(), ..resolved_text::sample_for(alert) };
        let usage_kind = match kind {
            TestKind::Spike => UsageNoticeKind::Spike,
            TestKind::Silence => UsageNoticeKind::Silence,
            _ => UsageNoticeKind::Forecast,
        };
        let usage = usage_text::of_kind(usage_kind, usage_text::sample_for(alert));
        let usage = &UsageNotice { id: id.clone(), ..usage };
        let set = &set_text::sample_for((id, purpose), alert, usage, labels);
        let content = match kind {
            TestKind::Alert => Content::Alert(alert, purpose),
            TestKind::GrantExpires => Content::GrantExpires(grant, purpose),
            TestKind::Resolved => Content::Resolved(resolved, purpose),
            TestKind::Forecast | TestKind::Spike | TestKind::Silence => Content::Usage(usage, purpose),
            TestKind::Digest => Content::Set(set),
        };
        let delivery = &DeliveryId::of_notification(id, &contact.id);
        self.send(Message { delivery, contact, content, labels, unsubscribe: None, more_follows: false, now }).await
    }

    /// The warning about a locale for which no channel has texts.
    pub fn locale_warning(&self, locale: &Locale) -> Option<String> {
        let used = self.email.templates.substitute(locale)?;
        Some(format!("locale {locale} has no templates: emails are written in {used}"))
    }

    /// Warnings about settings of a channel that are allowed but unwise.
    pub fn warnings(&self, channel: Channel) -> &[String] {
        match channel {
            Channel::Email => &self.email.warnings,
            Channel::Webhook => &self.webhook.warnings,
            Channel::None => &[],
        }
    }

    /// Why every attempt for this contact would fail with these settings, if that is known without a connection.
    pub fn refusal(&self, contact: &Contact) -> Option<ProbeResult> {
        match contact.channel() {
            Channel::Webhook => self.webhook.refusal(contact),
            Channel::Email | Channel::None => None,
        }
    }

    /// Probes what an attempt needs without sending anything, for one contact or for the channel. `None` if there is
    /// nothing to probe.
    pub async fn probe(&self, channel: Channel, contact: Option<&Contact>) -> Option<ProbeResult> {
        match channel {
            Channel::Email => Some(self.email.probe(contact).await),
            Channel::Webhook => Some(self.webhook.probe(contact?).await),
            Channel::None => None,
        }
    }

    /// Closes idle connections when the process ends. Later messages open new ones.
    pub async fn close(&self) {
        self.email.mailer.close().await;
    }
}
