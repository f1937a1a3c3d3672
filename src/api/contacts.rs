//! `/v1/subjects/{id}/contacts`: contacts that a subject's own side adds and takes away, and their verification.
//!
//! Judges what was sent; everything else is the [`super::verification::Desk`]'s. What is answered depends on the request and on how often it came, never on
//! whether there is such a subject or contact.

use std::str::FromStr;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::Api;
use super::body::{Given, Json};
use super::problem::Problem;
use crate::channels::{InvalidContact, check_contact, email::address, webhook::secret};
use crate::contacts::Contact;
use crate::types::{Channel, ContactId, Secret, Subject};
use crate::verification::{CONTACTS_MAX, Candidate, DeskError, Guessed, PASSWORD_DIGITS};
use crate::wire::{ErrorKind, error_kind};

/// RFC 5321 4.5.3.1.3: a path has 256 bytes with its brackets.
const ADDRESS_BYTES_MAX: usize = 254;
/// Longer ones are refused by proxies and servers on the way.
const URL_BYTES_MAX: usize = 2048;
/// The longest contact id. Those that are made here have 18 bytes.
const ID_BYTES_MAX: usize = 256;

/// A contact as it is sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(super) struct NewContact {
    #[serde(default)]
    channel: Given,
    #[serde(default)]
    address: Given,
    #[serde(default)]
    url: Given,
    #[serde(default)]
    secret: Given,
}

/// A password as it is sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(super) struct ShownPassword {
    #[serde(default)]
    code: Given,
}

/// What may be a password: six digits, with the white space round them that comes along when they are copied.
#[derive(Debug)]
struct Code(String);

/// What is shown is no password, so it costs no guess.
#[derive(Debug, thiserror::Error)]
#[error("must be six digits")]
struct NoCode;

/// A contact that was judged, and its secret, if that was made here: its only chance to be seen.
#[derive(Debug)]
struct Judged {
    contact: Contact,
    made: Option<Secret>,
}

/// What is answered.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<Channel>,
    verified: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
}

/// `POST /v1/subjects/{id}/contacts`
pub(super) async fn add(
    State(api): State<Arc<Api>>,
    path: Result<Path<String>, PathRejection>,
    Json(new): Json<NewContact>,
) -> Result<Response, Problem> {
    let Path(subject) = path.map_err(|rejection| broken_path(&rejection))?;
    let subject = subject_of(&subject)?;
    let Judged { contact, made } = new.judge()?;
    let (id, channel) = (contact.id.clone(), contact.channel());
    api.contacts.add(subject, contact).await.map_err(problem)?;
    let secret = made.as_ref().map(Secret::reveal);
    // Not whether it is verified: what is there already is answered in the same way.
    let shown = Shown { id: id.as_str(), channel: Some(channel), verified: false, secret };
    Ok(shown.answer(StatusCode::ACCEPTED))
}

/// `DELETE /v1/subjects/{id}/contacts/{contact}`
pub(super) async fn remove(
    State(api): State<Arc<Api>>,
    path: Result<Path<ContactPath>, PathRejection>,
) -> Result<StatusCode, Problem> {
    api.contacts.remove(&candidate(path)?).await.map_err(problem)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/subjects/{id}/contacts/{contact}/verification`
pub(super) async fn resend(
    State(api): State<Arc<Api>>,
    path: Result<Path<ContactPath>, PathRejection>,
) -> Result<Response, Problem> {
    let candidate = candidate(path)?;
    api.contacts.resend(candidate).await.map_err(problem)?;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// `POST /v1/subjects/{id}/contacts/{contact}/verify`
pub(super) async fn verify(
    State(api): State<Arc<Api>>,
    path: Result<Path<ContactPath>, PathRejection>,
    Json(ShownPassword { code }): Json<ShownPassword>,
) -> Result<Response, Problem> {
    let candidate = candidate(path)?;
    let Code(code) = code.required_text("code")?;
    match api.contacts.verify(&candidate, &code).await.map_err(problem)? {
        Guessed::Verified => {
            let shown = Shown { id: candidate.contact.as_str(), channel: None, verified: true, secret: None };
            Ok(shown.answer(StatusCode::OK))
        }
        Guessed::Refused => Err(Problem::new(
            StatusCode::FORBIDDEN,
            "the code is not the one that was sent last, was used, has run out, or too many were tried: ask for another",
        )),
    }
}

/// The parts of a contact's path.
#[derive(Debug, Deserialize)]
pub(super) struct ContactPath {
    id: String,
    contact: String,
}

fn candidate(path: Result<Path<ContactPath>, PathRejection>) -> Result<Candidate, Problem> {
    let Path(ContactPath { id, contact }) = path.map_err(|rejection| broken_path(&rejection))?;
    if contact.len() > ID_BYTES_MAX {
        return Err(Problem::bad_request(format!("contact: has more than {ID_BYTES_MAX} bytes")));
    }
    Ok(Candidate { subject: subject_of(&id)?, contact: ContactId::from_stored(&contact) })
}

fn subject_of(id: &str) -> Result<Subject, Problem> {
    Subject::parse(id.as_bytes()).map_err(|error| Problem::bad_request(format!("id: {error}")))
}

fn broken_path(rejection: &PathRejection) -> Problem {
    Problem::bad_request(format!("the path: {}", rejection.body_text()))
}

impl FromStr for Code {
    type Err = NoCode;

    fn from_str(text: &str) -> Result<Self, NoCode> {
        let code = text.trim();
        let is_code = code.len() == PASSWORD_DIGITS && code.bytes().all(|byte| byte.is_ascii_digit());
        if is_code { Ok(Self(code.to_owned())) } else { Err(NoCode) }
    }
}

impl Shown<'_> {
    /// With a secret that is shown once: nobody on the way may keep it.
    fn answer(&self, status: StatusCode) -> Response {
        let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
        (status, headers, serde_json::to_vec(self).expect("text is JSON")).into_response()
    }
}

impl NewContact {
    fn judge(self) -> Result<Judged, Problem> {
        let Self { channel, address, url, secret } = self;
        let channel: String = channel.required_text("channel")?;
        let judged = match channel.as_str() {
            "email" => {
                let address = bounded("address", address.required_text("address")?, ADDRESS_BYTES_MAX)?;
                none_of(&channel, [("url", url), ("secret", secret)])?;
                Judged { contact: email(&address)?, made: None }
            }
            "webhook" => {
                let url = bounded("url", url.required_text("url")?, URL_BYTES_MAX)?;
                none_of(&channel, [("address", address)])?;
                match secret.text::<String>("secret")? {
                    Some(named) => Judged { contact: Contact::webhook(&url, Secret::new(named)), made: None },
                    None => {
                        let made = secret::generate();
                        Judged { contact: Contact::webhook(&url, made.clone()), made: Some(made) }
                    }
                }
            }
            _ => {
                return Err(Problem::bad_request(format!(
                    "channel: is {channel:?}, it must be \"email\" or \"webhook\""
                )));
            }
        };
        check_contact(&judged.contact).map_err(|invalid| in_field(&invalid))?;
        Ok(judged)
    }
}

/// A mailbox under the one spelling of its domain that every server knows: under others it would be other contacts, each of which is
/// asked as often as may be.
fn email(address: &str) -> Result<Contact, Problem> {
    address::check_public(address).map_err(|invalid| in_field(&invalid))?;
    let place = Contact::email(address).place().into_owned();
    Ok(Contact::email(&bounded("address", place, ADDRESS_BYTES_MAX)?))
}

fn in_field(invalid: &InvalidContact) -> Problem {
    Problem::bad_request(format!("{}: {invalid}", invalid.field))
}

fn bounded(field: &'static str, text: String, bytes_max: usize) -> Result<String, Problem> {
    if text.len() > bytes_max {
        return Err(Problem::bad_request(format!(
            "{field}: has {} bytes, at most {bytes_max} are allowed",
            text.len()
        )));
    }
    Ok(text)
}

/// A field of the other channel is a mistake, and which of the two was meant can't be told.
fn none_of<const N: usize>(channel: &str, others: [(&'static str, Given); N]) -> Result<(), Problem> {
    match others.into_iter().find(|(_, given)| *given != Given::default()) {
        Some((field, _)) => Err(Problem::bad_request(format!("{field}: does not belong to channel {channel:?}"))),
        None => Ok(()),
    }
}

/// What a caller is told about what was not done.
fn problem(error: DeskError) -> Problem {
    let seconds = |after: std::time::Duration| HeaderValue::from(after.as_millis().div_ceil(1000).max(1) as u64);
    let unavailable = |detail: &str| Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail);
    match error {
        DeskError::Throttled { retry_after } => {
            Problem::quota_exceeded("a verification was asked for too often: see Retry-After")
                .header(RETRY_AFTER, seconds(retry_after))
        }
        DeskError::Busy { retry_after } => {
            unavailable("too many verifications wait to be sent").header(RETRY_AFTER, seconds(retry_after))
        }
        DeskError::Full => {
            let detail = format!("the subject has {CONTACTS_MAX} contacts, no more can be added");
            Problem::new(StatusCode::CONFLICT, detail)
        }
        DeskError::Unreadable => Problem::new(
            StatusCode::CONFLICT,
            "what is stored for the subject can't be read: the operator has to mend it (`quotabell subject show`)",
        ),
        DeskError::Contended => unavailable("others change the subject's contacts all the time: try again"),
        DeskError::Away => unavailable("Redis does not answer: try again"),
        DeskError::Redis(error) => {
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
