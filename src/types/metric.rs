//! Metrics: what an event counts, `requests` by default.

use std::sync::Arc;

use super::text_form::{display_as_inner, inline_schema, parsed_text};

/// Maximum length of a metric, bytes.
pub const METRIC_BYTES_MAX: usize = 64;
/// The metric of an event without a metric.
pub const METRIC_DEFAULT: &str = "requests";

/// A metric: 1 to 64 of `a-z 0-9 _ . -`. Contains no colon, so it can be a part of a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Metric(Arc<str>);

parsed_text!(Metric, MetricError);
inline_schema!(Metric, { "type": "string", "pattern": "^[a-z0-9_.-]{1,64}$" });
display_as_inner!(Metric);

/// The bytes are not a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("metric must match [a-z0-9_.-]{{1,{METRIC_BYTES_MAX}}}")]
pub struct MetricError;

impl Metric {
    /// Checks the rule for metrics (docs/sending.md) and copies the metric.
    pub fn parse(bytes: &[u8]) -> Result<Self, MetricError> {
        check(bytes).map(|text| Self(text.into()))
    }

    /// The metric as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Allows lookups in a table of metrics without a copy. The hash and the order are those of the text.
impl std::borrow::Borrow<str> for Metric {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Checks that bytes are a metric, without copying them.
pub fn check(bytes: &[u8]) -> Result<&str, MetricError> {
    let legal = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.' | b'-');
    if bytes.is_empty() || bytes.len() > METRIC_BYTES_MAX || !bytes.iter().all(legal) {
        return Err(MetricError);
    }
    std::str::from_utf8(bytes).map_err(|_| MetricError)
}

impl Default for Metric {
    fn default() -> Self {
        Self(METRIC_DEFAULT.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A colon in a metric would let two counters share a key.
    #[test]
    fn only_the_documented_alphabet_is_a_metric() {
        for good in ["requests", "a", "0", "gpt-4.tokens_in", &"m".repeat(64)] {
            assert!(check(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in ["", "A", "a:b", "a b", "é", "{a}", &"m".repeat(65)] {
            assert_eq!(check(bad.as_bytes()), Err(MetricError), "{bad}");
        }
    }
}
