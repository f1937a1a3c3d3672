//! The wait that a receiver requests: the header Retry-After, in seconds or as a date (RFC 9110, 10.2.3).

use std::time::{Duration, UNIX_EPOCH};

use chrono::DateTime;

/// Maximum wait, about 136 years: far above any `max_interval`, and small enough to add to any clock.
const WAIT_MAX_S: u64 = u32::MAX as u64;
/// The words that may follow a number of seconds.
const UNITS: [&str; 6] = ["", "s", "sec", "secs", "second", "seconds"];

/// Parses a value of Retry-After. `now_s` is Unix seconds; a date in the past means no wait.
///
/// Pure. Tolerant, because ignoring a value means calling too early: accepts a fraction, rounded up, and dates in the
/// forms of email, cookies and RFC 3339. `None` if the value is neither a number of seconds nor a date.
pub(super) fn parse(value: &str, now_s: i64) -> Option<Duration> {
    let value = value.trim();
    let wait_s = parse_seconds(value).or_else(|| {
        let wait_s = parse_date(value)?.saturating_sub(now_s);
        Some(u64::try_from(wait_s).unwrap_or(0))
    })?;
    Some(Duration::from_secs(wait_s.min(WAIT_MAX_S)))
}

/// A number of seconds, such as `120`, `4.5`, `.5` or `30 s`, rounded up.
fn parse_seconds(value: &str) -> Option<u64> {
    let value = value.strip_prefix('+').unwrap_or(value);
    let end = value.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    if !has_digits || fraction.contains('.') || !UNITS.contains(&unit.trim().to_ascii_lowercase().as_str()) {
        return None;
    }
    // A number with too many digits is a very long wait, not a missing one.
    let whole = if whole.is_empty() { 0 } else { whole.parse().unwrap_or(WAIT_MAX_S) };
    let is_above = fraction.bytes().any(|digit| digit != b'0');
    Some(whole.saturating_add(u64::from(is_above)))
}

/// Unix seconds of a date, rounded up.
fn parse_date(value: &str) -> Option<i64> {
    if let Ok(date) = httpdate::parse_http_date(value) {
        return i64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok();
    }
    // The day of the week is redundant, and sometimes wrong.
    let undecorated = value.split_once(',').map_or(value, |(_, date)| date).trim().replace("UTC", "GMT");
    // The form of cookies: 06-Nov-1994 08:49:37 GMT.
    let spaced = undecorated.replacen('-', " ", 2);
    let date = [DateTime::parse_from_rfc2822(&undecorated), DateTime::parse_from_rfc2822(&spaced)]
        .into_iter()
        .chain([DateTime::parse_from_rfc3339(value)])
        .find_map(Result::ok)?;
    Some(date.timestamp() + i64::from(date.timestamp_subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT, the date in the RFC's examples.
    const THEN_S: i64 = 784_111_777;

    /// Every form that a receiver may send must be honored: calling earlier is what it asked us not to do.
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

    /// An earlier version ignored `4.5` and called too early. The fraction is rounded up.
    #[test]
    fn fractions_are_rounded_up() {
        for (text, wait_s) in [
            ("4.5", 5),
            ("4.000", 4),
            ("4.0001", 5),
            ("4.", 4),
            (".2", 1),
            ("0.0", 0),
            ("+5", 5),
            ("5s", 5),
            ("5.5 Seconds", 6),
            ("1994-11-06T08:49:36.25Z", 60),
        ] {
            assert_eq!(parse(text, THEN_S - 60), Some(Duration::from_secs(wait_s)), "{text}");
        }
    }

    /// Dates of other libraries, with a wrong weekday or none, and in zones.
    #[test]
    fn dates_that_only_a_tolerant_client_reads_are_honored() {
        for date in [
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "06 Nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "sun, 06 nov 1994 08:49:37 gmt",
            "Sun, 06 Nov 1994 09:49:37 +0100",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "1994-11-06T08:49:37Z",
            "1994-11-06 08:49:37+00:00",
            "1994-11-06T10:49:37+02:00",
        ] {
            assert_eq!(parse(date, THEN_S - 60), Some(Duration::from_secs(60)), "{date}");
        }
    }

    /// Nonsense must not become a wait, and a number that is too large for a clock must not overflow one.
    #[test]
    fn other_text_is_no_wait_and_absurd_waits_are_bounded() {
        for text in
            ["", ".", "soon", "-5", "1.2.3", "5m", "s", "1e3", "0x10", "nan", "inf", "Sun, 31 Feb 1994 08:49:37 GMT"]
        {
            assert_eq!(parse(text, THEN_S), None, "{text}");
        }
        let longest = Some(Duration::from_secs(WAIT_MAX_S));
        assert_eq!(parse(&"9".repeat(50), THEN_S), longest);
        assert_eq!(parse(&format!("{}.5", "9".repeat(50)), THEN_S), longest);
        assert_eq!(parse("Fri, 31 Dec 9999 23:59:59 GMT", i64::MIN), longest);
    }
}
