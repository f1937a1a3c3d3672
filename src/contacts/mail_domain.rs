//! Spellings of the domain of a mailbox. Pure.

use std::borrow::Cow;

/// The ASCII form of a domain (IDNA) in lower case; `None` if it has none.
pub fn ascii_domain(domain: &str) -> Option<String> {
    if domain.is_ascii() {
        return Some(domain.to_ascii_lowercase());
    }
    url::Host::parse(domain).ok().map(|host| host.to_string())
}

/// The address with its domain spelled by `written`, or unchanged if that returns `None`.
pub(super) fn with_domain(address: &str, written: impl Fn(&str) -> Option<String>) -> Cow<'_, str> {
    let rewritten = address.rsplit_once('@').and_then(|(local, domain)| {
        let other = written(domain).filter(|other| other != domain)?;
        Some(format!("{local}@{other}"))
    });
    rewritten.map_or(Cow::Borrowed(address), Cow::Owned)
}
