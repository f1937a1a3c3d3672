//! `/v1/subjects/{id}/contacts`: list, add and remove contacts, and verify them.
//!
//! The callers have the platform's token, so they may know which contacts there are: 404 and 409 are answered plainly.
//! Read next: [`crate::verification::service`], how a contact is asked and verified.

use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::body::{self, Json};
use super::contact_filter_body::ContactFilterBody;
use super::operation::{JsonReply, NoBody};
use super::path::{ContactPath, SubjectPath};
use super::problem::{CALL_TIMEOUT, Problem, within};
use super::state::ApiState;
use super::status_doc::{StatusDoc, problem};
use crate::actions::contact_spec::{GeneratedSecret, NamedContact};
use crate::actions::contacts::{self, ContactActionError, ContactSelector};
use crate::channels::{InvalidContact, ProbeResult, REGISTRY};
use crate::contacts::contact::Endpoint;
use crate::contacts::edit::AddContactError;
use crate::contacts::merge::ContactSpec;
use crate::contacts::{ContactArray, ContactOrigin, ExtraHeaders, MessageFormat};
use crate::types::{
    Channel, ContactChannel, ContactId, DigestInterval, Metric, Outcome, QuietTime, Subject, Threshold, Window,
};
use crate::verification::{CODE_DIGITS, VerificationError};
use crate::views::ContactView;

/// The body of a contact that is added.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub(super) struct NewContactBody {
    channel: String,
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schemars(required)]
    address: Option<String>,
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schemars(required)]
    url: Option<String>,
    /// `whsec_` and base64 of 24 to 64 bytes; up to 8 of them, separated by spaces, while it is rotated. One is made
    /// where none is named.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schemars(required)]
    secret: Option<String>,
    /// How messages are written. Receivers of other formats can't send a challenge back: the operator adds them.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schemars(schema_with = "confirmable_formats")]
    format: Option<MessageFormat>,
    /// Headers that requests bear, by name. Those of the connection and of the message are refused (400), and so is
    /// what begins with `webhook-`, and a name that is set twice in different case.
    #[serde(default, deserialize_with = "body::given")]
    #[schemars(required)]
    headers: Option<ExtraHeaders>,
    /// The thresholds whose alerts it gets; left out or null for all.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    thresholds: Option<Vec<Threshold>>,
    /// The metrics whose alerts it gets; left out or null for all.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    metrics: Option<Vec<Metric>>,
    /// The windows whose alerts it gets; left out or null for all.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    windows: Option<Vec<Window>>,
    /// When its notifications wait, in the zone of the subject; left out or null if they never do. Alerts at 100 % are
    /// sent anyway.
    quiet: Option<QuietTime>,
    /// Whether alerts at 100 % wait too.
    #[serde(default)]
    quiet_all: bool,
    /// For how long its notifications are gathered into one message, such as `1h`; left out or null if each is sent at
    /// once. Alerts at 100 % of a day or longer are sent at once anyway.
    digest: Option<DigestInterval>,
    /// Whether alerts at 100 % are gathered too.
    #[serde(default)]
    digest_all: bool,
    /// Whether it also gets the alerts of all levels below the subject.
    #[serde(default)]
    subtree: bool,
    /// Whether it hears that all its alerts of a quota have ended; left out or null for no.
    resolved: Option<bool>,
}

/// A contact that is added: [`NewContactBody`]. Each channel uses the fields that are its own.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct NewContact(NewContactBody);

/// One schema for each channel: generators of clients make a type of each.
impl JsonSchema for NewContact {
    fn schema_name() -> Cow<'static, str> {
        "NewContact".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fields = NewContactBody::json_schema(generator);
        let (mut choices, mut mapping) = (Vec::new(), Map::new());
        for definition in REGISTRY {
            let (channel, address) = (definition.channel.as_str(), definition.address_field());
            let mut schema = Value::from(fields.clone());
            if let Some(Value::Object(properties)) = schema.get_mut("properties") {
                properties.retain(|field, _| belongs_to(definition.channel, field));
                properties.insert("channel".to_owned(), json!({"type": "string", "const": channel}));
                properties.insert(address.to_owned(), definition.channel.address_schema());
            }
            schema["required"] = json!(["channel", address]);
            if let Some(secret) = &definition.secret {
                schema["properties"]["secret"]["pattern"] = secret.pattern.into();
            }
            let name = format!("New{}{}Contact", channel[..1].to_uppercase(), &channel[1..]);
            let reference = format!("#/components/schemas/{name}");
            choices.push(json!({"$ref": reference}));
            mapping.insert(channel.to_owned(), reference.into());
            generator.definitions_mut().insert(name, schema);
        }
        json_schema!({"oneOf": choices, "discriminator": {"propertyName": "channel", "mapping": mapping}})
    }
}

fn confirmable_formats(_: &mut SchemaGenerator) -> Schema {
    let formats = MessageFormat::BUILT_IN.into_iter().filter(MessageFormat::has_challenge);
    json_schema!({"type": "string", "enum": formats.map(|format| format.to_string()).collect::<Vec<_>>()})
}

/// The body of a verification by code.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
#[schemars(rename = "VerificationCode")]
pub(super) struct CodeBody {
    /// Six digits; white space round them is ignored. Anything else is answered 400 and costs no guess.
    #[serde(deserialize_with = "body::text")]
    #[schemars(regex(pattern = r"^\s*[0-9]{6}\s*$"))]
    code: String,
}

/// The contacts of a subject.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ContactList {
    contacts: Vec<ContactView>,
}

/// A contact that was added.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AddedContact {
    /// What the other routes of contacts take.
    id: ContactId,
    #[schemars(with = "ContactChannel")]
    channel: Channel,
    #[schemars(extend("enum" = [false]))]
    verified: bool,
    /// The one that was made, shown this once. A webhook that is verified already keeps its own until its receiver has
    /// echoed a challenge signed with this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

/// A contact that is verified.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct VerifiedContact {
    id: ContactId,
    #[schemars(extend("enum" = [true]))]
    verified: bool,
}

/// What a problem says if the address is there already.
#[derive(Debug, Serialize, JsonSchema)]
struct ExistingContact {
    /// The id of the contact that has this address; not there if the problem is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    contact: Option<ContactId>,
}

/// Why a contact is not added.
pub(super) const NOT_ADDED: StatusDoc = problem(
    409,
    "The subject has this contact already, or as many contacts as `subjects.contacts_max` allows (16), or what is stored \
     for it can't be read. If the address is there already, `contact` is the id of its contact.",
)
.members(SchemaGenerator::subschema_for::<ExistingContact>);

/// `GET /v1/subjects/{id}/contacts`
pub(super) async fn list(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
) -> Result<JsonReply<ContactList>, Problem> {
    let (stored, now) = within(CALL_TIMEOUT, api.verification.list(&subject)).await?;
    let contacts: Vec<ContactView> = stored.iter().map(|stored| ContactView::new(stored, now)).collect();
    Ok(JsonReply(ContactList { contacts }))
}

/// `POST /v1/subjects/{id}/contacts`
pub(super) async fn add(
    State(api): State<Arc<ApiState>>,
    SubjectPath(subject): SubjectPath,
    Json(NewContact(body)): Json<NewContact>,
) -> Result<JsonReply<AddedContact, 202>, Problem> {
    let spec = body.into_spec()?;
    let contact = &spec.contact;
    let keys = &api.partitions.first().keys;
    contacts::check_levels(keys, &subject, contact.filter.subtree).map_err(ContactActionError::from)?;
    // The caller can correct such a receiver now, and would not hear of a failed attempt.
    if let Some(ProbeResult { outcome: Outcome { error: Some(refused), .. }, .. }) = api.channels.refusal(contact) {
        let field = contact.channel().address_field().unwrap_or_default();
        return Err(Problem::bad_request(format!("{field}: {refused}")));
    }
    let id = within(CALL_TIMEOUT, api.verification.add(subject, contact)).await?;
    let secret = GeneratedSecret::of(&spec).map(|generated| generated.secret);
    Ok(JsonReply(AddedContact { id, channel: contact.channel(), verified: false, secret }))
}

/// `PUT /v1/subjects/{id}/contacts/{contact}`
pub(super) async fn replace(
    State(api): State<Arc<ApiState>>,
    ContactPath(subject, contact): ContactPath,
    Json(body): Json<ContactFilterBody>,
) -> Result<JsonReply<ContactView>, Problem> {
    let keys = &api.partitions.first().keys;
    contacts::check_levels(keys, &subject, body.subtree).map_err(ContactActionError::from)?;
    let change = body.into_change()?;
    change_one(&api, &subject, &contact, |array| array.set_filter(&contact, &change)).await
}

/// `POST /v1/subjects/{id}/contacts/{contact}/enable`
pub(super) async fn enable(
    State(api): State<Arc<ApiState>>,
    ContactPath(subject, contact): ContactPath,
) -> Result<JsonReply<ContactView>, Problem> {
    let enabled = change_one(&api, &subject, &contact, |array| drop(array.enable(&contact))).await?;
    tracing::info!(%subject, %contact, "contact is enabled");
    Ok(enabled)
}

/// Changes a contact, whoever added it, and answers with it as it is then. Repeatable if `change` is.
async fn change_one(
    api: &ApiState,
    subject: &Subject,
    contact: &ContactId,
    change: impl Fn(&mut ContactArray),
) -> Result<JsonReply<ContactView>, Problem> {
    let change = |array: &mut ContactArray, _| {
        change(array);
        Ok(array.find(contact).expect("it was selected"))
    };
    let partition = api.partitions.partition_of(subject);
    let changed = async {
        let changed = contacts::edit(partition, subject, ContactSelector::Id(contact), change).await?;
        Ok::<_, Problem>((changed, partition.client.server_time().await?))
    };
    let (changed, now) = within(CALL_TIMEOUT, changed).await?;
    Ok(JsonReply(ContactView::new(&changed, now)))
}

impl From<ContactActionError> for Problem {
    fn from(error: ContactActionError) -> Self {
        match error {
            ContactActionError::Edit(error) => VerificationError::from(error).into(),
            ContactActionError::Select(_) => VerificationError::NotFound.into(),
            ContactActionError::OperatorsOwn
            | ContactActionError::IdTaken { .. }
            | ContactActionError::OtherId { .. }
            | ContactActionError::TooMany(_)
            | ContactActionError::MutedByOthers => Self::new(StatusCode::CONFLICT, error.to_string()),
            ContactActionError::Level(error) => Self::bad_request(error.to_string()),
        }
    }
}

/// `DELETE /v1/subjects/{id}/contacts/{contact}`: removes a contact that was added here, verified or not. What was sent
/// to its address verifies nothing afterwards, not even if it is added again, and its pending deliveries are cancelled
/// at their next attempt.
pub(super) async fn remove(
    State(api): State<Arc<ApiState>>,
    ContactPath(subject, contact): ContactPath,
) -> Result<NoBody<204>, Problem> {
    let (partition, selector) = (api.partitions.partition_of(&subject), ContactSelector::Id(&contact));
    within(CALL_TIMEOUT, contacts::remove(partition, &subject, selector, ContactOrigin::Subject)).await?;
    tracing::info!(%subject, %contact, "contact is removed");
    Ok(NoBody)
}

/// `POST /v1/subjects/{id}/contacts/{contact}/verification`
pub(super) async fn request_verification(
    State(api): State<Arc<ApiState>>,
    ContactPath(subject, contact): ContactPath,
) -> Result<NoBody<202>, Problem> {
    within(CALL_TIMEOUT, api.verification.request(subject, &contact)).await?;
    Ok(NoBody)
}

/// `POST /v1/subjects/{id}/contacts/{contact}/verify`
pub(super) async fn verify(
    State(api): State<Arc<ApiState>>,
    ContactPath(subject, contact): ContactPath,
    Json(CodeBody { code }): Json<CodeBody>,
) -> Result<JsonReply<VerifiedContact>, Problem> {
    // White space comes along when a code is copied.
    let code = code.trim();
    if code.len() != CODE_DIGITS || !code.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Problem::bad_request(format!("code: must be {CODE_DIGITS} digits")));
    }
    within(CALL_TIMEOUT, api.verification.verify(&subject, &contact, code)).await?;
    Ok(JsonReply(VerifiedContact { id: contact, verified: true }))
}

impl NewContactBody {
    /// The contact, if its form is legal.
    fn into_spec(self) -> Result<ContactSpec, Problem> {
        let Self { channel, address, url, secret, format, headers, .. } = self;
        let Self { thresholds, metrics, windows, quiet, quiet_all, digest, digest_all, subtree, resolved, .. } = self;
        let filter =
            ContactFilterBody { thresholds, metrics, windows, quiet, quiet_all, digest, digest_all, subtree, resolved };
        let filter = filter.into_change()?;
        let Some(definition) = REGISTRY.into_iter().find(|definition| definition.channel.as_str() == channel) else {
            let known = REGISTRY.map(|definition| format!("{:?}", definition.channel.as_str())).join(" or ");
            return Err(Problem::bad_request(format!("channel: is {channel:?}, it must be {known}")));
        };
        let given = [
            ("address", address.is_some()),
            ("url", url.is_some()),
            ("secret", secret.is_some()),
            ("format", format.is_some()),
            ("headers", headers.is_some()),
        ];
        // Which of two channels was meant is unknown.
        let foreign = given.into_iter().find(|(field, is_given)| *is_given && !belongs_to(definition.channel, field));
        if let Some((field, _)) = foreign {
            return Err(Problem::bad_request(format!("{field}: does not belong to channel {channel:?}")));
        }
        let address = address.or(url).ok_or_else(|| {
            Problem::bad_request(format!("{}: is missing, it must be a string", definition.address_field()))
        })?;
        let named = NamedContact { channel: definition.channel, address, secret, format, headers, filter };
        let in_field = |invalid: InvalidContact| Problem::bad_request(format!("{}: {invalid}", invalid.field));
        named.check(ContactOrigin::Subject).map_err(in_field)
    }
}

/// Whether contacts of a channel have this field.
fn belongs_to(channel: Channel, field: &str) -> bool {
    match field {
        "address" | "url" => channel.address_field() == Some(field),
        "secret" | "format" | "headers" => Endpoint::has_options(channel),
        _ => true,
    }
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
                Self::new(StatusCode::CONFLICT, detail).members(&ExistingContact { contact: Some(contact.id.clone()) })
            }
            VerificationError::NotAdded(AddContactError::TooMany(_))
            | VerificationError::AlreadyVerified
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
