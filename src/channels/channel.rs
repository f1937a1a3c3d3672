//! What channels have in common: their definition, and the messages that they are given.

use std::pin::Pin;
use std::time::Duration;

use super::filter_flags::FilterFlags;
use crate::contacts::{Contact, MessageFormat};
use crate::types::duration::HumanDuration;
use crate::types::{
    Alert, Channel, DailyDigest, DeliveryId, DisabledNotice, Locale, Outcome, OutcomeClass, Secret, Subject, UnixMs,
};

/// A future behind a pointer, so that channels of different kinds can stand in one list.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a channel is called, in all texts. Each folder has one constant of it.
#[derive(Debug)]
pub struct ChannelDefinition {
    /// Its name.
    pub channel: Channel,
    /// What an address of it is called in the command line's help, as `ADDRESS`.
    pub placeholder: &'static str,
    /// What the help says of the flag that names an address.
    pub flag_help: &'static str,
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
    /// What each of its settings takes, by key.
    pub settings: &'static [SettingText],
    /// Settings that can also be named by a file.
    pub file_settings: &'static [FileSetting],
    /// What it means that nobody has named the server that all messages go through, and that the default does not
    /// answer; `None` if each contact has a server of its own, by whose origin a cap counts.
    pub server_absence: Option<&'static str>,
    /// What can be previewed.
    pub preview_parts: &'static [PreviewPart],
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

pub(super) const fn setting(key: &'static str, allowed: &'static str) -> SettingText {
    SettingText { key, allowed }
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

pub(super) const fn part(name: &'static str, about: &'static str) -> PreviewPart {
    PreviewPart { name, about }
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

/// What was found out about a server or a receiver.
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
