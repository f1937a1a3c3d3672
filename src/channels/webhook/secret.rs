//! Webhook secrets: what they look like, and the signature they make (Standard Webhooks 1.0).
//!
//! The crate `standardwebhooks` signs but takes a one-byte secret without complaint, so the length is checked here.
//! Read next: [`super::client`], which sends what is signed here.

use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use standardwebhooks::Webhook;

use crate::channels::invalid_contact::InvalidContact;
use crate::types::Secret;

/// How every secret begins.
pub const PREFIX: &str = "whsec_";
/// The fewest random bytes that the standard allows.
pub const BYTES_MIN: usize = 24;
/// The most.
pub const BYTES_MAX: usize = 64;
/// The most secrets that sign at once. A rotation needs two; each adds 48 bytes to a header.
pub const SECRETS_MAX: usize = 8;
/// One secret for [`PATTERN`]: 24 to 64 bytes in base64, whose last group may be cut short.
macro_rules! one_secret {
    () => {
        concat!(
            "whsec_(?:(?:[A-Za-z0-9+/]{4}){8,20}",
            "(?:[A-Za-z0-9+/][AQgw]={0,2}|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=?)?",
            "|(?:[A-Za-z0-9+/]{4}){21}(?:[A-Za-z0-9+/][AQgw]={0,2})?)",
        )
    };
}

/// What a regular expression can say of secrets; [`SigningSecrets::parse`] takes more.
pub const PATTERN: &str = concat!("^", one_secret!(), "(?: ", one_secret!(), "){0,7}$");
/// How many bytes a generated secret has.
const GENERATED_BYTES: usize = 32;

const _: () = assert!(BYTES_MIN <= GENERATED_BYTES && GENERATED_BYTES <= BYTES_MAX);

/// Base64 whose padding may be missing: people lose `=` signs when they copy.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The secrets of one receiver: one, or several while it rotates them. Each makes a signature; the receiver accepts
/// any.
pub struct SigningSecrets(Vec<Webhook>);

impl SigningSecrets {
    /// Reads `whsec_<base64>`, or several of them separated by spaces.
    ///
    /// # Errors
    ///
    /// What is wrong with the first that is not a secret, and what is allowed. Shows none of it.
    pub fn parse(secret: &Secret) -> Result<Self, String> {
        let texts: Vec<&str> = secret.reveal().split_whitespace().collect();
        match texts.len() {
            0 => Err(wrong("is empty, allowed is \"whsec_\" and base64 of")),
            1..=SECRETS_MAX => texts.into_iter().map(parse_one).collect::<Result<_, _>>().map(Self),
            many => {
                Err(format!("webhook secret is a list of {many}, allowed are up to {SECRETS_MAX} separated by spaces"))
            }
        }
    }

    /// The value of `webhook-signature`: `v1,<base64>` for each secret, separated by spaces.
    ///
    /// `timestamp_s` is the time of this attempt, Unix seconds. Repeatable: the same input makes the same text.
    pub fn sign(&self, id: &str, timestamp_s: i64, body: &str) -> String {
        let signed = |webhook: &Webhook| {
            webhook.sign(id, timestamp_s, body.as_bytes()).expect("a str is UTF-8, the one thing that signing asks for")
        };
        self.0.iter().map(signed).collect::<Vec<_>>().join(" ")
    }
}

impl std::fmt::Debug for SigningSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningSecrets({} of ***)", self.0.len())
    }
}

fn parse_one(text: &str) -> Result<Webhook, String> {
    let text = text.strip_prefix(PREFIX);
    let text = text.ok_or_else(|| wrong("does not begin with \"whsec_\", allowed is \"whsec_\" and base64 of"))?;
    let no_base64 = || wrong("is not base64 after \"whsec_\", allowed is base64 of");
    let bytes = LENIENT.decode(text).map_err(|_| no_base64())?;
    if !(BYTES_MIN..=BYTES_MAX).contains(&bytes.len()) {
        return Err(wrong(&format!("has {} bytes, allowed are", bytes.len())));
    }
    Webhook::from_bytes(bytes).map_err(|_| no_base64())
}

fn wrong(what: &str) -> String {
    format!("webhook secret {what} {BYTES_MIN} to {BYTES_MAX} bytes")
}

/// Judges the secret of a contact, or several separated by spaces while one is being rotated.
///
/// # Errors
///
/// [`InvalidContact`], which shows none of it.
pub fn check(secrets: &str) -> Result<(), InvalidContact> {
    SigningSecrets::parse(&Secret::new(secrets.to_owned())).map(drop).map_err(|_| InvalidContact {
        field: "secret",
        problem: format!("webhook secret must be whsec_ and base64 of {BYTES_MIN} to {BYTES_MAX} bytes"),
    })
}

/// A new secret from the system's random source, for a webhook that is added without one.
pub fn generate() -> Secret {
    let bytes: [u8; GENERATED_BYTES] = rand::random();
    Secret::new(format!("{PREFIX}{}", STANDARD.encode(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: usize) -> String {
        format!("{PREFIX}{}", STANDARD.encode(vec![7_u8; bytes]))
    }

    fn parse(text: &str) -> Result<SigningSecrets, String> {
        SigningSecrets::parse(&Secret::new(text.to_owned()))
    }

    /// The signature is the contract with every receiver; the vector is the standard's own.
    #[test]
    fn the_published_vector_is_reproduced() {
        let secrets = parse("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").expect("24 bytes");
        let body = r#"{"email":"test@example.com","username":"test_user"}"#;
        let signature = secrets.sign("msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1_649_367_553, body);
        assert_eq!(signature, "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=");
    }

    /// The crate would sign with one byte; a receiver's secret must be worth something. An operator must read what is
    /// allowed, and must not read the secret.
    #[test]
    fn only_24_to_64_bytes_of_base64_are_a_secret() {
        for good in [24, 25, 32, 63, 64] {
            let secret = of(good);
            assert!(parse(&secret).is_ok() && check(&secret).is_ok(), "{good}");
            assert!(parse(secret.trim_end_matches('=')).is_ok(), "{good} without padding");
        }
        let (many, bare) = ([of(24).as_str(); 9].join(" "), of(32)[6..].to_owned());
        let (short, long) = (of(23), of(65));
        for (bad, said) in [
            ("", "is empty"),
            ("  ", "is empty"),
            (&bare, "does not begin with \"whsec_\""),
            ("whsec_not base64!", "is not base64"),
            ("whsec_", "has 0 bytes"),
            (&short, "has 23 bytes, allowed are 24 to 64 bytes"),
            (&long, "has 65 bytes"),
            (&many, "is a list of 9"),
        ] {
            let error = parse(bad).expect_err(bad);
            assert!(error.starts_with(&format!("webhook secret {said}")) && check(bad).is_err(), "{error}");
        }
        assert_eq!(format!("{:?}", parse(&of(32)).expect("a secret")), "SigningSecrets(1 of ***)");
    }

    /// While a receiver rotates, old and new secret are both valid.
    #[test]
    fn several_secrets_make_several_signatures() {
        let (old, new) = (of(24), of(32));
        let both = parse(&format!("{old} {new}")).expect("two").sign("alert_1", 1, "{}");
        let alone = |text: &str| parse(text).expect("one").sign("alert_1", 1, "{}");
        assert_eq!(both, format!("{} {}", alone(&old), alone(&new)));
    }

    /// A generated secret that we refuse ourselves would kill the subject's alerts.
    #[test]
    fn a_generated_secret_is_a_secret() {
        let secret = generate();
        assert!(SigningSecrets::parse(&secret).is_ok());
        assert_ne!(secret.reveal(), generate().reveal());
    }
}
