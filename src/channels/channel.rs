//! The common parts of channels: their definition, and the messages that they get.

use std::pin::Pin;
use std::time::Duration;

use super::labels::Labels;
use crate::contacts::{Contact, MessageFormat};
use crate::types::duration::HumanDuration;
use crate::types::{
    Alert, Channel, DailyDigest, DeliveryId, DisabledNotice, GrantNotice, Locale, Outcome, OutcomeClass,
    ResolvedNotice, Secret, Subject, TraceParent, UnixMs, UsageNotice, UsageNoticeKind,
};

/// A boxed future, so that channels of different types have the same signature.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The names and texts of a channel. Each folder has one constant of this type.
#[derive(Debug)]
pub struct ChannelDefinition {
    /// Its name.
    pub channel: Channel,
    /// A contact of the channel in the form of the configuration.
    pub example: &'static str,
    /// The secrets of its contacts; `None` if they have none.
    pub secret: Option<SecretDefinition>,
    /// How the owner of an address gives consent.
    pub consent: ConsentMethod,
    /// The allowed values of its settings, by key.
    pub settings: &'static [SettingText],
    /// Settings whose value can also be in a file, each with the setting that contains the file's path.
    pub file_settings: &'static [(&'static str, &'static str)],
    /// The consequence if nobody has configured the server of all messages and the default one does not answer. `None`
    /// if each contact has its own server; caps then count by the server's origin.
    pub server_absence: Option<&'static str>,
    /// The texts that can be previewed.
    pub preview_parts: &'static [PreviewPart],
}

impl ChannelDefinition {
    /// The field of a contact's JSON that contains its address.
    ///
    /// # Panics
    ///
    /// For a channel through which nothing is sent. The registry has no such channel.
    pub const fn address_field(&self) -> &'static str {
        self.channel.address_field().expect("something is sent through it")
    }
}

/// The secrets of a channel's contacts.
#[derive(Debug, Clone, Copy)]
pub struct SecretDefinition {
    /// The form of a secret, for texts.
    pub text: &'static str,
    /// A regular expression for signing secrets, for the OpenAPI document.
    pub pattern: &'static str,
    /// The prefix of signing secrets. Text that contains it is never shown.
    pub prefix: &'static str,
}

/// How the owner of an address gives consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsentMethod {
    /// A person reads a code and a link. The delivery alone is no consent.
    CodeAndLink,
    /// The receiver sends a challenge back, so the delivery is the consent.
    Challenge,
}

/// One setting of a channel and its allowed values.
#[derive(Debug, Clone, Copy)]
pub struct SettingText {
    /// Its key, such as `timeout`.
    pub key: &'static str,
    /// The allowed values, for the hint of an error.
    pub allowed: &'static str,
}

pub(super) const fn setting(key: &'static str, allowed: &'static str) -> SettingText {
    SettingText { key, allowed }
}

/// A setting whose value breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSetting {
    /// Its key, such as `timeout`.
    pub key: &'static str,
    /// The broken rule.
    pub problem: String,
}

/// Checks the deadline of an attempt: above 0, and at most the channel's maximum.
pub(super) fn check_timeout(timeout: Duration, max: Duration) -> Result<(), InvalidSetting> {
    let problem = match timeout {
        Duration::ZERO => "is 0".to_owned(),
        long if long > max => format!("{} is longer than {}", HumanDuration(long), HumanDuration(max)),
        _ => return Ok(()),
    };
    Err(InvalidSetting { key: "timeout", problem })
}

/// The outcome of an attempt that reached its deadline.
pub(super) fn deadline_passed(timeout: Duration) -> Outcome {
    let error = format!("deadline of {} passed", humantime::format_duration(timeout));
    Outcome { may_have_arrived: true, ..Outcome::failed(OutcomeClass::Transient, error) }
}

/// One text that `preview` can print.
#[derive(Debug, Clone, Copy)]
pub struct PreviewPart {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// The message that it is a part of.
    pub message: PreviewMessage,
}

/// A message of `preview`, as far as arguments depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreviewMessage {
    /// A forecast, a spike or a silence.
    UsageNotice,
    /// An alert and a forecast.
    Set,
    /// Any other.
    Other,
}

pub(super) const fn part(name: &'static str, about: &'static str) -> PreviewPart {
    PreviewPart { name, about, message: PreviewMessage::Other }
}

impl PreviewPart {
    pub(super) const fn of(self, message: PreviewMessage) -> Self {
        Self { message, ..self }
    }
}

/// The input of a preview.
#[derive(Debug, Clone, Copy)]
pub struct PreviewRequest<'a> {
    /// The alert.
    pub alert: &'a Alert,
    /// Its names, unit and links.
    pub labels: &'a Labels,
    /// The format of the contact, if its channel has formats.
    pub format: &'a MessageFormat,
    /// What the notice of usage says.
    pub kind: UsageNoticeKind,
    /// The language of the contact, if its channel has several; `None` for the default one.
    pub locale: Option<&'a Locale>,
}

/// The result of probing a server or a receiver.
#[derive(Debug, Clone)]
pub struct ProbeResult {
    /// What was asked, such as `mail server`.
    pub server: &'static str,
    /// Its location, without passwords.
    pub location: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The text for success, such as `takes mail`.
    pub works: &'static str,
    /// What to do after a failure.
    pub hint: &'static str,
}

/// One message to one contact.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// The delivery. The Message-ID of an email is derived from it.
    pub delivery: &'a DeliveryId,
    /// The recipient.
    pub contact: &'a Contact,
    /// The content.
    pub content: Content<'a>,
    /// The names, unit and links of a message about a quota.
    pub labels: &'a Labels,
    /// The URL that mutes the contact, if there is one.
    pub unsubscribe: Option<&'a str>,
    /// Whether more deliveries are due at the same destination, which answered its last attempt.
    pub more_follows: bool,
    /// Server time at which the attempt starts.
    pub now: UnixMs,
}

/// The content of a message.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    /// An alert, and why it is sent.
    Alert(&'a Alert, AlertPurpose),
    /// Units of a grant expire soon, and why it is sent.
    GrantExpires(&'a GrantNotice, AlertPurpose),
    /// A limit will be reached, or usage is far above the usual, and why it is sent.
    Usage(&'a UsageNotice, AlertPurpose),
    /// Alerts have ended, and why it is sent.
    Resolved(&'a ResolvedNotice, AlertPurpose),
    /// The question whether alerts are wanted.
    Verification(ConsentQuestion<'a>),
    /// Another contact of the subject is disabled.
    ContactDisabled(&'a DisabledNotice),
    /// The failures of a day.
    Digest(&'a DailyDigest),
    /// Several alerts and notices.
    Set(&'a MessageSet<'a>),
}

/// Alerts and notices that leave in one message.
#[derive(Debug, Clone)]
pub struct MessageSet<'a> {
    /// The id of the message, the same on every attempt.
    pub id: &'a str,
    /// At least one, the oldest first.
    pub items: Vec<SetItem<'a>>,
}

/// One of the alerts and notices in a message.
#[derive(Debug, Clone)]
pub struct SetItem<'a> {
    /// An alert or a notice about a quota.
    pub content: Content<'a>,
    /// Its names, unit and links.
    pub labels: Labels,
}

impl<'a> MessageSet<'a> {
    /// The only item; `None` if there are several.
    pub fn only(&self) -> Option<&SetItem<'a>> {
        self.items.first().filter(|_| self.items.len() == 1)
    }
}

/// Why a message about an alert or about a grant is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertPurpose {
    /// Something happened to the quota of the contact's subject.
    Alert,
    /// A copy for a contact of the operator.
    Copy,
    /// A test of a contact by an operator: the alert does not exist.
    Test,
}

impl Content<'_> {
    /// The trace context of the event that reached the threshold of an alert.
    pub fn traceparent(&self) -> Option<&TraceParent> {
        match self {
            Self::Alert(alert, _) => alert.traceparent.as_ref(),
            _ => None,
        }
    }

    /// The subject of an alert or a notice about its quota.
    pub const fn subject(&self) -> Option<&Subject> {
        match self {
            Self::Alert(alert, _) => Some(&alert.subject),
            Self::GrantExpires(notice, _) => Some(&notice.subject),
            Self::Usage(notice, _) => Some(&notice.subject),
            Self::Resolved(notice, _) => Some(&notice.subject),
            _ => None,
        }
    }

    /// Why an alert or a notice about a quota is sent.
    pub const fn purpose(&self) -> Option<AlertPurpose> {
        match self {
            Self::Alert(_, purpose)
            | Self::GrantExpires(_, purpose)
            | Self::Usage(_, purpose)
            | Self::Resolved(_, purpose) => Some(*purpose),
            _ => None,
        }
    }

    /// The id of the alert, question or notice, or of the message of several.
    pub fn id(&self) -> &str {
        match self {
            Self::Alert(alert, _) => alert.id.as_str(),
            Self::GrantExpires(notice, _) => &notice.id,
            Self::Usage(notice, _) => &notice.id,
            Self::Resolved(notice, _) => &notice.id,
            Self::Verification(question) => question.id,
            Self::ContactDisabled(notice) => &notice.id,
            Self::Digest(digest) => &digest.id,
            Self::Set(set) => set.id,
        }
    }
}

/// The question whether alerts about a subject are wanted at an address.
#[derive(Debug, Clone, Copy)]
pub struct ConsentQuestion<'a> {
    /// The id of this message, without a dot. An email gets another id at each attempt, so that mail software shows
    /// each code.
    pub id: &'a str,
    /// The subject of the alerts.
    pub subject: &'a Subject,
    /// What the answer must contain.
    pub proof: &'a ConsentProof,
}

/// What the answer to a question must contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsentProof {
    /// For a person.
    CodeAndLink(CodeAndLink),
    /// For a receiver: a text that it must send back.
    Challenge(Secret),
}

/// The code and link for a person who is asked for consent. Only digests of them are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeAndLink {
    /// Six digits.
    pub code: Secret,
    /// The link with the same effect; `None` if the daemon does not know its public URL.
    pub link: Option<Secret>,
    /// How long both are valid.
    pub lifetime: Duration,
}
