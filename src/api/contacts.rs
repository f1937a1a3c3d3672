//! `/v1/subjects/{id}/contacts`: list, add and remove contacts, and verify them.
//!
//! Judges what was sent and writes the response; [`VerificationService`] does the rest. The callers have the platform's token, so
//! they may know which contacts there are: 404 and 409 are answered plainly.
//!
//! [`VerificationService`]: crate::verification::VerificationService

use std::str::FromStr;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::body::{self, Json};
use super::problem::Problem;
use super::state::ApiState;
use crate::channels::{InvalidContact, check_contact, email::address, webhook::secret};
use crate::contacts::edit::AddContactError;
use crate::contacts::{Contact, Endpoint};
use crate::types::{Channel, ContactId, Secret, Subject};
use crate::verification::{CODE_DIGITS, ContactRef, VerificationError};
use crate::wire::{ErrorKind, error_kind};

/// RFC 5321 4.5.3.1.3: a path has 256 bytes with its brackets.
const ADDRESS_BYTES_MAX: usize = 254;
/// Longer URLs are refused by proxies and servers on the way.
const URL_BYTES_MAX: usize = 2048;
/// The longest contact id. Generated ids have 18 bytes.
const ID_BYTES_MAX: usize = 256;

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
}

/// The body of a verification by code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(super) struct CodeBody {
    #[serde(deserialize_with = "body::text")]
    code: CodeText,
}

/// Text that may be a code: six digits. White space around them comes along when they are copied.
#[derive(Debug)]
struct CodeText(String);

#[derive(Debug, thiserror::Error)]
#[error("must be six digits")]
struct NotACode;

impl FromStr for CodeText {
    type Err = NotACode;

    fn from_str(text: &str) -> Result<Self, NotACode> {
        let code = text.trim();
        let is_code = code.len() == CODE_DIGITS && code.bytes().all(|byte| byte.is_ascii_digit());
        if is_code { Ok(Self(code.to_owned())) } else { Err(NotACode) }
    }
}

/// The contacts of a subject.
#[derive(Debug, Serialize)]
struct ContactsResponse<'a> {
    contacts: Vec<ContactResponse<'a>>,
}

/// A contact as it is listed; a secret serializes as `***`.
#[derive(Debug, Serialize)]
struct ContactResponse<'a> {
    id: &'a ContactId,
    channel: Channel,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a Secret>,
    muted: bool,
    verified: bool,
}

/// A contact that was added. A secret that was generated is shown here and nowhere else.
#[derive(Debug, Serialize)]
struct AddedContactResponse<'a> {
    id: &'a ContactId,
    channel: Channel,
    verified: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
}

/// A contact that is verified.
#[derive(Debug, Serialize)]
struct VerifiedContactResponse<'a> {
    id: &'a ContactId,
    verified: bool,
}

/// `GET /v1/subjects/{id}/contacts`
pub(super) async fn list(
    State(api): State<Arc<ApiState>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let stored = api.verification.list(&subject_path(path)?).await.map_err(problem)?;
    let contacts = stored.iter().map(|stored| ContactResponse::of(&stored.contact)).collect();
    Ok(json(StatusCode::OK, &ContactsResponse { contacts }))
}

/// `POST /v1/subjects/{id}/contacts`
pub(super) async fn add(
    State(api): State<Arc<ApiState>>,
    path: Result<Path<String>, PathRejection>,
    Json(body): Json<NewContactBody>,
) -> Result<Response, Problem> {
    let subject = subject_path(path)?;
    let NewContact { contact, generated } = body.judge()?;
    let id = api.verification.add(subject, &contact).await.map_err(problem)?;
    let secret = generated.as_ref().map(Secret::reveal);
    let added = AddedContactResponse { id: &id, channel: contact.channel(), verified: false, secret };
    Ok(json(StatusCode::ACCEPTED, &added))
}

/// `DELETE /v1/subjects/{id}/contacts/{contact}`
pub(super) async fn remove(
    State(api): State<Arc<ApiState>>,
    path: Result<Path<ContactPath>, PathRejection>,
) -> Result<StatusCode, Problem> {
    api.verification.remove(&contact_path(path)?).await.map_err(problem)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/subjects/{id}/contacts/{contact}/verification`
pub(super) async fn request_verification(
    State(api): State<Arc<ApiState>>,
    path: Result<Path<ContactPath>, PathRejection>,
) -> Result<StatusCode, Problem> {
    api.verification.request(contact_path(path)?).await.map_err(problem)?;
    Ok(StatusCode::ACCEPTED)
}

/// `POST /v1/subjects/{id}/contacts/{contact}/verify`
pub(super) async fn verify(
    State(api): State<Arc<ApiState>>,
    path: Result<Path<ContactPath>, PathRejection>,
    Json(CodeBody { code: CodeText(code) }): Json<CodeBody>,
) -> Result<Response, Problem> {
    let contact = contact_path(path)?;
    api.verification.verify(&contact, &code).await.map_err(problem)?;
    Ok(json(StatusCode::OK, &VerifiedContactResponse { id: &contact.contact, verified: true }))
}

/// The variable parts of a contact's path.
#[derive(Debug, Deserialize)]
pub(super) struct ContactPath {
    id: String,
    contact: String,
}

fn contact_path(path: Result<Path<ContactPath>, PathRejection>) -> Result<ContactRef, Problem> {
    let Path(ContactPath { id, contact }) = path.map_err(|rejection| broken_path(&rejection))?;
    if contact.len() > ID_BYTES_MAX {
        return Err(Problem::bad_request(format!("contact: has more than {ID_BYTES_MAX} bytes")));
    }
    Ok(ContactRef { subject: subject(&id)?, contact: ContactId::from_stored(&contact) })
}

fn subject_path(path: Result<Path<String>, PathRejection>) -> Result<Subject, Problem> {
    let Path(id) = path.map_err(|rejection| broken_path(&rejection))?;
    subject(&id)
}

fn subject(id: &str) -> Result<Subject, Problem> {
    Subject::parse(id.as_bytes()).map_err(|error| Problem::bad_request(format!("id: {error}")))
}

fn broken_path(rejection: &PathRejection) -> Problem {
    Problem::bad_request(format!("the path: {}", rejection.body_text()))
}

/// No cache on the way may keep contacts, or a secret that is shown once.
fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, headers, serde_json::to_vec(body).expect("strings and booleans are JSON")).into_response()
}

impl<'a> ContactResponse<'a> {
    fn of(contact: &'a Contact) -> Self {
        let (address, url, secret) = match &contact.endpoint {
            Endpoint::Email { address } => (Some(address.as_str()), None, None),
            Endpoint::Webhook { url, secret } => (None, Some(url.as_str()), Some(secret)),
        };
        let Contact { id, muted, verified, .. } = contact;
        Self { id, channel: contact.channel(), address, url, secret, muted: *muted, verified: *verified }
    }
}

/// A contact whose form is legal, and its secret where it was generated.
#[derive(Debug)]
struct NewContact {
    contact: Contact,
    generated: Option<Secret>,
}

impl NewContactBody {
    fn judge(self) -> Result<NewContact, Problem> {
        let Self { channel, address, url, secret } = self;
        let new = match channel.as_str() {
            "email" => {
                let address = required("address", address, ADDRESS_BYTES_MAX)?;
                not_given(&channel, [("url", url), ("secret", secret)])?;
                NewContact { contact: email(&address)?, generated: None }
            }
            "webhook" => {
                let url = required("url", url, URL_BYTES_MAX)?;
                not_given(&channel, [("address", address)])?;
                match secret {
                    Some(secret) => {
                        NewContact { contact: Contact::webhook(&url, Secret::new(secret)), generated: None }
                    }
                    None => {
                        let secret = secret::generate();
                        NewContact { contact: Contact::webhook(&url, secret.clone()), generated: Some(secret) }
                    }
                }
            }
            _ => {
                let detail = format!("channel: is {channel:?}, it must be \"email\" or \"webhook\"");
                return Err(Problem::bad_request(detail));
            }
        };
        check_contact(&new.contact).map_err(|invalid| in_field(&invalid))?;
        Ok(new)
    }
}

/// A mailbox with the one spelling of its domain that every server knows.
fn email(address: &str) -> Result<Contact, Problem> {
    address::check_public(address).map_err(|invalid| in_field(&invalid))?;
    let normal = Contact::email(address).place().into_owned();
    Ok(Contact::email(&bounded("address", normal, ADDRESS_BYTES_MAX)?))
}

fn in_field(invalid: &InvalidContact) -> Problem {
    Problem::bad_request(format!("{}: {invalid}", invalid.field))
}

fn required(field: &str, value: Option<String>, bytes_max: usize) -> Result<String, Problem> {
    let value = value.ok_or_else(|| Problem::bad_request(format!("{field}: is missing, it must be a string")))?;
    bounded(field, value, bytes_max)
}

fn bounded(field: &str, text: String, bytes_max: usize) -> Result<String, Problem> {
    if text.len() > bytes_max {
        let detail = format!("{field}: has {} bytes, at most {bytes_max} are allowed", text.len());
        return Err(Problem::bad_request(detail));
    }
    Ok(text)
}

/// A field of the other channel is a mistake, and which of the two was meant is unknown.
fn not_given<const N: usize>(channel: &str, fields: [(&str, Option<String>); N]) -> Result<(), Problem> {
    match fields.into_iter().find(|(_, value)| value.is_some()) {
        Some((field, _)) => Err(Problem::bad_request(format!("{field}: does not belong to channel {channel:?}"))),
        None => Ok(()),
    }
}

fn problem(error: VerificationError) -> Problem {
    let conflict = |detail: String| Problem::new(StatusCode::CONFLICT, detail);
    let unavailable = |detail: &str| Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail);
    match error {
        VerificationError::NotFound => Problem::new(StatusCode::NOT_FOUND, "the subject has no such contact"),
        VerificationError::NotAdded(AddContactError::Exists(contact)) => {
            let detail = if contact.verified {
                "the subject has this contact already, and it is verified"
            } else {
                "the subject has this contact already, and it waits for its verification: POST its `verification` to ask again"
            };
            conflict(detail.to_owned()).member("contact", contact.id.as_str())
        }
        VerificationError::NotAdded(full @ AddContactError::Full) => {
            conflict(format!("{full}: remove one to add another"))
        }
        VerificationError::AlreadyVerified => conflict(error.to_string()),
        VerificationError::OperatorsOwn => {
            conflict("the operator wrote this contact: only the operator can remove it".to_owned())
        }
        VerificationError::Unreadable => conflict(
            "what is stored for the subject can't be read: the operator has to repair it (`quotabell subject show`)"
                .to_owned(),
        ),
        VerificationError::WrongCode => Problem::new(
            StatusCode::FORBIDDEN,
            "the code is not the one that was sent last, has expired, or too many were tried: ask for another",
        ),
        VerificationError::TooManyRequests { retry_after } => {
            let seconds = retry_after.as_millis().div_ceil(1000).max(1);
            let seconds = HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX));
            Problem::quota_exceeded("a verification of this address was requested too often: see Retry-After")
                .header(RETRY_AFTER, seconds)
        }
        VerificationError::Busy => {
            unavailable("too many verifications wait to be sent").header(RETRY_AFTER, HeaderValue::from(10))
        }
        VerificationError::Contended => unavailable("others change the subject's contacts all the time: try again"),
        VerificationError::Unreachable => unavailable("Redis does not answer: try again"),
        VerificationError::Redis(error) => {
            tracing::warn!(%error, "contacts: Redis failed");
            match error_kind(&error) {
                ErrorKind::Full => {
                    unavailable("the memory of Redis is full: the operator has to free some, then try again")
                }
                ErrorKind::Login | ErrorKind::Denied => {
                    unavailable("Redis refuses the daemon: the operator has to mend it")
                }
                _ => unavailable("Redis does not answer: try again"),
            }
        }
    }
}
