//! Locales: the language of messages, as a BCP 47 tag.

use super::text_form::{display_as_inner, inline_schema, parsed_text};

/// Maximum length of a tag: RFC 5646, 4.4.1, requires room for 35 characters and names no tag that needs more.
const BYTES_MAX: usize = 35;

/// A well-formed language tag (RFC 5646, 2.1) in its usual case, such as `vi`, `pt-BR` or `zh-Hant-TW`. Texts in this
/// language need not exist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Locale(String);

parsed_text!(Locale, LocaleError);
inline_schema!(Locale, { "type": "string", "maxLength": BYTES_MAX });
display_as_inner!(Locale);

/// The text is not a language tag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a language tag (BCP 47), such as \"en\", \"vi\" or \"pt-BR\"")]
pub struct LocaleError(String);

impl Locale {
    /// Parses a tag in any case.
    ///
    /// # Errors
    ///
    /// [`LocaleError`]. Refuses tags without a language (`x-...`) and grandfathered tags (`i-...`).
    pub fn parse(text: &str) -> Result<Self, LocaleError> {
        let subtags: Vec<&str> = text.split('-').collect();
        match text.len() <= BYTES_MAX && is_well_formed(&subtags) {
            true => Ok(Self(in_usual_case(&subtags))),
            false => Err(LocaleError(text.to_owned())),
        }
    }

    /// The locale of the built-in texts.
    pub fn english() -> Self {
        Self("en".to_owned())
    }

    /// The tag.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The locale and its fallbacks, the nearest first (RFC 4647, 3.4): `zh-Hant-TW`, `zh-Hant`, `zh`.
    pub fn fallbacks(&self) -> impl Iterator<Item = Self> + use<> {
        std::iter::successors(Some(self.clone()), |Self(tag)| {
            let (shorter, _) = tag.rsplit_once('-')?;
            // A single letter only introduces the following subtag.
            let shorter = match shorter.rsplit_once('-') {
                Some((before, last)) if last.len() == 1 => before,
                _ => shorter,
            };
            Some(Self(shorter.to_owned()))
        })
    }
}

fn is_well_formed(subtags: &[&str]) -> bool {
    let letters = |subtag: &str, count: usize| subtag.len() == count && subtag.bytes().all(|b| b.is_ascii_alphabetic());
    let digits = |subtag: &str, count: usize| subtag.len() == count && subtag.bytes().all(|b| b.is_ascii_digit());
    let is_variant = |subtag: &str| {
        subtag.len() >= 5 || subtag.len() == 4 && subtag.starts_with(|first: char| first.is_ascii_digit())
    };
    let are_subtags =
        |subtag: &&str| (1..=8).contains(&subtag.len()) && subtag.bytes().all(|b| b.is_ascii_alphanumeric());
    let [language, rest @ ..] = subtags else { return false };
    let language_letters = language.len();
    if !subtags.iter().all(are_subtags) || language_letters < 2 || !letters(language, language_letters) {
        return false;
    }
    let rest = after(rest, if language_letters <= 3 { 3 } else { 0 }, |extended| letters(extended, 3));
    let rest = after(rest, 1, |script| letters(script, 4));
    let rest = after(rest, 1, |region| letters(region, 2) || digits(region, 3));
    let mut rest = after(rest, usize::MAX, is_variant);
    // Extensions and private use: a single letter or digit, and one subtag or more.
    while let [single, members @ ..] = rest {
        let shortest = if single.eq_ignore_ascii_case("x") { 1 } else { 2 };
        let behind = after(members, usize::MAX, |member| member.len() >= shortest);
        if single.len() != 1 || behind.len() == members.len() {
            return false;
        }
        rest = behind;
    }
    true
}

/// The subtags behind the first ones that fit, at most `most`.
fn after<'a, 'b>(subtags: &'a [&'b str], most: usize, fits: impl Fn(&str) -> bool) -> &'a [&'b str] {
    let count = subtags.iter().take(most).take_while(|subtag| fits(subtag)).count();
    &subtags[count..]
}

/// Usual case (RFC 5646, 2.1.1): a region in capitals, a script with an initial capital, everything else in lower case.
fn in_usual_case(subtags: &[&str]) -> String {
    let mut is_extended = false;
    let written = subtags.iter().enumerate().map(|(position, subtag)| {
        let small = subtag.to_ascii_lowercase();
        let is_plain = position == 0 || is_extended;
        is_extended |= subtag.len() == 1;
        match subtag.len() {
            2 if !is_plain => subtag.to_ascii_uppercase(),
            4 if !is_plain => small[..1].to_ascii_uppercase() + &small[1..],
            _ => small,
        }
    });
    written.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A tag in another case is the same locale, and an invalid tag must not look like a locale without texts.
    #[test]
    fn well_formed_tags_are_read_in_any_case_and_others_refused() {
        for (text, tag) in [
            ("vi", "vi"),
            ("VI-vn", "vi-VN"),
            ("zh-hant-tw", "zh-Hant-TW"),
            ("es-419", "es-419"),
            ("sl-rozaj-biske-1994", "sl-rozaj-biske-1994"),
            ("de-CH-1901", "de-CH-1901"),
            ("zh-cmn-Hans-CN", "zh-cmn-Hans-CN"),
            ("en-US-u-CA-gregory-x-a", "en-US-u-ca-gregory-x-a"),
            ("english", "english"),
        ] {
            assert_eq!(Locale::parse(text).map(|locale| locale.to_string()).as_deref(), Ok(tag));
        }
        let wrong = "|v|vi_VN|vi-|-vi|vi VN|việt|vi-VN-VN|en-x|en-a-b|x-a|123|languages|en.UTF-8";
        for text in wrong.split('|') {
            let error = Locale::parse(text).expect_err(text).to_string();
            assert_eq!(error, format!("{text:?} is not a language tag (BCP 47), such as \"en\", \"vi\" or \"pt-BR\""));
        }
        assert!(Locale::parse(&format!("en-x-{}", "a-".repeat(20))).is_err());
    }

    /// People of a region understand their language without the region; a single letter is no tag.
    #[test]
    fn a_locale_falls_back_from_the_end() {
        let of = |text: &str| {
            let locale = Locale::parse(text).expect("a tag");
            locale.fallbacks().map(|locale| locale.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of("vi"), ["vi"]);
        assert_eq!(of("zh-Hant-TW"), ["zh-Hant-TW", "zh-Hant", "zh"]);
        assert_eq!(of("en-US-u-ca-gregory"), ["en-US-u-ca-gregory", "en-US-u-ca", "en-US", "en"]);
    }

    proptest! {
        /// The platform may write anything; an accepted locale reads back as the same.
        #[test]
        fn any_text_is_judged(text in "[a-zA-Z0-9_-]{0,40}|\\PC{0,12}|([a-zA-Z0-9]{1,8}-){0,5}[a-zA-Z0-9]{1,8}") {
            if let Ok(locale) = Locale::parse(&text) {
                prop_assert_eq!(Locale::parse(locale.as_str()), Ok(locale.clone()));
                prop_assert!(locale.fallbacks().all(|shorter| Locale::parse(shorter.as_str()).is_ok()));
            }
        }
    }
}
