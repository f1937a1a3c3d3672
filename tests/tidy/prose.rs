//! Markdown and comments: lines wrap, so that a change shows the sentence that it changes.

use std::path::Path;

use crate::source::{Source, documents, expect_none, files_below, rust_below};

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

/// Comments in Rust and Lua that are too long. `rustfmt` breaks code and leaves comments as they are.
fn long_comments(file: &Source) -> Vec<String> {
    let mark = if file.is("lua") { "--" } else { "//" };
    let wraps = |line: &str| line.trim_start().strip_prefix(mark).is_some_and(|text| text.trim().contains(' '));
    let comments = file.text.lines().enumerate().filter(|(_, line)| wraps(line));
    let long = comments.filter(|(_, line)| line.chars().count() > COLUMNS_MAX);
    long.map(|(number, _)| file.says(number, &format!("more than {COLUMNS_MAX} characters"))).collect()
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

/// A comment that is wider than the code around it is cut off wherever two files stand side by side.
#[test]
fn comments_wrap() {
    let mut files: Vec<Source> = ["src", "tests", "benches"].into_iter().flat_map(rust_below).collect();
    files.extend(["src", "tests"].into_iter().flat_map(files_below).filter(|file| file.is("lua")));
    expect_none(&files.iter().flat_map(long_comments).collect::<Vec<_>>());
}

/// The rule must be able to fail, and leave code alone.
#[test]
fn long_comments_are_found() {
    let long = "a word ".repeat(18);
    let of = |path, text: String| long_comments(&Source::sample(path, &text)).len();
    assert_eq!(of("src/a/x.rs", format!("//! {long}\n    /// {long}\nfn f() {{ // {long}\n}}")), 2);
    assert_eq!(of("src/a/x.lua", format!("-- {long}\nlocal x = '{long}'\n-- {}", "a".repeat(120))), 1);
}

/// Files of `src` that a document names and that are not there. Named are `folder/file.rs` and `src/folder/file.rs`.
fn missing_files(document: &Source, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut violations = Vec::new();
    for (number, line) in document.text.lines().enumerate() {
        for name in line.split('`').skip(1).step_by(2) {
            let is_file =
                name.contains('/') && (name.ends_with(".rs") || name.ends_with(".lua")) && !name.contains('<');
            let path = name.strip_prefix("src/").unwrap_or(name);
            if is_file && !name.starts_with("tests/") && !name.starts_with("benches/") && !exists(path) {
                violations.push(document.says(number, &format!("names {name}, which is not there")));
            }
        }
    }
    violations
}

/// Functions and types that a document names behind their file, as `a/b.rs`, `Type::function` or `function`, and that
/// this file does not have.
fn missing_functions(document: &Source, code: &[Source]) -> Vec<String> {
    let has = |file: &Source, name: &str| {
        let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
        ["fn", "struct", "enum", "trait", "const", "static"]
            .iter()
            .any(|keyword| file.text.split(&format!("{keyword} {name}")).skip(1).any(ends))
    };
    let mut violations = Vec::new();
    let pieces: Vec<&str> = document.text.split('`').collect();
    // Text and names take turns; between a file and what it has stands a comma.
    for at in (1..pieces.len().saturating_sub(2)).step_by(2) {
        let (path, name) = (pieces[at].trim_start_matches("src/"), pieces[at + 2]);
        let Some(file) = code.iter().find(|file| file.path.strip_prefix("src/") == Some(path)) else { continue };
        let is_name = name.chars().all(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':');
        let function = name.rsplit("::").next().unwrap_or_default();
        if pieces[at + 1].trim_matches(['\n', ' ']) == "," && is_name && !has(file, function) {
            let line = pieces[..at].iter().map(|piece| piece.matches('\n').count()).sum();
            violations.push(document.says(line, &format!("names {name} in {path}, which has none")));
        }
    }
    violations
}

/// The map of the code is a newcomer's first hour; a file or function that was renamed ends it.
#[test]
fn files_that_the_tour_names_are_there() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let code = rust_below("src");
    let tours: Vec<Source> = documents()
        .into_iter()
        .filter(|document| {
            matches!(document.path.as_str(), "ARCHITECTURE.md" | "CONTRIBUTING.md")
                || document.path.starts_with("docs/internals/")
        })
        .collect();
    assert!(tours.len() > 2, "the internals were not found");
    let missing = tours.iter().flat_map(|tour| {
        [missing_files(tour, |path| source.join(path).exists()), missing_functions(tour, &code)].concat()
    });
    expect_none(&missing.collect::<Vec<_>>());
}

/// As above.
#[test]
fn files_that_are_gone_are_found() {
    let text = "`a/b.rs`, `src/a/c.lua` and `tests/x.rs`, `b.rs`, `a/<name>.rs`";
    assert_eq!(missing_files(&Source::sample("ARCHITECTURE.md", text), |path| path == "a/b.rs").len(), 1);
    let text =
        "`a/b.rs`, `Worker::run`, and `a/b.rs`,\n`runs`; `a/b.rs` has `gone`, `a/c.rs`, `run`; `a/b.rs`, `Worker`";
    let code = [Source::sample("src/a/b.rs", "pub struct Worker;\nimpl Worker { fn runs_on() {} fn run(&self) {} }")];
    assert_eq!(
        missing_functions(&Source::sample("ARCHITECTURE.md", text), &code),
        ["ARCHITECTURE.md:1: names runs in a/b.rs, which has none"]
    );
}
