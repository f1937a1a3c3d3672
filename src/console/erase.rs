//! Erases everything that is stored of a subject, after its id was typed.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use minijinja::context;

use super::error::ConsoleError;
use super::fields::ParsedQuery;
use super::form::{Admin, Done, SentForm};
use super::href::href_to;
use super::render::rendered_html;
use super::state::{ConsoleState, WithConsole};
use super::subject::AskedSubject;
use crate::api::path::parameter;
use crate::api::problem::{ERASE_TIMEOUT, Problem, within};
use crate::erasure::{self, branch};
use crate::types::Subject;

/// `GET /erase`: what would be removed.
pub(super) async fn show(
    Admin(visitor): Admin,
    ParsedQuery(AskedSubject { id, .. }): ParsedQuery<AskedSubject>,
) -> Result<Response, ConsoleError> {
    let id: Subject = parameter("id", Some(&id))?.ok_or_else(|| Problem::bad_request("id: name a subject"))?;
    Ok(rendered_html("erase.html", &visitor, context! { title => format!("Erase {id}?"), id => id.as_str() }))
}

/// `POST /erase`
pub(super) async fn erase(State(console): WithConsole, form: SentForm) -> Result<Response, ConsoleError> {
    let id = form.fields.raw("subject");
    if form.fields.raw("typed") != id {
        let detail = "the typed id is another one: nothing was erased";
        return Err(
            ConsoleError::from(Problem::bad_request(detail)).with_way_to(&href_to("erase", &[("id", Some(id))]))
        );
    }
    form.once(console, "subjects".to_owned(), erase_subject).await
}

async fn erase_subject(console: Arc<ConsoleState>, SentForm { fields, .. }: SentForm) -> Result<Done, ConsoleError> {
    let (subject, partitions) = (fields.subject()?, &console.observer.partitions);
    let erased = async {
        let below = branch::below(partitions, &subject).await?;
        erasure::erase_branch(partitions, &console.observer.plans, console.event_age_max, &subject, &below).await
    };
    let erased = within(ERASE_TIMEOUT, erased).await?;
    let message = format!("Everything that was stored of it is removed: {}.", erased.removed);
    // The log must not name a subject that is erased.
    Ok(Done { message, action: "eraseSubject".to_owned(), count: erased.subjects, ..Done::default() })
}
