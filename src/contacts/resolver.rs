//! Finds the contacts of a subject: its own from Redis or the fallback contacts of the configuration, and those of the
//! operator.
//!
//! Contacts are read at every attempt and never cached, so that a corrected address or a removed contact takes effect
//! at once. An unverified or disabled contact counts as missing, so a subject without other contacts gets the fallback
//! contacts. The resolver does not decide what happens to a delivery. It logs unreadable values by subject, without
//! addresses.

use std::sync::Arc;

use redis::{Cmd, RedisError, RedisResult};

use super::array::{CONTACTS, ContactArray, UnreadableContact};
use super::edit::CONTACTS_BOUND;
use super::text_settings::{locale_of, name_of, zone_of};
use crate::contacts::{Contact, OperatorContact};
use crate::redis_client::{ErrorKind, RedisClient, error_kind};
use crate::subjects::mutes::mute_field;
use crate::subjects::record::{LOCALE, NAME, SubjectField, TIMEZONE};
use crate::subjects::{StoredLevels, SubjectMutes};
use crate::types::{ContactId, DisplayName, Keys, Locale, Metric, QuotaNotification, Subject, UnixMs, meters};
use crate::zones::Zone;

/// Reads contacts of subjects; holds the fallback contacts.
#[derive(Debug, Clone)]
pub struct ContactResolver {
    keys: Keys,
    fallback: Arc<[Contact]>,
    operator: Arc<[OperatorContact]>,
    contacts_max: usize,
}

/// The present contacts of a subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedContacts {
    /// The source of the readable contacts.
    pub source: ContactsSource,
    /// Readable and verified contacts: the subject's own first. Levels may name one address: see
    /// [`distinct`](super::distinct).
    pub readable: Vec<Contact>,
    /// Disabled contacts: nothing is sent to them.
    pub disabled: Vec<Contact>,
    /// Unverified contacts: only the request for confirmation is sent to them.
    pub unverified: Vec<Contact>,
    /// Unreadable contacts. A contact that is not found may be one of them.
    pub unreadable: Vec<UnreadableContact>,
    /// The contacts of the operator.
    pub operator: Arc<[OperatorContact]>,
    /// The fallback contacts, whatever the source.
    pub fallback: Arc<[Contact]>,
    /// The display name of the subject.
    pub subject_name: Option<DisplayName>,
    /// The zone of the subject; `None` if it can't be read.
    pub zone: Option<Zone>,
}

/// The source of a subject's readable contacts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ContactsSource {
    /// The subject's own.
    #[default]
    Own,
    /// The fallback contacts: the subject has no usable contact.
    Fallback,
}

/// The result of looking for one contact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContactLookup {
    /// It exists and is enabled.
    Found(Contact),
    /// It exists and is disabled.
    Disabled(Contact),
    /// It was removed, has another channel or destination, or was never known.
    NotUsable,
    /// It may be one of the unreadable contacts, so it must not be taken for removed.
    Unreadable,
}

/// The contacts could not be read because Redis failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("read contacts of subject {subject}")]
pub struct ResolveContactsError {
    /// The subject.
    pub subject: Subject,
    /// The failure of Redis.
    #[source]
    pub source: RedisError,
}

impl ResolveContactsError {
    /// The kind of the failure.
    pub fn error_kind(&self) -> ErrorKind {
        error_kind(&self.source)
    }
}

impl ContactResolver {
    /// A resolver with these fallback contacts.
    pub fn new(keys: Keys, fallback: Vec<Contact>) -> Self {
        let fallback = fallback.into_iter().map(without_reserved_id).collect();
        Self { keys, fallback, operator: Arc::default(), contacts_max: CONTACTS_BOUND }
    }

    /// Sets the maximum number of contacts of a subject. If there are more, only the first ones are used.
    #[must_use]
    pub fn with_contacts_max(self, contacts_max: usize) -> Self {
        Self { contacts_max, ..self }
    }

    /// Sets the contacts of the operator.
    #[must_use]
    pub fn with_operator(self, contacts: &[OperatorContact]) -> Self {
        let named = |one: &OperatorContact| {
            let contact = Contact { id: one.contact.id.of_operator(), ..one.contact.clone() };
            OperatorContact { contact, ..one.clone() }
        };
        Self { operator: contacts.iter().map(named).collect(), ..self }
    }

    /// The contacts of the operator, with the ids that their deliveries have.
    pub fn operator(&self) -> &[OperatorContact] {
        &self.operator
    }

    /// The contacts of `subject`: its own verified ones, or those of the nearest level above that has some, or the
    /// fallback contacts; and those of all levels above that also get the alerts of levels below. If a stored field is
    /// unreadable, the alert waits until it is repaired, because it was not meant for others. Warns about each
    /// unreadable contact.
    ///
    /// # Errors
    ///
    /// [`ResolveContactsError`] if Redis failed. A key of another type is not an error: the contacts of this one
    /// subject are unreadable.
    pub async fn contacts_of(
        &self,
        client: &RedisClient,
        subject: &Subject,
    ) -> Result<ResolvedContacts, ResolveContactsError> {
        self.resolve(subject, query_levels(client, &self.commands(subject, &[])).await)
    }

    /// The contacts in the fields of a subject and of the levels above it.
    pub fn read_contacts(&self, stored: &StoredLevels) -> ResolvedContacts {
        let level = |(subject, fields): (&Subject, &[SubjectField])| {
            let value = |name: &str| fields.iter().find(|(field, _)| field == name.as_bytes()).map(|(_, v)| v.clone());
            self.read_level(subject, [CONTACTS, LOCALE, NAME, TIMEZONE].map(value).into())
        };
        self.of_levels(stored.iter().map(level).collect())
    }

    /// The contacts of the notification's subject, with the mutes that are in force at `now` and apply to this
    /// notification. A mute that can't be read is ignored with a warning.
    pub async fn recipients_of(
        &self,
        client: &RedisClient,
        notification: QuotaNotification<'_>,
        now: UnixMs,
    ) -> Result<(ResolvedContacts, SubjectMutes), ResolveContactsError> {
        let stored = query_levels(client, &self.recipients_commands(notification)).await;
        self.read_recipients(notification, stored, now)
    }

    /// The queries of [`ContactResolver::recipients_of`], one for each level, for callers that send many at once.
    pub fn recipients_commands(&self, notification: QuotaNotification<'_>) -> Vec<Cmd> {
        self.commands(notification.subject(), &mute_fields(notification.metric()))
    }

    /// Interprets the replies to [`ContactResolver::recipients_commands`].
    pub fn read_recipients(
        &self,
        notification: QuotaNotification<'_>,
        stored: RedisResult<StoredRecipients>,
        now: UnixMs,
    ) -> Result<(ResolvedContacts, SubjectMutes), ResolveContactsError> {
        let own = stored.as_ref().ok().and_then(|levels| levels.first()?.as_ref().ok());
        // Behind contacts, locale, name and zone.
        let muted: Vec<Option<Vec<u8>>> = own.into_iter().flatten().skip(4).cloned().collect();
        let (subject, fields) = (notification.subject(), mute_fields(notification.metric()));
        let muted = fields.into_iter().zip(muted).filter_map(|(field, value)| Some((field, value?)));
        let (mutes, unreadable) = SubjectMutes::read(muted, now);
        for error in unreadable {
            tracing::warn!(%subject, %error, "a mute can't be read and mutes nothing");
        }
        Ok((self.resolve(subject, stored)?, mutes))
    }

    /// The contacts of many subjects in their order, with one request to each server.
    ///
    /// # Errors
    ///
    /// Like [`ContactResolver::contacts_of`], for the first subject that could not be read.
    pub async fn contacts_of_each(
        &self,
        client: &RedisClient,
        subjects: &[&Subject],
    ) -> Result<Vec<ResolvedContacts>, ResolveContactsError> {
        let Some(first) = subjects.first() else { return Ok(Vec::new()) };
        let commands: Vec<Vec<Cmd>> = subjects.iter().map(|subject| self.commands(subject, &[])).collect();
        let failed = |source| ResolveContactsError { subject: (*first).clone(), source };
        let replies = query_levels(client, &commands.concat()).await.map_err(failed)?;
        let mut replies = replies.into_iter();
        let resolve = |(subject, commands): (&&Subject, &Vec<Cmd>)| {
            self.resolve(subject, Ok(replies.by_ref().take(commands.len()).collect()))
        };
        subjects.iter().zip(&commands).map(resolve).collect()
    }

    /// The queries for the contacts, locale, name and zone of a subject, with these fields of its own, and of each
    /// level above.
    fn commands(&self, subject: &Subject, own_fields: &[String]) -> Vec<Cmd> {
        let mut commands = Vec::with_capacity(1);
        for (at, level) in std::iter::once(subject).chain(&self.keys.separator().ancestors(subject)).enumerate() {
            let mut command = redis::cmd("HMGET");
            command.arg(self.keys.subject(level)).arg(&[CONTACTS, LOCALE, NAME, TIMEZONE]);
            commands.push(if at == 0 { command.arg(own_fields).to_owned() } else { command });
        }
        commands
    }

    /// Interprets the replies with the contacts of a subject and of the levels above it. Warns about unreadable ones.
    fn resolve(
        &self,
        subject: &Subject,
        replies: RedisResult<StoredRecipients>,
    ) -> Result<ResolvedContacts, ResolveContactsError> {
        let failed = |source| ResolveContactsError { subject: subject.clone(), source };
        let ancestors = self.keys.separator().ancestors(subject);
        let levels = std::iter::once(subject).chain(&ancestors).zip(replies.map_err(failed)?);
        let level = |(level, reply): (&Subject, RedisResult<LevelReply>)| match reply {
            Ok(values) => Ok(self.read_level(level, values)),
            Err(error) if error_kind(&error) == ErrorKind::WrongType => {
                let contacts = ResolvedContacts::broken("the subject's key is not a hash");
                contacts.warn(level);
                Ok(LevelContacts { subject: level.clone(), contacts, locale: None, name: None, zone: None })
            }
            Err(source) => Err(failed(source)),
        };
        Ok(self.of_levels(levels.map(level).collect::<Result<_, _>>()?))
    }

    fn read_level(&self, subject: &Subject, values: LevelReply) -> LevelContacts {
        let mut values = values.into_iter();
        let [contacts, locale, name, zone] = [(); 4].map(|()| values.next().flatten());
        let contacts = self.parse(contacts);
        contacts.warn(subject);
        let (locale, name) = (locale_of(subject, locale), name_of(subject, name));
        LevelContacts { subject: subject.clone(), contacts, locale, name, zone }
    }

    /// Interprets a stored field. Pure.
    fn parse(&self, field: Option<Vec<u8>>) -> ResolvedContacts {
        match ContactArray::parse(field.as_deref().unwrap_or_default()) {
            Ok(array) => ResolvedContacts::from_array(&array, self.contacts_max),
            Err(error) => ResolvedContacts::broken(&error.to_string()),
        }
    }

    /// The contacts that the first of these levels has, from it to the top: with those that it inherits. Pure.
    fn of_levels(&self, mut levels: Vec<LevelContacts>) -> ResolvedContacts {
        let subject_name = levels.first_mut().and_then(|own| own.name.take());
        let zone = zone_of(levels.iter_mut().map(|level| level.zone.take()));
        let mut locale = None;
        for level in levels.iter_mut().rev() {
            locale = level.locale.take().or(locale);
            let contacts = level.contacts.readable.iter_mut().chain(&mut level.contacts.disabled);
            contacts.for_each(|contact| contact.locale.clone_from(&locale));
        }
        let has_some =
            |level: &LevelContacts| !level.contacts.readable.is_empty() || !level.contacts.unreadable.is_empty();
        let nearest = levels.iter().position(has_some);
        // Disabled contacts count as missing, so they are inherited from every level up to the nearest: an alert that
        // only they would get must not be silenced, and the others must be told of them.
        let is_near = |at: usize| nearest.is_none_or(|nearest| at <= nearest);
        let mut levels = levels.into_iter();
        let mut all = levels.next().map(|own| own.contacts).unwrap_or_default();
        for (at, LevelContacts { subject, contacts, .. }) in (1..).zip(levels) {
            let inherits = |contact: &Contact| is_near(at) || contact.filter.subtree;
            let below = |contacts: Vec<Contact>| {
                contacts
                    .into_iter()
                    .filter(inherits)
                    .map(|contact| contact.inherited_from(&subject))
                    .collect::<Vec<_>>()
            };
            all.readable.extend(below(contacts.readable));
            all.disabled.extend(below(contacts.disabled));
            all.unreadable.extend(contacts.unreadable.into_iter().map(|contact| contact.inherited_from(&subject)));
        }
        if all.readable.is_empty() && all.unreadable.is_empty() {
            all.source = ContactsSource::Fallback;
            all.readable = self.fallback.to_vec();
        }
        let (operator, fallback) = (Arc::clone(&self.operator), Arc::clone(&self.fallback));
        ResolvedContacts { operator, fallback, subject_name, zone, ..all }
    }
}

/// The contacts of one level.
struct LevelContacts {
    subject: Subject,
    contacts: ResolvedContacts,
    locale: Option<Locale>,
    name: Option<DisplayName>,
    /// As it is stored.
    zone: Option<Vec<u8>>,
}

/// Sends the queries for one or more subjects at once.
async fn query_levels(client: &RedisClient, commands: &[Cmd]) -> RedisResult<StoredRecipients> {
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    for command in commands {
        pipeline.add_command(command.clone());
    }
    client.pipe(&pipeline).await
}

/// The values of the fields of a level that decide who gets an alert: contacts, locale, name, zone, and of the subject
/// itself its mutes.
pub type LevelReply = Vec<Option<Vec<u8>>>;

/// The replies for a subject and the levels above it, in this order.
pub type StoredRecipients = Vec<RedisResult<LevelReply>>;

/// The fields of the mutes that apply to a notification about this metric: that of its subject, and that of the metric.
fn mute_fields(metric: &Metric) -> [String; 2] {
    [mute_field(None), mute_field(Some(metric))]
}

impl ResolvedContacts {
    /// Logs the unreadable contacts, each with its id if that can be read.
    fn warn(&self, subject: &Subject) {
        for UnreadableContact { id, why } in &self.unreadable {
            metrics::counter!(meters::SUBJECTS_UNREADABLE).increment(1);
            let contact = id.as_ref().map_or("unknown", ContactId::as_str);
            tracing::warn!(%subject, contact, why, "contact is unreadable and gets nothing until it is repaired");
        }
    }

    /// Finds one contact.
    pub fn find(&self, id: &ContactId) -> ContactLookup {
        let operators = self.operator.iter().map(|one| &one.contact);
        if let Some(contact) = self.readable.iter().chain(operators).find(|contact| contact.id == *id) {
            return ContactLookup::Found(contact.clone());
        }
        if let Some(contact) = self.disabled.iter().find(|contact| contact.id == *id) {
            return ContactLookup::Disabled(contact.clone());
        }
        if id.is_of_operator() {
            return ContactLookup::NotUsable;
        }
        let may_be_it = |unreadable: &UnreadableContact| unreadable.id.as_ref().is_none_or(|stated| stated == id);
        if self.unreadable.iter().any(may_be_it) { ContactLookup::Unreadable } else { ContactLookup::NotUsable }
    }

    /// Whether the configuration names this contact: only the operator may disable it.
    pub fn is_configured(&self, id: &ContactId) -> bool {
        self.source == ContactsSource::Fallback || id.is_of_operator()
    }

    fn from_array(array: &ContactArray, contacts_max: usize) -> Self {
        let mut contacts = Self::default();
        // A plain HSET may store any number of contacts. Those above the maximum count as unreadable, so that they are
        // not taken for removed.
        if let Some(more) = array.len().checked_sub(contacts_max).filter(|more| *more > 0) {
            let why = format!("{more} contacts are more than the {contacts_max} that subjects.contacts_max allows");
            contacts.unreadable.push(UnreadableContact { id: None, why });
        }
        for contact in array.read_contacts().take(contacts_max) {
            match contact.map(without_reserved_id) {
                Ok(contact) if !contact.verified => contacts.unverified.push(contact),
                Ok(contact) if contact.disabled.is_some() => contacts.disabled.push(contact),
                Ok(contact) => contacts.readable.push(contact),
                Err(unreadable) => contacts.unreadable.push(unreadable),
            }
        }
        contacts
    }

    fn broken(why: &str) -> Self {
        Self { unreadable: vec![UnreadableContact { id: None, why: why.to_owned() }], ..Self::default() }
    }
}

/// Replaces a reserved id by the one derived from the address.
fn without_reserved_id(mut contact: Contact) -> Contact {
    if contact.id.as_str() == Contact::RESERVED_ID || contact.id.is_of_operator() {
        contact.id = contact.derived_id();
    }
    contact
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn parsed(fallback: &[&str], field: &str) -> ResolvedContacts {
        let resolver =
            ContactResolver::new(Keys::new("usage"), fallback.iter().map(|address| Contact::email(address)).collect());
        resolver.of_levels(vec![level(&resolver, "alice", field, None)])
    }

    fn level(resolver: &ContactResolver, name: &str, field: &str, locale: Option<&str>) -> LevelContacts {
        let contacts = resolver.parse(Some(field.as_bytes().to_vec()));
        let locale = locale.map(|locale| Locale::parse(locale).expect("legal"));
        LevelContacts { subject: name.parse().expect("legal"), contacts, locale, name: None, zone: None }
    }

    fn addresses(contacts: &ResolvedContacts) -> Vec<&str> {
        contacts.readable.iter().map(Contact::address).collect()
    }

    const UNVERIFIED: &str = r#"{"id":"c_1","channel":"email","address":"new@b.test","verified":false}"#;

    /// Alerts to an unconfirmed address would be email to a stranger.
    #[test]
    fn an_unverified_contact_counts_as_not_there() {
        let contacts = parsed(&[], &format!(r#"[{UNVERIFIED},{{"channel":"email","address":"a@b.test"}}]"#));
        assert_eq!(addresses(&contacts), ["a@b.test"]);
        assert_eq!(contacts.find(&ContactId::from_stored("c_1")), ContactLookup::NotUsable);
        let unverified: Vec<&str> = contacts.unverified.iter().map(|contact| contact.id.as_str()).collect();
        assert_eq!(unverified, ["c_1"]);
    }

    /// A plain HSET of thousands of contacts must not create thousands of deliveries of each alert, nor cost the
    /// allowed contacts their alert.
    #[test]
    fn contacts_beyond_the_setting_are_left_out_and_told() {
        let resolver =
            ContactResolver::new(Keys::new("usage"), vec![Contact::email("ops@b.test")]).with_contacts_max(2);
        let read = |count: usize| {
            let contacts: Vec<Contact> = (0..count).map(|number| Contact::email(&format!("{number}@b.test"))).collect();
            resolver.parse(Some(serde_json::to_vec(&contacts).expect("JSON")))
        };
        assert_eq!((addresses(&read(2)), read(2).unreadable.len()), (vec!["0@b.test", "1@b.test"], 0));
        let many = read(4_100);
        assert_eq!(addresses(&many), ["0@b.test", "1@b.test"]);
        let why: Vec<&str> = many.unreadable.iter().map(|one| one.why.as_str()).collect();
        assert_eq!(why, ["4098 contacts are more than the 2 that subjects.contacts_max allows"]);
        assert_eq!(many.find(&Contact::email("9@b.test").id), ContactLookup::Unreadable, "it was not removed");
    }

    /// A mistake of the platform must be reported, and a list must not be taken for the fields in their order.
    #[test]
    fn a_list_of_fields_is_unreadable() {
        let contacts = parsed(&["ops@b.test"], r#"[[null,"email","a@b.test",null,null,false,true]]"#);
        let why: Vec<&str> = contacts.unreadable.iter().map(|one| one.why.as_str()).collect();
        assert_eq!((addresses(&contacts), why), (vec![], vec!["not an object"]));
    }

    /// A platform's own field with a value that can't be parsed must not cost any contact its alerts.
    #[test]
    fn a_note_that_can_not_be_read_costs_nobody_an_alert() {
        for note in ["1e999", r#""\ud800""#] {
            let stored = format!(
                r#"[{{"channel":"email","address":"a@b.test","note":{note}}},{{"id":"x","note":{note}}},
                    {{"channel":"email","address":"b@b.test"}}]"#
            );
            let contacts = parsed(&[], &stored);
            assert_eq!(addresses(&contacts), ["a@b.test", "b@b.test"]);
            assert_eq!(contacts.unreadable.len(), 1, "{:?}", contacts.unreadable);
        }
    }

    /// Adding a contact must not take the alerts away from the fallback contacts before it is confirmed.
    #[test]
    fn with_only_unverified_contacts_the_fallback_stays() {
        assert_eq!(addresses(&parsed(&["ops@b.test"], &format!("[{UNVERIFIED}]"))), ["ops@b.test"]);
        assert_eq!(addresses(&parsed(&["ops@b.test"], &format!("[{UNVERIFIED},{{}}]"))), [""; 0]);
        assert_eq!(addresses(&parsed(&[], &format!("[{UNVERIFIED}]"))), [""; 0]);
    }

    fn mails(names: &[&str]) -> String {
        let one = |name: &&str| {
            let (name, subtree) = name.strip_suffix('+').map_or((*name, false), |name| (name, true));
            format!(r#"{{"id":"same","channel":"email","address":"{name}@b.test","subtree":{subtree}}}"#)
        };
        format!("[{}]", names.iter().map(one).collect::<Vec<_>>().join(","))
    }

    /// A level without contacts has those of the nearest level above that has some; contacts with `subtree` of any
    /// level above come on top. One address may come twice: each entry has a filter of its own.
    #[test]
    fn levels_inherit_contacts() {
        let resolver = ContactResolver::new(Keys::new("usage"), vec![Contact::email("ops@b.test")]);
        let of = |levels: [&[&str]; 3]| {
            let names = ["acme/a/k", "acme/a", "acme"];
            let levels = levels.iter().zip(names).map(|(mailed, name)| level(&resolver, name, &mails(mailed), None));
            let contacts = resolver.of_levels(levels.collect());
            addresses(&contacts).into_iter().map(|address| address.replace("@b.test", "")).collect::<Vec<_>>()
        };
        assert_eq!(of([&["key"], &["team"], &["org"]]), ["key"]);
        assert_eq!(of([&[], &["team"], &["org"]]), ["team"]);
        assert_eq!(of([&[], &[], &["org"]]), ["org"]);
        assert_eq!(of([&[], &["team"], &["org", "audit+"]]), ["team", "audit"]);
        assert_eq!(of([&["key"], &["lead+"], &["audit+"]]), ["key", "lead", "audit"]);
        assert_eq!(of([&["audit"], &[], &["audit+"]]), ["audit", "audit"]);
        assert_eq!(of([&[], &[], &[]]), ["ops"]);
    }

    /// A disabled contact must not make the level above responsible alone: its alerts would be silenced by the filters
    /// there, and the others would not be told that it is disabled.
    #[test]
    fn disabled_contacts_are_inherited_up_to_the_nearest_level_that_has_some() {
        let resolver = ContactResolver::new(Keys::new("usage"), Vec::new());
        let gone = mails(&["gone"]).replace(
            r#""id":"same","#,
            r#""id":"gone","disabled":{"reason":"gone","detail":"410","at":"2026-11-21T08:37:00Z"},"#,
        );
        let of = |levels: [&str; 3]| {
            let names = ["acme/a/k", "acme/a", "acme"];
            let levels = levels.iter().zip(names).map(|(stored, name)| level(&resolver, name, stored, None));
            let contacts = resolver.of_levels(levels.collect());
            contacts.disabled.iter().map(|contact| contact.where_it_belongs(&subject("acme/a/k")).0).collect::<Vec<_>>()
        };
        let well = mails(&["well"]);
        assert_eq!(of(["", &gone, &well]), [subject("acme/a")]);
        assert_eq!(of([&gone, &gone, &well]), [subject("acme/a/k"), subject("acme/a")]);
        assert_eq!(of(["", &gone, &gone]), [subject("acme/a"), subject("acme")]);
        assert_eq!(of(["", &well, &gone]), [] as [Subject; 0], "the team is the nearest");
    }

    /// A typing error in an inherited contact delays its deliveries, as one in an own contact does; those of other
    /// contacts are not delayed.
    #[test]
    fn an_inherited_contact_that_becomes_unreadable_is_not_removed() {
        let resolver = ContactResolver::new(Keys::new("usage"), Vec::new());
        let of = |stored: &str| {
            resolver.of_levels(vec![level(&resolver, "acme/a", "", None), level(&resolver, "acme", stored, None)])
        };
        let id = of(&mails(&["billing"])).readable[0].id.clone();
        let broken = of(r#"[{"id":"same","channel":"email"}]"#);
        assert_eq!(broken.find(&id), ContactLookup::Unreadable);
        assert_eq!(broken.find(&ContactId::from_stored("same")), ContactLookup::NotUsable);
    }

    fn subject(name: &str) -> Subject {
        name.parse().expect("legal")
    }

    /// Two levels may use one id for two addresses, or have one address without an id: deliveries would confuse the
    /// two. The language is that of the level that the contact belongs to.
    #[test]
    fn an_inherited_contact_knows_where_it_belongs() {
        let resolver = ContactResolver::new(Keys::new("usage"), Vec::new());
        let locale = |contact: &Contact| contact.locale.as_ref().map(ToString::to_string);
        let own = level(&resolver, "acme/a", &mails(&["team"]), Some("vi"));
        let above = level(&resolver, "acme", &mails(&["audit+"]), Some("en"));
        let contacts = resolver.of_levels(vec![own, above]).readable;
        let (team, audit) = (&contacts[0], &contacts[1]);
        assert_eq!((team.id.as_str(), locale(team)), ("same", Some("vi".into())));
        assert_eq!(locale(audit), Some("en".into()));
        let without_id = mails(&["audit+"]).replace(r#""id":"same","#, "");
        let levels = ["acme/a/k", "acme/a", "acme"].map(|name| level(&resolver, name, &without_id, None));
        let contacts = resolver.of_levels(levels.into()).readable;
        let ids: BTreeSet<&str> = contacts.iter().chain([audit]).map(|contact| contact.id.as_str()).collect();
        assert_eq!((contacts.len(), ids.len()), (3, 4), "{ids:?}");
        let (subject, stored) = audit.where_it_belongs(&"acme/a".parse().expect("legal"));
        assert_eq!((subject.as_str(), stored.id.as_str()), ("acme", "same"));
    }
}
