//! Chooses the contact that gets a test message, and the contents of the message.

use std::time::Duration;

use quotabell_throttle::{Cooldown, CooldownDecision};
use redis::RedisResult;

use crate::channels::Sample;
use crate::contacts::resolver::{ContactsSource, ResolvedContacts};
use crate::contacts::select::{SelectContactError, select};
use crate::contacts::{Contact, distinct};
use crate::redis_client::Partition;
use crate::types::text::printable;
use crate::types::{ContactId, Subject, UnixMs};
use crate::views::SubjectSettings;

/// Time between two test messages to a contact. Sent messages can't be taken back, and a command in a loop is easily
/// written.
const COOLDOWN: Duration = Duration::from_secs(10);

/// Why no contact was chosen.
#[derive(Debug)]
pub enum ChooseError {
    /// No contact is selected; these exist.
    NotFound(Vec<Contact>),
    Unverified(ContactId),
    /// Several contacts are selected.
    Several(Vec<Contact>),
    /// The id is the prefix of several ids.
    Ambiguous(SelectContactError),
}

/// The subject's contact that `named` selects, even if it gets no alerts; without `named` the only contact that gets
/// alerts. The fallback contacts are used for a subject without usable contacts, as for an alert.
///
/// # Errors
///
/// [`ChooseError`]: no contact, or several.
pub fn choose(contacts: &ResolvedContacts, named: Option<&str>) -> Result<Contact, ChooseError> {
    let ResolvedContacts { readable, disabled, unverified, .. } = contacts;
    // A webhook with a new, unconfirmed secret has two contacts with one id. The first one gets alerts.
    let known: Vec<&Contact> = readable.iter().chain(disabled).chain(unverified).collect();
    let selected = match named.map(|text| select(&known, text)) {
        None => distinct(readable).into_iter().map(|contact| contact.id.clone()).collect(),
        Some(Ok(ids)) => ids,
        Some(Err(SelectContactError::NotFound(_))) => Vec::new(),
        Some(Err(error)) => return Err(ChooseError::Ambiguous(error)),
    };
    let chosen = selected.iter().filter_map(|id| known.iter().find(|contact| contact.id == *id));
    let mut chosen: Vec<Contact> = chosen.map(|contact| (*contact).clone()).collect();
    match (chosen.pop(), chosen.is_empty()) {
        (None, _) => Err(ChooseError::NotFound(known.into_iter().cloned().collect())),
        (Some(contact), true) if contact.verified => Ok(contact),
        (Some(contact), true) => Err(ChooseError::Unverified(contact.id)),
        (Some(last), false) => Err(ChooseError::Several(chosen.into_iter().chain([last]).collect())),
    }
}

/// Warnings about sending to this contact of a subject.
pub fn warnings(subject: &Subject, contacts: &ResolvedContacts, contact: &Contact, now: UnixMs) -> Vec<String> {
    let id = &contact.id;
    let mut warnings = Vec::new();
    if contacts.source == ContactsSource::Fallback && contacts.readable.contains(contact) {
        let is_alone = contacts.disabled.is_empty() && contacts.unverified.is_empty();
        let usable = if is_alone { "" } else { " that could be used" };
        warnings.push(format!(
            "{subject} has no contact of its own{usable}: contact {id} of the fallback gets this message"
        ));
    }
    let mute = contact.muted_at(now).map(|mute| printable(&mute.to_string()));
    let disabled = contact.disabled.as_ref().map(|state| format!("disabled, {state}"));
    let gets_nothing = mute.into_iter().chain(disabled);
    warnings
        .extend(gets_nothing.map(|why| format!("warning: contact {id} is {why}; it gets this message, but no alerts")));
    warnings
}

/// Starts the cooldown of a contact, or returns the rest of a running one. The contact is identified by its address:
/// two subjects may share one mailbox, and two contacts one id.
///
/// # Errors
///
/// The failure of Redis or the connection.
pub async fn start_cooldown(
    Partition { client, keys }: &Partition,
    contact: &Contact,
) -> RedisResult<Option<Duration>> {
    let key = keys.send_test_cooldown(&contact.derived_id());
    Ok(match Cooldown::new(COOLDOWN).try_start(&mut client.connection(), &key).await? {
        CooldownDecision::Started => None,
        CooldownDecision::Active { retry_after } => Some(retry_after),
    })
}

/// The subject as in its next alert: its plan, its zone, and the limit of `requests`, or of its first metric without
/// that; the daily limit if there is one. A subject without limits gets no alerts, so its test message shows an example
/// limit.
pub fn sample(subject: &Subject, settings: SubjectSettings) -> Sample {
    let SubjectSettings { plan, zone, billing, limits, name: subject_name, .. } = settings;
    let sample = Sample { plan, zone, billing, subject_name, ..Sample::for_subject(subject.clone()) };
    let Some((metric, limits)) = limits.get_key_value(&sample.metric).or_else(|| limits.first_key_value()) else {
        return sample;
    };
    let limits = limits.as_slice();
    let limit = *limits.iter().find(|limit| limit.window.has_forecast()).unwrap_or(&limits[0]);
    Sample { metric: metric.clone(), limit, ..sample }
}
