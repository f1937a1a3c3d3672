//! `/v1/subjects/{id}/contacts`: list, add and remove contacts, and verify them.
//!
//! The callers have the platform's token, so they may know which contacts there are: 404 and 409 are answered plainly.
//! Read next: [`crate::verification::service`], how a contact is asked and verified.

use std::error::Error;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use super::body::{self, Json};
use super::path::{ContactPath, SubjectPath};
use super::problem::{CALL_TIMEOUT, Problem, within};
use super::state::ApiState;
use super::subjects::answer;
use crate::channels::{InvalidContact, ProbeResult, REGISTRY, check_contact};
use crate::contacts::edit::{AddContactError, RemoveOutcome};
use crate::contacts::state::FilterChange;
use crate::contacts::store::edit_contacts;
use crate::contacts::{Contact, ContactArray, ContactOptions, ContactOrigin, ExtraHeaders, MessageFormat};
use crate::types::{ContactFilter, ContactId, Metric, Outcome, Percent, Secret, Subject};
use crate::verification::{CODE_DIGITS, VerificationError};
use crate::views::ContactView;
use crate::wire::Partition;

/// The body of a contact that is added.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(super) struct NewContactBody {
    channel: String,
    #[serde(default, deserialize_with = "body::optional_text")]
    address: Option<String>,
    #[serde(default, deserialize_with = "body::optional_text")]
    url: Option<String>,
    #[serde(default, deserialize_with = "body::optional_text")]
    secret: Option<String>,
    #[serde(default, deserialize_with = "body::optional_text")]
    format: Option<MessageFormat>,
    #[serde(default, deserialize_with = "body::headers")]
    headers: Option<ExtraHeaders>,
    #[serde(default, deserialize_with = "body::thresholds")]
    thresholds: Option<Vec<Percent>>,
    #[serde(default, deserialize_with = "body::metrics")]
    metrics: Option<Vec<Metric>>,
}

/// The body of what a contact is to hear: what is left out or `null` means all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(super) struct ContactFilterBody {
    #[serde(default, deserialize_with = "body::thresholds")]
    thresholds: Option<Vec<Percent>>,
    #[serde(default, deserialize_with = "body::metrics")]
    metrics: Option<Vec<Metric>>,
}

/// The body of a verification by code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(super) struct CodeBody {
    #[serde(deserialize_with = "body::text")]
    code: String,
}

/// `GET /v1/subjects/{id}/contacts`
pub(super) async fn list(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
) -> Result<Response, Problem> {
    let (stored, now) = within(CALL_TIMEOUT, api.verification.list(&subject)).await?;
    let contacts: Vec<ContactView> = stored.iter().map(|stored| ContactView::of(stored, now)).collect();
    Ok(answer(&json!({"contacts": contacts})))
}

/// `POST /v1/subjects/{id}/contacts`
pub(super) async fn add(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Json(body): Json<NewContactBody>,
) -> Result<Response, Problem> {
    let (contact, generated) = body.into_contact()?;
    // Whoever names such a receiver can mend it now, and would not hear of an attempt that fails.
    if let Some(ProbeResult { outcome: Outcome { error: Some(refused), .. }, .. }) = api.channels.refusal(&contact) {
        let field = contact.channel().address_field().unwrap_or_default();
        return Err(Problem::bad_request(format!("{field}: {refused}")));
    }
    let id = within(CALL_TIMEOUT, api.verification.add(subject, &contact)).await?;
    let mut added = json!({"id": id, "channel": contact.channel(), "verified": false});
    if let Some(secret) = generated {
        added["secret"] = secret.reveal().into();
    }
    Ok((StatusCode::ACCEPTED, answer(&added)).into_response())
}

/// `PUT /v1/subjects/{id}/contacts/{contact}`
pub(super) async fn replace(
    State(api): State<Arc<ApiState>>,
    ContactPath(subject, contact): ContactPath,
    Json(ContactFilterBody { thresholds, metrics }): Json<ContactFilterBody>,
) -> Result<Response, Problem> {
    let ContactFilter { thresholds, metrics } = filter(thresholds, metrics)?;
    let change = FilterChange { thresholds: Some(thresholds), metrics: Some(metrics) };
    let set = |array: &mut ContactArray| {
        array.set_filter(&contact, &change);
    };
    change_one(&api, &subject, &contact, set).await
}

/// `POST /v1/subjects/{id}/contacts/{contact}/enable`
pub(super) async fn enable(
    State(api): State<Arc<ApiState>>,
    ContactPath(subject, contact): ContactPath,
) -> Result<Response, Problem> {
    let enabled = change_one(&api, &subject, &contact, |array| drop(array.enable(&contact))).await?;
    tracing::info!(%subject, %contact, "contact is enabled");
    Ok(enabled)
}

/// Changes a contact, whoever added it, and answers with it as it is then. Repeatable where `change` is.
async fn change_one(
    api: &ApiState,
    subject: &Subject,
    contact: &ContactId,
    change: impl Fn(&mut ContactArray),
) -> Result<Response, Problem> {
    let change = |array: &mut ContactArray| {
        change(array);
        array.find(contact).ok_or(VerificationError::NotFound)
    };
    let Partition { client, keys } = api.partitions.of(subject);
    let changed = async {
        let changed = edit_contacts(client, keys, subject, change).await?;
        Ok::<_, VerificationError>((changed, client.server_time().await?))
    };
    let (changed, now) = within(CALL_TIMEOUT, changed).await?;
    Ok(answer(&ContactView::of(&changed, now)))
}

/// Edits the contacts of a subject, whoever added them. After an error the edit may be written.
pub(super) async fn edit<T>(
    api: &ApiState,
    subject: &Subject,
    edit: impl FnMut(&mut ContactArray) -> Result<T, VerificationError>,
) -> Result<T, Problem> {
    let Partition { client, keys } = api.partitions.of(subject);
    within(CALL_TIMEOUT, edit_contacts(client, keys, subject, edit)).await
}

fn filter(thresholds: Option<Vec<Percent>>, metrics: Option<Vec<Metric>>) -> Result<ContactFilter, Problem> {
    ContactFilter::new(thresholds, metrics).map_err(|error| Problem::bad_request(error.to_string()))
}

/// `DELETE /v1/subjects/{id}/contacts/{contact}`: removes a contact that was added here, verified or not. What was sent
/// to its address verifies nothing afterwards, not even if it is added again, and its pending deliveries are cancelled
/// at their next attempt.
pub(super) async fn remove(
    State(api): State<Arc<ApiState>>,
    ContactPath(subject, contact): ContactPath,
) -> Result<StatusCode, Problem> {
    let remove = |array: &mut ContactArray| match array.remove(&contact, ContactOrigin::Subject) {
        RemoveOutcome::Removed(_) => Ok(()),
        RemoveOutcome::OperatorsOwn => Err(VerificationError::OperatorsOwn),
        RemoveOutcome::NotFound => Err(VerificationError::NotFound),
    };
    edit(&api, &subject, remove).await?;
    tracing::info!(%subject, %contact, "contact is removed");
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/subjects/{id}/contacts/{contact}/verification`
pub(super) async fn request_verification(
    State(api): State<Arc<ApiState>>,
    ContactPath(subject, contact): ContactPath,
) -> Result<StatusCode, Problem> {
    within(CALL_TIMEOUT, api.verification.request(subject, &contact)).await?;
    Ok(StatusCode::ACCEPTED)
}

/// `POST /v1/subjects/{id}/contacts/{contact}/verify`
pub(super) async fn verify(
    State(api): State<Arc<ApiState>>,
    ContactPath(subject, contact): ContactPath,
    Json(CodeBody { code }): Json<CodeBody>,
) -> Result<Response, Problem> {
    // White space comes along when a code is copied.
    let code = code.trim();
    if code.len() != CODE_DIGITS || !code.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Problem::bad_request(format!("code: must be {CODE_DIGITS} digits")));
    }
    within(CALL_TIMEOUT, api.verification.verify(&subject, &contact, code)).await?;
    Ok(answer(&json!({"id": contact, "verified": true})))
}

impl NewContactBody {
    /// The contact, if its form is legal, and its secret where it was generated.
    fn into_contact(self) -> Result<(Contact, Option<Secret>), Problem> {
        let Self { channel, address, url, secret, format, headers, thresholds, metrics } = self;
        let filter = filter(thresholds, metrics)?;
        let Some(definition) = REGISTRY.into_iter().find(|definition| definition.channel.as_str() == channel) else {
            let known = REGISTRY.map(|definition| format!("{:?}", definition.channel.as_str())).join(" or ");
            return Err(Problem::bad_request(format!("channel: is {channel:?}, it must be {known}")));
        };
        let mut fields = vec![("address", address), ("url", url)];
        fields.retain(|(field, value)| *field == definition.address_field() || value.is_some());
        // Which of two channels was meant is unknown.
        let foreign = fields.iter().map(|(field, _)| *field).find(|field| *field != definition.address_field());
        let foreign = foreign.or((secret.is_some() && definition.secret.is_none()).then_some("secret"));
        let foreign = foreign.or((format.is_some() && definition.formats.is_none()).then_some("format"));
        let foreign = foreign.or((headers.is_some() && definition.formats.is_none()).then_some("headers"));
        if let Some(field) = foreign {
            return Err(Problem::bad_request(format!("{field}: does not belong to channel {channel:?}")));
        }
        let address = fields.into_iter().find_map(|(_, value)| value).ok_or_else(|| {
            Problem::bad_request(format!("{}: is missing, it must be a string", definition.address_field()))
        })?;
        let (format, headers) = (format.unwrap_or_default(), headers.unwrap_or_default());
        if !format.has_challenge() {
            return Err(Problem::bad_request(format!("format: {}", unconfirmable(&format))));
        }
        let make = definition.secret.filter(|_| secret.is_none()).map(|secrets| secrets.generate);
        let generated = make.and_then(|generate| generate(&format));
        let secret = secret.map(Secret::new).or_else(|| generated.clone());
        let options = ContactOptions { secret, format, headers };
        let of_address = |address: &str| {
            (definition.check_public_address)(address)?;
            let contact = Contact::of_channel(definition.channel, address, options.clone());
            let contact = contact.expect("something is sent through every channel of the registry");
            check_contact(&contact).map(|()| contact)
        };
        // The one spelling of the address that every server knows.
        let contact = of_address(&address).and_then(|contact| of_address(&contact.normalized_address()));
        let in_field = |invalid: InvalidContact| Problem::bad_request(format!("{}: {invalid}", invalid.field));
        Ok((Contact { filter, ..contact.map_err(in_field)? }, generated))
    }
}

/// Why a contact of this format is the operator's to add.
fn unconfirmable(format: &MessageFormat) -> String {
    let allowed = MessageFormat::BUILT_IN.into_iter().filter(MessageFormat::has_challenge);
    let allowed = allowed.map(|format| format!("{:?}", format.to_string())).collect::<Vec<_>>().join(" and ");
    let operator = "the operator adds others with `quotabell contact add`";
    format!("\"{format}\" can't send the challenge back that confirms a contact, allowed are {allowed}; {operator}")
}

impl From<VerificationError> for Problem {
    fn from(error: VerificationError) -> Self {
        let detail = error.to_string();
        // What the caller can't mend.
        if let VerificationError::Redis { .. } | VerificationError::Unreadable | VerificationError::Contended = error {
            tracing::warn!(error = &error as &dyn Error, "contacts could not be read or written for a request");
        }
        match error {
            VerificationError::NotFound => Self::new(StatusCode::NOT_FOUND, detail),
            VerificationError::WrongCode => Self::new(StatusCode::FORBIDDEN, detail),
            VerificationError::NotAdded(AddContactError::Exists(contact)) => {
                let state = match contact.verified {
                    true => "it is verified",
                    false => "it waits for its verification: POST its `verification` to ask again",
                };
                let detail = format!("the subject has this contact already, and {state}");
                Self::new(StatusCode::CONFLICT, detail).member("contact", contact.id.as_str())
            }
            VerificationError::NotAdded(AddContactError::TooMany(_))
            | VerificationError::AlreadyVerified
            | VerificationError::OperatorsOwn
            | VerificationError::Unreadable => Self::new(StatusCode::CONFLICT, detail),
            VerificationError::TooManyRequests { retry_after } | VerificationError::TooManyOpen { retry_after } => {
                let seconds = u64::try_from(retry_after.as_millis().div_ceil(1000).max(1)).unwrap_or(u64::MAX);
                Self::quota_exceeded(format!("{detail}: see Retry-After")).header(RETRY_AFTER, seconds.into())
            }
            VerificationError::Contended => Self::new(StatusCode::SERVICE_UNAVAILABLE, detail),
            VerificationError::Redis { kind, .. } => Self::of_redis(kind),
        }
    }
}
