//! The shape of the repository: imports one way, keys in one file, scripts with headers, files that fit in the head.
//!
//! Each rule is a pure function from text to violations. One test holds it against the repository, one shows on a sample that it
//! can fail: a rule that finds nothing because it looks at nothing would be worse than none.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of `src` in the order of the data path. A folder imports only itself and those after it, so the alphabet is the rule.
const FOLDERS: [&str; 12] = [
    "api",
    "cli",
    "dashboard",
    "events",
    "ledger",
    "outbox",
    "sender",
    "subjects",
    "throttle",
    "transport",
    "types",
    "wire",
];

/// Files that build the whole and so import anything.
const ANYTHING: [&str; 4] = ["main", "lib", "app", "config"];

/// Who may import what is no folder of the path.
const IMPORTERS: [Importers; 2] = [
    Importers { of: "app", are: &["cli", "main", "app"] },
    Importers { of: "config", are: &["app", "cli", "main", "config"] },
];

/// A part and the parts that may import it.
struct Importers {
    of: &'static str,
    are: &'static [&'static str],
}

/// The most lines of a file without its tests. Above it a reader scrolls instead of seeing.
const LINES_MAX: usize = 400;

/// Files that may be longer, each with its reason.
const LONGER: [Longer; 0] = [];

/// A file that may be longer than [`LINES_MAX`].
struct Longer {
    file: &'static str,
    reason: &'static str,
}

/// One file of the repository.
#[derive(Debug, Clone)]
struct Source {
    /// Its path below the repository, with `/`.
    path: String,
    text: String,
}

impl Source {
    fn sample(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// The folder or file of `src` that it belongs to: `events` for `src/events/parse.rs`, `app` for `src/app.rs`.
    fn part(&self) -> &str {
        let below = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let first = below.split('/').next().unwrap_or(below);
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// How deep its module lies: 1 for `src/app.rs` and `src/wire/mod.rs`, 2 for `src/wire/link.rs`.
    fn depth(&self) -> usize {
        let below = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let slashes = below.matches('/').count();
        if below.ends_with("/mod.rs") { slashes } else { slashes + 1 }
    }

    fn is(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }

    fn says(&self, line: usize, what: &str) -> String {
        format!("{}:{}: {what}", self.path, line + 1)
    }
}

/// Every file below `folder` of the repository. A folder that does not exist (yet) is empty.
fn files_below(folder: &str) -> Vec<Source> {
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

fn rust_below(folder: &str) -> Vec<Source> {
    files_below(folder).into_iter().filter(|file| file.is("rs")).collect()
}

/// Fails with every violation, one a line.
fn expect_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

/// What [`stripped`] leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// Code and what its strings hold.
    Strings,
    /// Code alone.
    Code,
}

/// Rust without comments (and without the text of strings), line for line: what is taken out becomes spaces.
fn stripped(rust: &str, keep: Keep) -> String {
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

/// The length of the block comment that the text begins with; they nest.
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

/// The length of the string or character that the text begins with, if it begins with one.
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

/// The length of what stands between two of `quote`, both included; a backslash takes the next letter with it.
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

/// Where the tests of a file begin: a line each, so that what lies before is the file as a reader meets it.
fn tests_begin(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let is_start = |pair: &[&str]| pair[0].trim() == "#[cfg(test)]" && pair[1].trim_start().starts_with("mod ");
    lines.windows(2).position(is_start).unwrap_or(lines.len())
}

/// Imports that point to an earlier letter, or to a part that the importer may not know.
fn wrong_imports(file: &Source) -> Vec<String> {
    let code = stripped(&file.text, Keep::Code);
    let tests = tests_begin(&file.text);
    let mut violations = Vec::new();
    for (number, line) in code.lines().enumerate() {
        // `super` as often as the module is deep is the root, too.
        let depth = file.depth() + usize::from(number > tests);
        for root in ["crate::".to_owned(), "super::".repeat(depth)] {
            for (at, _) in line.match_indices(&root) {
                let from = at + root.len();
                for part in parts_named(&line[from..], &code, number, from) {
                    violations.extend(judge_import(file.part(), &part).map(|why| file.says(number, &why)));
                }
            }
        }
    }
    violations
}

/// The parts named right behind `crate::`: one name, or several in braces, which may go on over lines.
fn parts_named(rest: &str, code: &str, number: usize, from: usize) -> Vec<String> {
    if !rest.starts_with('{') {
        return vec![first_word(rest)];
    }
    let line_start: usize = code.split_inclusive('\n').take(number).map(str::len).sum();
    let (mut depth, mut words, mut word) = (0, Vec::new(), String::new());
    for letter in code[line_start + from..].chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => words.push(std::mem::take(&mut word)),
            _ if depth >= 1 => word.push(letter),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    words.push(word);
    words.iter().map(|word| first_word(word.trim())).filter(|word| !word.is_empty()).collect()
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

/// Why `from` may not import `to`; `None` where it may.
fn judge_import(from: &str, to: &str) -> Option<String> {
    if from == to {
        return None;
    }
    if let Some(rule) = IMPORTERS.iter().find(|rule| rule.of == to) {
        let allowed = rule.are.contains(&from);
        return (!allowed).then(|| format!("{from} imports {to}; only {} may", rule.are.join(", ")));
    }
    if ANYTHING.contains(&from) {
        return None;
    }
    if !FOLDERS.contains(&to) {
        return Some(format!("{from} imports {to}, which is no folder of the data path"));
    }
    (to < from).then(|| format!("{from} imports {to}, which comes before it in the data path"))
}

/// Texts of keys outside the one file that spells them.
fn keys_spelled(file: &Source) -> Vec<String> {
    if file.path == "src/types/keys.rs" {
        return Vec::new();
    }
    let code = match file.is("lua") {
        true => lua_code(&file.text),
        false => stripped(&file.text, Keep::Strings),
    };
    let prefix = concat!("quo", "ta_");
    // Help texts may talk of keys in general (`quota_*`); a key has a name, and a name begins its string or ends with a colon.
    let is_key = |line: &str, at: usize| {
        let name = first_word(&line[at..]);
        let begins = line[..at].ends_with(['"', '\'']);
        name.len() > prefix.len() && (begins || line[at + name.len()..].starts_with(':'))
    };
    let lines = code.lines().enumerate();
    lines
        .filter(|(_, line)| line.match_indices(prefix).any(|(at, _)| is_key(line, at)))
        .map(|(number, _)| file.says(number, "spells a key, which only src/types/keys.rs does"))
        .collect()
}

fn lua_code(lua: &str) -> String {
    lua.lines().map(|line| line.split("--").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// What is wrong with a script's header or its place. `neighbours` are the files of `src`.
fn script_faults(script: &Source, neighbours: &[Source]) -> Vec<String> {
    let name = Path::new(&script.path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let mut lines = script.text.lines();
    let mut faults = Vec::new();
    let mut expect = |holds: bool, what: &str| {
        if !holds {
            faults.push(format!("{}: {what}", script.path));
        }
    };
    expect(lines.next().is_some_and(|line| line.starts_with("#!lua")), "does not begin with #!lua");
    let header: Vec<&str> = lines.take_while(|line| line.starts_with("--")).collect();
    let title = format!("-- {name}: ");
    expect(
        header.first().is_some_and(|line| line.starts_with(&title)),
        "has no title: the second line is its name, a colon, what it does",
    );
    for word in ["KEYS[1]", "Returns"] {
        expect(header.iter().any(|line| line.contains(word)), &format!("has no {word} in its header"));
    }
    let wrapper = script.path.replace(".lua", ".rs");
    let include = format!("include_str!(\"{name}.lua\")");
    // A file of another folder means another script of this name.
    let folder = Path::new(&script.path).parent();
    let beside = neighbours.iter().filter(|file| Path::new(&file.path).parent() == folder);
    let including: Vec<&str> =
        beside.filter(|file| file.text.contains(&include)).map(|file| file.path.as_str()).collect();
    expect(including == [wrapper.as_str()], &format!("is not included by {wrapper} alone, but by {including:?}"));
    faults
}

/// Lines whose code holds one of `words`, as a word of its own.
fn lines_with(file: &Source, words: &[&str]) -> Vec<String> {
    let code = stripped(&file.text, Keep::Code);
    let found = |line: &str, word: &str| {
        line.match_indices(word).any(|(at, _)| {
            let outside = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_');
            outside(line[..at].chars().next_back())
                && (word.ends_with('(') || outside(line[at + word.len()..].chars().next()))
        })
    };
    let lines = code.lines().enumerate();
    lines
        .flat_map(|(number, line)| words.iter().filter(move |word| found(line, word)).map(move |word| (number, *word)))
        .map(|(number, word)| file.says(number, &format!("holds {word:?}")))
        .collect()
}

/// Notes to come back later, in code or comment.
fn notes_for_later(file: &Source) -> Vec<String> {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("todo", "!("), concat!("unimple", "mented!(")];
    let lines = file.text.lines().enumerate();
    lines
        .filter(|(_, line)| words.iter().any(|word| line.contains(word)))
        .map(|(number, _)| file.says(number, "leaves work for later"))
        .collect()
}

/// A file that is too long without its tests.
fn too_long(file: &Source) -> Option<String> {
    let lines = tests_begin(&file.text);
    let allowed = LONGER.iter().any(|longer| longer.file == file.path && !longer.reason.is_empty());
    (lines > LINES_MAX && !allowed)
        .then(|| format!("{}: {lines} lines without tests, at most {LINES_MAX}: split it by what it owns", file.path))
}

/// The folder list is the data path; a circle or a step back would make it a lie.
#[test]
fn imports_point_only_to_a_later_letter() {
    let files = rust_below("src");
    assert!(files.len() > 50, "only {} files were found", files.len());
    expect_none(&files.iter().flat_map(wrong_imports).collect::<Vec<_>>());
}

/// The rule must see every way to write an import.
#[test]
fn imports_against_the_path_are_found() {
    let of = |path: &str, text: &str| wrong_imports(&Source::sample(path, text)).len();
    assert_eq!(of("src/wire/link.rs", "use crate::types::Keys;"), 1);
    assert_eq!(
        of("src/ledger/mod.rs", "use crate::{\n    wire::RedisClient,\n    events::{Worker, fold},\n    cli,\n};"),
        2
    );
    assert_eq!(of("src/outbox/work.rs", "fn f() { crate::api::serve() }"), 1);
    assert_eq!(of("src/outbox/work.rs", "use super::super::events::Worker;"), 1);
    assert_eq!(of("src/types/day.rs", "#[cfg(test)]\nmod tests {\n    use super::super::super::ledger::X;\n}"), 1);
    assert_eq!(of("src/events/mod.rs", "use crate::config::Config;"), 1);
    assert_eq!(of("src/config.rs", "use crate::app::run;"), 1);
    assert_eq!(of("src/events/mod.rs", "use crate::helpers::x;"), 1);
}

/// A rule that refuses what is right would be switched off.
#[test]
fn imports_along_the_path_are_allowed() {
    let of = |path: &str, text: &str| wrong_imports(&Source::sample(path, text));
    assert_eq!(
        of("src/events/worker.rs", "use crate::ledger::{Batch, commit};\nuse crate::events::batch_builder;"),
        [""; 0]
    );
    assert_eq!(of("src/cli/run.rs", "use crate::app;\nuse crate::config::Config;"), [""; 0]);
    assert_eq!(of("src/app/start.rs", "use crate::config::Config;\nuse crate::api;"), [""; 0]);
    assert_eq!(of("src/wire/link.rs", "// as crate::events does\nlet text = \"crate::events\";"), [""; 0]);
    assert_eq!(of("src/wire/resp.rs", "#[cfg(test)]\nmod tests {\n    use super::super::config::X;\n}"), [""; 0]);
}

/// A key that is spelled twice is changed once.
#[test]
fn keys_are_spelled_in_one_file() {
    let mut files = rust_below("src");
    files.extend(files_below("src").into_iter().filter(|file| file.is("lua")));
    expect_none(&files.iter().flat_map(keys_spelled).collect::<Vec<_>>());
}

/// As above: the rule must be able to fail, and leave comments and help texts alone.
#[test]
fn keys_spelled_elsewhere_are_found() {
    let of = |path: &str, text: &str| keys_spelled(&Source::sample(path, text)).len();
    let prefix = concat!("quo", "ta_");
    assert_eq!(of("src/ledger/query.rs", &format!("format!(\"{prefix}usage:{{tag}}\")")), 1);
    assert_eq!(of("src/ledger/query.rs", &format!("let key = \"{prefix}due\";")), 1);
    assert_eq!(of("src/outbox/lease.lua", &format!("redis.call('ZCARD', '{prefix}due:{{usage}}')")), 1);
    assert_eq!(of("src/types/keys.rs", &format!("\"{prefix}due\"")), 0);
    assert_eq!(of("src/outbox/lease.lua", &format!("-- KEYS[1] {prefix}due:{{tag}}")), 0);
    assert_eq!(
        of("src/app/start.rs", &format!("/// {prefix}due:{{tag}}\nlet hint = \"grant the keys {prefix}*\";")),
        0
    );
}

/// A script without its contract can't be called safely, and one away from its wrapper is not found.
#[test]
fn every_script_has_a_header_and_one_wrapper() {
    let files = files_below("src");
    let scripts: Vec<&Source> = files.iter().filter(|file| file.is("lua")).collect();
    assert!(scripts.len() >= 3, "only {} scripts were found", scripts.len());
    expect_none(&scripts.iter().flat_map(|script| script_faults(script, &files)).collect::<Vec<_>>());
}

/// As above.
#[test]
fn scripts_without_header_or_wrapper_are_found() {
    let good =
        "#!lua flags=allow-oom\n-- settle: end an attempt.\n--\n-- KEYS[1] due\n-- Returns 'settled'\n\nlocal x = 1\n";
    let wrapper = Source::sample("src/outbox/settle.rs", "include_str!(\"settle.lua\")");
    let faults = |text: &str, neighbours: &[Source]| {
        script_faults(&Source::sample("src/outbox/settle.lua", text), neighbours).len()
    };
    assert_eq!(faults(good, std::slice::from_ref(&wrapper)), 0);
    assert_eq!(faults(good, &[]), 1);
    assert_eq!(faults(good, &[wrapper.clone(), Source::sample("src/outbox/work.rs", &wrapper.text)]), 1);
    assert_eq!(faults(good, &[wrapper.clone(), Source::sample("src/sender/settle.rs", &wrapper.text)]), 0);
    for line in
        ["#!lua flags=allow-oom\n", "-- settle: end an attempt.\n", "-- KEYS[1] due\n", "-- Returns 'settled'\n"]
    {
        assert_eq!(faults(&good.replace(line, "--\n"), std::slice::from_ref(&wrapper)), 1, "without {line:?}");
    }
}

/// A test that waits for time instead of a condition is slow on a good day and red on a bad one.
#[test]
fn tests_wait_for_conditions() {
    expect_none(
        &rust_below("tests").iter().flat_map(|file| lines_with(file, &[concat!("sle", "ep(")])).collect::<Vec<_>>(),
    );
}

/// The lint forbids it in this crate; this also sees benches, tests and build scripts.
#[test]
fn memory_safety_is_left_to_the_compiler() {
    let files = ["src", "tests", "benches"].map(rust_below).concat();
    expect_none(&files.iter().flat_map(|file| lines_with(file, &[concat!("uns", "afe")])).collect::<Vec<_>>());
}

/// As above: words in code are found, those in comments and strings and those that are part of another are not.
#[test]
fn words_are_found_in_code_alone() {
    // In two halves, so that a plain search for the word finds no sample.
    let wait = concat!("sle", "ep(");
    let of =
        |text: &str| lines_with(&Source::sample("tests/x.rs", &text.replace("WAIT(", wait)), &[wait, "unsafe"]).len();
    assert_eq!(of("tokio::time::WAIT(PAUSE).await;\nstd::thread::WAIT(x)"), 2);
    assert_eq!(of("let c = '\"'; unsafe { x() }"), 1);
    assert_eq!(of("let r = r#\"\"#; unsafe { x() }"), 1);
    assert_eq!(
        of("// WAIT(1)\n/* unsafe /* nested */ unsafe */ let s = \"WAIT(1)\"; let r = r#\"unsafe \"x\" \"#;"),
        0
    );
    assert_eq!(of("fn f<'a>(x: &'a str) { overWAIT(x); unsafe_code() }"), 0);
}

/// What is left for later is left for good.
#[test]
fn nothing_is_left_for_later() {
    let files =
        ["src", "tests", "benches", "config", "templates", "docs", "tools", "packaging"].map(files_below).concat();
    expect_none(&files.iter().flat_map(notes_for_later).collect::<Vec<_>>());
    assert_eq!(notes_for_later(&Source::sample("src/x.rs", &format!("// {}: later", concat!("TO", "DO")))).len(), 1);
    assert_eq!(notes_for_later(&Source::sample("src/x.rs", "// a list of things to do")).len(), 0);
}

/// Both sides of a merge in one page contradict each other, and nobody knows which one holds.
#[test]
fn no_merge_is_left_half_done() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = fs::read_dir(root).expect("the repository").map(|entry| entry.expect("an entry").path());
    let of_root = pages.filter(|path| path.is_file()).filter_map(|path| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        fs::read_to_string(&path).ok().map(|text| Source { path: name, text })
    });
    let below =
        ["src", "tests", "benches", "config", "templates", "docs", "tools", "packaging"].map(files_below).concat();
    expect_none(&of_root.chain(below).flat_map(|file| merge_marks(&file)).collect::<Vec<_>>());
    let sample = format!("a\n{} HEAD\nb\n=======\nc\n{} x\n", "<".repeat(7), ">".repeat(7));
    assert_eq!(merge_marks(&Source::sample("docs/x.md", &sample)).len(), 2);
}

fn merge_marks(file: &Source) -> Vec<String> {
    let marks = ["<", ">"].map(|mark| format!("{} ", mark.repeat(7)));
    let marked = |line: &str| marks.iter().any(|mark| line.starts_with(mark.as_str()));
    let numbered = file.text.lines().zip(0..).filter(|(line, _)| marked(line));
    numbered.map(|(_, number)| file.says(number, "a merge is half done")).collect()
}

/// A file fits in the head; tests do not count, since they are read one by one.
#[test]
fn files_fit_in_the_head() {
    let files: Vec<Source> = files_below("src").into_iter().filter(|file| file.is("rs") || file.is("lua")).collect();
    expect_none(&files.iter().filter_map(too_long).collect::<Vec<_>>());
    for longer in &LONGER {
        let exists = files.iter().any(|file| file.path == longer.file && tests_begin(&file.text) > LINES_MAX);
        assert!(exists, "{} needs no exception any more", longer.file);
    }
}

/// As above.
#[test]
fn files_that_are_too_long_are_found() {
    let lines = |count: usize| "let x = 1;\n".repeat(count);
    let long = |text: String| too_long(&Source::sample("src/wire/x.rs", &text)).is_some();
    assert!(long(lines(LINES_MAX + 1)));
    assert!(!long(lines(LINES_MAX)));
    assert!(!long(format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", lines(LINES_MAX), lines(500))));
}
