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
use crate::types::{ContactId, Metric, Mute, MuteEnd, UnixMs};

/// `POST /mute`: from the page of a subject, or from the list of mutes.
pub(super) async fn change(State(console): WithConsole, form: SentForm) -> Result<Response, ConsoleError> {
    let next = match form.fields.raw("from") {
        "mutes" => href_to("mutes", &[("subject", Some(form.fields.raw("subject")))]),
        _ => href_to("subject", &[("id", Some(form.fields.raw("subject")))]),
    };
    let fields = form.fields.clone();
    // The list of mutes has a field for the time alone.
    let shown: &[&str] = match (fields.raw("do"), fields.raw("from")) {
        ("end", _) => &[],
        (_, "") => &["metric", "for", "until", "reason"],
        _ => &["for"],
    };
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
            // From the end that was shown: a form that is sent again changes nothing.
            let end = match (wanted, end, fields.parsed::<UnixMs>("ends")?) {
                ("mute", end, _) => end,
                (_, MuteEnd::After(by), Some(ends)) => MuteEnd::At(ends.after(by)),
                _ => return Err(Problem::bad_request("for: is missing, such as 2h or 3d").into()),
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
