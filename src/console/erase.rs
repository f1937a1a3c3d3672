//! Erases everything that is stored of a subject, after its id was typed.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use minijinja::context;
use tokio::time::timeout;

use super::error::ConsoleError;
use super::form::{Admin, Done, SentForm};
use super::parsed_query::ParsedQuery;
use super::render::rendered_html;
use super::session::Visitor;
use super::state::{ConsoleState, WithConsole};
use super::subject::AskedSubject;
use crate::api::path::parameter;
use crate::api::problem::{ERASE_TIMEOUT, Problem, within};
use crate::erasure::{self, branch};
use crate::types::Subject;
use crate::types::text::printable;

/// `GET /erase`: what would be removed.
pub(super) async fn show(
    Admin(visitor): Admin,
    ParsedQuery(AskedSubject { id, .. }): ParsedQuery<AskedSubject>,
) -> Result<Response, ConsoleError> {
    let id: Subject = parameter("id", Some(&id))?.ok_or_else(|| Problem::bad_request("id: name a subject"))?;
    Ok(rendered_form(&visitor, id.as_str(), None))
}

fn rendered_form(visitor: &Visitor, id: &str, fault: Option<&str>) -> Response {
    rendered_html("erase.html", visitor, context! { title => format!("Erase {id}?"), id, fault })
}

/// `POST /erase`
pub(super) async fn erase(State(console): WithConsole, form: SentForm) -> Result<Response, ConsoleError> {
    let id = form.fields.raw("subject");
    if ![id.to_owned(), printable(id)].contains(&form.fields.raw("typed").to_owned()) {
        let page = rendered_form(&form.visitor, id, Some("The typed id does not match: nothing was erased."));
        return Err(ConsoleError::rendered(StatusCode::BAD_REQUEST, page));
    }
    form.once(console, "subjects".to_owned(), erase_subject).await
}

async fn erase_subject(console: Arc<ConsoleState>, SentForm { fields, .. }: SentForm) -> Result<Done, ConsoleError> {
    let subject = fields.subject()?;
    let below = within(ERASE_TIMEOUT, branch::below(&console.observer.partitions, &subject)).await?;
    // It goes on after the answer: to look through a long log of alerts may take longer.
    let erasing = tokio::spawn(async move {
        let (partitions, plans) = (&console.observer.partitions, &console.observer.plans);
        let erased = erasure::erase_branch(partitions, plans, console.event_age_max, &subject, &below).await;
        erased.map_err(Problem::from)
    });
    let erased = async { erasing.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())) };
    let (message, count) = match timeout(ERASE_TIMEOUT, erased).await {
        Ok(Ok(erased)) => {
            (format!("Everything that was stored of it is removed: {}.", erased.removed), erased.subjects)
        }
        Ok(Err(problem)) => {
            let detail = problem.detail();
            (format!("The removal failed and may be incomplete: {detail}. Erase the subject again for the rest."), 1)
        }
        Err(_) => ("The removal is still running.".to_owned(), 1),
    };
    // The log must not name a subject that is erased.
    Ok(Done { message, action: "eraseSubject".to_owned(), count, ..Done::default() })
}
