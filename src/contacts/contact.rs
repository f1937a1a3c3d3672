//! Contacts: the addresses at which a subject is reached. A contact is one email address or one webhook endpoint, with
//! an id.

use std::borrow::Cow;

use url::{Origin, Url};

use super::mail_domain::{ascii_domain, with_domain};
use super::message_format::SecretUse;
use super::options::ContactOptions;
use crate::types::text::{MASK, masked_url};
use crate::types::{
    Channel, ContactFilter, ContactId, DigestInterval, DisabledState, Locale, Mute, QuotaNotification, ResolvedScope,
    Secret, Subject, UnixMs,
};

/// Maximum length of an address in the log of alerts, characters: a URL may have 2,048.
const LOGGED_CHARS_MAX: usize = 200;

/// The channel and the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    channel: Channel,
    /// `local@domain` or an absolute URL, as given. The channel checks it at each attempt.
    address: String,
    /// The secret, format and headers, if the channel has them. A signing secret is `whsec_` and base64 of 24 to 64
    /// bytes, or a list of those separated by spaces during a rotation.
    options: Option<ContactOptions>,
}

impl Endpoint {
    /// Whether contacts of this channel have a secret, a format and headers.
    pub const fn has_options(channel: Channel) -> bool {
        matches!(channel, Channel::Webhook)
    }
}

/// One contact of a subject, from the `contacts` array of `quota_subject:<subject>` or from `[fallback]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact {
    /// The id; derived from channel and address if the JSON has none.
    pub id: ContactId,
    /// The channel and the address.
    pub endpoint: Endpoint,
    /// A muted contact gets no alerts: its deliveries end as `muted`. The mute may have ended.
    pub mute: Option<Mute>,
    /// A contact that the subject added is not used until somebody at the address has confirmed it. A contact from the
    /// operator, or without this field, is verified.
    pub verified: bool,
    /// The alerts that it gets.
    pub filter: ContactFilter,
    /// Why it is not used, if its receiver or mailbox no longer exists.
    pub disabled: Option<DisabledState>,
    /// The language of messages to the subject; `None` for the default one. It is stored beside the contacts, not in
    /// them.
    pub locale: Option<Locale>,
    /// The level above that it belongs to, and its id there; `None` for a contact of the subject itself. Never stored.
    pub inherited: Option<(Subject, ContactId)>,
}

impl Contact {
    /// No contact may have this id: an alert waits under it for a contact.
    pub const RESERVED_ID: &'static str = "none";

    /// An email contact with the id derived from its address.
    pub fn email(address: &str) -> Self {
        Self::with_address(Channel::Email, address, None)
    }

    /// A webhook contact of the standard format, with the id derived from its URL.
    pub fn webhook(url: &str, secret: Secret) -> Self {
        Self::webhook_with(url, ContactOptions { secret: Some(secret), ..ContactOptions::default() })
    }

    /// A webhook contact with the id derived from its URL.
    pub fn webhook_with(url: &str, options: ContactOptions) -> Self {
        Self::with_address(Channel::Webhook, url, Some(options))
    }

    /// A contact of this channel with the id derived from its address. `None` if nothing is sent through the channel.
    pub fn of_channel(channel: Channel, address: &str, options: ContactOptions) -> Option<Self> {
        let options = Endpoint::has_options(channel).then_some(options);
        channel.address_field().map(|_| Self::with_address(channel, address, options))
    }

    fn with_address(channel: Channel, address: &str, options: Option<ContactOptions>) -> Self {
        Self {
            id: derived_id(channel, address),
            endpoint: Endpoint { channel, address: address.to_owned(), options },
            mute: None,
            verified: true,
            filter: ContactFilter::default(),
            disabled: None,
            locale: None,
            inherited: None,
        }
    }

    /// The id derived from channel and address, even if the contact has another id. It is the same for every subject
    /// with this contact, while ids from a platform may be equal for different contacts of two subjects. The domain of
    /// a mailbox is compared in lower case.
    pub fn derived_id(&self) -> ContactId {
        derived_id(self.channel(), self.address())
    }

    /// The contact as a level below its subject gets it.
    #[must_use]
    pub fn inherited_from(self, subject: &Subject) -> Self {
        Self { id: self.id.inherited_from(subject), inherited: Some((subject.clone(), self.id)), ..self }
    }

    /// The subject that it belongs to, and the contact as it is there, for a contact of `subject`.
    pub fn where_it_belongs(&self, subject: &Subject) -> (Subject, Self) {
        match self.inherited.clone() {
            Some((level, id)) => (level, Self { id, inherited: None, ..self.clone() }),
            None => (subject.clone(), self.clone()),
        }
    }

    /// The channel of the endpoint.
    pub const fn channel(&self) -> Channel {
        self.endpoint.channel
    }

    /// The address or URL.
    pub fn address(&self) -> &str {
        &self.endpoint.address
    }

    /// Secret, format and headers; `None` if the channel has none.
    pub const fn options(&self) -> Option<&ContactOptions> {
        self.endpoint.options.as_ref()
    }

    /// Whether people read its messages.
    pub fn is_for_people(&self) -> bool {
        self.options().is_none_or(|options| options.format.is_for_people())
    }

    /// Whether one message may hold several notifications.
    pub fn holds_several(&self) -> bool {
        self.options().is_none_or(|options| options.format.holds_several())
    }

    /// For how long this notification is gathered with others into one message; `None` if it is sent at once.
    pub fn digest_of<'a>(&self, notification: impl Into<QuotaNotification<'a>>) -> Option<DigestInterval> {
        self.filter.digest_of(notification).filter(|_| self.holds_several())
    }

    /// Whether its messages open incidents, which only the end of an alert closes.
    pub fn has_incidents(&self) -> bool {
        self.options().is_some_and(|options| options.format.has_incidents())
    }

    /// Its secret; `None` if the channel has none or the contact needs none.
    pub fn secret(&self) -> Option<&Secret> {
        self.options()?.secret.as_ref()
    }

    /// The contact with other options. Has no effect if the channel has none.
    #[must_use]
    pub fn with_options(mut self, other: ContactOptions) -> Self {
        self.endpoint.options = self.endpoint.options.map(|_| other);
        self
    }

    /// Whether it hears of such an end of alerts: receivers with an incident for each alert unless they refuse, the
    /// others of the end of a quota's alerts, if they ask.
    pub fn hears_end(&self, scope: ResolvedScope) -> bool {
        let has_incidents = self.has_incidents();
        self.filter.resolved.unwrap_or(has_incidents) && has_incidents == (scope == ResolvedScope::Alert)
    }

    /// Whether both have the same channel and normalized address.
    pub fn has_same_address(&self, other: &Self) -> bool {
        (self.channel(), self.normalized_address()) == (other.channel(), other.normalized_address())
    }

    /// The mute that is in force at this server time.
    pub fn muted_at(&self, now: UnixMs) -> Option<&Mute> {
        self.mute.as_ref().filter(|mute| mute.is_active(now))
    }

    /// The contact without a mute that has ended: for output, never for storage.
    #[must_use]
    pub fn shown_at(mut self, now: UnixMs) -> Self {
        self.mute.take_if(|mute| !mute.is_active(now));
        self
    }

    /// The contact with another address, and with this text instead of each secret: for output, never for storage.
    #[must_use]
    pub fn shown_as(mut self, address: &str, secret_text: &str) -> Self {
        address.clone_into(&mut self.endpoint.address);
        if let Some(options) = &mut self.endpoint.options {
            options.secret = options.secret.take().map(|_| Secret::new(secret_text.to_owned()));
            options.headers = options.headers.shown_as(secret_text);
        }
        self
    }

    /// The form of the address under which requests to it are limited. Mailboxes are compared without case here,
    /// because nearly every mail server ignores it: another case reaches the same person. URLs have the form in which
    /// they are called: another case of the host, a default port or a fragment reaches the same receiver.
    pub fn counted_address(&self) -> String {
        match (self.channel(), Url::parse(self.address())) {
            (Channel::Email, _) => self.normalized_address().to_lowercase(),
            (Channel::Webhook, Ok(mut url)) => {
                url.set_fragment(None);
                url.into()
            }
            (Channel::Webhook | Channel::None, _) => self.address().to_owned(),
        }
    }

    /// The address for comparison: contacts with the same channel and normalized address are one contact. The domain of
    /// a mailbox is the same in upper and lower case and in its ASCII form. The part before the domain is kept, because
    /// only its mail server knows which spellings are equal.
    pub fn normalized_address(&self) -> Cow<'_, str> {
        match self.channel() {
            Channel::Email => with_domain(self.address(), ascii_domain),
            Channel::Webhook | Channel::None => Cow::Borrowed(self.address()),
        }
    }
}

/// Uses the older form of the address, so that existing ids stay the same.
fn derived_id(channel: Channel, address: &str) -> ContactId {
    let address = match channel {
        Channel::Email => with_domain(address, |domain| Some(domain.to_lowercase())),
        Channel::Webhook | Channel::None => Cow::Borrowed(address),
    };
    ContactId::derived(channel, &address)
}

/// The contacts, without inherited ones whose address an earlier contact has: an address that several levels name gets
/// one message.
pub fn distinct<'a>(contacts: impl IntoIterator<Item = &'a Contact>) -> Vec<&'a Contact> {
    let mut distinct: Vec<&Contact> = Vec::new();
    for contact in contacts {
        if contact.inherited.is_none() || !distinct.iter().any(|earlier| earlier.has_same_address(contact)) {
            distinct.push(contact);
        }
    }
    distinct
}

/// A contact with `***` instead of secret and headers: for output, never for storage.
pub fn masked_contact(contact: &Contact) -> Contact {
    contact.clone().shown_as(&masked_address(contact), MASK)
}

/// The address for output: passwords are `***`, and a URL that is as good as a secret is cut to its origin.
pub fn masked_address(contact: &Contact) -> String {
    let address = contact.address();
    let origin = || Some(Url::parse(address).ok()?.origin()).filter(Origin::is_tuple);
    match contact.options().map(|options| options.format.secret_use()) {
        None => address.to_owned(),
        Some(SecretUse::Signs | SecretUse::RoutingKey) => masked_url(address),
        Some(SecretUse::MaySign) => {
            origin().map_or_else(|| MASK.to_owned(), |origin| format!("{}/{MASK}", origin.ascii_serialization()))
        }
    }
}

/// The address for the log of alerts, which outlives contacts: like [`masked_address`], of a mailbox only the first
/// letter and the domain. The complete address is personal data; a derived id of the contact is a digest of it.
pub fn logged_address(contact: &Contact) -> String {
    let shown = masked_address(contact);
    match shown.rsplit_once('@').filter(|_| contact.options().is_none()) {
        Some((local, domain)) => format!("{}{MASK}@{domain}", local.chars().take(1).collect::<String>()),
        None => shown.chars().take(LOGGED_CHARS_MAX).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contacts that were written by hand with HSET have no id. The derived one must be the same at every reading.
    #[test]
    fn a_missing_id_is_derived_from_channel_and_address() {
        let json = r#"[{"channel":"email","address":"a@b.test"},{"id":"c_1","channel":"webhook","url":"https://x.test/","secret":"whsec_x"}]"#;
        let contacts: Vec<Contact> = serde_json::from_str(json).expect("contacts");
        assert_eq!(contacts[0].id, Contact::email("a@b.test").id);
        assert_eq!(contacts[1].id.as_str(), "c_1");
    }

    /// One mailbox must not be two contacts that get every alert twice, and an id must not change while deliveries are
    /// on their way.
    #[test]
    fn a_domain_is_the_same_in_either_case_and_the_local_part_is_not() {
        let id = |address: &str| Contact::email(address).id.to_string();
        assert_eq!(id("a@b.test"), "c_ab39b01901a28f91");
        assert_eq!(id("Bob@bücher.example"), "c_bfb05b681be4fb9b");
        assert_eq!((id("a@B.Test"), id("Bob@BÜCHER.example")), (id("a@b.test"), id("Bob@bücher.example")));
        assert_ne!(id("A@b.test"), id("a@b.test"));
        let normalized = |address: &str| Contact::email(address).normalized_address().into_owned();
        assert_eq!(normalized("\"a@B\"@B.Test"), "\"a@B\"@b.test");
        for spelled in ["Bob@bücher.example", "Bob@BÜCHER.example", "Bob@ｂücher．example", "Bob@XN--bcher-kva.Example"]
        {
            assert_eq!(normalized(spelled), "Bob@xn--bcher-kva.example");
        }
        for odd in ["nobody", "", "a@", "a@％", "@"] {
            assert_eq!(normalized(odd), odd);
        }
        let hook = Contact::webhook("https://X.test/@A", Secret::default());
        assert_eq!(
            (hook.normalized_address().as_ref(), hook.derived_id().as_str()),
            ("https://X.test/@A", "c_c962a2abce4c2d8f")
        );
    }

    /// A caller who asks in a stranger's name could otherwise ask once for each spelling of the address.
    #[test]
    fn an_address_is_counted_once_however_it_is_written() {
        let counted = |url: &str| Contact::webhook(url, Secret::default()).counted_address();
        for written in ["https://x.test/Hook?a", "HTTPS://X.Test:443/Hook?a", "https://x.test/./Hook?a#1"] {
            assert_eq!(counted(written), "https://x.test/Hook?a");
        }
        assert_ne!(counted("https://x.test/hook?a"), counted("https://x.test/Hook?a"));
        assert_eq!(Contact::email("BOB@B.test").counted_address(), "bob@b.test");
    }

    /// Older contacts, and those written by an operator or by the platform's HSET, must keep getting alerts. Only an
    /// explicit `false` stops them.
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

    /// A stored contact must be read back unchanged, and an invalid filter must not be taken for "all".
    #[test]
    fn a_contact_says_what_it_hears_and_that_it_is_disabled() {
        let of = |field: &str| format!(r#"{{"id":"c_1","channel":"email","address":"a@b.test",{field}}}"#);
        let stored = of(
            r#""thresholds":[80,100],"metrics":["requests"],"disabled":{"reason":"no_mailbox","detail":"SMTP 550","at":"2026-11-21T08:37:00.123Z"}"#,
        );
        let contact: Contact = serde_json::from_str(&stored).expect("a contact");
        assert_eq!(contact.filter.thresholds.len(), 2);
        assert_eq!(contact.disabled.as_ref().map(|state| state.at.0), Some(1_795_250_220_123));
        assert_eq!(serde_json::to_string(&contact).expect("JSON"), stored);
        for (field, told) in [
            (r#""thresholds":[]"#, "thresholds is an empty list"),
            (r#""metrics":["a","a"]"#, "metrics names a twice"),
            (r#""thresholds":[0]"#, "1 to 1000"),
        ] {
            let error = serde_json::from_str::<Contact>(&of(field)).expect_err(field).to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    /// A mute with an invalid end must neither last forever nor be ignored.
    #[test]
    fn a_contact_is_muted_until_a_time_or_for_good() {
        let of = |fields: &str| {
            let json = format!(r#"{{"id":"c_1","channel":"email","address":"a@b.test"{fields}}}"#);
            serde_json::from_str::<Contact>(&json).map_err(|error| error.to_string())
        };
        let mute = |fields: &str| of(fields).expect("a contact").mute;
        assert_eq!(mute(r#","muted":true"#), Some(Mute::default()));
        let ends = r#","muted":true,"muted_until":"2026-11-21T08:37:00.000Z","muted_reason":"new office""#;
        let contact = of(ends).expect("a contact");
        let end: UnixMs = "2026-11-21T08:37:00Z".parse().expect("a time");
        assert!(contact.muted_at(end.plus(-1)).is_some() && contact.muted_at(end).is_none());
        assert!(serde_json::to_string(&contact).expect("JSON").contains(ends));
        let ended = serde_json::to_string(&contact.shown_at(end)).expect("JSON");
        assert!(!ended.contains("muted"), "{ended}");
        assert_eq!(mute(r#","muted":false,"muted_until":"2026-11-21T08:37:00Z""#), None);
        let error = of(r#","muted":true,"muted_until":"tomorrow""#).expect_err("no time");
        assert!(error.starts_with("muted_until must be a time in RFC 3339"), "{error}");
    }

    /// The error must tell an operator what is wrong with a contact.
    #[test]
    fn a_broken_contact_names_what_is_missing() {
        let text = |json| serde_json::from_str::<Contact>(json).expect_err("broken").to_string();
        assert!(text(r#"{"channel":"email"}"#).contains("email contact has no \"address\""));
        assert!(text(r#"{"channel":"sms"}"#).contains("allowed are \"email\" and \"webhook\""));
    }

    /// A list whose parts fit by chance would be written to as if it were an object.
    #[test]
    fn a_list_is_no_contact() {
        let list = r#"[null,"webhook",null,"http://x/echo","whsec_x",false,false]"#;
        let error = serde_json::from_str::<Contact>(list).expect_err("a list").to_string();
        assert!(error.contains("expected an object"), "{error}");
        let value: serde_json::Value = serde_json::from_str(list).expect("JSON");
        assert!(<Contact as serde::Deserialize>::deserialize(&value).is_err());
    }
}
