//! Destinations: what the deliveries to one receiver share.

use super::Channel;
use super::alert::digest_of;
use super::text_form::text_id;

/// Maximum length of a name that is used in a key unchanged. Hosts have at most 253 bytes; a longer name is probably an
/// attack.
const BYTES_MAX: usize = 300;

text_id! {
    /// A destination's name: the origin of a webhook's URL, such as `https://example.com`, or the name of a channel
    /// that sends all messages through one server, such as `email`. Short printable ASCII, so that it can be a part of
    /// a key.
    Destination
}

impl Destination {
    /// The destination of this channel at this origin; without an origin, the one destination of the channel.
    pub fn derive(channel: Channel, origin: Option<&str>) -> Self {
        match origin {
            None => Self(channel.as_str().to_owned()),
            Some(origin) if origin.len() <= BYTES_MAX && origin.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Self(origin.to_owned())
            }
            Some(long) => Self(format!("{}:{}", channel.as_str(), digest_of(&[long]))),
        }
    }

    /// The destination of deliveries that wait for a contact.
    pub fn none() -> Self {
        Self::derive(Channel::None, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stranger's URL becomes a part of a key: it must neither be too long nor end the key's name.
    #[test]
    fn a_destination_is_short_and_printable() {
        let of = |origin: &str| Destination::derive(Channel::Webhook, Some(origin));
        assert_eq!(of("https://b.test:8443").as_str(), "https://b.test:8443");
        let long = format!("https://{}.test", "a".repeat(400));
        for odd in [long.as_str(), "https://a\0b", "https://a b", "https://\u{fc}"] {
            let name = of(odd);
            assert!(name.as_str().len() < 50 && name.as_str().bytes().all(|byte| byte.is_ascii_graphic()), "{name}");
            assert_ne!(name, of("https://a"));
        }
        assert_eq!(
            (Destination::derive(Channel::Email, None).as_str(), Destination::none().as_str()),
            ("email", "none")
        );
    }
}
