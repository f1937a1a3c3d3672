//! Markdown: lines wrap, so that a change shows the sentence that it changes.

use crate::source::{Source, documents, expect_none};

/// The most characters of a line of prose.
const COLUMNS_MAX: usize = 120;

/// Lines of prose that are too long. Tables and code can't be wrapped, and neither can a line without a space.
fn long_lines(document: &Source) -> Vec<String> {
    let mut in_code = false;
    let mut violations = Vec::new();
    for (number, line) in document.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let is_prose = !in_code && !line.starts_with('|') && line.trim().contains(' ');
        let columns = line.chars().count();
        if is_prose && columns > COLUMNS_MAX {
            violations.push(document.says(number, &format!("{columns} characters, at most {COLUMNS_MAX}")));
        }
    }
    violations
}

/// A paragraph on one line hides in every diff what was changed of it.
#[test]
fn prose_wraps() {
    let documents = documents();
    assert!(documents.len() > 5, "only {} documents were found", documents.len());
    expect_none(&documents.iter().flat_map(long_lines).collect::<Vec<_>>());
}

/// The rule must be able to fail, and leave tables, code and addresses alone.
#[test]
fn long_lines_are_found() {
    let long = "a word ".repeat(18);
    let of = |text: String| long_lines(&Source::sample("docs/x.md", &text)).len();
    assert_eq!(of(format!("# A\n\n{long}\n- {long}")), 2);
    assert_eq!(of(format!("| {long} |\n```text\n{long}\n```\nhttps://example.com/{}", "a".repeat(120))), 0);
}
