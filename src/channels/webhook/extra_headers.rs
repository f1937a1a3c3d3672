//! The additional headers of a contact's requests: which are allowed. Pure.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::contacts::ExtraHeaders;

/// Maximum number of headers of one contact.
const COUNT_MAX: usize = 16;
/// Maximum length of a name, in bytes.
const NAME_BYTES_MAX: usize = 100;
/// Maximum length of a value, in bytes. Most servers accept 8 KiB for all headers together.
const VALUE_BYTES_MAX: usize = 2048;
/// Headers that belong to the connection (RFC 9110, 7.6.1, and RFC 2616, 13.5.1), to the request as a whole, or to the
/// format.
const DENIED: &str = "accept-encoding connection content-encoding content-length content-type expect host \
    keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer \
    transfer-encoding upgrade";
/// The prefix of the signature's headers.
const SIGNATURE_PREFIX: &str = "webhook-";

/// The headers of a request.
///
/// # Errors
///
/// A sentence with the first forbidden header. Shows no value.
pub(super) fn parse(headers: &ExtraHeaders) -> Result<HeaderMap, String> {
    if headers.iter().len() > COUNT_MAX {
        return Err(format!("has {} headers, at most {COUNT_MAX} are allowed", headers.iter().len()));
    }
    let mut parsed = HeaderMap::new();
    for (text, secret) in headers.iter() {
        let wrong = |problem: &str| format!("header {text:?} {problem}");
        let name: Option<HeaderName> = text.parse().ok().filter(|_| text.len() <= NAME_BYTES_MAX);
        let name = name.ok_or_else(|| wrong("has no legal name such as Authorization"))?;
        if DENIED.split(' ').any(|denied| denied == name.as_str()) || name.as_str().starts_with(SIGNATURE_PREFIX) {
            return Err(wrong("is set by quotabell or by the connection, allowed are others such as Authorization"));
        }
        let value = secret.reveal();
        if value.len() > VALUE_BYTES_MAX {
            return Err(wrong(&format!("has {} bytes, at most {VALUE_BYTES_MAX} are allowed", value.len())));
        }
        let is_visible = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        let value = HeaderValue::from_str(value).ok().filter(|_| is_visible);
        let mut value = value.ok_or_else(|| wrong("has a value that is not visible ASCII"))?;
        value.set_sensitive(true);
        if parsed.insert(name, value).is_some() {
            return Err(wrong("is set twice"));
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Secret;

    fn parsed(headers: &[(&str, &str)]) -> Result<usize, String> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), Secret::new((*value).to_owned())));
        parse(&headers.collect()).map(|parsed| parsed.len())
    }

    /// A contact that could frame or sign its own requests could mislead receivers.
    #[test]
    fn headers_of_the_connection_and_of_the_signature_are_refused() {
        // The headers of RFC 2616, 13.5.1, then those that frame a body or name its type and its receiver.
        let of_connection =
            "connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade";
        let of_request = "proxy-connection content-length content-type content-encoding accept-encoding expect Host";
        let of_signature = "webhook-id webhook-anything WEBHOOK-SIGNATURE";
        for denied in [of_connection, of_request, of_signature].into_iter().flat_map(str::split_whitespace) {
            let error = parsed(&[(denied, "x")]).expect_err(denied);
            assert!(error.starts_with(&format!("header {denied:?} is set by quotabell")), "{error}");
        }
        for (name, value) in
            [("", "x"), ("a b", "x"), ("a:", "x"), ("x-a", "a\r\nb: c"), ("x-a", "é"), ("x-a", "\u{7f}")]
        {
            let error = parsed(&[(name, value)]).expect_err(name);
            assert!(!error.contains("b: c") && error.contains(&format!("{name:?}")), "{error}");
        }
        assert!(parsed(&[("X-A", "1"), ("x-a", "2")]).is_err_and(|error| error.contains("twice")));
        assert!(parsed(&[("x-a", &"a".repeat(2049))]).is_err());
        let many: Vec<String> = (0..17).map(|number| format!("x-{number}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "1")).collect();
        assert!(parsed(&many).is_err() && parsed(&many[1..]) == Ok(16));
        assert_eq!(parsed(&[("Authorization", "Bearer abc"), ("X-Team", "ops"), ("user-agent", "ours")]), Ok(3));
    }
}
