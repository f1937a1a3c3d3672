//! Names that people read beside or instead of an id: of a subject, a metric, a unit.

use super::text::is_inert;
use super::text_form::{display_as_inner, inline_schema, parsed_text};

/// Maximum length of a display name, characters.
pub const DISPLAY_NAME_CHARS_MAX: usize = 128;

/// A name for texts: 1 to 128 visible characters, without spaces at its ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DisplayName(String);

parsed_text!(DisplayName, DisplayNameError);
inline_schema!(DisplayName, { "type": "string", "minLength": 1, "maxLength": DISPLAY_NAME_CHARS_MAX });
display_as_inner!(DisplayName);

/// The text is not a display name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a name: 1 to {DISPLAY_NAME_CHARS_MAX} visible characters on one line, without spaces at the ends"
)]
pub struct DisplayNameError(String);

impl DisplayName {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`DisplayNameError`] for an empty, long or partly invisible text.
    pub fn parse(text: &str) -> Result<Self, DisplayNameError> {
        let is_legal = (1..=DISPLAY_NAME_CHARS_MAX).contains(&text.chars().count())
            && text.trim() == text
            && text.chars().all(is_inert);
        if is_legal { Ok(Self(text.to_owned())) } else { Err(DisplayNameError(text.chars().take(200).collect())) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name with a line break or a change of direction could change the text around it.
    #[test]
    fn names_are_visible_text_on_one_line() {
        for good in ["a", "Acme GmbH & Co. <KG>", "công ty Việt", &"é".repeat(128)] {
            assert_eq!(DisplayName::parse(good).map(|name| name.to_string()).as_deref(), Ok(good));
        }
        for bad in ["", " ", " a", "a ", "a\nb", "a\u{202e}b", "\u{200b}", &"é".repeat(129)] {
            assert!(DisplayName::parse(bad).is_err(), "{bad:?}");
        }
    }
}
