//! Forms about the subject's own contacts: add, confirm, test, mute, choose thresholds, remove. Requests for consent
//! and test messages are bounded as those of the API and the command line are.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};

use super::form::{PortalForm, finished};
use super::notice::PortalNotice;
use super::render::Shown;
use super::show::respond;
use super::state::{PortalState, WithPortal};
use super::test_message::send_test;
use super::visitor::ContactsVisitor;
use crate::actions::contact_spec::{GeneratedSecret, NamedContact};
use crate::actions::contacts::{self, ContactActionError, ContactSelector};
use crate::contacts::edit::AddContactError;
use crate::contacts::state::FilterChange;
use crate::contacts::{ContactArray, ContactOrigin};
use crate::html::fields::Fields;
use crate::types::mute::REASON_OF_PORTAL;
use crate::types::{ContactId, Mute, MuteEnd, Subject};
use crate::verification::VerificationError;

/// `POST /portal/{token}/contacts`
pub(super) async fn add(
    State(portal): WithPortal,
    ContactsVisitor(visitor): ContactsVisitor,
    uri: Uri,
    PortalForm(fields): PortalForm,
) -> Response {
    let adding = add_contact(Arc::clone(&portal), visitor.access.subject().clone(), fields.clone());
    let shown = match finished(adding).await {
        Ok(None) => return told(PortalNotice::Added),
        Ok(secret) => Shown { told: Some(PortalNotice::Added), secret, ..Shown::default() },
        Err(notice) => Shown { told: Some(notice), refused: Some(fields), ..Shown::default() },
    };
    respond(&portal, visitor, shown, uri.path()).await
}

/// Returns the secret that was generated for the contact, if it needs one.
async fn add_contact(
    portal: Arc<PortalState>,
    subject: Subject,
    fields: Fields,
) -> Result<Option<String>, PortalNotice> {
    let channel = fields.raw("channel").parse().map_err(|_| PortalNotice::BadForm)?;
    let address = fields.text("address").ok_or(PortalNotice::BadAddress)?.to_owned();
    let filter = filter_of(&fields)?;
    let named = NamedContact { channel, address, secret: None, format: None, headers: None, filter };
    let spec = named.check(ContactOrigin::Subject).map_err(|_| PortalNotice::BadAddress)?;
    if portal.channels.refusal(&spec.contact).is_some_and(|probe| probe.outcome.error.is_some()) {
        return Err(PortalNotice::BadAddress);
    }
    portal.count_sent("additions", &subject).await?;
    let id = portal.verification.add(subject.clone(), &spec.contact).await?;
    portal.record("addContact", &subject, &id).await;
    Ok(GeneratedSecret::of(&spec).map(|generated| generated.secret))
}

fn filter_of(fields: &Fields) -> Result<FilterChange, PortalNotice> {
    let thresholds = fields.text("thresholds").unwrap_or("all");
    let filter = FilterChange::parse(|part| (part == "thresholds").then(|| thresholds.to_owned()));
    filter.map_err(|_| PortalNotice::BadThresholds)
}

/// `POST /portal/{token}/contact`: `do` names the action.
pub(super) async fn change(
    State(portal): WithPortal,
    ContactsVisitor(visitor): ContactsVisitor,
    uri: Uri,
    PortalForm(fields): PortalForm,
) -> Response {
    match finished(change_contact(Arc::clone(&portal), visitor.access.subject().clone(), fields.clone())).await {
        Ok(notice) => told(notice),
        Err(notice) => {
            let shown = Shown { told: Some(notice), refused: Some(fields), ..Shown::default() };
            respond(&portal, visitor, shown, uri.path()).await
        }
    }
}

async fn change_contact(
    portal: Arc<PortalState>,
    subject: Subject,
    fields: Fields,
) -> Result<PortalNotice, PortalNotice> {
    let id = ContactId::from_stored(fields.raw("contact"));
    let partition = portal.observer.partitions.partition_of(&subject);
    let selector = ContactSelector::Id(&id);
    // The operations of the API that do the same.
    let (operation, notice) = match fields.raw("do") {
        "confirm" => {
            portal.verification.verify(&subject, &id, fields.text("code").unwrap_or_default()).await?;
            ("verifyContact", PortalNotice::Verified)
        }
        "ask" => {
            portal.verification.request(subject.clone(), &id).await?;
            ("requestVerification", PortalNotice::Asked)
        }
        "test" => return send_test(&portal, &subject, &id).await,
        wanted @ ("mute" | "end_mute") => {
            let end = match (wanted, fields.text("for")) {
                ("end_mute", _) => None,
                (_, duration) => Some(MuteEnd::new(None, duration).map_err(|_| PortalNotice::BadForm)?),
            };
            let now = partition.client.server_time().await.map_err(|_| PortalNotice::Unavailable)?;
            let mute = end.map(|end| Mute::new(end, Some(REASON_OF_PORTAL.to_owned()), now)).transpose();
            let mute = mute.map_err(|_| PortalNotice::BadForm)?;
            contacts::set_mute_of_portal(partition, &subject, &id, mute.as_ref(), now).await?;
            match mute {
                Some(_) => ("muteContact", PortalNotice::Muted),
                None => ("unmuteContact", PortalNotice::Unmuted),
            }
        }
        "thresholds" => {
            let filter = filter_of(&fields)?;
            let change = |array: &mut ContactArray, _| {
                array.set_filter(&id, &filter);
                Ok(())
            };
            contacts::edit(partition, &subject, selector, change).await?;
            ("replaceContact", PortalNotice::Changed)
        }
        "remove" => {
            contacts::remove(partition, &subject, selector, ContactOrigin::Subject).await?;
            ("removeContact", PortalNotice::Removed)
        }
        _ => return Err(PortalNotice::BadForm),
    };
    portal.record(operation, &subject, &id).await;
    Ok(notice)
}

/// Leads back to the page, which tells what was done, so that a reload does not send the form again. Without the
/// fragment, browsers would keep that of the form.
fn told(notice: PortalNotice) -> Response {
    (StatusCode::SEE_OTHER, [(LOCATION, format!("./?told={notice}#told"))]).into_response()
}

impl From<VerificationError> for PortalNotice {
    fn from(error: VerificationError) -> Self {
        match error {
            VerificationError::TooManyRequests { .. } | VerificationError::TooManyOpen { .. } => Self::Wait,
            VerificationError::NotAdded(AddContactError::Exists(_)) => Self::Exists,
            VerificationError::NotAdded(AddContactError::TooMany(_)) => Self::TooMany,
            VerificationError::NotFound => Self::NotFound,
            VerificationError::AlreadyVerified => Self::VerifiedAlready,
            VerificationError::WrongCode => Self::WrongCode,
            VerificationError::Redis { .. } | VerificationError::Unreadable | VerificationError::Contended => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a form of the portal failed");
                Self::Unavailable
            }
        }
    }
}

impl From<ContactActionError> for PortalNotice {
    fn from(error: ContactActionError) -> Self {
        match error {
            ContactActionError::Edit(error) => VerificationError::from(error).into(),
            ContactActionError::Select(_) => Self::NotFound,
            ContactActionError::OperatorsOwn => Self::NotYours,
            ContactActionError::MutedByOthers => Self::MutedByOthers,
            ContactActionError::TooMany(_) => Self::TooMany,
            ContactActionError::IdTaken { .. } | ContactActionError::OtherId { .. } | ContactActionError::Level(_) => {
                Self::BadForm
            }
        }
    }
}
