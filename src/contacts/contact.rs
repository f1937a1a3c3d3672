//! Contacts: where a subject is reached. One e-mail address or one webhook endpoint, with an id of its own.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::types::{Channel, ContactFilter, ContactFilterError, ContactId, DisabledState, Metric, Percent, Secret};

/// The address itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// One mailbox.
    Email {
        /// `local@domain`, as given; the channel checks it at each attempt.
        address: String,
    },
    /// One receiver.
    Webhook {
        /// An absolute URL, as given; the channel checks it at each attempt.
        url: String,
        /// `whsec_` and base64 of 24 to 64 bytes; a list separated by spaces while it is being rotated.
        secret: Secret,
    },
}

impl Endpoint {
    /// The channel that reaches it.
    #[must_use]
    pub const fn channel(&self) -> Channel {
        match self {
            Self::Email { .. } => Channel::Email,
            Self::Webhook { .. } => Channel::Webhook,
        }
    }

    /// The address or URL.
    #[must_use]
    pub fn address(&self) -> &str {
        match self {
            Self::Email { address } => address,
            Self::Webhook { url, .. } => url,
        }
    }

    /// What signs messages to it; `None` where the channel has no secrets.
    #[must_use]
    pub const fn secret(&self) -> Option<&Secret> {
        match self {
            Self::Email { .. } => None,
            Self::Webhook { secret, .. } => Some(secret),
        }
    }
}

/// One contact of a subject, as it stands in the `contacts` array of `quota_subject:<subject>` or under `[fallback]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "ContactJson")]
pub struct Contact {
    /// The id; derived from channel and address when the JSON names none.
    pub id: ContactId,
    /// Where to.
    pub endpoint: Endpoint,
    /// A muted contact gets no alerts: its deliveries end `muted`.
    pub muted: bool,
    /// One that the subject's own side added counts as not there until somebody at the address has confirmed it. What an operator
    /// writes down, and anything that does not say otherwise, is verified.
    pub verified: bool,
    /// Which alerts it gets.
    pub hears: ContactFilter,
    /// Why it counts as not there, where its receiver or mailbox has gone.
    pub disabled: Option<DisabledState>,
}

impl Contact {
    /// A contact may not have this id: it is the one under which an alert waits for a contact.
    pub const RESERVED_ID: &'static str = "none";

    /// An e-mail contact with the id derived from its address.
    #[must_use]
    pub fn email(address: &str) -> Self {
        Self::at(Endpoint::Email { address: address.to_owned() })
    }

    /// A webhook contact with the id derived from its URL.
    #[must_use]
    pub fn webhook(url: &str, secret: Secret) -> Self {
        Self::at(Endpoint::Webhook { url: url.to_owned(), secret })
    }

    fn at(endpoint: Endpoint) -> Self {
        Self {
            id: derived_id(endpoint.channel(), endpoint.address()),
            endpoint,
            muted: false,
            verified: true,
            hears: ContactFilter::default(),
            disabled: None,
        }
    }

    /// The id that follows from channel and address, whatever id the contact bears: the same for every subject that it belongs to,
    /// while ids that a platform gives may be the same for two subjects' contacts. The domain of a mailbox counts in lower case.
    #[must_use]
    pub fn derived_id(&self) -> ContactId {
        derived_id(self.channel(), self.address())
    }

    /// The channel of the endpoint.
    #[must_use]
    pub const fn channel(&self) -> Channel {
        self.endpoint.channel()
    }

    /// The address or URL.
    #[must_use]
    pub fn address(&self) -> &str {
        self.endpoint.address()
    }

    /// What signs messages to it; `None` where the channel has no secrets.
    #[must_use]
    pub const fn secret(&self) -> Option<&Secret> {
        self.endpoint.secret()
    }

    /// Whether both reach the same address on the same channel.
    #[must_use]
    pub fn has_same_address(&self, other: &Self) -> bool {
        (self.channel(), self.place()) == (other.channel(), other.place())
    }

    /// A contact of this channel with the id derived from its address. `None` for a channel that nothing is sent through, and where a
    /// secret is needed and none was given.
    #[must_use]
    pub fn of_channel(channel: Channel, address: &str, secret: Option<Secret>) -> Option<Self> {
        match channel {
            Channel::Email => Some(Self::email(address)),
            Channel::Webhook => secret.map(|secret| Self::webhook(address, secret)),
            Channel::None => None,
        }
    }

    /// The same contact at another address, with another secret where it has one: for output, never to be stored.
    #[must_use]
    pub fn shown_as(mut self, address: &str, secret_text: &str) -> Self {
        match &mut self.endpoint {
            Endpoint::Email { address: shown } => address.clone_into(shown),
            Endpoint::Webhook { url, secret } => {
                address.clone_into(url);
                *secret = Secret::new(secret_text.to_owned());
            }
        }
        self
    }

    /// The address as it is counted where requests to one address are limited. Mailboxes are counted without regard to case, as nearly
    /// every mail server treats them: a change of case asks the same person.
    #[must_use]
    pub fn counted_address(&self) -> String {
        match &self.endpoint {
            Endpoint::Email { .. } => self.place().to_lowercase(),
            Endpoint::Webhook { url, .. } => url.clone(),
        }
    }

    /// What is reached there, however it is spelled: contacts of one channel and place are one. The domain of a mailbox is the same in
    /// upper and lower case and in its ASCII form; who is meant by what stands before it is for its own mail server to say.
    #[must_use]
    pub fn place(&self) -> Cow<'_, str> {
        match &self.endpoint {
            Endpoint::Webhook { url, .. } => Cow::Borrowed(url),
            Endpoint::Email { address } => with_domain(address, ascii_domain),
        }
    }
}

/// The ASCII form of a domain (IDNA), in lower case. `None` where it has none.
#[must_use]
pub fn ascii_domain(domain: &str) -> Option<String> {
    if domain.is_ascii() {
        return Some(domain.to_ascii_lowercase());
    }
    url::Host::parse(domain).ok().map(|host| host.to_string())
}

/// The address with its domain written in another way, if that can be done.
fn with_domain(address: &str, written: impl Fn(&str) -> Option<String>) -> Cow<'_, str> {
    let rewritten = address.rsplit_once('@').and_then(|(local, domain)| {
        let other = written(domain).filter(|other| other != domain)?;
        Some(format!("{local}@{other}"))
    });
    rewritten.map_or(Cow::Borrowed(address), Cow::Owned)
}

/// Not of the place: ids of contacts whose domain is written beyond ASCII were made before there was one, and must stay.
fn derived_id(channel: Channel, address: &str) -> ContactId {
    let address = match channel {
        Channel::Email => with_domain(address, |domain| Some(domain.to_lowercase())),
        Channel::Webhook | Channel::None => Cow::Borrowed(address),
    };
    ContactId::derived(channel, &address)
}

/// The JSON and TOML form: a flat object whose `channel` says which of the others belong.
///
/// Unknown fields are left alone: the platform may keep its own notes beside ours.
#[derive(Serialize, Deserialize)]
struct ContactJson {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    channel: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    muted: bool,
    #[serde(default = "verified", skip_serializing_if = "Clone::clone")]
    verified: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thresholds: Option<Vec<Percent>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metrics: Option<Vec<Metric>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disabled: Option<DisabledState>,
}

/// An object and nothing else: what is derived would take a list for the fields in their order.
impl<'de> Deserialize<'de> for Contact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Contact;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a channel and an address or url")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Contact, A::Error> {
        let json = ContactJson::deserialize(MapAccessDeserializer::new(map))?;
        Contact::try_from(json).map_err(de::Error::custom)
    }
}

impl Contact {
    /// Reads an element of an array of contacts. Its other fields may hold what is no value (a number beyond all bounds, a text that is
    /// no Unicode), and of a field that is there twice the last one counts.
    ///
    /// # Errors
    ///
    /// What is wrong with it; the text may quote a field.
    pub fn of_element(element: &RawValue) -> Result<Self, serde_json::Error> {
        match serde_json::from_str::<Value>(element.get()) {
            Ok(value) => Self::deserialize(&value),
            Err(_) => serde_json::from_str(element.get()),
        }
    }
}

/// What a contact is that does not say.
const fn verified() -> bool {
    true
}

/// Why a JSON object is not a contact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContactError {
    /// `channel` is neither of the two.
    #[error("contact has channel {0:?}, allowed are \"email\" and \"webhook\"")]
    Channel(String),
    /// A field that the channel needs is absent or empty.
    #[error("{channel} contact has no {field:?}")]
    Missing {
        /// The channel.
        channel: &'static str,
        /// The absent field.
        field: &'static str,
    },
    /// What it hears can't be told.
    #[error(transparent)]
    Hears(#[from] ContactFilterError),
}

impl TryFrom<ContactJson> for Contact {
    type Error = ContactError;

    fn try_from(json: ContactJson) -> Result<Self, ContactError> {
        let needed = |value: Option<String>, channel: Channel, field| {
            let missing = ContactError::Missing { channel: channel.as_str(), field };
            value.filter(|text| !text.is_empty()).ok_or(missing)
        };
        let mut contact = match json.channel.as_str() {
            "email" => Self::email(&needed(json.address, Channel::Email, "address")?),
            "webhook" => {
                let url = needed(json.url, Channel::Webhook, "url")?;
                let secret = needed(json.secret, Channel::Webhook, "secret")?;
                Self::webhook(&url, Secret::new(secret))
            }
            _ => return Err(ContactError::Channel(json.channel)),
        };
        if let Some(id) = json.id.filter(|id| !id.is_empty()) {
            contact.id = ContactId::from_stored(&id);
        }
        contact.muted = json.muted;
        contact.verified = json.verified;
        contact.hears = ContactFilter::new(json.thresholds, json.metrics)?;
        contact.disabled = json.disabled;
        Ok(contact)
    }
}

impl From<Contact> for ContactJson {
    fn from(contact: Contact) -> Self {
        let channel = contact.channel().as_str().to_owned();
        let (address, url, secret) = match contact.endpoint {
            Endpoint::Email { address } => (Some(address), None, None),
            Endpoint::Webhook { url, secret } => (None, Some(url), Some(secret.reveal().to_owned())),
        };
        let Contact { id, muted, verified, hears: ContactFilter { thresholds, metrics }, disabled, .. } = contact;
        let (id, thresholds, metrics) = (Some(id.as_str().to_owned()), named(thresholds), named(metrics));
        Self { id, channel, address, url, secret, muted, verified, thresholds, metrics, disabled }
    }
}

/// The list as it is stored: absent for all.
fn named<T>(values: Vec<T>) -> Option<Vec<T>> {
    (!values.is_empty()).then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contacts written by hand with HSET have no id; it must be the same at every reading.
    #[test]
    fn a_missing_id_is_derived_from_channel_and_address() {
        let json = r#"[{"channel":"email","address":"a@b.test"},{"id":"c_1","channel":"webhook","url":"https://x.test/","secret":"whsec_x"}]"#;
        let contacts: Vec<Contact> = serde_json::from_str(json).expect("contacts");
        assert_eq!(contacts[0].id, Contact::email("a@b.test").id);
        assert_eq!(contacts[1].id.as_str(), "c_1");
    }

    /// One mailbox must not be two contacts that get every alert twice; nor may an id change under deliveries that are on their way.
    #[test]
    fn a_domain_is_the_same_in_either_case_and_the_local_part_is_not() {
        let id = |address: &str| Contact::email(address).id.to_string();
        assert_eq!(id("a@b.test"), "c_ab39b01901a28f91");
        assert_eq!(id("Bob@bücher.example"), "c_bfb05b681be4fb9b");
        assert_eq!((id("a@B.Test"), id("Bob@BÜCHER.example")), (id("a@b.test"), id("Bob@bücher.example")));
        assert_ne!(id("A@b.test"), id("a@b.test"));
        let place = |address: &str| Contact::email(address).place().into_owned();
        assert_eq!(place("\"a@B\"@B.Test"), "\"a@B\"@b.test");
        for spelled in ["Bob@bücher.example", "Bob@BÜCHER.example", "Bob@ｂücher．example", "Bob@XN--bcher-kva.Example"]
        {
            assert_eq!(place(spelled), "Bob@xn--bcher-kva.example");
        }
        for odd in ["nobody", "", "a@", "a@％", "@"] {
            assert_eq!(place(odd), odd);
        }
        let hook = Contact::webhook("https://X.test/@A", Secret::default());
        assert_eq!((hook.place().as_ref(), hook.derived_id().as_str()), ("https://X.test/@A", "c_c962a2abce4c2d8f"));
    }

    /// Contacts of before, of an operator and of the platform's HSET must go on getting alerts; only an outright `false` stops them.
    #[test]
    fn a_contact_is_verified_unless_it_says_otherwise() {
        let of = |field: &str| format!(r#"{{"id":"c_1","channel":"email","address":"a@b.test"{field}}}"#);
        let read = |field: &str| serde_json::from_str::<Contact>(&of(field));
        assert!(read("").expect("a contact").verified);
        assert!(read(r#","verified":true"#).expect("a contact").verified);
        let unverified = read(r#","verified":false"#).expect("a contact");
        assert!(!unverified.verified);
        assert!(read(r#","verified":"no""#).is_err());
        let written = serde_json::to_string(&unverified).expect("JSON");
        assert!(written.contains(r#""verified":false"#), "{written}");
        let written = serde_json::to_string(&Contact { verified: true, ..unverified }).expect("JSON");
        assert!(!written.contains("verified"), "{written}");
    }

    /// What is stored must be read back, and a filter that nobody can understand must not be taken for "all".
    #[test]
    fn a_contact_says_what_it_hears_and_that_it_is_disabled() {
        let of = |field: &str| format!(r#"{{"id":"c_1","channel":"email","address":"a@b.test",{field}}}"#);
        let stored = of(
            r#""thresholds":[80,100],"metrics":["requests"],"disabled":{"reason":"no_mailbox","detail":"SMTP 550","at":"2026-11-21T08:37:00.123Z"}"#,
        );
        let contact: Contact = serde_json::from_str(&stored).expect("a contact");
        assert_eq!(contact.hears.thresholds.len(), 2);
        assert_eq!(contact.disabled.as_ref().map(|state| state.at.0), Some(1_795_250_220_123));
        assert_eq!(serde_json::to_string(&contact).expect("JSON"), stored);
        for (field, told) in [
            (r#""thresholds":[]"#, "thresholds names none"),
            (r#""metrics":["a","a"]"#, "metrics names a twice"),
            (r#""thresholds":[0]"#, "1 to 1000"),
        ] {
            let error = serde_json::from_str::<Contact>(&of(field)).expect_err(field).to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    /// A list whose parts fit by chance would be written to as if it were an object.
    #[test]
    fn a_list_is_no_contact() {
        let list = r#"[null,"webhook",null,"http://x/echo","whsec_x",false,false]"#;
        let error = serde_json::from_str::<Contact>(list).expect_err("a list").to_string();
        assert!(error.contains("expected an object"), "{error}");
        let value: serde_json::Value = serde_json::from_str(list).expect("JSON");
        assert!(Contact::deserialize(&value).is_err());
    }

    /// An operator must read what is wrong with a contact.
    #[test]
    fn a_broken_contact_names_what_is_missing() {
        let text = |json| serde_json::from_str::<Contact>(json).expect_err("broken").to_string();
        assert!(text(r#"{"channel":"email"}"#).contains("email contact has no \"address\""));
        assert!(text(r#"{"channel":"sms"}"#).contains("allowed are \"email\" and \"webhook\""));
    }
}
