//! Links with which the customer of a subject opens its portal: make one, end all.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use super::error::ConsoleError;
use super::form::{Done, SUBJECT, SentForm};
use super::sentence::HAS_URL;
use super::state::{ConsoleState, WithConsole};
use crate::actions::contacts::{ContactActionError, check_levels};
use crate::actions::portal::{NewPortal, revoke};
use crate::api::problem::{CALL_TIMEOUT, Problem, within};
use crate::html::href::href_to;
use crate::signing::PortalRight;
use crate::views::explain::is_known;

/// `POST /portal`: `do` names the action.
pub(super) async fn change(State(console): WithConsole, form: SentForm) -> Result<Response, ConsoleError> {
    let next = href_to("subject", &[("id", Some(form.fields.raw("subject")))]);
    let (fields, shown) = (form.fields.clone(), ["for", "locale", "contacts"]);
    form.once(console, next, change_links).await.map_err(|error| error.with_form("portal", fields.partition(&shown)))
}

async fn change_links(console: Arc<ConsoleState>, SentForm { fields, .. }: SentForm) -> Result<Done, ConsoleError> {
    let (subject, first) = (fields.subject()?, console.observer.partitions.first());
    let (action, message) = match fields.raw("do") {
        "create" => {
            check_levels(&first.keys, &subject, false)
                .map_err(|error| Problem::from(ContactActionError::from(error)))?;
            let changes = !fields.raw("contacts").is_empty();
            let new = NewPortal {
                lifetime: fields.text("for").map(str::to_owned),
                may: changes.then(|| vec![PortalRight::View, PortalRight::Contacts]),
                locale: fields.parsed("locale")?,
                ..NewPortal::default()
            };
            let created = console.portal_links.create(new, subject.clone());
            let link = within(CALL_TIMEOUT, created).await?;
            let (ends, url) = (link.expires_at, link.url);
            // The link is made: that this can't be read is no failure.
            let known = within(CALL_TIMEOUT, is_known(&console.observer.partitions, &subject)).await;
            let warning = match known {
                Ok(false) => format!(" Warning: nothing is known of {SUBJECT} yet."),
                _ => String::new(),
            };
            let may = if changes { "to see its usage and change its contacts" } else { "only to see its usage" };
            ("createPortalLink", format!("{HAS_URL}{ends}, {may}.{warning} Keep it, no other page shows it: {url}"))
        }
        "revoke" => {
            within(CALL_TIMEOUT, revoke(first, &subject)).await?;
            ("revokePortalLinks", "All links to its portal have ended, also those in messages.".to_owned())
        }
        _ => return Err(Problem::bad_request("do: must be create or revoke").into()),
    };
    Ok(Done { message, action: action.to_owned(), subject: Some(subject), count: 1, ..Done::default() })
}
