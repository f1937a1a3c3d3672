//! Mutes of subjects, metrics and contacts: begin, extend and end.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use super::error::ConsoleError;
use super::form::{Done, SUBJECT, SentForm};
use super::state::{ConsoleState, WithConsole};
use crate::actions::contacts::{self, ContactSelector};
use crate::api::problem::{CALL_TIMEOUT, Problem, within};
use crate::html::href::href_to;
use crate::redis_client::Partition;
use crate::subjects::mutes::{set_mute, warning_of_metric};
use crate::subjects::{StoredLevels, SubjectMutes};
use crate::types::{ContactId, Metric, Mute, MuteEnd, Subject, UnixMs};

/// `POST /mute`: from the page of a subject, or from the list of mutes.
pub(super) async fn change(State(console): WithConsole, form: SentForm) -> Result<Response, ConsoleError> {
    let next = match form.fields.raw("from") {
        "mutes" => href_to("mutes", &[("subject", Some(form.fields.raw("subject")))]),
        _ => href_to("subject", &[("id", Some(form.fields.raw("subject")))]),
    };
    let fields = form.fields.clone();
    // The list of mutes has a field for the time alone.
    let shown: &[&str] = if fields.raw("from").is_empty() { &["metric", "for", "until", "reason"] } else { &["for"] };
    form.once(console, next, change_mute).await.map_err(|error| error.with_form("mute", fields.partition(shown)))
}

async fn change_mute(console: Arc<ConsoleState>, SentForm { fields, .. }: SentForm) -> Result<Done, ConsoleError> {
    let subject = fields.subject()?;
    let metric: Option<Metric> = fields.parsed("metric")?;
    let contact = fields.text("contact").map(ContactId::from_stored);
    let partition = console.observer.partitions.partition_of(&subject);
    let Partition { client, keys } = partition;
    let mute = match fields.raw("do") {
        wanted @ ("mute" | "extend") => {
            let end = MuteEnd::new(fields.parsed("until")?, fields.text("for")).map_err(Problem::bad_request)?;
            let now = within(CALL_TIMEOUT, client.server_time()).await?;
            let end = match (wanted, end) {
                ("extend", MuteEnd::After(by)) => {
                    let stored = stored_mute(&console, &subject, metric.as_ref(), contact.as_ref(), now).await?;
                    MuteEnd::At(stored.map_or(now, |stored| stored.end()).after(by))
                }
                (_, end) => end,
            };
            let mute = Mute::new(end, fields.text("reason").map(str::to_owned), now);
            Some(mute.map_err(|error| Problem::bad_request(error.to_string()))?)
        }
        "end" => None,
        _ => return Err(Problem::bad_request("do: must be mute, extend or end").into()),
    };
    let (action, what, target) = match &contact {
        Some(id) => {
            let set = contacts::set_mute(partition, &subject, ContactSelector::Id(id), mute.as_ref());
            within(CALL_TIMEOUT, set).await?;
            let action = if mute.is_some() { "muteContact" } else { "unmuteContact" };
            (action, format!("Contact {id} of {SUBJECT}"), id.to_string())
        }
        None => {
            within(CALL_TIMEOUT, set_mute(client, keys, &subject, metric.as_ref(), mute.as_ref())).await?;
            let action = if mute.is_some() { "muteSubject" } else { "unmuteSubject" };
            let named = |metric: &Metric| console.observer.plans.format_of(metric).labelled(metric);
            let what = metric.as_ref().map_or_else(
                || format!("The subject {SUBJECT}"),
                |metric| format!("Metric {} of {SUBJECT}", named(metric)),
            );
            (action, what, metric.as_ref().map(ToString::to_string).unwrap_or_default())
        }
    };
    let message = match &mute {
        Some(mute) if mute.until.is_none() => format!("{what} is muted until somebody ends it{}.", mute.terms()),
        Some(mute) => format!("{what} is muted{}.", mute.terms()),
        None => format!("{what} is not muted any more."),
    };
    let warning = match metric.filter(|_| mute.is_some() && contact.is_none()) {
        // It is muted: that the limits can't be read is no failure.
        Some(metric) => {
            let read = warning_of_metric(client, keys, &console.observer.plans, &subject, &metric);
            within(CALL_TIMEOUT, read).await.unwrap_or_default()
        }
        None => None,
    };
    let message = message + &warning.map(|warning| format!(" Warning: {warning}.")).unwrap_or_default();
    Ok(Done { message, action: action.to_owned(), subject: Some(subject), target, count: 1 })
}

/// The active mute of a contact, or of the subject or its metric.
async fn stored_mute(
    console: &ConsoleState,
    subject: &Subject,
    metric: Option<&Metric>,
    contact: Option<&ContactId>,
    now: UnixMs,
) -> Result<Option<Mute>, Problem> {
    let Partition { client, keys } = console.observer.partitions.partition_of(subject);
    let stored = within(CALL_TIMEOUT, StoredLevels::read(client, keys, subject)).await?;
    if let Some(id) = contact {
        let contacts = console.observer.contacts.read_contacts(&stored).readable;
        return Ok(contacts
            .iter()
            .find(|contact| contact.id == *id)
            .and_then(|contact| contact.muted_at(now).cloned()));
    }
    let (mutes, _) = SubjectMutes::read(stored.fields().iter().map(|(name, value)| (name, value)), now);
    Ok(metric.map_or(mutes.subject.as_ref(), |metric| mutes.metrics.get(metric)).cloned())
}
