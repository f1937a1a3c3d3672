//! What a channel is: the trait of one that is set up, its definition before that, and the messages that it is given.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use serde_json::Value;

use super::error::{ChannelError, ChannelErrors};
use super::filter_flags::FilterFlags;
use super::invalid_contact::InvalidContact;
use crate::contacts::{Contact, ContactOptions, MessageFormat};
use crate::types::duration::HumanDuration;
use crate::types::{
    Alert, Channel, DailyDigest, DeliveryId, DisabledNotice, Locale, Outcome, OutcomeClass, Rate, Secret, Subject,
    UnixMs,
};

/// The sections of the configuration that belong to channels: one of each, and those that they share. Each channel
/// picks its own by its type.
#[derive(Debug, Clone)]
pub struct ChannelSettings<'a> {
    sections: Vec<&'a dyn Any>,
}

impl<'a> ChannelSettings<'a> {
    /// These sections: one of each channel of the registry, and [`DnsConfig`](super::DnsConfig).
    pub fn new(sections: impl IntoIterator<Item = &'a dyn Any>) -> Self {
        Self { sections: sections.into_iter().collect() }
    }

    /// The section of this type.
    ///
    /// # Panics
    ///
    /// Without such a section, which every load of a configuration would show: it checks each channel's.
    pub fn section<S: 'static>(&self) -> &'a S {
        let found = self.sections.iter().find_map(|section| section.downcast_ref());
        found.expect("the configuration lists the section of every channel")
    }
}

/// A future behind a pointer, so that channels of different kinds can stand in one list.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One way to reach a contact, set up with its settings.
pub trait NotificationChannel: fmt::Debug + Send + Sync {
    /// The deadline of one attempt; [`Self::send`] keeps it.
    fn timeout(&self) -> Duration;

    /// Renders one message, sends it and says how it ended. Leaves the machine; repeating it sends again, with the same
    /// id.
    ///
    /// A question that is answered by the receiver itself ([`ConsentMethod::Challenge`]) is delivered only when the
    /// answer was right.
    fn send<'a>(&'a self, message: Message<'a>) -> BoxFuture<'a, Outcome>;

    /// How many messages may leave, counted as [`ChannelDefinition::origin`] says; `None` where nothing is capped.
    fn cap(&self) -> Option<Rate>;

    /// What an operator should know about settings that are allowed but unwise.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// The locale in which a subject of this one is told because there are no texts in its own; `None` where there are,
    /// and where a channel has one language.
    fn substitute_locale(&self, _locale: &Locale) -> Option<Locale> {
        None
    }

    /// Judges a contact by what this channel was set up with: whether the template is there that it names.
    fn check(&self, _contact: &Contact) -> Result<(), InvalidContact> {
        Ok(())
    }

    /// Why every attempt for this contact would be refused with these settings, where that is known without a
    /// connection; `None` where only an attempt can tell.
    fn refusal(&self, _contact: &Contact) -> Option<ProbeResult> {
        None
    }

    /// Tries what an attempt needs, as far as that goes without sending anything, and says how it ended: for one
    /// contact, or for none in particular. `None` where there is nothing to try.
    fn probe<'a>(&'a self, contact: Option<&'a Contact>) -> BoxFuture<'a, Option<ProbeResult>>;

    /// Closes idle connections; for the end of the process. Later messages make new ones.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// What a channel is before it is set up: its names and its rules. Each folder has one constant of it.
#[derive(Debug)]
pub struct ChannelDefinition {
    /// Its name.
    pub channel: Channel,
    /// What an address of it is called in the command line's help, as `ADDRESS`.
    pub placeholder: &'static str,
    /// What the help says of the flag that names an address.
    pub flag_help: &'static str,
    /// What JSON Schema can say of an address, for the OpenAPI document.
    pub address_schema: fn() -> Value,
    /// A contact of it as it stands in the configuration.
    pub example: &'static str,
    /// The secrets of its contacts; `None` where they have none.
    pub secret: Option<SecretDefinition>,
    /// The formats and headers of its contacts; `None` where messages have one form.
    pub formats: Option<FormatDefinition>,
    /// What names the alerts that an address hears, where several are named.
    pub filter_flags: FilterFlags,
    /// How somebody at an address gives consent.
    pub consent: ConsentMethod,
    /// Judges an address by its form. What only an attempt can tell is left to the attempt.
    pub check_address: fn(&str) -> Result<(), InvalidContact>,
    /// The same for an address that somebody named who does not know the operator's servers.
    pub check_public_address: fn(&str) -> Result<(), InvalidContact>,
    /// Judges what a contact has beside its address: secret and headers, by its format.
    pub check_options: fn(&ContactOptions) -> Result<(), InvalidContact>,
    /// What an operator should know about a contact that is legal: why it may not be reached with these settings. Shows
    /// no secret, also where the address is one.
    pub warning: fn(&Contact, &ChannelSettings<'_>) -> Option<String>,
    /// Relations between its settings that their types can't tell.
    pub check_settings: fn(&ChannelSettings<'_>) -> Result<(), InvalidSetting>,
    /// What each of its settings takes, by key.
    pub settings: &'static [SettingText],
    /// Settings that can also be named by a file.
    pub file_settings: &'static [FileSetting],
    /// The server that all its messages go through; `None` where each contact has its own.
    pub server: Option<SharedServer>,
    /// The origin that an address names, where each has a server of its own: deliveries to one origin share a
    /// destination, and a cap counts them in any window; an address that names none has no cap. `None` where all
    /// messages go through one server: a cap counts them together, from the first message of a window to its end.
    pub origin: Option<fn(&str) -> Option<String>>,
    /// Sets it up, or says all that is wrong. Reads files, connects nowhere.
    pub build: fn(&ChannelSettings<'_>) -> Result<Box<dyn NotificationChannel>, ChannelErrors>,
    /// What can be previewed, in the order of [`Self::preview`].
    pub preview_parts: &'static [PreviewPart],
    /// Renders everything that can be previewed. Reads templates, contacts nobody.
    pub preview: fn(&ChannelSettings<'_>, PreviewRequest<'_>) -> Result<Vec<String>, ChannelError>,
    /// What to do about a message that did not arrive, where its outcome has no hint of its own.
    pub hint: fn(&Outcome) -> &'static str,
}

impl ChannelDefinition {
    /// The field of a contact's JSON that holds its address.
    ///
    /// # Panics
    ///
    /// For a channel that nothing is sent through, which none in the registry is.
    pub const fn address_field(&self) -> &'static str {
        self.channel.address_field().expect("something is sent through it")
    }
}

/// The secrets of a channel's contacts.
#[derive(Debug, Clone, Copy)]
pub struct SecretDefinition {
    /// The flag that names one, as `webhook-secret`.
    pub flag: &'static str,
    /// What the help says of this flag.
    pub flag_help: &'static str,
    /// What one looks like.
    pub text: &'static str,
    /// What a regular expression can say of those that sign, for the OpenAPI document.
    pub pattern: &'static str,
    /// What those that sign begin with: text that holds it is not shown, wherever it stands.
    pub prefix: &'static str,
    /// Makes one for a contact of this format that was named without; `None` where a format needs none, or one that the
    /// receiver gives.
    pub generate: fn(&MessageFormat) -> Option<Secret>,
}

/// The formats and headers of a channel's contacts.
#[derive(Debug, Clone, Copy)]
pub struct FormatDefinition {
    /// The flag that names a format.
    pub flag: &'static str,
    /// What the help says of this flag.
    pub flag_help: &'static str,
    /// The column of a file that names a format.
    pub column: &'static str,
    /// The flag that names a header.
    pub header_flag: &'static str,
    /// What the help says of this flag.
    pub header_help: &'static str,
    /// The column of a file that names headers.
    pub header_column: &'static str,
}

impl SecretDefinition {
    /// Its name as a column of a file and in JSON, as `webhook_secret`.
    pub fn column(self) -> String {
        self.flag.replace('-', "_")
    }
}

/// The server that all messages of a channel go through.
#[derive(Debug, Clone, Copy)]
pub struct SharedServer {
    /// Whether somebody has named one: whether these settings differ from the defaults, which come second.
    pub is_configured: fn(&ChannelSettings<'_>, &ChannelSettings<'_>) -> bool,
    /// What an operator should know who sends through it, and not to this machine alone, with settings that are still
    /// the defaults, which come second.
    pub warning: fn(&ChannelSettings<'_>, &ChannelSettings<'_>) -> Option<String>,
    /// What it means that nobody has named one and that the default does not answer.
    pub absence: &'static str,
}

/// How somebody at an address gives consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsentMethod {
    /// A person reads a code and a link: delivery alone says nothing.
    CodeAndLink,
    /// The receiver sends a challenge back: a delivery is the consent.
    Challenge,
}

/// One setting of a channel and what it takes.
#[derive(Debug, Clone, Copy)]
pub struct SettingText {
    /// Its key, as `timeout`.
    pub key: &'static str,
    /// What is allowed, as an error's hint says it.
    pub allowed: &'static str,
}

/// A setting that can also be named by a file, and the setting that names the file.
#[derive(Debug, Clone, Copy)]
pub struct FileSetting {
    /// The key of the value.
    pub value: &'static str,
    /// The key of the path.
    pub file: &'static str,
}

/// A setting whose value breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSetting {
    /// Its key, as `timeout`.
    pub key: &'static str,
    /// What is wrong.
    pub problem: String,
}

/// Judges the deadline of an attempt: above 0 and no longer than the channel allows.
pub(super) fn check_timeout(timeout: Duration, max: Duration) -> Result<(), InvalidSetting> {
    let problem = match timeout {
        Duration::ZERO => "is 0".to_owned(),
        long if long > max => format!("{} is longer than {}", HumanDuration(long), HumanDuration(max)),
        _ => return Ok(()),
    };
    Err(InvalidSetting { key: "timeout", problem })
}

/// How an attempt ended whose deadline came first.
pub(super) fn deadline_passed(timeout: Duration) -> Outcome {
    Outcome::failed(OutcomeClass::Transient, format!("deadline of {} passed", humantime::format_duration(timeout)))
}

/// One text that `preview` can print.
#[derive(Debug, Clone, Copy)]
pub struct PreviewPart {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
}

/// What is to be previewed.
#[derive(Debug, Clone, Copy)]
pub struct PreviewRequest<'a> {
    /// The alert.
    pub alert: &'a Alert,
    /// The format of the contact, where its channel has formats.
    pub format: &'a MessageFormat,
    /// The language of the contact, where its channel writes in several; `None` for the default one.
    pub locale: Option<&'a Locale>,
}

/// The result of [`NotificationChannel::probe`].
#[derive(Debug, Clone)]
pub struct ProbeResult {
    /// What was asked, as `mail server`.
    pub server: &'static str,
    /// Where it is, without passwords.
    pub location: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What it means that it ended well, as `takes mail`.
    pub works: &'static str,
    /// What to do where it failed.
    pub hint: &'static str,
}

/// One message to one contact.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// The delivery: e-mail derives its Message-ID from it.
    pub delivery: &'a DeliveryId,
    /// To whom.
    pub contact: &'a Contact,
    /// What it says.
    pub content: Content<'a>,
    /// Where whoever reads it mutes the contact, if that can be done.
    pub unsubscribe: Option<&'a str>,
    /// Whether more is due at the same destination, which answered its last attempt.
    pub more_follows: bool,
    /// Server time at which the attempt starts.
    pub now: UnixMs,
}

/// What a message says.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    /// An alert, and why it is told.
    Alert(&'a Alert, AlertPurpose),
    /// A question whether alerts are wanted.
    Verification(ConsentQuestion<'a>),
    /// Another contact of the subject is disabled.
    ContactDisabled(&'a DisabledNotice),
    /// What did not reach anybody in a day.
    Digest(&'a DailyDigest),
}

/// Why a message about an alert is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertPurpose {
    /// A threshold was reached.
    Alert,
    /// The same, told to a contact of the operator.
    Copy,
    /// An operator tries a contact out: the alert does not exist.
    Test,
}

impl Content<'_> {
    /// The id of what it tells.
    pub fn id(&self) -> &str {
        match self {
            Self::Alert(alert, _) => alert.id.as_str(),
            Self::Verification(question) => question.id,
            Self::ContactDisabled(notice) => &notice.id,
            Self::Digest(digest) => &digest.id,
        }
    }
}

/// A question whether alerts about a subject are wanted at an address.
#[derive(Debug, Clone, Copy)]
pub struct ConsentQuestion<'a> {
    /// The id of this message, without a dot. A mail has another for each attempt: mail software must show each code.
    pub id: &'a str,
    /// Whose alerts.
    pub subject: &'a Subject,
    /// What the answer has to show.
    pub proof: &'a ConsentProof,
}

/// What whoever answers has to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsentProof {
    /// For a person.
    CodeAndLink(CodeAndLink),
    /// For a receiver: a text that it has to send back.
    Challenge(Secret),
}

/// What a person reads in the message that asks for consent. Only digests of it are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeAndLink {
    /// Six digits.
    pub code: Secret,
    /// The page that does the same; `None` where the daemon does not know how it is reached.
    pub link: Option<Secret>,
    /// How long both are good.
    pub lifetime: Duration,
}
