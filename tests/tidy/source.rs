//! The files of the repository, and Rust text without its comments.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// One file of the repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// Its path below the repository, with `/`.
    pub path: String,
    pub text: String,
}

impl Source {
    pub fn sample(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// The folder or file of `src` that contains it: `events` for `src/events/parse.rs`, `app` for `src/app.rs`.
    pub fn part(&self) -> &str {
        let below = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let first = below.split('/').next().unwrap_or(below);
        first.strip_suffix(".rs").unwrap_or(first)
    }

    pub fn is(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }

    pub fn says(&self, line: usize, what: &str) -> String {
        format!("{}:{}: {what}", self.path, line + 1)
    }
}

/// Every file below `folder` in the repository. A missing folder is empty.
pub fn files_below(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let paths: BTreeSet<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
        for path in paths {
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let below = path.strip_prefix(root).expect("below the repository");
                found.push(Source { path: below.to_string_lossy().replace('\\', "/"), text });
            }
        }
    }
    found
}

pub fn rust_below(folder: &str) -> Vec<Source> {
    files_below(folder).into_iter().filter(|file| file.is("rs")).collect()
}

/// An exception from a rule, with its reason.
pub struct Exception {
    /// A name, or the beginning of a path.
    pub of: &'static str,
    pub reason: &'static str,
}

/// Whether one of the exceptions applies; it must have a reason.
pub fn excepted(exceptions: &[Exception], is_meant: impl Fn(&str) -> bool) -> bool {
    exceptions.iter().any(|exception| is_meant(exception.of) && !exception.reason.is_empty())
}

/// Fails with all violations, one per line.
pub fn expect_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

/// What [`stripped`] keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Code and strings.
    Strings,
    /// Code only.
    Code,
}

/// Rust without comments (and without the text of strings), line by line: spaces replace the removed parts.
pub fn stripped(rust: &str, keep: Keep) -> String {
    let mut out = String::with_capacity(rust.len());
    let mut rest = rust;
    while let Some(next) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = string(rest, out.chars().next_back()) {
            if keep == Keep::Strings {
                out.push_str(&rest[..length]);
                rest = &rest[length..];
                continue;
            }
            length
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        };
        out.extend(rest[..length].chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }));
        rest = &rest[length..];
    }
    out
}

/// Length of the block comment at the start of the text; they nest.
fn block_comment(rust: &str) -> usize {
    let mut depth = 0_usize;
    for (at, _) in rust.char_indices() {
        match rust.get(at..at + 2) {
            Some("/*") => depth += 1,
            Some("*/") if depth == 1 => return at + 2,
            Some("*/") => depth -= 1,
            _ => {}
        }
    }
    rust.len()
}

/// Length of the string or character at the start of the text, if there is one.
fn string(rust: &str, before: Option<char>) -> Option<usize> {
    let in_word = before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    let prefix = if in_word { 0 } else { rust.find(|letter| letter != 'b' && letter != 'r').unwrap_or(0) };
    let (raw, body) = (rust[..prefix].contains('r'), &rust[prefix..]);
    let hashes = body.len() - body.trim_start_matches('#').len();
    if raw && body[hashes..].starts_with('"') {
        let close = format!("\"{}", "#".repeat(hashes));
        let open = prefix + hashes + 1;
        return Some(rust[open..].find(&close).map_or(rust.len(), |at| open + at + close.len()));
    }
    if body.starts_with('"') {
        return Some(prefix + quoted(body, '"'));
    }
    // `'a` without a closing quote is a lifetime.
    let mut letters = body.strip_prefix('\'')?.chars();
    let is_char = match letters.next()? {
        '\\' => true,
        _ => letters.next() == Some('\''),
    };
    is_char.then(|| prefix + quoted(body, '\''))
}

/// Length of a quoted text including its quotes; a backslash escapes the next letter.
fn quoted(body: &str, quote: char) -> usize {
    let mut letters = body.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' {
            letters.next();
        } else if letter == quote {
            return at + 1;
        }
    }
    body.len()
}

/// The line where the tests of a file begin; a reader sees the part before it first.
pub fn tests_begin(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let is_start = |pair: &[&str]| pair[0].trim() == "#[cfg(test)]" && pair[1].trim_start().starts_with("mod ");
    lines.windows(2).position(is_start).unwrap_or(lines.len())
}

/// The word at the start of the text.
pub fn first_word(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

/// The documents: Markdown of the repository's root and of docs/.
pub fn documents() -> Vec<Source> {
    let of_root = files_of_root().into_iter();
    of_root.chain(files_below("docs")).filter(|file| file.is("md")).collect()
}

/// The text files of the repository's root.
pub fn files_of_root() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let paths = fs::read_dir(root).expect("the repository").map(|entry| entry.expect("an entry").path());
    let files = paths.filter(|path| path.is_file()).filter_map(|path| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        fs::read_to_string(&path).ok().map(|text| Source { path: name, text })
    });
    files.collect()
}
