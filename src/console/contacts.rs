//! Contacts of a subject: add, enable, remove, and send a test message.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::error::ConsoleError;
use super::form::{Done, SentForm};
use super::state::{ConsoleState, WithConsole};
use crate::actions::contact_spec::{self, ContactColumns, GeneratedSecret};
use crate::actions::contacts::{self, AddOutcome, ContactAddition, ContactSelector};
use crate::actions::test_message::{ChooseError, choose, sample, start_cooldown};
use crate::api::problem::{CALL_TIMEOUT, Problem, within};
use crate::channels::{Labels, TestKind};
use crate::contacts::merge::ContactSpec;
use crate::contacts::{ContactOrigin, logged_address};
use crate::html::fields::Fields;
use crate::html::href::href_to;
use crate::subjects::StoredLevels;
use crate::types::{Channel, ContactId, Outcome, OutcomeClass, Subject};
use crate::views::SubjectSettings;

/// What the form of a new contact has beside channel and address.
const OPTIONS: [&str; 6] = ["secret", "format", "thresholds", "metrics", "windows", "quiet"];

fn next_of(fields: &Fields) -> String {
    href_to("subject", &[("id", Some(fields.raw("subject")))])
}

/// `POST /contacts`
pub(super) async fn add(State(console): WithConsole, form: SentForm) -> Result<Response, ConsoleError> {
    let (next, fields) = (next_of(&form.fields), form.fields.clone());
    let shown = [&["channel", "address"], &OPTIONS[..]].concat();
    form.once(console, next, add_contact).await.map_err(|error| error.with_form("contacts", fields.partition(&shown)))
}

async fn add_contact(console: Arc<ConsoleState>, SentForm { fields, .. }: SentForm) -> Result<Done, ConsoleError> {
    let (subject, spec) = (fields.subject()?, spec_of(&fields).map_err(Problem::bad_request)?);
    console.channels.check(&spec.contact).map_err(|error| Problem::bad_request(format!("{}: {error}", error.field)))?;
    let partition = console.observer.partitions.partition_of(&subject);
    let added = contacts::add(partition, &subject, &spec, None, console.contacts_max);
    let ContactAddition { id, outcome, keeps_secret, .. } = within(CALL_TIMEOUT, added).await?;
    let secret = GeneratedSecret::of(&spec).filter(|_| !keeps_secret).map(|generated| generated.secret);
    let secret =
        secret.map(|secret| format!(" Its secret is {secret}: keep it, no other page shows it.")).unwrap_or_default();
    let message = match outcome {
        AddOutcome::Added => format!("Contact {id} is added.{secret}"),
        AddOutcome::Changed => {
            format!("Contact {id} has this address already: it is changed, and none is added.{secret}")
        }
        AddOutcome::Unchanged => format!("Contact {id} has this address already."),
    };
    let count = u64::from(outcome != AddOutcome::Unchanged);
    Ok(Done { message, action: "addContact".to_owned(), subject: Some(subject), target: id.to_string(), count })
}

fn spec_of(fields: &Fields) -> Result<ContactSpec, String> {
    let channel: Channel = fields.raw("channel").parse().map_err(|error| format!("channel: {error}"))?;
    let address = fields.text("address").ok_or("address: is missing")?;
    let mut columns = ContactColumns::default().with(channel.as_str(), vec![address.to_owned()]);
    for (option, value) in OPTIONS.into_iter().filter_map(|option| Some((option, fields.text(option)?))) {
        let column = format!("{channel}_{option}");
        if !ContactColumns::is_column(&column) {
            return Err(format!("{option}: contacts of the channel {channel} have none"));
        }
        columns.push(&column, Some(value.to_owned()));
    }
    // It is the only one, so its number tells nothing.
    let number = format!("{channel} 1: ");
    let unnumbered = |error: String| error.strip_prefix(&number).unwrap_or(&error).to_owned();
    columns.into_specs().and_then(contact_spec::only).map_err(unnumbered)
}

/// `POST /contact`: `do` names the action.
pub(super) async fn change(State(console): WithConsole, form: SentForm) -> Result<Response, ConsoleError> {
    let next = next_of(&form.fields);
    form.once(console, next, change_contact).await
}

async fn change_contact(console: Arc<ConsoleState>, SentForm { fields, .. }: SentForm) -> Result<Done, ConsoleError> {
    let (subject, id) = (fields.subject()?, ContactId::from_stored(fields.raw("contact")));
    let (partition, selector) = (console.observer.partitions.partition_of(&subject), ContactSelector::Id(&id));
    let (action, message, count) = match fields.raw("do") {
        "enable" => {
            let enabled = within(CALL_TIMEOUT, contacts::enable(partition, &subject, selector)).await?;
            ("enableContact", format!("Contact {id} is enabled."), enabled.len())
        }
        "remove" => {
            let removed = contacts::remove(partition, &subject, selector, ContactOrigin::Operator);
            let removed = within(CALL_TIMEOUT, removed).await?;
            // The message outlives an erasure.
            let named = removed.first().map(|of| format!(" ({} {})", of.channel(), logged_address(of)));
            ("removeContact", format!("Contact {id}{} is removed.", named.unwrap_or_default()), removed.len())
        }
        "test" => ("sendTest", send_test(&console, &subject, &id).await?, 1),
        _ => return Err(Problem::bad_request("do: must be enable, remove or test").into()),
    };
    let (action, target, count) = (action.to_owned(), id.to_string(), count as u64);
    Ok(Done { message, action, subject: Some(subject), target, count })
}

/// Sends a test message, and says what became of it.
async fn send_test(console: &ConsoleState, subject: &Subject, id: &ContactId) -> Result<String, ConsoleError> {
    let (partitions, plans) = (&console.observer.partitions, &console.observer.plans);
    let partition = partitions.partition_of(subject);
    let stored = within(CALL_TIMEOUT, StoredLevels::read(&partition.client, &partition.keys, subject)).await?;
    let contacts = console.observer.contacts.read_contacts(&stored);
    let contact = choose(&contacts, Some(id.as_str())).map_err(|error| {
        let detail = match error {
            ChooseError::NotFound(_) => format!("there is no contact {id}"),
            ChooseError::Unverified(_) => {
                format!("contact {id} is not confirmed: it gets nothing until its owner confirms it")
            }
            ChooseError::Several(_) | ChooseError::Ambiguous(_) => format!("several contacts have the id {id}"),
        };
        Problem::new(StatusCode::CONFLICT, detail)
    })?;
    console.channels.check(&contact).map_err(|error| Problem::bad_request(format!("{}: {error}", error.field)))?;
    if let Some(left) = within(CALL_TIMEOUT, start_cooldown(partitions.first(), &contact)).await? {
        let detail = format!("contact {id} got a test message just now: wait {} s", left.as_secs() + 1);
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).into());
    }
    let now = within(CALL_TIMEOUT, partition.client.server_time()).await?;
    let sample = sample(subject, SubjectSettings::read(&stored, plans));
    let labels = Labels::of_sample(plans, &sample);
    let outcome = console.channels.send_test(&contact, TestKind::Alert, (&sample, &labels), now).await;
    let Outcome { class, error, hint, took, .. } = &outcome;
    Ok(match class {
        OutcomeClass::Delivered => {
            format!("The receiver of {id} accepted the test message in {} ms.", took.as_millis())
        }
        class => {
            let error = error.as_deref().unwrap_or("no reason given");
            let hint = hint.unwrap_or_else(|| contact.channel().hint(&outcome));
            format!("The test message to {id} was not delivered ({class}): {error}. To mend it: {hint}.")
        }
    })
}
