//! The stored form of one contact: JSON in Redis, TOML in the configuration. Pure.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::config::default_true;
use super::contact::{Contact, Endpoint};
use super::message_format::{InvalidFormat, MessageFormat, SecretUse};
use super::options::{ContactOptions, ExtraHeaders};
use crate::types::text::MASK;
use crate::types::timestamp::TimestampError;
use crate::types::{
    Channel, ContactChannel, ContactFilter, ContactFilterError, ContactId, DigestInterval, DisabledState, Metric, Mute,
    QuietTime, Secret, Threshold, Window,
};

/// The field for an address that is a URL. Other addresses are in `address`.
const URL: &str = "url";
/// What a contact must be, for error texts.
const EXPECTED: &str = "an object with a channel and an address or url";

/// The schema of a contact without secrets: see [`masked_contact`](super::masked_contact).
impl JsonSchema for Contact {
    fn schema_name() -> Cow<'static, str> {
        "SubjectContact".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schema_with(generator, &["id"])
    }
}

/// The schema of a contact that always has these fields, in addition to those of every stored contact.
pub(crate) fn schema_with(generator: &mut SchemaGenerator, always: &[&str]) -> Schema {
    let mut schema = ContactJson::json_schema(generator);
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.extend(always.iter().map(|name| Value::from(*name)));
    }
    schema
}

fn masked_headers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "additionalProperties": {"type": "string", "const": MASK}})
}

impl Serialize for Contact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ContactJson::from(self.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Contact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(deserializer.deserialize_map(ObjectVisitor)?).map_err(D::Error::custom)
    }
}

/// Accepts only objects: a derived implementation would also accept a list of the fields.
struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = ContactJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ContactJson, A::Error> {
        ContactJson::deserialize(MapAccessDeserializer::new(map))
    }
}

/// The JSON and TOML form: a flat object. Its channel determines which of the other fields it has.
///
/// Unknown fields are ignored, because the platform may add its own notes.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(description = "A contact. It has only the fields of its channel.")]
struct ContactJson {
    /// The id, for the routes of contacts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ContactId")]
    id: Option<String>,
    #[schemars(with = "ContactChannel")]
    channel: String,
    /// The address of an email contact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// The URL of a webhook. If the URL is as good as a secret, only its origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// Present if a webhook has a secret, which is never shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("const" = MASK))]
    secret: Option<String>,
    /// The format of a webhook's messages, if it is not `standard`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    format: Option<Value>,
    /// Additional headers of a webhook's requests by name, without their values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "masked_headers")]
    headers: Option<Value>,
    /// Whether it is muted and gets no alerts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    muted: bool,
    /// When the mute ends, if it has an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    muted_until: Option<String>,
    /// The reason for the mute, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    muted_reason: Option<String>,
    /// Whether it may get alerts: the operator added it, or the owner of the address has agreed.
    #[serde(default = "default_true", skip_serializing_if = "Clone::clone")]
    verified: bool,
    /// The thresholds whose alerts it gets; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thresholds: Option<Vec<Threshold>>,
    /// The metrics whose alerts it gets; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metrics: Option<Vec<Metric>>,
    /// The windows whose alerts it gets; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    windows: Option<Vec<Window>>,
    /// When its notifications wait, in the zone of their subject: `22:00-07:00`; absent if they never do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quiet: Option<QuietTime>,
    /// Whether alerts of a used up limit wait too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    quiet_all: bool,
    /// For how long its notifications are gathered into one message: `1h`; absent if each is sent at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<DigestInterval>,
    /// Whether alerts of a used up limit of a day or longer are gathered too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    digest_all: bool,
    /// Whether it also gets the alerts of all levels below its subject.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    subtree: bool,
    /// Whether it hears that its alerts have ended; absent for the default of its format: only `pagerduty` contacts do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resolved: Option<bool>,
    /// Present if it gets nothing because its receiver or mailbox no longer exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disabled: Option<DisabledState>,
}

/// Why a JSON object is not a contact.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContactError {
    #[error("contact has channel {0:?}, allowed are {known}", known = sending())]
    Channel(String),
    #[error("{channel} contact has no {field:?}")]
    Missing { channel: &'static str, field: &'static str },
    #[error(transparent)]
    Filter(#[from] ContactFilterError),
    #[error("muted_until {}", TimestampError)]
    MutedUntil,
    #[error(transparent)]
    Format(#[from] InvalidFormat),
    /// `format` or `headers` is of another type. Shows no value.
    #[error("{field} of a {channel} contact must be {allowed}")]
    Type { channel: &'static str, field: &'static str, allowed: &'static str },
}

/// The channels through which something is sent, for error texts.
fn sending() -> String {
    Channel::SENDING.map(|channel| format!("{:?}", channel.as_str())).join(" and ")
}

impl TryFrom<ContactJson> for Contact {
    type Error = ContactError;

    fn try_from(json: ContactJson) -> Result<Self, ContactError> {
        let channel = Channel::from_stored(&json.channel);
        let known = channel.and_then(|channel| Some((channel, channel.address_field()?)));
        let (channel, field) = known.ok_or_else(|| ContactError::Channel(json.channel.clone()))?;
        let needed = |value: Option<String>, field| {
            let missing = ContactError::Missing { channel: channel.as_str(), field };
            value.filter(|text| !text.is_empty()).ok_or(missing)
        };
        let address = needed(if field == URL { json.url } else { json.address }, field)?;
        let mut options = ContactOptions::default();
        if Endpoint::has_options(channel) {
            let (format, headers) = (format_of(channel, json.format)?, headers_of(channel, json.headers)?);
            let secret = match format.secret_use() {
                SecretUse::MaySign => json.secret.filter(|text| !text.is_empty()),
                SecretUse::Signs | SecretUse::RoutingKey => Some(needed(json.secret, "secret")?),
            };
            options = ContactOptions { secret: secret.map(Secret::new), format, headers };
        }
        let contact = Self::of_channel(channel, &address, options);
        let mut contact = contact.ok_or(ContactError::Channel(json.channel))?;
        if let Some(id) = json.id.filter(|id| !id.is_empty()) {
            contact.id = ContactId::from_stored(&id);
        }
        let until = json.muted_until.map(|text| text.parse().map_err(|_| ContactError::MutedUntil)).transpose()?;
        contact.mute = json.muted.then_some(Mute { until, reason: json.muted_reason });
        contact.verified = json.verified;
        let filter = ContactFilter::new(json.thresholds, json.metrics, json.windows)?;
        contact.filter = ContactFilter {
            quiet: json.quiet,
            quiet_all: json.quiet_all,
            digest: json.digest,
            digest_all: json.digest_all,
            subtree: json.subtree,
            resolved: json.resolved,
            ..filter
        };
        contact.disabled = json.disabled;
        Ok(contact)
    }
}

/// The format of a contact whose channel has formats. In other contacts this field is a note of the platform.
fn format_of(channel: Channel, json: Option<Value>) -> Result<MessageFormat, ContactError> {
    match json {
        None | Some(Value::Null) => Ok(MessageFormat::default()),
        Some(Value::String(text)) => Ok(text.parse()?),
        Some(_) => Err(ContactError::Type { channel: channel.as_str(), field: "format", allowed: "a string" }),
    }
}

fn headers_of(channel: Channel, json: Option<Value>) -> Result<ExtraHeaders, ContactError> {
    let json = json.filter(|json| !json.is_null());
    let headers = json.map_or_else(|| Ok(ExtraHeaders::default()), |json| ExtraHeaders::deserialize(&json));
    let allowed = "an object of strings";
    headers.map_err(|_| ContactError::Type { channel: channel.as_str(), field: "headers", allowed })
}

impl From<Contact> for ContactJson {
    fn from(contact: Contact) -> Self {
        let channel = contact.channel();
        let is_url = channel.address_field() == Some(URL);
        let address = Some(contact.address().to_owned());
        let (address, url) = if is_url { (None, address) } else { (address, None) };
        let ContactOptions { secret, format, headers } = contact.options().cloned().unwrap_or_default();
        let Contact { id, mute, verified, filter, disabled, .. } = contact;
        let ContactFilter { thresholds, metrics, windows, quiet, quiet_all, digest, digest_all, subtree, resolved } =
            filter;
        Self {
            id: Some(id.as_str().to_owned()),
            channel: channel.as_str().to_owned(),
            address,
            url,
            secret: secret.map(|secret| secret.reveal().to_owned()),
            format: (format != MessageFormat::default()).then(|| format.to_string().into()),
            headers: (!headers.is_empty()).then(|| json!(headers)),
            muted: mute.is_some(),
            muted_until: mute.as_ref().and_then(|mute| mute.until).map(|until| until.to_string()),
            muted_reason: mute.and_then(|mute| mute.reason),
            verified,
            thresholds: named(thresholds),
            metrics: named(metrics),
            windows: named(windows),
            quiet,
            quiet_all,
            digest,
            digest_all,
            subtree,
            resolved,
            disabled,
        }
    }
}

/// The list as it is stored: absent for all.
fn named<T>(values: Vec<T>) -> Option<Vec<T>> {
    (!values.is_empty()).then_some(values)
}
