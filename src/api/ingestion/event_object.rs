//! One event as a JSON object: its members as they were written, without a copy. Pure.
//!
//! A number stays text, so that the rules see what the producer wrote: `1e3` and `1.0` are no units.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::actions::append_events::NewEvent;
use crate::events::parse::InvalidEvent;
use crate::types::{RefusalReason, TraceParent};

/// What precedes a text in UTF-8 that some editors write.
pub(super) const BYTE_ORDER_MARK: &str = "\u{feff}";

/// What an event of the stream may have.
const FIELDS: &str = "subject, units, credit, metric, ts, id and traceparent";
/// Maximum number of characters of a name or a value in an error.
const SHOWN_CHARS_MAX: usize = 64;
/// What is wrong with `\ud800` in a text, or with `\udc00`.
const HALF_OF_A_PAIR: &str = "half of a surrogate pair";

/// Defines the members that are read, with their names.
macro_rules! members {
    ($($(#[$doc:meta])* $member:ident = $name:literal,)+) => {
        /// A JSON object, by the names of its members.
        #[derive(Debug, Default)]
        pub(super) struct EventObject<'a> {
            $($(#[$doc])* pub(super) $member: Option<&'a RawValue>,)+
            /// The first member with another name.
            pub(super) unknown: Option<(String, &'a RawValue)>,
        }

        impl<'a> EventObject<'a> {
            /// The known members, in a fixed order.
            pub(super) fn members(&self) -> impl Iterator<Item = (&'static str, &'a RawValue)> + use<'a> {
                [$(($name, self.$member)),+].into_iter().filter_map(|(name, value)| Some((name, value?)))
            }

            fn set(&mut self, name: &str, value: &'a RawValue) -> Result<(), &'static str> {
                let (slot, name) = match name {
                    $($name => (&mut self.$member, $name),)+
                    _ => {
                        self.unknown.get_or_insert_with(|| (shown(name), value));
                        return Ok(());
                    }
                };
                if slot.is_some() {
                    return Err(name);
                }
                *slot = Some(value);
                Ok(())
            }
        }
    };
}

members! {
    subject = "subject",
    units = "units",
    credit = "credit",
    metric = "metric",
    ts = "ts",
    id = "id",
    traceparent = "traceparent",
    /// Makes the object a CloudEvent.
    specversion = "specversion",
    source = "source",
    kind = "type",
    time = "time",
    data = "data",
    data_base64 = "data_base64",
}

/// A name as the document has it: borrowed unless it has escapes.
pub(super) struct Name<'a>(pub(super) Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

impl<'de> Deserialize<'de> for EventObject<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = EventObject<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event, a JSON object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<EventObject<'de>, M::Error> {
                let mut object = EventObject::default();
                while let Some((Name(name), value)) = members.next_entry::<Name<'de>, &'de RawValue>()? {
                    object
                        .set(&name, value)
                        .map_err(|name| M::Error::custom(format_args!("{name:?} is there twice")))?;
                }
                Ok(object)
            }
        }
        deserializer.deserialize_map(ObjectVisitor)
    }
}

impl<'a> EventObject<'a> {
    /// Reads one event.
    ///
    /// # Errors
    ///
    /// The text is no JSON object, or has one of the known names twice.
    pub(super) fn read(text: &'a str) -> Result<Self, InvalidEvent> {
        serde_json::from_str(text).map_err(|error| InvalidEvent::new(RefusalReason::BadJson, json_error(&error)))
    }

    /// The event of an object that is no CloudEvent.
    ///
    /// # Errors
    ///
    /// A value of the wrong type, or an unknown name.
    pub(super) fn to_event(&self, ignores_unknown: bool) -> Result<NewEvent<'a>, InvalidEvent> {
        let of_cloud_events = [("source", self.source), ("type", self.kind), ("time", self.time), ("data", self.data)];
        let first_of_cloud_events = of_cloud_events.into_iter().find_map(|(name, value)| value.map(|_| name));
        let first_of_cloud_events = first_of_cloud_events.or(self.data_base64.map(|_| "data_base64"));
        let unknown = self.unknown.as_ref().map(|(name, _)| name.as_str());
        if let Some(name) = unknown.or(first_of_cloud_events)
            && !ignores_unknown
        {
            return Err(unknown_field(name, FIELDS));
        }
        Ok(NewEvent {
            subject: text("subject", self.subject, RefusalReason::BadSubject)?,
            metric: text("metric", self.metric, RefusalReason::BadMetric)?,
            units: number("units", self.units, RefusalReason::BadUnits)?,
            credit: number("credit", self.credit, RefusalReason::BadCredit)?,
            ts: number("ts", self.ts, RefusalReason::BadTs)?,
            id: text("id", self.id, RefusalReason::BadId)?,
            traceparent: trace(self.traceparent),
        })
    }

    /// The known members and the first other one as text, for people who look for a mistake.
    pub(super) fn shown_fields(&self) -> Vec<(&str, Cow<'_, str>)> {
        let text = |value: &'a RawValue| content(value).ok().flatten().unwrap_or(Cow::Borrowed(value.get()));
        let mut shown: Vec<(&str, Cow<'_, str>)> = Vec::new();
        shown.extend(self.members().map(|(name, value)| (name, text(value))));
        shown.extend(self.unknown.as_ref().map(|(name, value)| (name.as_str(), text(value))));
        shown
    }
}

/// The trace context of an event. Anything else is ignored: no usage is lost for it, and it must not fill the stream.
pub(super) fn trace(value: Option<&RawValue>) -> Option<Cow<'_, str>> {
    string(value).filter(|text| is_trace(text))
}

/// The text of a JSON string; `None` for anything else.
pub(super) fn string(value: Option<&RawValue>) -> Option<Cow<'_, str>> {
    content(value?).ok().flatten()
}

/// Whether a text is a trace context.
pub(super) fn is_trace(text: &str) -> bool {
    TraceParent::from_field(text.as_bytes()).is_some()
}

/// The broken rule for a field that quotabell does not know.
pub(super) fn unknown_field(name: &str, allowed: &str) -> InvalidEvent {
    let detail = format!("the field {name:?} is not known, an event has {allowed}; ?unknown=ignore accepts others");
    InvalidEvent::new(RefusalReason::UnknownField, detail)
}

/// The text of a JSON string.
///
/// # Errors
///
/// Another value, or a string that is no text, such as one with half of a surrogate pair.
pub(super) fn text<'a>(
    name: &str,
    value: Option<&'a RawValue>,
    reason: RefusalReason,
) -> Result<Option<Cow<'a, str>>, InvalidEvent> {
    let Some(value) = value else { return Ok(None) };
    match content(value) {
        Ok(Some(text)) => Ok(Some(text)),
        Ok(None) => Err(InvalidEvent::new(reason, format!("{name} is {}, it must be a string", shown(value.get())))),
        Err(error) => Err(InvalidEvent::new(reason, format!("{name} is no text: {}", json_error(&error)))),
    }
}

/// The text of a JSON string or a number, as it was written.
///
/// # Errors
///
/// As [`text`].
pub(super) fn number<'a>(
    name: &str,
    value: Option<&'a RawValue>,
    reason: RefusalReason,
) -> Result<Option<Cow<'a, str>>, InvalidEvent> {
    let is_number =
        |value: &&'a RawValue| value.get().starts_with(|first: char| first == '-' || first.is_ascii_digit());
    match value.filter(is_number) {
        Some(number) => Ok(Some(Cow::Borrowed(number.get()))),
        None => text(name, value, reason).map_err(|broken| match broken.detail.strip_suffix("must be a string") {
            Some(detail) => InvalidEvent::new(reason, format!("{detail}must be a number or a string")),
            None => broken,
        }),
    }
}

/// The text of a JSON string; `None` for another value.
fn content<'a>(value: &'a RawValue) -> serde_json::Result<Option<Cow<'a, str>>> {
    let Some(inner) = value.get().strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return Ok(None) };
    if !inner.contains('\\') {
        return Ok(Some(Cow::Borrowed(inner)));
    }
    serde_json::from_str(value.get()).map(|text: String| Some(Cow::Owned(text)))
}

/// A name or a value, cut to a length that an error can have.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// An error of JSON. The line is left out: an event is one line, or was written by a program.
pub(super) fn json_error(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let (message, place) = message.rsplit_once(" at line ").unwrap_or((&message, ""));
    // In the words of JSON.
    let message = message.replace("invalid type: map", "an object").replace("invalid type: sequence", "a list");
    let message = message.replace("unexpected end of hex escape", HALF_OF_A_PAIR);
    let message = message.replace("lone leading surrogate in hex escape", HALF_OF_A_PAIR);
    match place.split_once(" column ") {
        None | Some((_, "0")) => message,
        Some(("1", column)) => format!("{message} (byte {column})"),
        Some((line, column)) => format!("{message} (byte {column} of line {line})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Result<Vec<(&'static str, String)>, (RefusalReason, String)> {
        let event = EventObject::read(text).and_then(|object| object.to_event(false));
        let owned = |event: NewEvent<'_>| event.fields().map(|(name, value)| (name, value.to_owned())).collect();
        event.map(owned).map_err(|broken| (broken.reason, broken.detail))
    }

    /// The rules of the reader judge what the producer wrote, so nothing may be converted on the way.
    #[test]
    fn values_stay_as_they_were_written() {
        for written in ["5", "1e3", "1.0", "-0", "9007199254740993"] {
            assert_eq!(event(&format!(r#"{{"units":{written}}}"#)), Ok(vec![("units", written.to_owned())]));
            assert_eq!(event(&format!(r#"{{"units":"{written}"}}"#)), Ok(vec![("units", written.to_owned())]));
        }
        assert_eq!(event(r#"{ "subject" : "a\u00e9\ud83e\udd80\"" }"#), Ok(vec![("subject", "aé🦀\"".to_owned())]));
        assert_eq!(event(r#"{"s\u0075bject":"a"}"#), Ok(vec![("subject", "a".to_owned())]));
        assert_eq!(event("{}"), Ok(Vec::new()));
    }

    /// A producer must learn which value is wrong.
    #[test]
    fn values_of_another_type_are_refused_with_their_name() {
        use RefusalReason::{BadCredit, BadId, BadJson, BadMetric, BadSubject, BadTs, BadUnits, UnknownField};
        for (text, reason, said) in [
            (r#"{"subject":5}"#, BadSubject, "subject is 5, it must be a string"),
            (r#"{"subject":null}"#, BadSubject, "subject is null"),
            (r#"{"subject":"\ud800"}"#, BadSubject, "subject is no text: half of a surrogate pair"),
            (r#"{"subject":"\udc00"}"#, BadSubject, "subject is no text: half of a surrogate pair"),
            (r#"{"units":null}"#, BadUnits, "units is null, it must be a number or a string"),
            (r#"{"units":[5]}"#, BadUnits, "units is [5]"),
            (r#"{"credit":true}"#, BadCredit, "credit is true"),
            (r#"{"metric":{}}"#, BadMetric, "metric is {}"),
            (r#"{"ts":false}"#, BadTs, "ts is false"),
            (r#"{"id":7}"#, BadId, "id is 7, it must be a string"),
            (r#"{"unit":7}"#, UnknownField, "\"unit\" is not known"),
            (r#"{"data":{}}"#, UnknownField, "\"data\" is not known"),
            (r#"{"subject":"a","subject":"a"}"#, BadJson, "\"subject\" is there twice (byte 29)"),
            (r#"{"subject":"a""#, BadJson, "EOF while parsing an object (byte 14)"),
            ("{\n\"subject\":\"a\",\n\"units\":1 x}", BadJson, "expected `,` or `}` (byte 11 of line 3)"),
            (r#"{"subject":"a"} x"#, BadJson, "trailing characters (byte 17)"),
            ("[]", BadJson, "a list, expected an event, a JSON object"),
            ("5", BadJson, "expected an event, a JSON object"),
            ("", BadJson, "EOF"),
            ("\u{feff}{}", BadJson, "expected value"),
        ] {
            let (found, detail) = event(text).expect_err(text);
            assert!(found == reason && detail.contains(said), "{text}: {found} {detail}");
        }
        assert!(event(&format!(r#"{{"{}":1}}"#, "x".repeat(5_000))).expect_err("unknown").1.len() < 300);
    }
}
