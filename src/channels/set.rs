//! The channels of a process, each set up with its settings.

use std::time::Duration;

use super::channel::{
    AlertPurpose, ChannelSettings, Content, Message, NotificationChannel, PreviewPart, PreviewRequest, ProbeResult,
};
use super::error::{ChannelError, ChannelErrors};
use super::invalid_contact::InvalidContact;
use super::registry::REGISTRY;
use super::sample::Sample;
use crate::contacts::Contact;
use crate::types::{Alert, AlertId, Channel, DeliveryId, Locale, Outcome, Percent, UnixMs};

/// The threshold of a test message.
const TEST_PERCENT: u16 = 80;

/// The channels, set up.
#[derive(Debug)]
pub struct Channels {
    built: Vec<(Channel, Box<dyn NotificationChannel>)>,
}

/// Channels of which some can't be set up: only to say what is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{errors}")]
pub struct BrokenChannels {
    /// What is wrong with their settings.
    pub errors: ChannelErrors,
    /// The others.
    working: Channels,
}

impl BrokenChannels {
    /// As [`Channels::check`]; of a contact whose channel is not set up nothing is known.
    pub fn check(&self, contact: &Contact) -> Result<(), InvalidContact> {
        self.working.check(contact)
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

impl Channels {
    /// Sets every channel up: reads the files that its settings name, checks templates. Connects nowhere.
    ///
    /// # Errors
    ///
    /// [`BrokenChannels`], with all that is wrong: exit 78.
    pub fn new(settings: &ChannelSettings<'_>) -> Result<Self, BrokenChannels> {
        let mut errors = ChannelErrors::default();
        let built = REGISTRY.into_iter().filter_map(|definition| {
            let built = errors.note((definition.build)(settings))?;
            Some((definition.channel, built))
        });
        let channels = Self { built: built.collect() };
        if errors.is_empty() { Ok(channels) } else { Err(BrokenChannels { errors, working: channels }) }
    }

    /// The channel of this name; `None` for [`Channel::None`].
    pub fn get(&self, channel: Channel) -> Option<&dyn NotificationChannel> {
        self.built.iter().find(|(name, _)| *name == channel).map(|(_, channel)| channel.as_ref())
    }

    fn channel_of(&self, contact: &Contact) -> &dyn NotificationChannel {
        self.get(contact.channel()).expect("every contact has a channel of the registry")
    }

    /// Judges a contact by what its channel was set up with. See [`NotificationChannel::check`].
    pub fn check(&self, contact: &Contact) -> Result<(), InvalidContact> {
        self.get(contact.channel()).map_or(Ok(()), |channel| channel.check(contact))
    }

    /// The deadline of one attempt. Without a contact nothing is sent, so there is nothing to wait for.
    pub fn timeout(&self, channel: Channel) -> Duration {
        self.get(channel).map_or(Duration::ZERO, NotificationChannel::timeout)
    }

    /// Renders one message, sends it and says how it ended. See [`NotificationChannel::send`].
    pub async fn send(&self, message: Message<'_>) -> Outcome {
        self.channel_of(message.contact).send(message).await
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
        let used = self.built.iter().find_map(|(_, channel)| channel.substitute_locale(locale))?;
        Some(format!("locale {locale} has no templates: mails are written in {used}"))
    }

    /// What an operator should know about settings that are allowed but unwise.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.built.iter().flat_map(|(_, channel)| channel.warnings()).map(String::as_str)
    }

    /// Why no attempt for this contact can succeed. See [`NotificationChannel::refusal`].
    pub fn refusal(&self, contact: &Contact) -> Option<ProbeResult> {
        self.channel_of(contact).refusal(contact)
    }

    /// Tries what an attempt on this channel needs, for one contact or for none in particular. Sends nothing.
    pub async fn probe(&self, channel: Channel, contact: Option<&Contact>) -> Option<ProbeResult> {
        self.get(channel)?.probe(contact).await
    }

    /// Closes idle connections; for the end of the process.
    pub async fn close(&self) {
        for (_, channel) in &self.built {
            channel.close().await;
        }
    }
}

/// What every channel would send. Reads templates, contacts nobody.
pub fn preview(settings: &ChannelSettings<'_>, request: PreviewRequest<'_>) -> Result<Vec<Preview>, ChannelError> {
    let mut previews = Vec::new();
    for definition in REGISTRY {
        let texts = (definition.preview)(settings, request)?;
        previews.extend(definition.preview_parts.iter().zip(texts).map(|(part, text)| Preview { part: *part, text }));
    }
    Ok(previews)
}
