//! Subjects: a customer, an API key or a tenant whose usage is counted. A string; [`super::separator`] makes it a path.

use std::borrow::Borrow;

use smol_str::SmolStr;

use super::text_form::{display_as_inner, inline_schema, parsed_text};

/// Maximum length of a subject, bytes of UTF-8.
pub const SUBJECT_BYTES_MAX: usize = 256;

/// Maximum number of levels of a subject with a separator.
pub const LEVELS_MAX: usize = 4;

/// A subject: 1 to 256 bytes of UTF-8 without control characters. Cheap to clone.
///
/// Up to 23 bytes are inline, which saves a memory access when the subject is compared with an event's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject(SmolStr);

parsed_text!(Subject, SubjectError);
inline_schema!(Subject, {
    "type": "string", "minLength": 1, "maxLength": SUBJECT_BYTES_MAX, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$"
});
display_as_inner!(Subject);

/// Why bytes are not a subject. Operators read this text as the detail of a refusal.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    #[error("subject is empty")]
    Empty,
    #[error("subject has {0} bytes, at most {SUBJECT_BYTES_MAX} are allowed")]
    TooLong(usize),
    #[error("subject is not UTF-8")]
    NotUtf8,
    /// A control character (Unicode category Cc).
    #[error("subject holds a control character")]
    Control,
    /// Of a subject with a separator.
    #[error("subject has an empty part: parts are separated by one {0:?}, with none at the beginning or end")]
    EmptyPart(char),
    /// Of a subject with a separator.
    #[error("subject has {0} levels, at most {LEVELS_MAX} are allowed")]
    TooManyLevels(usize),
}

/// Sorted sets of subjects are searched by text.
impl Borrow<str> for Subject {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Subject {
    /// Checks the rule for subjects (docs/sending.md) and copies the subject.
    pub fn parse(bytes: &[u8]) -> Result<Self, SubjectError> {
        check(bytes).map(|text| Self(SmolStr::new(text)))
    }

    /// The subject as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks that bytes are a subject, without copying them, for the reader, which sees the same subject many times.
pub fn check(bytes: &[u8]) -> Result<&str, SubjectError> {
    if bytes.is_empty() {
        return Err(SubjectError::Empty);
    }
    if bytes.len() > SUBJECT_BYTES_MAX {
        return Err(SubjectError::TooLong(bytes.len()));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| SubjectError::NotUtf8)?;
    if text.chars().any(char::is_control) {
        return Err(SubjectError::Control);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every allowed subject must be accepted: keys are built so that subjects can't collide.
    #[test]
    fn odd_but_legal_subjects_are_accepted() {
        for text in ["a:b", "{x}", "*", "with space", "🦀", "é", &"x".repeat(256)] {
            assert_eq!(Subject::parse(text.as_bytes()).map(|s| s.to_string()), Ok(text.to_owned()));
        }
    }

    /// Each rule has its own reason.
    #[test]
    fn broken_subjects_are_told_apart() {
        assert_eq!(check(b""), Err(SubjectError::Empty));
        assert_eq!(check("x".repeat(257).as_bytes()), Err(SubjectError::TooLong(257)));
        assert_eq!(check(b"\xff\xfe"), Err(SubjectError::NotUtf8));
        assert_eq!(check(b"a\x00b"), Err(SubjectError::Control));
        assert_eq!(check("a\u{85}b".as_bytes()), Err(SubjectError::Control));
        assert_eq!(check(b"a\nb"), Err(SubjectError::Control));
    }
}
