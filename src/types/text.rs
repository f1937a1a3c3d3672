//! Text for people: bytes that are not UTF-8, and URLs without their passwords. Pure.

use std::fmt;

use percent_encoding::percent_decode_str;
use url::Url;

/// Replaces a secret.
pub const MASK: &str = "***";

/// Bytes as text, with bytes that are not UTF-8 as `\xNN`.
pub fn escaped_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Bytes as hexadecimal digits, two each.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// A number with its noun: `1 delivery`, `2,000 deliveries`.
pub fn pluralize<N: fmt::Display + PartialEq + From<u8>>(number: N, one: &str, several: &str) -> String {
    let noun = if number == N::from(1) { one } else { several };
    format!("{} {noun}", grouped(number, ","))
}

/// A whole number with a separator between groups of three digits: `12,345`.
pub fn grouped(number: impl fmt::Display, separator: &str) -> String {
    let digits = number.to_string();
    let grouped = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    grouped.collect::<Vec<_>>().join(separator)
}

/// A text such as `5000/day` whose numbers have separators.
pub fn separated(text: &str) -> String {
    let is_digit = |character: char| character.is_ascii_digit();
    let parts = text.split_inclusive(|character| !is_digit(character));
    let part = |part: &str| {
        let number = part.trim_end_matches(|character| !is_digit(character));
        let rest = &part[number.len()..];
        number.parse().map_or_else(|_| part.to_owned(), |number: u64| grouped(number, ",") + rest)
    };
    parts.map(part).collect()
}

/// A word of a command line for a POSIX shell, in quotes if the shell would change it.
pub fn shell_word(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:@%+,".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The most similar candidate, if few letters differ. For names of keys, plans and fields.
pub fn nearest<'a, T: AsRef<str>>(name: &str, candidates: &'a [T]) -> Option<&'a str> {
    // At most a third of the letters may differ: more would be another word.
    let slips_max = (name.chars().count() / 3).max(1);
    let distances = candidates.iter().map(|one| (strsim::osa_distance(name, one.as_ref()), one.as_ref()));
    distances.min().filter(|(slips, _)| *slips <= slips_max).map(|(_, near)| near)
}

/// ` (did you mean "free"?)`, or nothing.
pub fn suggestion<T: AsRef<str>>(name: &str, candidates: &[T]) -> String {
    nearest(name, candidates).map_or_else(String::new, |near| format!(" (did you mean {near:?}?)"))
}

/// Whether a character affects the text around it: control characters, line separators, and marks that change the text
/// direction.
pub fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a character is visible and does not affect other text: no control character, and not
/// `Default_Ignorable_Code_Point` in Unicode.
pub fn is_inert(character: char) -> bool {
    let is_invisible = matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}');
    !is_control(character) && !is_invisible
}

/// Text that is harmless in an email, a chat, the log or a list. Strangers choose subjects and the replies of
/// receivers. Characters that are not [`is_inert`] are escaped in the form `\u{202e}`, and so is the `?` of an encoded
/// word (RFC 2047), which mail software would decode.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = ' ';
    for (at, character) in text.char_indices() {
        let is_encoded_word = before == '=' && character == '?' && begins_encoded_word(&text[at + 1..]);
        if !is_inert(character) {
            shown.extend(character.escape_default());
        } else if is_encoded_word {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
        before = character;
    }
    shown
}

/// Whether the text behind `=?` completes an encoded word, such as `utf-8?q?=41?=`.
fn begins_encoded_word(rest: &str) -> bool {
    let mut parts = rest.split('?').skip(1);
    let is_encoding = parts.next().is_some_and(|encoding| matches!(encoding, "q" | "Q" | "b" | "B"));
    is_encoding && parts.nth(1).is_some_and(|end| end.starts_with('='))
}

/// A URL with `***` in place of its password, which `redis+unix` takes as a parameter. Text that is no URL but could
/// hold a password is hidden as a whole.
pub fn masked_url(text: &str) -> String {
    if let Some((scheme, rest)) = text.split_once("://")
        && (scheme.ends_with("+sentinel") || scheme.ends_with("+cluster"))
    {
        return format!("{scheme}://{}", masked_list(rest));
    }
    // `user:password@host` parses as the scheme `user`, so only URLs with a host or a path are used.
    let Some(mut url) = Url::parse(text).ok().filter(|url| !url.cannot_be_a_base()) else {
        return if text.contains(['@', ':']) { MASK.to_owned() } else { text.to_owned() };
    };
    let hides_parameter = url.query_pairs().any(|(name, _)| is_password(&name));
    if url.password().is_none() && !hides_parameter {
        return text.to_owned();
    }
    if url.password().is_some() && url.set_password(Some(MASK)).is_err() {
        return MASK.to_owned();
    }
    if hides_parameter {
        let shown: Vec<String> = url
            .query_pairs()
            .map(|(name, value)| if is_password(&name) { format!("{name}={MASK}") } else { format!("{name}={value}") })
            .collect();
        url.set_query(Some(&shown.join("&")));
    }
    url.into()
}

/// Masks the part behind the scheme in a URL with a list of hosts, which the crate `url` can't parse. A password that
/// is not percent-encoded correctly may hold any character: all text from the first colon to the last @ counts as a
/// password, and if a parameter's value may hold that @, nothing is shown.
fn masked_list(rest: &str) -> String {
    let (user_info, hosts) = match rest.rsplit_once('@') {
        Some((user_info, _)) if user_info.contains('?') => return MASK.to_owned(),
        Some((user_info, hosts)) => (Some(user_info), hosts),
        None => (None, rest),
    };
    let shown = match user_info.map(|info| info.split_once(':').unwrap_or((info, ""))) {
        None => String::new(),
        Some((user, "")) => format!("{user}@"),
        Some((user, _)) => format!("{user}:{MASK}@"),
    };
    let Some((hosts, query)) = hosts.split_once('?') else { return shown + hosts };
    let parameters = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name @ "sentinel_user", user)) => format!("{name}={user}"),
        Some((name, _)) => format!("{name}={MASK}"),
        None => MASK.to_owned(),
    });
    format!("{shown}{hosts}?{}", parameters.collect::<Vec<_>>().join("&"))
}

fn is_password(parameter: &str) -> bool {
    matches!(parameter, "pass" | "password")
}

/// Decodes percent-encoded text; `None` if two hex digits do not follow a `%`.
pub fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let begins_with_hex =
        |rest: &str| rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    text.split('%').skip(1).all(begins_with_hex).then(|| percent_decode_str(text).collect())
}

/// A pattern for Redis (MATCH, KEYS) that matches only this text.
pub fn glob_literal(text: &str) -> String {
    backslashed(text, r"*?[]\")
}

/// The text with a backslash before each of these letters.
pub fn backslashed(text: &str, letters: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if letters.contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// A list of allowed values for errors: `a, b or c`.
pub fn one_of(words: &[&str]) -> String {
    match words {
        [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that is misread by a digit is ten times too high.
    #[test]
    fn the_numbers_of_a_text_have_separators() {
        for (text, shown) in [
            ("requests 20000/day 400000/month", "requests 20,000/day 400,000/month"),
            ("none", "none"),
            ("1000000", "1,000,000"),
            ("", ""),
        ] {
            assert_eq!(separated(text), shown);
        }
    }

    /// A separator in the wrong place makes another number.
    #[test]
    fn digits_are_grouped_in_threes_from_the_right() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number, ","), text);
        }
        assert_eq!(pluralize(1, "entry", "entries"), "1 entry");
    }

    /// A command that an operator copies must not run what a subject's name says.
    #[test]
    fn a_word_of_a_command_is_quoted_unless_it_is_plain() {
        assert_eq!(shell_word("acme/key-7"), "acme/key-7");
        assert_eq!(shell_word("a'b; rm"), r"'a'\''b; rm'");
        assert_eq!(shell_word(""), "''");
    }

    /// "1 deliveries" would make a reader doubt the number.
    #[test]
    fn one_thing_is_singular() {
        let shown = [0_u64, 12, 999, 1000, 12_345, 9_007_199_254_740_991].map(|number| grouped(number, ","));
        assert_eq!(shown, ["0", "12", "999", "1,000", "12,345", "9,007,199,254,740,991"]);
        assert_eq!(pluralize(1_usize, "delivery", "deliveries"), "1 delivery");
        assert_eq!(pluralize(0_u64, "alert waits", "alerts wait"), "0 alerts wait");
        assert_eq!(pluralize(21_000_u64, "unit", "units"), "21,000 units");
    }

    /// Refused events contain arbitrary bytes of a producer.
    #[test]
    fn bytes_that_are_not_text_are_written_in_hex() {
        assert_eq!(escaped_bytes(b"a\xff\xfeb\xc3\xa9"), "a\\xff\\xfeb\u{e9}");
        assert_eq!(escaped_bytes(b"\xc3"), "\\xc3");
    }

    /// A password on a terminal ends up in a support ticket.
    #[test]
    fn passwords_in_urls_are_hidden_and_the_rest_is_shown() {
        for (url, shown) in [
            ("embedded", "embedded"),
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://:p%40ss@h:1/2", "redis://:***@h:1/2"),
            ("rediss://user:pass@h", "rediss://user:***@h"),
            ("redis+unix:///run/r.sock?db=1&pass=x&user=u", "redis+unix:///run/r.sock?db=1&pass=***&user=u"),
            ("smtps://a%40b.test:pw@mail.test:465", "smtps://a%40b.test:***@mail.test:465"),
            ("redis+cluster://a:1,b:2", "redis+cluster://a:1,b:2"),
            ("rediss+cluster://user:p@s/s#@a:1,b:2/0", "rediss+cluster://user:***@a:1,b:2/0"),
            ("redis+cluster://user:p?s@a:1", "redis+cluster://***"),
            ("redis+sentinel://:pw@a:1,b:2/m/3", "redis+sentinel://:***@a:1,b:2/m/3"),
            ("redis+sentinel://user@a,b/m", "redis+sentinel://user@a,b/m"),
            (
                "redis+sentinel://a/m?sentinel_user=u&sentinel_pass=x&y",
                "redis+sentinel://a/m?sentinel_user=u&sentinel_pass=***&***",
            ),
            ("redis+sentinel://u:p@a/m?sentinel_pass=x@ss", "redis+sentinel://***"),
            ("user:pw@host", "***"),
            ("//user:pw@host", "***"),
        ] {
            assert_eq!(masked_url(url), shown, "{url}");
        }
    }

    /// A subject chosen by a stranger must not clear the operator's screen.
    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(printable("a\x1b[2Jb\n\u{85}"), "a\\u{1b}[2Jb\\n\\u{85}");
        assert_eq!(printable("a\u{2028}b\u{202e}c\u{2069}é"), "a\\u{2028}b\\u{202e}c\\u{2069}é");
    }

    /// Subjects that look alike must be distinguishable, and mail software must not decode names.
    #[test]
    fn what_nobody_sees_is_shown() {
        for hidden in ['\u{ad}', '\u{200b}', '\u{200d}', '\u{2060}', '\u{3164}', '\u{feff}', '\u{e0041}'] {
            assert_eq!(printable(&format!("a{hidden}b")), format!("a\\u{{{:x}}}b", u32::from(hidden)));
        }
        assert_eq!(printable("=?utf-8?Q?=41dmin?= a=?b"), "=\\u{3f}utf-8?Q?=41dmin?= a=?b");
        assert_eq!(printable("https://h.test/?a=?b?c=?q?d"), "https://h.test/?a=?b?c=?q?d");
    }

    /// A suggestion that has nothing to do with the typed word sends the reader the wrong way.
    #[test]
    fn only_slips_of_the_finger_are_suggested() {
        let keys = ["timeout", "allow_http", "url"];
        assert_eq!(nearest("tiemout", &keys), Some("timeout"));
        assert_eq!(nearest("allowhttp", &keys), Some("allow_http"));
        assert_eq!(nearest("ulr", &keys), Some("url"));
        assert_eq!(nearest("retries", &keys), None);
    }
}
