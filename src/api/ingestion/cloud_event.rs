//! CloudEvents 1.0: their attributes, and the usage events that they mean. Pure.

use std::borrow::Cow;
use std::fmt;

use axum::http::HeaderMap;
use percent_encoding::percent_decode;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::config::{DataPath, EventTypeConfig, EventsConfig, UnitsSource};
use super::event_object::{
    BYTE_ORDER_MARK, EventObject, Name, is_trace, json_error, number, shown, string, text, trace, unknown_field,
};
use crate::actions::append_events::NewEvent;
use crate::events::parse::InvalidEvent;
use crate::types::RefusalReason;
use crate::types::event_id::EVENT_ID_BYTES_MAX;

/// The version that is read.
const SPECVERSION: &str = "1.0";
/// The header that makes a request a CloudEvent in binary mode.
pub(super) const SPECVERSION_HEADER: &str = "ce-specversion";

/// A CloudEvent.
#[derive(Debug)]
pub(super) struct CloudEvent<'a> {
    id: Cow<'a, str>,
    source: Cow<'a, str>,
    kind: Cow<'a, str>,
    subject: Option<Cow<'a, str>>,
    time: Option<Cow<'a, str>>,
    traceparent: Option<Cow<'a, str>>,
    data: Option<&'a RawValue>,
    /// A field of the stream beside the attributes: it was probably meant to be in the data.
    misplaced: Option<&'static str>,
}

impl<'a> CloudEvent<'a> {
    /// The CloudEvent of an object (structured mode). An attribute that is `null` counts as absent.
    ///
    /// # Errors
    ///
    /// Another version, a missing attribute, or one that is no string.
    pub(super) fn from_object(object: &EventObject<'a>) -> Result<Self, InvalidEvent> {
        let attribute = |name, value: Option<&'a RawValue>| {
            text(name, value.filter(|value| value.get() != "null"), RefusalReason::BadCloudevent)
        };
        check_version(attribute("specversion", object.specversion)?.as_deref())?;
        if object.data_base64.is_some() {
            return Err(bad_data("data_base64 is not read, send the data as JSON"));
        }
        Ok(Self {
            id: required("id", attribute("id", object.id)?)?,
            source: required("source", attribute("source", object.source)?)?,
            kind: required("type", attribute("type", object.kind)?)?,
            subject: attribute("subject", object.subject)?,
            time: attribute("time", object.time)?,
            traceparent: trace(object.traceparent),
            data: object.data.filter(|data| data.get() != "null"),
            misplaced: [
                ("units", object.units),
                ("credit", object.credit),
                ("metric", object.metric),
                ("ts", object.ts),
            ]
            .into_iter()
            .find_map(|(name, value)| value.filter(|value| value.get() != "null").map(|_| name)),
        })
    }

    /// The CloudEvent of a request (binary mode): the attributes are headers, the body is the data.
    ///
    /// # Errors
    ///
    /// As [`Self::from_object`], and a body that is no JSON.
    pub(super) fn from_request(headers: &'a HeaderMap, body: &'a [u8]) -> Result<Self, InvalidEvent> {
        let attribute = |name| header_attribute(headers, name);
        check_version(attribute("specversion")?.as_deref())?;
        let data = match body.trim_ascii() {
            [] | b"null" => None,
            body if body.starts_with(BYTE_ORDER_MARK.as_bytes()) => {
                return Err(bad_data("the body begins with a byte order mark: send UTF-8 without one"));
            }
            body => Some(serde_json::from_slice(body).map_err(|error| {
                bad_data(format_args!("the body, which is the data, is not JSON: {}", json_error(&error)))
            })?),
        };
        Ok(Self {
            id: required("ce-id", attribute("id")?)?,
            source: required("ce-source", attribute("source")?)?,
            kind: required("ce-type", attribute("type")?)?,
            subject: attribute("subject")?,
            time: attribute("time")?,
            traceparent: attribute("traceparent").ok().flatten().filter(|text| is_trace(text)),
            data,
            misplaced: ["ce-units", "ce-credit", "ce-metric", "ce-ts"]
                .into_iter()
                .find(|name| headers.contains_key(*name)),
        })
    }

    /// What all its usage events have.
    pub(super) fn common(&self) -> NewEvent<'a> {
        NewEvent {
            subject: self.subject.clone(),
            ts: self.time.clone(),
            id: Some(event_id(&self.source, &self.id).into()),
            traceparent: self.traceparent.clone(),
            ..NewEvent::default()
        }
    }

    /// The usage events that it means: one, or one for each metric of its type's rule that is not zero.
    ///
    /// # Errors
    ///
    /// Its data has no units, or holds something else at the path of a rule.
    pub(super) fn events(
        &self,
        rules: &EventsConfig,
        ignores_unknown: bool,
    ) -> Result<Vec<NewEvent<'a>>, InvalidEvent> {
        if let Some(name) = self.misplaced.filter(|_| !ignores_unknown) {
            let detail = format!("{name:?} is no attribute of a CloudEvent, the units belong in its data");
            return Err(InvalidEvent::new(RefusalReason::UnknownField, detail));
        }
        let common = self.common();
        match (rules.types.get(&*self.kind), self.data) {
            (Some(EventTypeConfig { metrics }), data) => {
                let mut events = Vec::with_capacity(metrics.len());
                for (metric, source) in metrics {
                    let Some(units) = self.units(source, data)?.filter(|units| !is_zero(units)) else { continue };
                    let metric = Some(metric.as_str().to_owned().into());
                    events.push(NewEvent { metric, units: Some(units), ..common.clone() });
                }
                Ok(events)
            }
            (None, data) => {
                let plain =
                    data.map_or_else(|| Ok(PlainData::default()), |data| self.plain_data(data, ignores_unknown));
                let PlainData { units, credit, .. } = plain?;
                Ok(vec![NewEvent {
                    metric: Some(self.kind.clone()),
                    units: number("data.units", units, RefusalReason::BadUnits)?,
                    credit: number("data.credit", credit, RefusalReason::BadCredit)?,
                    ..common
                }])
            }
        }
    }

    /// Names what a usage event has broken by its place in the CloudEvent: the path of the rule, or `time`.
    pub(super) fn explained(
        &self,
        InvalidEvent { reason, detail }: InvalidEvent,
        event: &NewEvent<'_>,
        rules: &EventsConfig,
    ) -> InvalidEvent {
        let rule = rules.types.get(&*self.kind).filter(|_| reason == RefusalReason::BadUnits);
        let mut metrics = rule.into_iter().flat_map(|rule| &rule.metrics);
        let source = metrics.find(|(metric, _)| event.metric.as_deref() == Some(metric.as_str()));
        let detail = match (source, detail.strip_prefix("ts ")) {
            (Some((_, source)), _) => format!("{source}: {detail}"),
            (None, Some(rest)) => format!("time {rest}"),
            (None, None) => detail,
        };
        InvalidEvent::new(reason, detail)
    }

    /// The units that a rule reads. `None` if their path is optional and absent.
    fn units(&self, source: &UnitsSource, data: Option<&'a RawValue>) -> Result<Option<Cow<'a, str>>, InvalidEvent> {
        let DataPath { names, is_optional } = match source {
            UnitsSource::Fixed(units) => return Ok(Some(units.to_string().into())),
            UnitsSource::Path(path) => path,
        };
        let mut value = data;
        for name in names {
            let Some(outer) = value else { break };
            value = member(outer, name).map_err(|error| bad_data(format_args!("{source}: {}", json_error(&error))))?;
        }
        if value.is_none() && !is_optional {
            let kind = &self.kind;
            return Err(bad_data(format_args!("the rule of events.types.{kind:?} reads {source}, which is absent")));
        }
        number(&source.to_string(), value, RefusalReason::BadUnits)
    }

    /// The data of an event without a rule.
    fn plain_data(&self, data: &'a RawValue, ignores_unknown: bool) -> Result<PlainData<'a>, InvalidEvent> {
        let read: PlainData<'a> =
            serde_json::from_str(data.get()).map_err(|error| bad_data(format_args!("data: {}", json_error(&error))))?;
        if read.units.is_none() && read.credit.is_none() {
            return Err(bad_data(format_args!(
                "the data has neither units nor credit, and events.types has no rule for {:?}",
                shown(&self.kind)
            )));
        }
        match &read.unknown {
            Some(name) if !ignores_unknown => {
                Err(unknown_field(&format!("data.{name}"), "data.units or data.credit, other data needs a rule"))
            }
            _ => Ok(read),
        }
    }
}

/// The id of the usage events of a CloudEvent in structured mode, also of one that is refused.
pub(super) fn id_of_object(object: &EventObject<'_>) -> Option<String> {
    id_of(string(object.source), string(object.id))
}

/// The same of a CloudEvent in binary mode.
pub(super) fn id_of_request(headers: &HeaderMap) -> Option<String> {
    let attribute = |name| header_attribute(headers, name).ok().flatten();
    id_of(attribute("source"), attribute("id"))
}

fn id_of(source: Option<Cow<'_, str>>, id: Option<Cow<'_, str>>) -> Option<String> {
    let (source, id) = source.zip(id).filter(|(source, id)| !source.is_empty() && !id.is_empty())?;
    Some(event_id(&source, &id))
}

/// `<source> <id>`, or a digest if that is too long or the source has a space.
fn event_id(source: &str, id: &str) -> String {
    let mut both = format!("{source} {id}");
    if source.contains(' ') {
        // A URI has none. Without the length, another division of the same text would be the same id.
        both = format!("{} {both}", source.len());
    } else if both.len() <= EVENT_ID_BYTES_MAX {
        return both;
    }
    let digest: String = Sha256::digest(both).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digest}")
}

/// An attribute in a header.
fn header_attribute<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<Cow<'a, str>>, InvalidEvent> {
    let mut values = headers.get_all(format!("ce-{name}")).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(InvalidEvent::new(RefusalReason::BadCloudevent, format!("ce-{name} is there twice")));
    }
    let refused = |detail| InvalidEvent::new(RefusalReason::BadCloudevent, format!("ce-{name} {detail}"));
    header_text(value.as_bytes()).map(Some).map_err(refused)
}

/// The text of an attribute's header (section 3.1.3.2 of the HTTP binding of CloudEvents): a quoted string is unquoted
/// first, then percent-encoded bytes are decoded once.
///
/// # Errors
///
/// What is wrong: the quotes, or bytes that are not UTF-8.
pub(super) fn header_text(value: &[u8]) -> Result<Cow<'_, str>, &'static str> {
    const NOT_UTF8: &str = "is not UTF-8, percent-encode what is not ASCII";
    match value.strip_prefix(b"\"") {
        None => percent_decode(value).decode_utf8().map_err(|_| NOT_UTF8),
        Some(quoted) => {
            let text = unquoted(quoted).ok_or("has a quote that is not closed at its end, percent-encode it as %22")?;
            let decoded = percent_decode(&text).decode_utf8().map_err(|_| NOT_UTF8)?;
            Ok(decoded.into_owned().into())
        }
    }
}

/// The content of a quoted string (RFC 9110, section 5.6.4), from after its first quote.
fn unquoted(quoted: &[u8]) -> Option<Vec<u8>> {
    let (mut text, mut bytes) = (Vec::with_capacity(quoted.len()), quoted.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return bytes.as_slice().is_empty().then_some(text),
            b'\\' => text.push(*bytes.next()?),
            _ => text.push(*byte),
        }
    }
    None
}

fn check_version(version: Option<&str>) -> Result<(), InvalidEvent> {
    match version {
        Some(SPECVERSION) => Ok(()),
        None => Err(InvalidEvent::new(RefusalReason::BadCloudevent, "specversion is missing")),
        Some(other) => {
            let detail = format!("specversion is {:?}, only {SPECVERSION:?} is read", shown(other));
            Err(InvalidEvent::new(RefusalReason::BadCloudevent, detail))
        }
    }
}

fn required<'a>(name: &str, value: Option<Cow<'a, str>>) -> Result<Cow<'a, str>, InvalidEvent> {
    let missing = || InvalidEvent::new(RefusalReason::BadCloudevent, format!("{name} is missing or empty"));
    value.filter(|value| !value.is_empty()).ok_or_else(missing)
}

fn bad_data(detail: impl fmt::Display) -> InvalidEvent {
    InvalidEvent::new(RefusalReason::BadData, detail.to_string())
}

/// Whether a rule skips the metric. An empty text is no zero.
fn is_zero(units: &str) -> bool {
    !units.is_empty() && units.bytes().all(|byte| byte == b'0')
}

/// The data of an event without a rule.
#[derive(Debug, Default)]
struct PlainData<'a> {
    units: Option<&'a RawValue>,
    credit: Option<&'a RawValue>,
    unknown: Option<String>,
}

impl<'de> Deserialize<'de> for PlainData<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DataVisitor;
        impl<'de> Visitor<'de> for DataVisitor {
            type Value = PlainData<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with units or credit")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<PlainData<'de>, M::Error> {
                let mut data = PlainData::default();
                while let Some((Name(name), value)) = members.next_entry::<Name<'de>, &'de RawValue>()? {
                    let slot = match &*name {
                        "units" => &mut data.units,
                        "credit" => &mut data.credit,
                        _ => {
                            data.unknown.get_or_insert_with(|| shown(&name));
                            continue;
                        }
                    };
                    if slot.replace(value).is_some() {
                        return Err(M::Error::custom(format_args!("{name:?} is there twice")));
                    }
                }
                Ok(data)
            }
        }
        deserializer.deserialize_map(DataVisitor)
    }
}

/// The member of an object with this name, if it is an object.
fn member<'a>(value: &'a RawValue, wanted: &str) -> serde_json::Result<Option<&'a RawValue>> {
    struct MemberVisitor<'w>(&'w str);
    impl<'de> Visitor<'de> for MemberVisitor<'_> {
        type Value = Option<&'de RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "an object with {:?}", self.0)
        }

        fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Self::Value, M::Error> {
            let mut found = None;
            while let Some(Name(name)) = members.next_key::<Name<'de>>()? {
                if name != self.0 {
                    members.next_value::<IgnoredAny>()?;
                } else if found.replace(members.next_value()?).is_some() {
                    return Err(M::Error::custom(format_args!("{name:?} is there twice")));
                }
            }
            Ok(found)
        }
    }
    serde_json::Deserializer::from_str(value.get()).deserialize_map(MemberVisitor(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = Vec<(&'static str, String)>;

    fn rules() -> EventsConfig {
        serde_json::from_str(
            r#"{"types":{"litellm_tokens":{"metrics":
            {"tokens.in":"data.prompt_tokens","tokens.out":"data.usage.out","requests":1}},
            "calls_and_images":{"metrics":{"tokens.in":"data.usage.in?","requests":1}}}}"#,
        )
        .expect("rules")
    }

    fn events(text: &str) -> Result<Vec<Fields>, (RefusalReason, String)> {
        let object = EventObject::read(text).expect("an object");
        let events = CloudEvent::from_object(&object).and_then(|event| event.events(&rules(), false));
        let fields = |event: NewEvent<'_>| event.fields().map(|(name, value)| (name, value.to_owned())).collect();
        events.map(|events| events.into_iter().map(fields).collect()).map_err(|broken| (broken.reason, broken.detail))
    }

    fn with(kind: &str, data: &str) -> String {
        format!(r#"{{"specversion":"1.0","id":"1","source":"/a","type":"{kind}","subject":"s"{data}}}"#)
    }

    fn fields(pairs: &[(&'static str, &str)]) -> Fields {
        pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    }

    /// A producer that sends what it has for other systems must be counted as it means it.
    #[test]
    fn an_event_means_its_units() {
        let one = |more: &[(&'static str, &str)]| {
            let mut all = fields(&[("subject", "s"), ("metric", "calls")]);
            all.extend(fields(more));
            all.extend(fields(&[("id", "/a 1")]));
            Ok(vec![all])
        };
        for (data, expected) in [
            ("", one(&[])),
            (r#","data":null,"time":null"#, one(&[])),
            (r#","data":{"units":3}"#, one(&[("units", "3")])),
            (r#","data":{"credit":"3"},"ext":1"#, one(&[("credit", "3")])),
            (r#","time":"2026-11-21T08:37:00Z""#, one(&[("ts", "2026-11-21T08:37:00Z")])),
        ] {
            assert_eq!(events(&with("calls", data)), expected, "{data}");
        }
        let rule = with("litellm_tokens", r#","data":{"prompt_tokens":5,"usage":{"out":"7","x":1},"y":2}"#);
        let of = |metric, units| fields(&[("subject", "s"), ("metric", metric), ("units", units), ("id", "/a 1")]);
        assert_eq!(events(&rule), Ok(vec![of("requests", "1"), of("tokens.in", "5"), of("tokens.out", "7")]));
        let zeros = with("litellm_tokens", r#","data":{"prompt_tokens":0,"usage":{"out":"00"}}"#);
        assert_eq!(events(&zeros), Ok(vec![of("requests", "1")]));
        for absent in ["", r#","data":{}"#, r#","data":{"usage":{}}"#] {
            assert_eq!(events(&with("calls_and_images", absent)), Ok(vec![of("requests", "1")]), "{absent}");
        }
        let call = with("calls_and_images", r#","data":{"usage":{"in":5}}"#);
        assert_eq!(events(&call), Ok(vec![of("requests", "1"), of("tokens.in", "5")]));
    }

    /// An event that is counted wrong is worse than one that is refused.
    #[test]
    fn an_event_that_means_nothing_certain_is_refused() {
        use RefusalReason::{BadCloudevent, BadData, BadUnits, UnknownField};
        let old = with("calls", "").replace("1.0", "0.3");
        let no_id = r#"{"specversion":"1.0","id":"","source":"/a","type":"t"}"#.to_owned();
        for (text, reason, said) in [
            (old, BadCloudevent, "specversion is \"0.3\", only \"1.0\" is read"),
            (no_id, BadCloudevent, "id is missing or empty"),
            (r#"{"specversion":"1.0","id":"1","type":"t"}"#.to_owned(), BadCloudevent, "source is missing"),
            (r#"{"specversion":"1.0","id":"1","source":"a"}"#.to_owned(), BadCloudevent, "type is missing"),
            (r#"{"specversion":1.0}"#.to_owned(), BadCloudevent, "specversion is 1.0, it must be a string"),
            (r#"{"specversion":null}"#.to_owned(), BadCloudevent, "specversion is missing"),
            (with("calls", r#","data":5"#), BadData, "expected an object with units or credit"),
            (with("calls", r#","data":[]"#), BadData, "data: a list, expected an object"),
            (
                with("calls", r#","data":{}"#),
                BadData,
                "neither units nor credit, and events.types has no rule for \"calls\"",
            ),
            (with("calls", r#","data_base64":"e30=""#), BadData, "data_base64 is not read"),
            (with("calls", r#","data":{"units":1,"x":1}"#), UnknownField, "\"data.x\" is not known"),
            (with("calls", r#","data":{"units":1,"units":1}"#), BadData, "\"units\" is there twice"),
            (with("calls", r#","data":{"units":null}"#), BadUnits, "data.units is null"),
            (with("calls_and_images", r#","data":{"usage":5}"#), BadData, "data.usage.in?: invalid type"),
            (with("calls_and_images", r#","data":{"usage":{"in":[]}}"#), BadUnits, "data.usage.in? is []"),
            (with("litellm_tokens", ""), BadData, "reads data.prompt_tokens, which is absent"),
            (
                with("litellm_tokens", r#","data":{"prompt_tokens":1,"usage":{}}"#),
                BadData,
                "reads data.usage.out, which",
            ),
            (
                with("litellm_tokens", r#","data":{"prompt_tokens":1,"usage":5}"#),
                BadData,
                "data.usage.out: invalid type",
            ),
            (with("litellm_tokens", r#","data":{"prompt_tokens":[]}"#), BadUnits, "data.prompt_tokens is []"),
            (
                with("litellm_tokens", r#","data":{"prompt_tokens":1,"prompt_tokens":2}"#),
                BadData,
                "\"prompt_tokens\" is there twice",
            ),
        ] {
            let (found, detail) = events(&text).expect_err(&text);
            assert!(found == reason && detail.contains(said), "{text}: {found} {detail}");
        }
    }

    /// Two events must not share an id, and a repeated event must keep its own.
    #[test]
    fn a_long_id_becomes_a_digest_of_source_and_id() {
        let id = |length: usize| {
            let text = with("t", "").replace("\"1\"", &format!("\"{}\"", "x".repeat(length)));
            events(&text).expect("legal")[0].iter().find(|(name, _)| *name == "id").expect("an id").1.clone()
        };
        assert_eq!(id(125), format!("/a {}", "x".repeat(125)));
        let digest: String =
            Sha256::digest(format!("/a {}", "x".repeat(126))).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(id(126), format!("sha256:{digest}"));
        let divided = |source: &str, id: &str| {
            let text = with("t", "").replace("\"1\"", &format!("{id:?}")).replace("/a", source);
            events(&text).expect("legal")[0].clone()
        };
        assert_ne!(divided("a b", "c"), divided("a", "b c"));
    }

    /// Older versions of CloudEvents quote attributes, and every producer percent-encodes some.
    #[test]
    fn a_header_is_unquoted_and_then_decoded() {
        for (value, text) in [
            ("a%20b", "a b"),
            ("100%", "100%"),
            (r#""a b""#, "a b"),
            (r#""a \"b\" \\ %C3%A9""#, r#"a "b" \ é"#),
            (r#""""#, ""),
            (r#"a"b"#, r#"a"b"#),
            ("%22a%22", r#""a""#),
        ] {
            assert_eq!(header_text(value.as_bytes()).as_deref(), Ok(text), "{value}");
        }
        for bad in [r#"""#, r#""a"#, r#""a" b"#, r#""a\""#, r#""a\"#] {
            let refused = header_text(bad.as_bytes());
            assert!(refused.is_err_and(|detail| detail.contains("is not closed at its end")), "{bad}");
        }
        for bad in ["%C0%A0", r#""%FF""#] {
            assert!(header_text(bad.as_bytes()).is_err_and(|detail| detail.contains("not UTF-8")), "{bad}");
        }
    }

    /// Attributes in headers are percent-encoded.
    #[test]
    fn headers_are_attributes_in_binary_mode() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("ce-specversion", "1.0"),
            ("ce-id", "1"),
            ("ce-source", "/a"),
            ("ce-type", "t"),
            ("ce-subject", "%C3%A9%20s"),
        ] {
            headers.insert(name, value.parse().expect("a header"));
        }
        let events = |headers: &HeaderMap, body: &str| {
            let event = CloudEvent::from_request(headers, body.as_bytes());
            let events = event.and_then(|event| event.events(&rules(), false));
            let read = |events: Vec<NewEvent<'_>>| {
                (events[0].subject.clone().map(Cow::into_owned), events[0].units.clone().map(Cow::into_owned))
            };
            events.map(read).map_err(|broken| broken.detail)
        };
        let subject = Some("é s".to_owned());
        assert_eq!(events(&headers, " \n"), Ok((subject.clone(), None)));
        assert_eq!(events(&headers, "{\"units\":2}\n"), Ok((subject, Some("2".to_owned()))));
        assert!(events(&headers, "{").expect_err("half").contains("is not JSON: EOF"));
        assert!(events(&headers, "\u{feff}{}").expect_err("a mark").contains("begins with a byte order mark"));
        headers.insert("ce-subject", "%ff".parse().expect("a header"));
        assert_eq!(events(&headers, ""), Err("ce-subject is not UTF-8, percent-encode what is not ASCII".to_owned()));
        headers.insert("ce-subject", "s".parse().expect("a header"));
        headers.insert("ce-units", "5".parse().expect("a header"));
        let misplaced = "\"ce-units\" is no attribute of a CloudEvent, the units belong in its data";
        assert_eq!(events(&headers, ""), Err(misplaced.to_owned()));
        headers.remove("ce-id");
        headers.remove("ce-subject");
        assert_eq!(events(&headers, ""), Err("ce-id is missing or empty".to_owned()));
    }
}
