//! What is legal in an import and is probably a spreadsheet's doing. Pure.

use std::collections::HashMap;

use crate::types::Subject;
use crate::types::text::is_inert;

/// The subjects of the lines so far, each with the line that named it last.
#[derive(Debug, Default)]
pub(super) struct NamedSubjects(HashMap<Subject, u64>);

impl NamedSubjects {
    /// Adds a line, and warns if an earlier one names the same subject.
    pub(super) fn add(&mut self, subject: &Subject, line: u64) -> Option<String> {
        let earlier = self.0.insert(subject.clone(), line)?;
        let subject = subject.as_str();
        Some(format!("subject {subject:?} is also named in line {earlier}: each of the two lines changes it"))
    }
}

/// What is odd about a subject. `was_trimmed` says that spaces around it were left out.
pub(super) fn odd_subject(subject: &Subject, was_trimmed: bool) -> Vec<String> {
    let text = subject.as_str();
    // Written with {:?}, letters that are not seen are escaped.
    let mut warnings = Vec::new();
    if is_exponent_form(text) {
        warnings.push(format!(
            "subject {text:?} is a number in exponent form: if a spreadsheet has rounded it, format the column as text"
        ));
    }
    if was_trimmed {
        warnings.push(format!("subject {text:?}: the spaces around it were left out"));
    } else if text.trim() != text {
        warnings.push(format!("subject {text:?} begins or ends with a space, which is part of it"));
    }
    let mut invisible: Vec<String> =
        text.trim().chars().filter(|one| is_invisible(*one)).map(|one| format!("U+{:04X}", u32::from(one))).collect();
    invisible.dedup();
    if !invisible.is_empty() {
        warnings.push(format!("subject {text:?} holds invisible letters: {}", invisible.join(", ")));
    }
    warnings
}

/// Whether a text is a number as `1.23457E+14`: spreadsheets show long numbers so, and save what they show.
fn is_exponent_form(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = |text: &str| text.strip_prefix(['+', '-']).unwrap_or(text).to_owned();
    let Some((mantissa, exponent)) = text.split_once(['e', 'E']) else { return false };
    let mantissa = unsigned(mantissa);
    let (whole, fraction) = mantissa.split_once(['.', ',']).unwrap_or((&mantissa, "0"));
    digits(whole) && digits(fraction) && digits(&unsigned(exponent))
}

/// Whether a letter looks like nothing, like a space, or like one that was lost.
fn is_invisible(letter: char) -> bool {
    !is_inert(letter) || (letter.is_whitespace() && letter != ' ') || letter == '\u{fffd}'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(text: &str) -> Vec<String> {
        odd_subject(&Subject::parse(text.as_bytes()).expect("legal"), false)
    }

    /// What a spreadsheet has done to an id must be seen before it becomes another customer.
    #[test]
    fn what_spreadsheets_do_to_subjects_is_warned_of() {
        for exponent in ["1.23457E+14", "1,23457E+14", "1E5", "-9.1e-07", "12e+300"] {
            assert!(warnings(exponent).concat().contains("exponent form"), "{exponent}");
        }
        for edge in [" alice", "alice ", "alice\u{a0}"] {
            assert!(warnings(edge).concat().contains("begins or ends with a space"), "{edge:?}");
        }
        for (invisible, code) in
            [("al\u{200b}ice", "U+200B"), ("alice\u{feff}", "U+FEFF"), ("a\u{a0}b", "U+00A0"), ("a\u{202e}b", "U+202E")]
        {
            assert!(warnings(invisible).concat().ends_with(&format!("invisible letters: {code}")), "{invisible:?}");
        }
        assert!(warnings("J\u{fffd}rgen").concat().contains("U+FFFD"));
        for fine in
            ["alice", "E5", "1e", "e+5", "1.e5", "1.2.3e4", "123456789012345", "with space", "Jürgen", "🦀", "a-1E5"]
        {
            assert_eq!(warnings(fine), Vec::<String>::new(), "{fine:?}");
        }
    }

    /// Two lines of one subject are mostly two customers of whom one was lost.
    #[test]
    fn a_subject_that_is_named_again_is_warned_of_with_both_lines() {
        let alice = Subject::parse(b"alice").expect("legal");
        let mut named = NamedSubjects::default();
        assert_eq!(named.add(&alice, 2), None);
        assert!(named.add(&alice, 7).is_some_and(|warning| warning.contains("\"alice\" is also named in line 2:")));
        assert!(named.add(&alice, 9).is_some_and(|warning| warning.contains("named in line 7:")));
    }
}
