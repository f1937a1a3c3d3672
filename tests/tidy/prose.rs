//! Markdown and comments: lines wrap, so that a change shows the sentence that it changes; and comments avoid the
//! commonest forms that must be read twice.

use std::path::Path;

use crate::source::{Source, documents, expect_none, files_below, rust_below};

/// Maximum number of characters in a line of prose.
const COLUMNS_MAX: usize = 120;

/// Lines of prose that are too long. Tables, code and lines without a space can't be wrapped.
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

/// A paragraph on one line would hide in every diff what was changed.
#[test]
fn prose_wraps() {
    let documents = documents();
    assert!(documents.len() > 5, "only {} documents were found", documents.len());
    expect_none(&documents.iter().flat_map(long_lines).collect::<Vec<_>>());
}

/// The rule must be able to fail, and must ignore tables, code and addresses.
#[test]
fn long_lines_are_found() {
    let long = "a word ".repeat(18);
    let of = |text: String| long_lines(&Source::sample("docs/x.md", &text)).len();
    assert_eq!(of(format!("# A\n\n{long}\n- {long}")), 2);
    assert_eq!(of(format!("| {long} |\n```text\n{long}\n```\nhttps://example.com/{}", "a".repeat(120))), 0);
}

/// A comment that is wider than the code is cut off in a side-by-side view.
#[test]
fn comments_wrap() {
    let mut files: Vec<Source> = ["src", "crates", "tests", "benches"].into_iter().flat_map(rust_below).collect();
    files.extend(["src", "crates", "tests"].into_iter().flat_map(files_below).filter(|file| file.is("lua")));
    expect_none(&files.iter().flat_map(long_comments).collect::<Vec<_>>());
}

/// The rule must be able to fail, and must ignore code.
#[test]
fn long_comments_are_found() {
    let long = "a word ".repeat(18);
    let of = |path, text: String| long_comments(&Source::sample(path, &text)).len();
    assert_eq!(of("src/a/x.rs", format!("//! {long}\n    /// {long}\nfn f() {{ // {long}\n}}")), 2);
    assert_eq!(of("src/a/x.lua", format!("-- {long}\nlocal x = '{long}'\n-- {}", "a".repeat(120))), 1);
}

/// The sentences of a file's comments with the number of their first line. A comment's lines are joined, because a
/// sentence may cross them.
fn sentences(file: &Source) -> Vec<(usize, String)> {
    let marks: &[&str] = if file.is("lua") { &["--"] } else { &["///", "//!", "//"] };
    let mut sentences: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (number, line) in file.text.lines().enumerate() {
        let Some(text) = marks.iter().find_map(|mark| line.trim_start().strip_prefix(mark)) else {
            is_open = false;
            continue;
        };
        let text = text.trim();
        is_open &= !text.is_empty();
        for part in text.split_inclusive(". ") {
            match sentences.last_mut() {
                Some((_, sentence)) if is_open => *sentence += &format!(" {}", part.trim()),
                _ => sentences.push((number, part.trim().to_owned())),
            }
            is_open = !(part.ends_with(". ") || part.ends_with(['.', ':']));
        }
    }
    sentences
}

/// Whether the sentence gives an example after ", as" instead of ", such as": a quotation, code, a number or a list,
/// and then the end of the phrase. "As `subject set` does" is a comparison.
fn gives_example_after_as(sentence: &str) -> bool {
    sentence.split(", as ").skip(1).any(|rest| {
        let close = match rest.chars().next() {
            Some('`') => '`',
            Some('"') => '"',
            Some('[') => ']',
            Some('{') => '}',
            _ => return false,
        };
        let after = rest[1..].split_once(close).map(|(_, after)| after.trim_start_matches(')'));
        after.is_some_and(|after| {
            after.is_empty() || after.starts_with(['.', ',', ';', ':']) || after.starts_with(" or ")
        })
    })
}

/// What is wrong with a sentence, if it has one of the forms that must be read twice.
fn form_read_twice(sentence: &str) -> Option<&'static str> {
    let begins_with = |word: &str| sentence.strip_prefix(word).is_some_and(|rest| rest.starts_with(' '));
    let rules = [
        (sentence.contains("So many ") || sentence.contains("So long "), "say the number or the time as a noun phrase"),
        (sentence.contains(", of which"), "split the sentence at \", of which\""),
        (begins_with("Where") && sentence.contains(", "), "write \"if\" for a condition and \"when\" for an event"),
        (begins_with("Whoever"), "begin with a noun that the code has"),
        (sentence.replace(", but for ", "").contains(" but for "), "write \"except\""),
        (gives_example_after_as(sentence), "write \"such as\" before an example"),
    ];
    rules.into_iter().find_map(|(is_found, advice)| is_found.then_some(advice))
}

fn sentences_read_twice(file: &Source) -> Vec<String> {
    let found = sentences(file).into_iter().filter_map(|(number, sentence)| {
        form_read_twice(&sentence).map(|advice| file.says(number, &format!("{advice}: {sentence}")))
    });
    found.collect()
}

/// Comments are read in a hurry; these forms slow down even a native reader.
#[test]
fn comments_are_read_once() {
    let mut files: Vec<Source> =
        ["src", "crates", "tests", "benches", "examples"].into_iter().flat_map(rust_below).collect();
    files.extend(["src", "crates", "tests"].into_iter().flat_map(files_below).filter(|file| file.is("lua")));
    // This file quotes the forms.
    files.retain(|file| file.path != "tests/tidy/prose.rs");
    expect_none(&files.iter().flat_map(sentences_read_twice).collect::<Vec<_>>());
}

/// The rule must be able to fail, and must accept the ordinary use of the same words.
#[test]
fn sentences_that_are_read_twice_are_found() {
    let of = |comment: &str| sentences_read_twice(&Source::sample("src/a/x.rs", comment)).len();
    let wrong = [
        "/// So many entries are read at once.",
        "/// A contact's id. So long it stays.",
        "/// The keys of a\n/// partition, of which there is one.",
        "/// Where Redis is away, the call fails.",
        "// Never repeated. Where the slot moves, it waits.",
        "/// Whoever asks gets an answer.",
        "/// All keys but for the stream.",
        "/// The place of a setting, as `email.timeout`.",
        "/// A rate, as \"60/1m\" or \"1000/1h\".",
        "/// Thresholds, as [80, 100].",
    ];
    for comment in wrong {
        assert_eq!(of(comment), 1, "{comment}");
    }
    let right = [
        "/// Where it listens.",
        "/// Maximum number of entries read at once.",
        "/// An empty cell changes nothing, as `subject set` does.",
        "/// The position, where the entries begin.",
        "let text = \"So many \";",
        "/// A list of `a`, `b` and `c`, such as `a`.",
    ];
    for comment in right {
        assert_eq!(of(comment), 0, "{comment}");
    }
}

/// Missing files of `src` that a document names as `folder/file.rs` or `src/folder/file.rs`.
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

/// Missing functions and types that a document names after their file: `a/b.rs`, `Type::function` or `a/b.rs`,
/// `function`.
fn missing_functions(document: &Source, code: &[Source]) -> Vec<String> {
    let has = |file: &Source, name: &str| {
        let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
        ["fn", "struct", "enum", "trait", "const", "static"]
            .iter()
            .any(|keyword| file.text.split(&format!("{keyword} {name}")).skip(1).any(ends))
    };
    let mut violations = Vec::new();
    let pieces: Vec<&str> = document.text.split('`').collect();
    // Text and names alternate; a comma separates a file from its function or type.
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

/// Newcomers begin with the map of the code; a renamed file or function would stop them.
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

/// The rule must be able to fail.
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
