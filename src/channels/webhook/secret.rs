//! Webhook secrets: their form, and their signature (Standard Webhooks 1.0).
//!
//! The crate `standardwebhooks` accepts secrets of one byte, so the length is checked here. Read next:
//! [`super::client`], which sends signed requests.

use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use standardwebhooks::Webhook;

use crate::channels::invalid_contact::InvalidContact;
use crate::types::Secret;

/// The start of every secret.
pub const PREFIX: &str = "whsec_";
/// Minimum number of random bytes in the standard.
pub const BYTES_MIN: usize = 24;
/// Maximum number of random bytes.
pub const BYTES_MAX: usize = 64;
/// Maximum number of secrets that sign at once. A rotation needs two; each adds 48 bytes to a header.
pub const SECRETS_MAX: usize = 8;
/// One secret for [`PATTERN`]: 24 to 64 bytes in base64, with optional padding.
macro_rules! one_secret {
    () => {
        concat!(
            "whsec_(?:(?:[A-Za-z0-9+/]{4}){8,20}",
            "(?:[A-Za-z0-9+/][AQgw]={0,2}|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=?)?",
            "|(?:[A-Za-z0-9+/]{4}){21}(?:[A-Za-z0-9+/][AQgw]={0,2})?)",
        )
    };
}

/// The part of the rules that a regular expression can express; [`SigningSecrets::parse`] accepts more.
pub const PATTERN: &str = concat!("^", one_secret!(), "(?: ", one_secret!(), "){0,7}$");
/// Number of bytes of a generated secret.
const GENERATED_BYTES: usize = 32;

const _: () = assert!(BYTES_MIN <= GENERATED_BYTES && GENERATED_BYTES <= BYTES_MAX);

/// Base64 with optional padding: people lose `=` signs when they copy.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The secrets of one receiver: one, or several during a rotation. Each makes a signature, and the receiver accepts any
/// of them.
pub struct SigningSecrets(Vec<Webhook>);

impl SigningSecrets {
    /// Parses `whsec_<base64>`, or several of them separated by spaces.
    ///
    /// # Errors
    ///
    /// The fault of the first invalid secret, and what is allowed. Shows no part of it.
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
    /// `timestamp_s` is the time of this attempt, Unix seconds. The same input gives the same text.
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

/// Judges the secret of a contact, or several separated by spaces during a rotation.
///
/// # Errors
///
/// [`InvalidContact`], which shows no part of it.
pub fn check(secrets: &str) -> Result<(), InvalidContact> {
    SigningSecrets::parse(&Secret::new(secrets.to_owned())).map(drop).map_err(|_| InvalidContact {
        field: "secret",
        problem: format!("webhook secret must be whsec_ and base64 of {BYTES_MIN} to {BYTES_MAX} bytes"),
    })
}

/// Generates a secret from the system's random source, for a webhook that is added without one.
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

    /// The signature is the contract with every receiver. The test vector is that of the standard.
    #[test]
    fn the_published_vector_is_reproduced() {
        let secrets = parse("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").expect("24 bytes");
        let body = r#"{"email":"test@example.com","username":"test_user"}"#;
        let signature = secrets.sign("msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1_649_367_553, body);
        assert_eq!(signature, "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=");
    }

    /// The crate would sign with one byte, but a secret must be hard to guess. The error says what is allowed, and does
    /// not show the secret.
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

    /// During a rotation, old and new secrets are both valid.
    #[test]
    fn several_secrets_make_several_signatures() {
        let (old, new) = (of(24), of(32));
        let both = parse(&format!("{old} {new}")).expect("two").sign("alert_1", 1, "{}");
        let alone = |text: &str| parse(text).expect("one").sign("alert_1", 1, "{}");
        assert_eq!(both, format!("{} {}", alone(&old), alone(&new)));
    }

    /// A generated secret that is refused would make the subject's alerts fail.
    #[test]
    fn a_generated_secret_is_a_secret() {
        let secret = generate();
        assert!(SigningSecrets::parse(&secret).is_ok());
        assert_ne!(secret.reveal(), generate().reveal());
    }
}
