//! Settings as they may be shown: secrets and passwords as `***`.

use url::Url;

use super::settings::Config;
use crate::contacts::Contact;

/// What stands in place of a secret.
const MASK: &str = "***";

impl Config {
    /// These settings without their secrets, to be shown.
    #[must_use]
    pub fn masked(&self) -> Self {
        let mut shown = self.clone();
        shown.redis.url = masked_url(&self.redis.url);
        shown.email.smtp_url = masked_url(&self.email.smtp_url);
        shown.fallback.contacts = self.fallback.contacts.iter().map(masked_contact).collect();
        shown
    }
}

/// A contact whose secret is `***`, for output; never to be stored.
#[must_use]
pub fn masked_contact(contact: &Contact) -> Contact {
    match contact.secret() {
        Some(_) => contact.clone().shown_as(&masked_url(contact.address()), MASK),
        None => contact.clone(),
    }
}

/// A URL whose password, also the one that `redis+unix` takes as a parameter, is `***`. Text that is no URL but could hold a
/// password is hidden whole.
#[must_use]
pub fn masked_url(text: &str) -> String {
    // `user:password@host` parses as the scheme `user`: only what has a host or a path can be taken apart.
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

fn is_password(parameter: &str) -> bool {
    matches!(parameter, "pass" | "password")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A password on a terminal ends up in a ticket.
    #[test]
    fn passwords_in_urls_are_hidden_and_the_rest_is_shown() {
        for (url, shown) in [
            ("embedded", "embedded"),
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://:p%40ss@h:1/2", "redis://:***@h:1/2"),
            ("rediss://user:pass@h", "rediss://user:***@h"),
            ("redis+unix:///run/r.sock?db=1&pass=x&user=u", "redis+unix:///run/r.sock?db=1&pass=***&user=u"),
            ("smtps://a%40b.test:pw@mail.test:465", "smtps://a%40b.test:***@mail.test:465"),
            ("user:pw@host", "***"),
            ("//user:pw@host", "***"),
        ] {
            assert_eq!(masked_url(url), shown, "{url}");
        }
    }
}
