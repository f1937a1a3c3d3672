//! The W3C trace context of an event: which request of the producer sent it.

use super::text_form::{display_as_inner, inline_schema, serde_as_text};

/// A `traceparent` (W3C Trace Context, version 00): the version, the trace id, the id of the parent and the flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceParent(String);

serde_as_text!(TraceParent);
inline_schema!(TraceParent, { "type": "string", "pattern": "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$" });
display_as_inner!(TraceParent);

/// The text is no trace context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a traceparent has the form 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, in lower case")]
pub struct TraceParentError;

impl TraceParent {
    /// Reads the field of an event. `None` if it is invalid: a broken trace is no reason to refuse usage.
    pub fn from_field(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok()?.parse().ok()
    }

    /// The value of the header.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for TraceParent {
    type Err = TraceParentError;
    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        let parts: Vec<&str> = text.split('-').collect();
        let [version, trace, parent, flags] = parts[..] else { return Err(TraceParentError) };
        let is_hex = |part: &str, digits: usize| {
            part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        // An id of zeros is invalid by the standard.
        let is_id = |part: &str, digits: usize| is_hex(part, digits) && part.bytes().any(|digit| digit != b'0');
        let is_sound = version == "00" && is_id(trace, 32) && is_id(parent, 16) && is_hex(flags, 2);
        if is_sound { Ok(Self(text.to_owned())) } else { Err(TraceParentError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver drops a trace context that breaks the standard, and its logs with ours can't be joined.
    #[test]
    fn only_what_the_standard_allows_is_passed_on() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceParent::from_field(good.as_bytes()).expect("legal").as_str(), good);
        for bad in [
            "",
            "00",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0\r",
        ] {
            assert_eq!(TraceParent::from_field(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
