//! Subjects that form trees: with a separator, `acme/search/key-7` has the levels `acme`, `acme/search` and
//! `acme/search/key-7`.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::subject::{LEVELS_MAX, Subject, SubjectError};
use super::text_form::serde_as_text;

/// The character between the parts of a subject: one ASCII punctuation mark. Without one, subjects are flat: each is
/// the only level of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Separator(Option<u8>);

serde_as_text!(Separator);

/// The text is not a separator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no separator of subjects: use one punctuation mark, such as \"/\", or \"\" for flat subjects")]
pub struct SeparatorError(String);

impl Separator {
    /// Subjects are flat.
    pub const NONE: Self = Self(None);

    /// Whether subjects are flat.
    pub const fn is_none(self) -> bool {
        self.0.is_none()
    }

    /// The first part of a subject, which decides its partition: the whole subject if subjects are flat.
    pub fn root(self, subject: &[u8]) -> &[u8] {
        let end = self.0.and_then(|separator| subject.iter().position(|byte| *byte == separator));
        &subject[..end.unwrap_or(subject.len())]
    }

    /// The level above; `None` at the top.
    pub fn parent(self, subject: &str) -> Option<&str> {
        let at = subject.as_bytes().iter().rposition(|byte| Some(*byte) == self.0)?;
        Some(&subject[..at])
    }

    /// The subject and all levels above it, from the subject to the top.
    pub fn levels(self, subject: &str) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(subject), move |level| self.parent(level))
    }

    /// The levels above a subject, the nearest one first.
    pub fn ancestors(self, subject: &Subject) -> Vec<Subject> {
        // A part of a checked subject is a subject.
        let above = self.levels(subject.as_str()).skip(1);
        above.filter_map(|level| Subject::parse(level.as_bytes()).ok()).collect()
    }

    /// The depth of a subject: 0 at the top.
    pub fn depth(self, subject: &str) -> usize {
        self.levels(subject).count() - 1
    }

    /// Whether `subject` lies below `branch`.
    pub fn is_below(self, subject: &str, branch: &str) -> bool {
        let rest = subject.strip_prefix(branch).and_then(|rest| rest.as_bytes().first());
        self.0.is_some() && rest.copied() == self.0
    }

    /// A subject of the level below `parent`, with this last part.
    pub fn join(self, parent: &str, part: &str) -> String {
        format!("{parent}{self}{part}")
    }

    /// Checks the parts of a subject.
    ///
    /// # Errors
    ///
    /// An empty part, or more than [`LEVELS_MAX`] levels.
    pub fn check(self, subject: &str) -> Result<(), SubjectError> {
        let Some(separator) = self.0 else { return Ok(()) };
        let parts = || subject.as_bytes().split(|byte| *byte == separator);
        match parts().count() {
            levels if levels > LEVELS_MAX => Err(SubjectError::TooManyLevels(levels)),
            _ if parts().any(<[u8]>::is_empty) => Err(SubjectError::EmptyPart(char::from(separator))),
            _ => Ok(()),
        }
    }
}

/// A subject with all below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    top: Subject,
    separator: Separator,
}

impl Branch {
    /// The branch of this subject; the subject alone without a separator.
    pub const fn new(top: Subject, separator: Separator) -> Self {
        Self { top, separator }
    }

    /// Whether a subject is the top of the branch or lies below it.
    pub fn contains(&self, subject: &str) -> bool {
        subject == self.top.as_str() || self.separator.is_below(subject, self.top.as_str())
    }

    /// Whether the field `subject` of an entry of a stream, names and values in turn, names one of its subjects.
    pub fn is_named_by(&self, values: &[Vec<u8>]) -> bool {
        let subject = values.chunks_exact(2).find(|pair| pair[0] == b"subject");
        subject.and_then(|pair| str::from_utf8(&pair[1]).ok()).is_some_and(|subject| self.contains(subject))
    }
}

impl std::str::FromStr for Separator {
    type Err = SeparatorError;

    fn from_str(text: &str) -> Result<Self, SeparatorError> {
        match text.as_bytes() {
            [] => Ok(Self::NONE),
            [byte] if byte.is_ascii_punctuation() => Ok(Self(Some(*byte))),
            _ => Err(SeparatorError(text.to_owned())),
        }
    }
}

impl fmt::Display for Separator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |byte| write!(f, "{}", char::from(byte)))
    }
}

impl JsonSchema for Separator {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Separator".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": 1})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slash() -> Separator {
        "/".parse().expect("legal")
    }

    /// Each event counts at these levels.
    #[test]
    fn a_subject_has_a_level_for_each_part() {
        let levels = |separator: Separator| separator.levels("acme/search/key-7").collect::<Vec<_>>();
        assert_eq!(levels(slash()), ["acme/search/key-7", "acme/search", "acme"]);
        assert_eq!(levels(Separator::NONE), ["acme/search/key-7"]);
        assert_eq!((slash().depth("acme"), slash().depth("acme/search/key-7")), (0, 2));
        assert_eq!(slash().root(b"acme/search/key-7"), b"acme");
        assert_eq!(Separator::NONE.root(b"acme/search"), b"acme/search");
    }

    /// `acme-2` does not belong to `acme`.
    #[test]
    fn a_branch_has_what_follows_its_separator() {
        let below = |subject| slash().is_below(subject, "acme");
        assert_eq!(
            ["acme/a", "acme/a/b", "acme", "acme-2/a", "b/acme/a"].map(below),
            [true, true, false, false, false]
        );
        assert!(!Separator::NONE.is_below("acme/a", "acme"));
    }

    /// `acme//key` would be a level without a name.
    #[test]
    fn empty_parts_and_too_many_levels_are_refused() {
        for bad in ["/", "/a", "a/", "a//b"] {
            assert_eq!(slash().check(bad), Err(SubjectError::EmptyPart('/')), "{bad}");
            assert_eq!(Separator::NONE.check(bad), Ok(()));
        }
        assert_eq!(slash().check("a/b/c/d"), Ok(()));
        assert_eq!(slash().check("a/b/c/d/e"), Err(SubjectError::TooManyLevels(5)));
    }

    /// A letter or a byte of a longer character would cut names at surprising places.
    #[test]
    fn a_separator_is_one_punctuation_mark() {
        for bad in ["//", "a", "1", " ", "\n", "é", "→"] {
            assert!(bad.parse::<Separator>().is_err(), "{bad:?}");
        }
        assert_eq!(
            ["", "/", ".", ":"].map(|text| text.parse::<Separator>().expect(text).to_string()),
            ["", "/", ".", ":"]
        );
    }
}
