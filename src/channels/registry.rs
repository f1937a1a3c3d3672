//! What each channel is and does: one answer of each variant of [`Channel`].
//!
//! A new channel is a line in [`REGISTRY`], and an arm in each `match` here, which the compiler asks for.

use std::time::Duration;

use serde_json::Value;

use super::channel::{
    AlertPurpose, ChannelDefinition, Content, InvalidSetting, Message, PreviewPart, PreviewRequest, ProbeResult,
};
use super::email::{self, EmailChannel, EmailConfig};
use super::error::ChannelError;
use super::invalid_contact::InvalidContact;
use super::resolver::DnsConfig;
use super::sample::Sample;
use super::webhook::{self, WebhookChannel, WebhookConfig};
use crate::contacts::{Contact, MessageFormat};
use crate::types::{Alert, AlertId, Channel, DeliveryId, Destination, Locale, Outcome, Percent, Rate, Secret, UnixMs};

/// Every channel that something can be sent through.
pub const REGISTRY: [&ChannelDefinition; 2] = [&email::DEFINITION, &webhook::DEFINITION];

/// The threshold of a test message.
const TEST_PERCENT: u16 = 80;

/// The sections of the configuration that channels are set up with.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct ChannelSettings<'a> {
    pub email: &'a EmailConfig,
    pub webhook: &'a WebhookConfig,
    pub dns: &'a DnsConfig,
}

/// The definition of a channel; `None` for [`Channel::None`], through which nothing is sent.
pub fn definition(channel: Channel) -> Option<&'static ChannelDefinition> {
    REGISTRY.into_iter().find(|definition| definition.channel == channel)
}

/// What deliveries to this contact share with those to others at the same receiver.
pub fn destination(contact: &Contact) -> Destination {
    let origin = match contact.channel() {
        // All messages go through one server.
        Channel::Email | Channel::None => None,
        Channel::Webhook => webhook::url::origin(contact.address()),
    };
    Destination::derive(contact.channel(), origin.as_deref())
}

/// Judges a contact by its form: address, secret, headers.
///
/// # Errors
///
/// [`InvalidContact`] for the first field that is wrong.
pub fn check_contact(contact: &Contact) -> Result<(), InvalidContact> {
    contact.channel().check_address(contact.address())?;
    contact.options().map_or(Ok(()), webhook::check_options)
}

/// What an operator should know about a contact that is legal: why these settings may not reach it. Shows no secret,
/// even if the address is one.
pub fn contact_warning(contact: &Contact, settings: ChannelSettings<'_>) -> Option<String> {
    match contact.channel() {
        Channel::Email => email::address::warning(contact.address()),
        Channel::Webhook => webhook::warning(contact, settings.webhook),
        Channel::None => None,
    }
}

impl Channel {
    /// Judges an address by its form. What only an attempt can tell is left to the attempt.
    pub fn check_address(self, address: &str) -> Result<(), InvalidContact> {
        match self {
            Self::Email => email::address::check(address),
            Self::Webhook => webhook::url::check(address),
            Self::None => Ok(()),
        }
    }

    /// The same for an address that somebody named who does not know the operator's servers.
    pub fn check_public_address(self, address: &str) -> Result<(), InvalidContact> {
        match self {
            Self::Email => email::address::check_public(address),
            Self::Webhook => webhook::url::check_public(address),
            Self::None => Ok(()),
        }
    }

    /// What JSON Schema can say of an address, for the OpenAPI document.
    pub fn address_schema(self) -> Value {
        match self {
            Self::Email => email::address_schema(),
            Self::Webhook => webhook::address_schema(),
            Self::None => Value::Bool(false),
        }
    }

    /// A new secret for a contact of this format; `None` if the format needs none, or one that the receiver gives.
    pub fn generate_secret(self, format: &MessageFormat) -> Option<Secret> {
        match self {
            Self::Email | Self::None => None,
            Self::Webhook => webhook::generate_secret(format),
        }
    }

    /// Relations between its settings that their types can't tell.
    pub fn check_settings(self, settings: ChannelSettings<'_>) -> Result<(), InvalidSetting> {
        match self {
            Self::Email => email::check_settings(settings.email),
            Self::Webhook => webhook::check_settings(settings.webhook),
            Self::None => Ok(()),
        }
    }

    /// Whether somebody has named the server that all messages go through: whether the settings differ from the
    /// defaults.
    pub fn has_own_server(self, settings: ChannelSettings<'_>, defaults: ChannelSettings<'_>) -> bool {
        match self {
            Self::Email => email::has_own_server(settings.email, defaults.email),
            Self::Webhook | Self::None => false,
        }
    }

    /// What an operator should know who sends to other machines with settings that are still the defaults.
    pub fn default_warning(self, settings: ChannelSettings<'_>, defaults: ChannelSettings<'_>) -> Option<String> {
        match self {
            Self::Email => email::default_warning(settings.email, defaults.email),
            Self::Webhook | Self::None => None,
        }
    }

    /// What to do about a message that did not arrive, if its outcome has no hint of its own.
    pub fn hint(self, outcome: &Outcome) -> &'static str {
        match self {
            Self::Email => email::hint(outcome),
            Self::Webhook => webhook::hint(outcome),
            Self::None => "",
        }
    }
}

/// What would be sent about an alert.
#[derive(Debug, Clone)]
pub struct Preview {
    /// Which text it is.
    pub part: PreviewPart,
    /// The text.
    pub text: String,
}

/// What every channel would send. Reads templates, contacts nobody.
pub fn preview(settings: ChannelSettings<'_>, request: PreviewRequest<'_>) -> Result<Vec<Preview>, ChannelError> {
    let texts = [email::preview(settings.email, request)?, webhook::preview(settings.webhook, request)?];
    let parts = REGISTRY.into_iter().flat_map(|definition| definition.preview_parts);
    Ok(parts.zip(texts.into_iter().flatten()).map(|(part, text)| Preview { part: *part, text }).collect())
}

/// The channels, set up.
#[derive(Debug)]
pub struct Channels {
    email: EmailChannel,
    webhook: WebhookChannel,
}

impl Channels {
    /// Sets every channel up: reads the files that its settings name, checks templates. Connects nowhere.
    ///
    /// # Errors
    ///
    /// The first setting that is wrong: exit 78.
    pub fn new(settings: ChannelSettings<'_>) -> Result<Self, ChannelError> {
        let ChannelSettings { email, webhook, dns } = settings;
        Ok(Self { email: EmailChannel::new(email, dns)?, webhook: WebhookChannel::new(webhook, dns)? })
    }

    /// Judges a contact by what its channel was set up with: whether the template is there that it names.
    pub fn check(&self, contact: &Contact) -> Result<(), InvalidContact> {
        self.webhook.check(contact)
    }

    /// The deadline of one attempt. Without a contact nothing is sent, so there is nothing to wait for.
    pub fn timeout(&self, channel: Channel) -> Duration {
        match channel {
            Channel::Email => self.email.timeout,
            Channel::Webhook => self.webhook.timeout,
            Channel::None => Duration::ZERO,
        }
    }

    /// How many messages may leave: all together if they go through one server, else to each destination; `None` if
    /// nothing is capped.
    pub fn cap(&self, channel: Channel) -> Option<Rate> {
        match channel {
            Channel::Email => self.email.per_minute,
            Channel::Webhook => self.webhook.per_destination,
            Channel::None => None,
        }
    }

    /// Renders one message, sends it and says how it ended, within [`Self::timeout`]. Leaves the machine; repeating it
    /// sends again, with the same id.
    ///
    /// A question that the receiver itself answers ([`ConsentMethod::Challenge`](super::ConsentMethod::Challenge)) is
    /// delivered only when the answer was right.
    pub async fn send(&self, message: Message<'_>) -> Outcome {
        match message.contact.channel() {
            Channel::Email => self.email.send(message).await,
            Channel::Webhook => self.webhook.send(message).await,
            Channel::None => unreachable!("every contact has a channel"),
        }
    }

    /// Sends a test message about `sample` to one contact, muted or not, and says how it ended. It is not recorded and
    /// not repeated, and no cap holds it back or counts it.
    ///
    /// Each test has an id of its own, `test_` and the time in milliseconds: a receiver that drops what it has seen
    /// would otherwise take only the first.
    pub async fn send_test(&self, contact: &Contact, sample: &Sample, now: UnixMs) -> Outcome {
        let percent = Percent::new(TEST_PERCENT).expect("a legal percentage");
        let alert = Alert { id: AlertId::from_stored(&format!("test_{}", now.0)), ..sample.alert(percent, now) };
        let delivery = &DeliveryId::derive(&alert.id, &contact.id);
        let content = Content::Alert(&alert, AlertPurpose::Test);
        self.send(Message { delivery, contact, content, unsubscribe: None, more_follows: false, now }).await
    }

    /// What an operator should know about a locale that no channel has texts in.
    pub fn locale_warning(&self, locale: &Locale) -> Option<String> {
        let used = self.email.templates.substitute(locale)?;
        Some(format!("locale {locale} has no templates: mails are written in {used}"))
    }

    /// What an operator should know about settings of a channel that are allowed but unwise.
    pub fn warnings(&self, channel: Channel) -> &[String] {
        match channel {
            Channel::Email => &self.email.warnings,
            Channel::Webhook => &self.webhook.warnings,
            Channel::None => &[],
        }
    }

    /// Why every attempt for this contact would be refused with these settings, if that is known without a connection.
    pub fn refusal(&self, contact: &Contact) -> Option<ProbeResult> {
        match contact.channel() {
            Channel::Webhook => self.webhook.refusal(contact),
            Channel::Email | Channel::None => None,
        }
    }

    /// Tries what an attempt needs, as far as that goes without sending anything: for one contact, or for none in
    /// particular. `None` if there is nothing to try.
    pub async fn probe(&self, channel: Channel, contact: Option<&Contact>) -> Option<ProbeResult> {
        match channel {
            Channel::Email => Some(self.email.probe(contact).await),
            Channel::Webhook => Some(self.webhook.probe(contact?).await),
            Channel::None => None,
        }
    }

    /// Closes idle connections; for the end of the process. Later messages make new ones.
    pub async fn close(&self) {
        self.email.mailer.close().await;
    }
}
