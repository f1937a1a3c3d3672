//! A receiver's URL: the checks of a new contact, and its destination. Pure.

use ::url::{Host, Origin, Url};

use crate::channels::invalid_contact::InvalidContact;
use crate::types::text::MASK;

/// Proxies and servers refuse longer URLs.
pub(super) const BYTES_MAX: usize = 2048;

/// Judges a receiver's URL by its form. Whether its address may be called is judged at each attempt.
///
/// # Errors
///
/// [`InvalidContact`], which does not show the password or anything after the host: a path may be as good as a
/// password.
pub fn check(text: &str) -> Result<(), InvalidContact> {
    let invalid = |problem| Err(InvalidContact { field: "url", problem });
    let shown = shown(text);
    let broken =
        || invalid(format!("webhook URL {shown:?} needs a scheme and a host, such as https://example.com/hook"));
    let Ok(url) = Url::parse(text) else { return broken() };
    // `example.com:8080/hook` parses with the scheme `example.com`: without `//`, no scheme was meant.
    if !text[url.scheme().len().min(text.len())..].starts_with("://") {
        return broken();
    }
    if !matches!(url.scheme(), "https" | "http") {
        return invalid(format!("webhook URL has scheme {:?}, allowed are https and http", url.scheme()));
    }
    let Some(host) = url.host_str().filter(|host| !host.is_empty()) else { return broken() };
    if !url.username().is_empty() || url.password().is_some() {
        return invalid(format!("webhook URL of {host:?} holds a user name or password, which is not allowed"));
    }
    Ok(())
}

/// A text that may not be a URL, without parts that may be secret.
fn shown(text: &str) -> String {
    if text.contains('@') {
        return MASK.to_owned();
    }
    let host_at = text.find("//").map_or(0, |slashes| slashes + 2);
    match text[host_at..].find(['/', '\\', '?', '#']) {
        Some(length) => format!("{}{MASK}", &text[..=host_at + length]),
        None => text.to_owned(),
    }
}

/// Judges a URL from somebody other than the operator.
///
/// # Errors
///
/// Like [`check`], and also for a URL that is too long.
pub fn check_public(text: &str) -> Result<(), InvalidContact> {
    if text.len() > BYTES_MAX {
        let problem = format!("has {} bytes, at most {BYTES_MAX} are allowed", text.len());
        return Err(InvalidContact { field: "url", problem });
    }
    check(text)
}

/// The destination of a webhook: scheme, host and port, in the normalized form of the parser, so that all contacts at
/// one receiver have the same. `None` if the URL is malformed or its scheme has no hosts.
pub fn origin(url: &str) -> Option<String> {
    match Url::parse(url).ok()?.origin() {
        // The dot of the root does not change the host.
        Origin::Tuple(scheme, Host::Domain(name), port) => {
            let host = Host::Domain(name.trim_end_matches('.').to_owned());
            Some(Origin::Tuple(scheme, host, port).ascii_serialization())
        }
        origin @ Origin::Tuple(..) => Some(origin.ascii_serialization()),
        Origin::Opaque(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that only looks like a URL fails at every attempt, long after somebody could have corrected it.
    #[test]
    fn a_url_without_scheme_or_host_is_refused() {
        let bad = "example.com/hook example.com:8080/hook //example.com /hook https: https:// ftp://x.test/ https://u:p@x.test/";
        assert!(bad.split(' ').chain([""]).all(|bad| check(bad).is_err()));
        for good in "https://example.com/hook?a=1 http://127.0.0.1:9000/ https://[::1]/x HTTPS://EXAMPLE.COM".split(' ')
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    /// The path alone allows its reader to post to a chat, and the error is logged.
    #[test]
    fn an_error_shows_nothing_behind_the_host() {
        for (text, shown) in [
            ("hooks.slack.com/services/T0/B0/SECRET", r#""hooks.slack.com/***""#),
            ("//hooks.slack.com?SECRET", r#""//hooks.slack.com?***""#),
            ("https:/hooks.slack.com/SECRET", r#""https:/***""#),
            ("https://[::1/SECRET", r#""https://[::1/***""#),
            ("ftp//SECRET@x.test", r#""***""#),
            (r"https:\\hooks.slack.com\services\SECRET", r#""https:\\***""#),
            ("example.com", r#""example.com""#),
        ] {
            let problem = check(text).expect_err("no URL").problem;
            assert!(problem.contains(shown) && !problem.contains("SECRET"), "{problem}");
        }
    }

    /// Two spellings of one receiver must share its cap, and two receivers must not. An attempt reports an invalid URL.
    #[test]
    fn a_destination_is_scheme_host_and_port() {
        let same = "https://b.test/a https://B.test:443/b?c HTTPS://b.test https://u:p@b.test/ https://b.test./c";
        for url in same.split(' ') {
            assert_eq!(origin(url).as_deref(), Some("https://b.test"), "{url}");
        }
        for (url, own) in [
            ("http://2130706433:8080/", "http://127.0.0.1:8080"),
            ("http://b.test/", "http://b.test"),
            ("https://b.test:8443/", "https://b.test:8443"),
            ("https://a.b.test/", "https://a.b.test"),
        ] {
            assert_eq!(origin(url).as_deref(), Some(own), "{url}");
        }
        for url in ["", "b.test", "mailto:a@b.test", "https://", "http://[::1", "data:text/plain,x"] {
            assert_eq!(origin(url), None, "{url}");
        }
    }
}
