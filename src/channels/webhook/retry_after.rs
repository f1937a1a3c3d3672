//! How long a receiver asked us to wait: the header Retry-After, in seconds or as a date (RFC 9110, 10.2.3).

use std::time::{Duration, UNIX_EPOCH};

/// The longest wait that is understood, about 136 years: far above any `max_interval`, and small enough to add to any
/// clock.
const WAIT_MAX_S: u64 = u32::MAX as u64;

/// Reads a value of Retry-After. `now_s` is Unix seconds; a date in the past is no wait at all.
///
/// Pure. `None` when the value is neither a whole number of seconds nor one of the three date forms that HTTP knows.
pub(super) fn parse(value: &str, now_s: i64) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit is a very long wait, not a missing one.
        return Some(Duration::from_secs(value.parse().unwrap_or(WAIT_MAX_S).min(WAIT_MAX_S)));
    }
    let wait_s = parse_date(value)?.saturating_sub(now_s);
    Some(Duration::from_secs(u64::try_from(wait_s).unwrap_or(0).min(WAIT_MAX_S)))
}

/// Unix seconds of an HTTP date.
fn parse_date(value: &str) -> Option<i64> {
    let since = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT, the date of the RFC's own examples.
    const THEN_S: i64 = 784_111_777;

    /// Every form that a receiver may send must be honoured: calling earlier is what it asked us not to do.
    #[test]
    fn seconds_and_all_three_date_forms_are_read() {
        let minute = Some(Duration::from_secs(60));
        assert_eq!(parse("60", THEN_S), minute);
        assert_eq!(parse(" 060 ", THEN_S), minute);
        for date in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(parse(date, THEN_S - 60), minute, "{date}");
            assert_eq!(parse(date, THEN_S + 60), Some(Duration::ZERO), "{date} is over");
        }
    }

    /// Nonsense must not become a wait, and a number too large for a clock must not overflow one.
    #[test]
    fn other_text_is_no_wait_and_absurd_waits_are_bounded() {
        for text in ["", "soon", "-5", "1.5", "+5", "5s", "Sun, 31 Feb 1994 08:49:37 GMT", "1994-11-06T08:49:37Z"] {
            assert_eq!(parse(text, THEN_S), None, "{text}");
        }
        let longest = Some(Duration::from_secs(WAIT_MAX_S));
        assert_eq!(parse(&"9".repeat(50), THEN_S), longest);
        assert_eq!(parse("Fri, 31 Dec 9999 23:59:59 GMT", i64::MIN), longest);
    }
}
