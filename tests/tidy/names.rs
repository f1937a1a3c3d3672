//! Names: public types have distinct names, and no name contains a word that ARCHITECTURE.md's glossary bans.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::source::{
    Exception, Keep, Source, excepted, expect_none, files_below, first_word, rust_below, stripped, tests_begin,
};

/// Keywords that define a name, in Rust and in Lua (`local`).
const DEFINING: [&str; 10] =
    ["struct ", "enum ", "trait ", "type ", "fn ", "mod ", "const ", "static ", "let ", "local "];

/// The same without functions: the names of tests and of their helpers are sentences.
const DEFINING_IN_TESTS: [&str; 8] = ["struct ", "enum ", "trait ", "type ", "mod ", "const ", "static ", "let "];

/// Banned words that local variables may use: the link in an email, a page that somebody sees.
const TERMS_OF_LOCALS: [&str; 2] = ["link", "page"];

/// Names in which a banned word is a term of the field.
const ALLOWED: [Exception; 4] = [
    Exception { of: "CodeAndLink", reason: "a link in a mail" },
    Exception { of: "confirm_link", reason: "a link in a mail" },
    Exception { of: "confirm_links_below", reason: "links in mails" },
    Exception { of: "manual_page", reason: "a page of the manual" },
];

/// The words that no name may contain: the line in ARCHITECTURE.md's glossary that begins with `Not in names:`.
fn banned_words(architecture: &str) -> Vec<String> {
    let line =
        architecture.split("Not in names:").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap_or_default();
    let words = line.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// A definition before the tests of a file.
struct Defined<'a> {
    line: usize,
    keyword: &'static str,
    name: String,
    public: bool,
    file: &'a Source,
}

fn definitions(file: &Source) -> Vec<Defined<'_>> {
    let code = stripped(&file.text, Keep::Code);
    let mut found = Vec::new();
    for (line, text) in code.lines().enumerate().take(tests_begin(&file.text)) {
        let text = text.trim_start();
        let public = text.starts_with("pub ") || text.starts_with("pub(");
        let text = text.strip_prefix("pub").map_or(text, |rest| rest[visibility(rest)..].trim_start());
        let text = text.trim_start_matches("async ").trim_start_matches("const fn").trim_start();
        let text = if text.starts_with("const fn") { &text["const ".len()..] } else { text };
        for keyword in DEFINING {
            // A name in a macro is a placeholder.
            if let Some(rest) = text.strip_prefix(keyword).filter(|rest| !rest.starts_with('$')) {
                let rest = rest.trim_start_matches("mut ").trim_start_matches("function ");
                found.push(Defined { line, keyword, name: first_word(rest), public, file });
            }
        }
    }
    found
}

/// Length of `(super)` and similar.
fn visibility(rest: &str) -> usize {
    if rest.starts_with('(') { rest.find(')').map_or(0, |at| at + 1) } else { 0 }
}

/// Public types with the same name in two files.
fn doubled_types(files: &[Source]) -> Vec<String> {
    let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for defined in files.iter().flat_map(definitions) {
        // Indented ones belong to a trait or an impl.
        let of_type = matches!(defined.keyword, "struct " | "enum " | "trait " | "type ");
        if of_type && defined.public {
            by_name.entry(defined.name).or_default().push(format!("{}:{}", defined.file.path, defined.line + 1));
        }
    }
    let doubled = by_name.into_iter().filter(|(_, places)| places.len() > 1);
    doubled.map(|(name, places)| format!("{name} is the name of several types: {}", places.join(", "))).collect()
}

/// Definitions with these keywords, and files, whose names contain a banned word.
fn banned_names(files: &[Source], banned: &[String], defining: &[&str]) -> Vec<String> {
    let is_allowed = |name: &str| excepted(&ALLOWED, |allowed| allowed == name);
    let held = |name: &str| banned.iter().find(|banned| words_of(name).contains(banned)).cloned();
    let mut violations = Vec::new();
    for file in files {
        let stem = Path::new(&file.path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if let Some(word) = held(stem).filter(|_| !is_allowed(stem)) {
            violations.push(format!("{}: the file's name holds {word:?}", file.path));
        }
        for defined in definitions(file).iter().filter(|defined| defining.contains(&defined.keyword)) {
            let is_term = |word: &str| defined.keyword == "let " && TERMS_OF_LOCALS.contains(&word);
            if let Some(word) = held(&defined.name).filter(|word| !is_allowed(&defined.name) && !is_term(word)) {
                violations.push(file.says(defined.line, &format!("{} holds {word:?}", defined.name)));
            }
        }
    }
    violations
}

/// The words of a name in lower case: `retry`, `after` for `RetryAfter` and `RETRY_AFTER`.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before_lower = false;
    for letter in name.chars() {
        if letter == '_' || (letter.is_uppercase() && before_lower) {
            words.push(String::new());
        }
        before_lower = letter.is_lowercase();
        if letter != '_' {
            words.last_mut().expect("never empty").extend(letter.to_lowercase());
        }
    }
    words
}

fn banned() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    banned_words(&fs::read_to_string(path).expect("ARCHITECTURE.md"))
}

/// A name with two meanings misleads its reader.
#[test]
fn public_types_have_names_of_their_own() {
    expect_none(&doubled_types(&rust_below("src")));
}

/// A metaphor must be explained to everybody; a term of the field is known.
#[test]
fn names_are_terms_of_the_field() {
    let banned = banned();
    assert!(banned.len() > 10, "ARCHITECTURE.md bans {banned:?}");
    let files = rust_below("src");
    let mut violations = banned_names(&files, &banned, &DEFINING);
    let scripts: Vec<Source> = files_below("src").into_iter().filter(|file| file.is("lua")).collect();
    assert!(!scripts.is_empty(), "no script was found");
    violations.extend(banned_names(&scripts, &banned, &["local "]));
    let tests: Vec<Source> = ["tests", "benches"].into_iter().flat_map(rust_below).collect();
    violations.extend(banned_names(&tests, &banned, &DEFINING_IN_TESTS));
    let defined: BTreeSet<String> = files.iter().flat_map(definitions).map(|defined| defined.name).collect();
    let unused = ALLOWED.iter().filter(|allowed| !defined.contains(allowed.of));
    violations.extend(unused.map(|allowed| format!("{} is not defined any more: take it off the list", allowed.of)));
    expect_none(&violations);
}

/// The rules must be able to fail, and must ignore private types and parts of words.
#[test]
fn doubled_and_banned_names_are_found() {
    let files = [
        Source::sample("src/a/x.rs", "pub struct Held;\npub(crate) enum Kind { A }\nstruct Mine;"),
        Source::sample(
            "src/b/y.rs",
            "pub type Held = u8;\nenum Kind {}\nstruct Mine;\n#[cfg(test)]\nmod tests {\n    pub struct Held;\n}",
        ),
    ];
    assert_eq!(doubled_types(&files).len(), 1);
    let banned = banned_words("x\nNot in names: room, door,\nlife.\n\nOther");
    assert_eq!(banned, ["room", "door", "life"]);
    let of = |path: &str, text: &str| banned_names(&[Source::sample(path, text)], &banned, &DEFINING).len();
    assert_eq!(of("src/a/room.rs", ""), 1);
    assert_eq!(of("src/a/x.rs", "pub async fn room_for() {}\npub(super) const LIFE_MAX: u8 = 1;\nstruct OpenDoor;"), 3);
    assert_eq!(of("src/a/x.rs", "fn lifetime() {}\nconst fn roomy() {}\n// fn room()\nstruct Bathrooms;"), 0);
    assert_eq!(of("src/a/x.rs", "    let mut room = 1;\n    let page = 2;\n    let (door, _) = x;"), 1);
    assert_eq!(of("src/a/x.lua", "local room = 1\nlocal function door() end\nlocal rows = 2"), 2);
    let helpers = [Source::sample("tests/support/x.rs", "fn there_is_room() {}\npub struct Room;")];
    assert_eq!(banned_names(&helpers, &banned, &DEFINING_IN_TESTS).len(), 1);
}
