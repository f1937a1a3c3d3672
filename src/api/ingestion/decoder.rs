//! From the body of a request to the entries of the streams: splits the body into events, judges each, and collects
//! what is to be appended and what is refused. Needs neither clock nor network.
//!
//! A fault of the whole body, such as broken JSON around the events, is a [`BodyError`]: then nothing is appended.
//! Everything else refuses one event. Read next: [`super::event_object`] and [`super::cloud_event`], one event.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use axum::http::HeaderMap;
use serde::Deserializer as _;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::body_budget::{BODIES_BYTES_MAX, BodyReservation, BudgetExhausted};
use super::body_form::BodyForm;
use super::cloud_event::{CloudEvent, header_text, id_of_object, id_of_request};
use super::config::EventsConfig;
use super::event_object::{BYTE_ORDER_MARK, EventObject, string};
use crate::actions::append_events::{NewEntries, NewEvent};
use crate::actions::refused_events::RefusedNewEvent;
use crate::events::parse::InvalidEvent;
use crate::types::event_id::EVENT_ID_BYTES_MAX;
use crate::types::{RefusalReason, UnixMs};

/// Maximum number of events in a request.
pub const EVENTS_MAX: usize = 10_000;
/// Maximum length of an event as it was written, bytes.
pub const EVENT_BYTES_MAX: usize = 64 * 1024;
/// What a refused event takes in memory beside its texts, bytes.
const REFUSED_OVERHEAD_BYTES: usize = 512;
/// Bytes that are reserved at once: requests reserve from one counter.
const RESERVED_AT_ONCE: usize = 64 * 1024;

/// How a request wants its events to be read.
#[derive(Debug)]
pub(super) struct DecodeSettings<'a> {
    pub(super) rules: &'a EventsConfig,
    /// `?unknown=ignore`.
    pub(super) ignores_unknown: bool,
    /// Gives an id to each event without one.
    pub(super) idempotency_key: Option<&'a str>,
    /// The time of the server of Redis.
    pub(super) now: UnixMs,
    /// `stream.late_max`.
    pub(super) late_max: Duration,
}

/// What is wrong with a body as a whole.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the body has more than {EVENTS_MAX} events")]
    TooManyEvents,
    #[error("the body is not UTF-8: byte {0} is wrong")]
    NotUtf8(usize),
    #[error("the body begins with a byte order mark: send UTF-8 without one")]
    ByteOrderMark,
    #[error("the body is not JSON: {0}")]
    Json(serde_json::Error),
    #[error("the body must be {0}")]
    OtherForm(&'static str),
    #[error("the events become too many entries: send fewer in a request")]
    TooManyEntries,
    #[error(transparent)]
    Budget(#[from] BudgetExhausted),
}

/// A decoded body.
#[derive(Debug)]
pub(super) struct DecodedEvents {
    pub(super) entries: NewEntries,
    /// Number of valid events. One event may have several entries, or none.
    pub(super) accepted: u64,
    pub(super) refused: Vec<RefusedInRequest>,
}

/// A refused event.
#[derive(Debug)]
pub(super) struct RefusedInRequest {
    /// Its position in the request, from 0.
    pub(super) index: usize,
    /// The id that it would be counted by, if that is known and no longer than an id may be.
    pub(super) id: Option<String>,
    /// What is kept of it.
    pub(super) kept: RefusedNewEvent,
}

/// Decodes a body of this form, and reserves the memory of the result: small events take much more of it than their
/// text.
///
/// # Errors
///
/// The body as a whole is wrong, or there is no memory for its events.
pub(super) fn decode(
    form: BodyForm,
    headers: &HeaderMap,
    body: &[u8],
    settings: DecodeSettings<'_>,
    entries: NewEntries,
    reservation: &mut BodyReservation,
) -> Result<DecodedEvents, BodyError> {
    let decoded = DecodedEvents { entries, accepted: 0, refused: Vec::new() };
    let memory = DecodedMemory { body: body.len(), refused: 0, reserved: 0, reservation };
    let mut decoder = Decoder { settings, index: 0, needs_cloud_event: false, decoded, memory };
    match form {
        BodyForm::Lines => decoder.add_lines(body)?,
        BodyForm::Binary => decoder.add_binary(headers, body),
        BodyForm::Json => decoder.add_json(utf8(body)?)?,
        BodyForm::CloudEvent | BodyForm::CloudEvents => {
            decoder.needs_cloud_event = true;
            let text = utf8(body)?;
            match (form, text.trim_ascii_start().starts_with('[')) {
                (BodyForm::CloudEvent, true) => return Err(BodyError::OtherForm("one CloudEvent, not a list of them")),
                (BodyForm::CloudEvents, false) => return Err(BodyError::OtherForm("a list of CloudEvents")),
                _ => decoder.add_json(text)?,
            }
        }
    }
    decoder.memory.reserve(&decoder.decoded.entries, 1)?;
    Ok(decoder.decoded)
}

struct Decoder<'a> {
    settings: DecodeSettings<'a>,
    /// The position of the next event.
    index: usize,
    needs_cloud_event: bool,
    decoded: DecodedEvents,
    memory: DecodedMemory<'a>,
}

/// The memory of what was decoded, bytes.
struct DecodedMemory<'a> {
    /// The text, which is reserved already.
    body: usize,
    /// Refused events.
    refused: usize,
    /// What is reserved of entries and refused events.
    reserved: usize,
    reservation: &'a mut BodyReservation,
}

impl DecodedMemory<'_> {
    /// Reserves what was added since the last call if it is at least this.
    fn reserve(&mut self, entries: &NewEntries, at_least: usize) -> Result<(), BodyError> {
        let bytes = entries.bytes() + self.refused;
        if self.body + bytes > BODIES_BYTES_MAX {
            return Err(BodyError::TooManyEntries);
        }
        if bytes - self.reserved >= at_least {
            self.reservation.grow(bytes - self.reserved)?;
            self.reserved = bytes;
        }
        Ok(())
    }
}

impl Decoder<'_> {
    /// Adds the event or the list of events.
    fn add_json(&mut self, text: &str) -> Result<(), BodyError> {
        if text.trim_ascii_start().starts_with('[') {
            return self.add_list(text);
        }
        // Separates broken JSON around the event from a broken event, which is refused by itself.
        serde_json::from_str::<&RawValue>(text).map_err(BodyError::Json)?;
        self.add(text.trim_ascii())
    }

    fn add_list(&mut self, text: &str) -> Result<(), BodyError> {
        // A list is read as a whole before its first event is added, so that broken JSON appends nothing.
        let mut json = serde_json::Deserializer::from_str(text);
        let items = json.deserialize_seq(ItemsVisitor).and_then(|items| json.end().map(|()| items));
        match items.map_err(BodyError::Json)? {
            Items::All(items) => items.into_iter().try_for_each(|item| self.add(item.get())),
            Items::TooMany => Err(BodyError::TooManyEvents),
        }
    }

    /// Adds the event of each line that is not blank.
    fn add_lines(&mut self, body: &[u8]) -> Result<(), BodyError> {
        let is_blank = |line: &[u8]| line.trim_ascii().is_empty();
        if body.split(|byte| *byte == b'\n').filter(|line| !is_blank(line)).nth(EVENTS_MAX).is_some() {
            return Err(BodyError::TooManyEvents);
        }
        for (number, line) in body.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !is_blank(line)) {
            let refused_before = self.decoded.refused.len();
            match std::str::from_utf8(line) {
                Ok(text) => self.add(text.trim_ascii())?,
                Err(error) => {
                    let detail = format!("the event is not UTF-8: byte {} is wrong", error.valid_up_to() + 1);
                    let text = String::from_utf8_lossy(&line[..line.len().min(EVENT_BYTES_MAX)]);
                    let broken = InvalidEvent::new(RefusalReason::BadJson, detail);
                    self.refuse(None, broken, &[("event", text)]);
                    self.index += 1;
                }
            }
            if let Some(refused) = self.decoded.refused.get_mut(refused_before) {
                refused.kept.broken.detail += &format!(", line {}", number + 1);
            }
        }
        Ok(())
    }

    /// Adds the CloudEvent of the request.
    fn add_binary(&mut self, headers: &HeaderMap, body: &[u8]) {
        if body.len() > EVENT_BYTES_MAX {
            return self.refuse(id_of_request(headers), too_large(body.len()), &[]);
        }
        let event = CloudEvent::from_request(headers, body);
        let mut fields: Vec<(&str, Cow<'_, str>)> = Vec::new();
        for name in ["subject", "type", "source", "id", "time"] {
            if let Some(value) = headers.get(format!("ce-{name}")) {
                let value = value.as_bytes();
                fields.push((name, header_text(value).unwrap_or_else(|_| String::from_utf8_lossy(value))));
            }
        }
        fields.push(("data", String::from_utf8_lossy(body)));
        self.add_cloud_event(event, || id_of_request(headers), || fields);
    }

    /// Adds one event, JSON text.
    fn add(&mut self, text: &str) -> Result<(), BodyError> {
        if text.len() > EVENT_BYTES_MAX {
            self.refuse(None, too_large(text.len()), &[("event", text.into())]);
        } else {
            match EventObject::read(text) {
                Err(broken) => self.refuse(None, explained(broken, text), &[("event", text.into())]),
                Ok(object) if object.specversion.is_some() || self.needs_cloud_event => {
                    let event = CloudEvent::from_object(&object);
                    self.add_cloud_event(event, || id_of_object(&object), || object.shown_fields());
                }
                Ok(object) => self.add_object(&object),
            }
        }
        self.index += 1;
        self.memory.reserve(&self.decoded.entries, RESERVED_AT_ONCE)
    }

    fn add_object(&mut self, object: &EventObject<'_>) {
        let id_of_key = self.settings.idempotency_key.filter(|_| object.id.is_none());
        let id_of_key = id_of_key.map(|key| format!("{key}/{}", self.index));
        let checked = object.to_event(self.settings.ignores_unknown).and_then(|event| {
            let event = NewEvent { id: event.id.or_else(|| id_of_key.as_deref().map(Cow::from)), ..event };
            event.check(self.decoded.entries.keys(), self.settings.now, self.settings.late_max)?;
            Ok(event)
        });
        match checked {
            Ok(event) => {
                self.decoded.entries.add(&event);
                self.decoded.accepted += 1;
            }
            Err(broken) => {
                let id = id_of_key.as_deref().map(Cow::from).or_else(|| string(object.id));
                self.refuse(id.map(Cow::into_owned), broken, &object.shown_fields());
            }
        }
    }

    /// Adds all usage events of a CloudEvent, or refuses it as a whole.
    fn add_cloud_event<'e>(
        &mut self,
        event: Result<CloudEvent<'e>, InvalidEvent>,
        id: impl FnOnce() -> Option<String>,
        shown: impl FnOnce() -> Vec<(&'e str, Cow<'e, str>)>,
    ) {
        let DecodeSettings { rules, ignores_unknown, now, late_max, .. } = self.settings;
        let checked = event.and_then(|event| {
            let events = event.events(rules, ignores_unknown)?;
            let keys = self.decoded.entries.keys();
            let check = |one: &NewEvent<'_>| {
                one.check(keys, now, late_max).map_err(|broken| event.explained(broken, one, rules))
            };
            // Also if all its metrics are zero.
            check(&event.common())?;
            events.iter().try_for_each(check)?;
            let fields = events.iter().flat_map(NewEvent::fields);
            let bytes: usize = fields.map(|(name, value)| name.len() + value.len()).sum();
            // Each metric repeats the subject, the time and the id.
            if bytes > EVENT_BYTES_MAX { Err(too_large(bytes)) } else { Ok(events) }
        });
        match checked {
            Ok(events) => {
                events.iter().for_each(|event: &NewEvent<'_>| self.decoded.entries.add(event));
                self.decoded.accepted += 1;
            }
            Err(broken) => self.refuse(id(), broken, &shown()),
        }
    }

    fn refuse(&mut self, id: Option<String>, broken: InvalidEvent, fields: &[(&str, Cow<'_, str>)]) {
        let id = id.filter(|id| id.len() <= EVENT_ID_BYTES_MAX);
        let kept = RefusedNewEvent::new(broken, fields);
        // They are text here, and arguments of a command later.
        let texts = kept.fields.iter().map(Vec::len).sum::<usize>() + kept.broken.detail.len();
        self.memory.refused += 2 * texts + REFUSED_OVERHEAD_BYTES;
        self.decoded.refused.push(RefusedInRequest { index: self.index, id, kept });
    }
}

/// The events of a list.
enum Items<'a> {
    All(Vec<&'a RawValue>),
    TooMany,
}

struct ItemsVisitor;

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Items<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Items<'de>, S::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<&'de RawValue>()? {
            if items.len() == EVENTS_MAX {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Items::TooMany);
            }
            items.push(item);
        }
        Ok(Items::All(items))
    }
}

fn utf8(body: &[u8]) -> Result<&str, BodyError> {
    let text = std::str::from_utf8(body).map_err(|error| BodyError::NotUtf8(error.valid_up_to() + 1))?;
    if text.starts_with(BYTE_ORDER_MARK) { Err(BodyError::ByteOrderMark) } else { Ok(text) }
}

fn too_large(bytes: usize) -> InvalidEvent {
    let detail = format!("the event has {bytes} bytes, at most {EVENT_BYTES_MAX} are allowed");
    InvalidEvent::new(RefusalReason::TooLarge, detail)
}

/// Names the cause of broken JSON if a person would not find it.
fn explained(broken: InvalidEvent, text: &str) -> InvalidEvent {
    if text.starts_with(BYTE_ORDER_MARK) {
        return InvalidEvent::new(broken.reason, "the event begins with a byte order mark: send UTF-8 without one");
    }
    broken
}
