//! A change of one subject's hash: what `set` names, and what a line of an import names.

use std::collections::BTreeMap;

use redis::Pipeline;
use serde::{Deserialize, Serialize};

use crate::config::{Config, nearest};
use crate::contacts::check::{self, ContactFault};
use crate::contacts::store::Fields;
use crate::contacts::stored;
use crate::contacts::{Contact, Endpoint};
use crate::subjects::record;
use crate::transport::secret::generate;
use crate::types::{Channel, ContactId, Keys, Metric, Percent, Secret, Subject, Units};

/// What happens to one setting.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Setting<T> {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is replaced.
    Set(T),
    /// It is removed, so that the plan or the default holds.
    Clear,
}

/// A change of one subject, judged and ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Who.
    pub subject: Subject,
    /// The plan.
    pub plan: Setting<String>,
    /// The time zone.
    pub timezone: Setting<String>,
    /// The named metrics' limits.
    pub limits: BTreeMap<Metric, Setting<Units>>,
    /// The thresholds.
    pub thresholds: Setting<Vec<Percent>>,
    /// The whole list of contacts.
    pub contacts: Setting<Vec<Contact>>,
    /// Those secrets in it that were made here, because none was named.
    pub generated: Vec<GeneratedSecret>,
    /// What becomes of the secrets that are stored for the same webhooks.
    pub stored_secrets: StoredSecrets,
}

/// What becomes of a stored secret whose webhook is named again, without a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoredSecrets {
    /// It is kept: the receiver checks with it.
    #[default]
    Keep,
    /// It goes with all contacts, which are cleared first.
    Clear,
}

impl Change {
    /// A change of nothing so far.
    #[must_use]
    pub const fn of(subject: Subject) -> Self {
        Self {
            subject,
            plan: Setting::Keep,
            timezone: Setting::Keep,
            limits: BTreeMap::new(),
            thresholds: Setting::Keep,
            contacts: Setting::Keep,
            generated: Vec::new(),
            stored_secrets: StoredSecrets::Keep,
        }
    }

    /// Takes contacts as named; none leaves those that are there.
    pub fn name_contacts(&mut self, named: NamedContacts) {
        if !named.contacts.is_empty() {
            self.contacts = Setting::Set(named.contacts);
            self.generated = named.generated;
        }
    }

    /// Whether a stored secret may take the place of one that was made here.
    #[must_use]
    pub fn depends_on_stored(&self) -> bool {
        !self.generated.is_empty() && self.stored_secrets == StoredSecrets::Keep
    }

    /// The change where `stored` is the field of contacts: each webhook without a named secret keeps the one that is stored for its
    /// URL. One that can't sign is no secret: no receiver ever checked with it. Pure.
    #[must_use]
    pub fn keeping(&self, stored: &[u8]) -> Self {
        let mut kept = self.clone();
        let Setting::Set(contacts) = &mut kept.contacts else { return kept };
        let stored = StoredWebhook::read(stored);
        kept.generated.retain(|generated| {
            let Some(secret) = StoredWebhook::secret_of(&stored, &generated.url) else { return true };
            // Our own, from a try whose answer was lost: nobody has seen it yet.
            if secret == generated.secret {
                return true;
            }
            for contact in contacts.iter_mut() {
                if let Endpoint::Webhook { url, secret: made } = &mut contact.endpoint
                    && *url == generated.url
                {
                    *made = Secret::new(secret.to_owned());
                }
            }
            false
        });
        kept
    }

    /// The names of the fields that change, in words for people.
    #[must_use]
    pub fn named(&self) -> Vec<String> {
        let Fields { set, cleared } = self.fields();
        set.into_iter().map(|(name, _)| name).chain(cleared).collect()
    }

    /// Adds the commands that write this change. Writing it twice changes nothing more.
    pub fn write(&self, pipeline: &mut Pipeline, keys: &Keys) {
        let key = keys.subject(&self.subject);
        let Fields { set, cleared } = self.fields();
        if !set.is_empty() {
            let command = pipeline.cmd("HSET").arg(&key);
            for (name, value) in &set {
                command.arg(name).arg(value);
            }
            pipeline.ignore();
        }
        if !cleared.is_empty() {
            pipeline.cmd("HDEL").arg(&key).arg(&cleared).ignore();
        }
    }

    /// The fields as they are written.
    pub(super) fn fields(&self) -> Fields {
        let mut fields = Fields::default();
        take(&mut fields, record::PLAN, &self.plan, Clone::clone);
        take(&mut fields, record::TIMEZONE, &self.timezone, Clone::clone);
        for (metric, limit) in &self.limits {
            take(&mut fields, &record::limit_field(metric), limit, ToString::to_string);
        }
        take(&mut fields, record::THRESHOLDS, &self.thresholds, |thresholds| record::write_thresholds(thresholds));
        take(&mut fields, stored::CONTACTS, &self.contacts, |contacts| stored::write_contacts(contacts));
        fields
    }
}

/// A webhook among stored contacts. Read by itself: another contact that can't be read must not cost its secret.
#[derive(Debug, Deserialize)]
struct StoredWebhook {
    id: Option<ContactId>,
    url: String,
    secret: String,
    verified: Option<bool>,
}

impl StoredWebhook {
    fn read(contacts: &[u8]) -> Vec<Self> {
        let contacts: Vec<serde_json::Value> = serde_json::from_slice(contacts).unwrap_or_default();
        let webhooks = contacts.into_iter().filter(|contact| contact["channel"] == Channel::Webhook.as_str());
        webhooks.filter_map(|webhook| serde_json::from_value(webhook).ok()).collect()
    }

    /// The secret that signs for this URL. The platform may have given the contact an id of its own; among several for one URL the
    /// one with our id is ours. One that nobody has confirmed never signed an alert, so it comes last.
    fn secret_of<'a>(stored: &'a [Self], url: &str) -> Option<&'a str> {
        let ours = Contact::webhook(url, Secret::new(String::new())).id;
        let of_url = stored.iter().filter(|webhook| webhook.url == url);
        let signing = of_url.filter(|webhook| check::check_secret(&webhook.secret).is_ok());
        let first = signing
            .min_by_key(|webhook| (webhook.verified == Some(false), webhook.id.as_ref().is_some_and(|id| *id != ours)));
        first.map(|webhook| webhook.secret.as_str())
    }
}

/// Adds one setting to the fields that are written.
fn take<T>(fields: &mut Fields, name: &str, setting: &Setting<T>, write: impl Fn(&T) -> String) {
    match setting {
        Setting::Keep => {}
        Setting::Set(value) => fields.set.push((name.to_owned(), write(value))),
        Setting::Clear => fields.cleared.push(name.to_owned()),
    }
}

/// A webhook as it was named: without a secret, the stored one is kept, or one is generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedWebhook {
    /// The receiver.
    pub url: String,
    /// Its secret, if one was named.
    pub secret: Option<String>,
}

/// A secret that was generated here: its only chance to be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GeneratedSecret {
    /// The receiver.
    pub url: String,
    /// The secret.
    pub secret: String,
}

/// Contacts as they will be written, and the secrets that nobody has seen yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamedContacts {
    /// The whole list.
    pub contacts: Vec<Contact>,
    /// Secrets of those among them that named none.
    pub generated: Vec<GeneratedSecret>,
}

/// Makes contacts of what was named, and judges each.
///
/// # Errors
///
/// A sentence: a broken address, URL or secret, or a contact that is named twice. Shows no secret.
pub fn contacts(emails: &[String], webhooks: Vec<NamedWebhook>) -> Result<NamedContacts, String> {
    let mut named = NamedContacts::default();
    for email in emails {
        named.add(Contact::email(email))?;
    }
    for NamedWebhook { url, secret } in webhooks {
        let secret = secret.unwrap_or_else(|| {
            let secret = generate().reveal().to_owned();
            named.generated.push(GeneratedSecret { url: url.clone(), secret: secret.clone() });
            secret
        });
        named.add(Contact::webhook(&url, Secret::new(secret)))?;
    }
    Ok(named)
}

impl NamedContacts {
    fn add(&mut self, contact: Contact) -> Result<(), String> {
        check::check(&contact).map_err(|fault| fault.to_string())?;
        if self.contacts.iter().any(|other| other.id == contact.id) {
            return Err(format!("contact {} is named twice", contact.address()));
        }
        self.contacts.push(contact);
        Ok(())
    }
}

/// Judges a plan's name.
///
/// # Errors
///
/// A sentence with the plans that exist.
pub fn plan(config: &Config, name: &str) -> Result<String, String> {
    if config.plans.contains_key(name) {
        return Ok(name.to_owned());
    }
    let known: Vec<&str> = config.plans.keys().map(String::as_str).collect();
    let near = nearest(name, &known).map_or_else(String::new, |near| format!(" (did you mean {near:?}?)"));
    Err(format!("there is no plan {name:?} in the configuration{near}, only {}", known.join(", ")))
}

/// Judges a limit as written: units, or `none` for no limit of the subject's own.
///
/// # Errors
///
/// A sentence with what is allowed.
pub fn limit(text: &str) -> Result<Setting<Units>, String> {
    if text == "none" {
        return Ok(Setting::Clear);
    }
    text.parse().map(Setting::Set).map_err(|error| format!("{error}, or none to remove the limit"))
}

/// Judges an e-mail address on the command line.
///
/// # Errors
///
/// [`ContactFault`].
pub fn address(text: &str) -> Result<String, ContactFault> {
    check::check_address(text).map(|()| text.to_owned())
}

/// Judges a receiver's URL on the command line.
///
/// # Errors
///
/// [`ContactFault`].
pub fn url(text: &str) -> Result<String, ContactFault> {
    check::check_url(text).map(|()| text.to_owned())
}

/// What an operator should know about a change that is legal: contacts that no attempt will reach as things are configured, or that
/// not every mail server takes.
#[must_use]
pub fn warnings(change: &Change, config: &Config) -> Vec<String> {
    let Setting::Set(contacts) = &change.contacts else { return Vec::new() };
    let warning = |contact: &Contact| {
        let address = contact.address();
        match contact.endpoint {
            Endpoint::Webhook { .. } if address.starts_with("http://") && !config.webhook.allow_http => {
                Some(format!("{address} is plain http, which webhook.allow_http = false refuses"))
            }
            Endpoint::Email { .. } if check::needs_smtputf8(address) => Some(format!(
                "{address} has letters beyond ASCII before the @: only a mail server with SMTPUTF8 takes it"
            )),
            Endpoint::Webhook { .. } | Endpoint::Email { .. } => None,
        }
    };
    contacts.iter().filter_map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A secret that somebody proposed through the API must not take the place of the one that the receiver checks with.
    #[test]
    fn the_secret_of_a_verified_webhook_is_kept_before_that_of_an_unverified_one() {
        let (old, new) = (generate(), generate());
        let url = "https://x.test/";
        let ours = Contact::webhook(url, Secret::default()).id;
        let stored = serde_json::json!([
            {"id": ours, "channel": "webhook", "url": url, "secret": new.reveal(), "verified": false},
            {"id": "main", "channel": "webhook", "url": url, "secret": old.reveal()},
        ]);
        let kept = StoredWebhook::read(stored.to_string().as_bytes());
        assert_eq!(StoredWebhook::secret_of(&kept, url), Some(old.reveal()));
    }

    /// A generated secret must pass the check that every other secret passes, and be another one each time.
    #[test]
    fn generated_secrets_are_valid_and_differ() {
        let (first, second) = (generate(), generate());
        assert_eq!(check::check_secret(first.reveal()), Ok(()));
        assert_ne!(first, second);
    }
}
