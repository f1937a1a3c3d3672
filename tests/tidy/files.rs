//! Rules about single files: keys in one place, scripts with headers, lengths, forbidden words.

use std::path::Path;

use crate::source::{
    Keep, Source, expect_none, files_below, files_of_root, first_word, rust_below, stripped, tests_begin,
};

/// Maximum number of lines of a file without its tests. A longer file requires scrolling.
const LINES_MAX: usize = 400;

/// Keys that are spelled outside the one file for them.
fn keys_spelled(file: &Source) -> Vec<String> {
    if file.path == "src/types/keys.rs" {
        return Vec::new();
    }
    let code = match file.is("lua") {
        true => lua_code(&file.text),
        false => stripped(&file.text, Keep::Strings),
    };
    let prefix = concat!("quo", "ta_");
    // Help texts may mention keys in general (`quota_*`). A key has a name: the name begins its string or ends with a
    // colon.
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

/// Faults in a script's header or place. `neighbours` are the files of `src`.
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
    // A file of another folder includes another script with this name.
    let folder = Path::new(&script.path).parent();
    let beside = neighbours.iter().filter(|file| Path::new(&file.path).parent() == folder);
    let including: Vec<&str> =
        beside.filter(|file| file.text.contains(&include)).map(|file| file.path.as_str()).collect();
    expect(including == [wrapper.as_str()], &format!("is not included by {wrapper} alone, but by {including:?}"));
    faults
}

/// Lines whose code contains one of `words` as a whole word.
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

/// Notes for later work, in code or comments.
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
    (lines > LINES_MAX)
        .then(|| format!("{}: {lines} lines without tests, at most {LINES_MAX}: split it by what it owns", file.path))
}

/// A key that is spelled twice may be changed only once.
#[test]
fn keys_are_spelled_in_one_file() {
    let files = ["src", "crates"].map(files_below).concat();
    let files = files.iter().filter(|file| file.is("rs") || file.is("lua"));
    expect_none(&files.flat_map(keys_spelled).collect::<Vec<_>>());
}

/// The rule must be able to fail, and must ignore comments and help texts.
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
        of("src/app/startup.rs", &format!("/// {prefix}due:{{tag}}\nlet hint = \"grant the keys {prefix}*\";")),
        0
    );
}

/// A script without its contract can't be called safely, and a script away from its wrapper is not found.
#[test]
fn every_script_has_a_header_and_one_wrapper() {
    let files = ["src", "crates/throttle/src"].map(files_below).concat();
    let scripts: Vec<&Source> = files.iter().filter(|file| file.is("lua")).collect();
    assert!(scripts.len() >= 3, "only {} scripts were found", scripts.len());
    expect_none(&scripts.iter().flat_map(|script| script_faults(script, &files)).collect::<Vec<_>>());
}

/// The rule must be able to fail.
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

/// A test that waits for time instead of a condition is slow or flaky.
#[test]
fn tests_wait_for_conditions() {
    let files = ["tests", "crates/throttle/tests"].map(rust_below).concat();
    expect_none(&files.iter().flat_map(|file| lines_with(file, &[concat!("sle", "ep(")])).collect::<Vec<_>>());
}

/// The lint forbids it in this crate; this test also checks benches, tests and build scripts.
#[test]
fn memory_safety_is_left_to_the_compiler() {
    let files = ["src", "crates", "tests", "benches"].map(rust_below).concat();
    expect_none(&files.iter().flat_map(|file| lines_with(file, &[concat!("uns", "afe")])).collect::<Vec<_>>());
}

/// The rule must find words in code, and must ignore comments, strings and parts of other words.
#[test]
fn words_are_found_in_code_alone() {
    // In two halves, so that a search for the word does not find the sample.
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

/// Postponed work is never done.
#[test]
fn nothing_is_left_for_later() {
    let files = ["src", "crates", "tests", "benches", "config", "templates", "docs", "tools", "packaging"]
        .map(files_below)
        .concat();
    expect_none(&files.iter().flat_map(notes_for_later).collect::<Vec<_>>());
    assert_eq!(notes_for_later(&Source::sample("src/x.rs", &format!("// {}: later", concat!("TO", "DO")))).len(), 1);
    assert_eq!(notes_for_later(&Source::sample("src/x.rs", "// a list of things to do")).len(), 0);
}

/// Both sides of a merge in one file contradict each other.
#[test]
fn no_merge_is_left_half_done() {
    let below = ["src", "crates", "tests", "benches", "config", "templates", "docs", "tools", "packaging"]
        .map(files_below)
        .concat();
    expect_none(&files_of_root().into_iter().chain(below).flat_map(|file| merge_marks(&file)).collect::<Vec<_>>());
    let sample = format!("a\n{} HEAD\nb\n=======\nc\n{} x\n", "<".repeat(7), ">".repeat(7));
    assert_eq!(merge_marks(&Source::sample("docs/x.md", &sample)).len(), 2);
}

fn merge_marks(file: &Source) -> Vec<String> {
    let marks = ["<", ">"].map(|mark| format!("{} ", mark.repeat(7)));
    let marked = |line: &str| marks.iter().any(|mark| line.starts_with(mark.as_str()));
    let numbered = file.text.lines().zip(0..).filter(|(line, _)| marked(line));
    numbered.map(|(_, number)| file.says(number, "a merge is half done")).collect()
}

/// Targets in the manifest whose files are missing in the image's build.
fn targets_without_file(manifest: &str, dockerfile: &str) -> Vec<String> {
    let sections = [("[[test]]", "tests"), ("[[bench]]", "benches")];
    let mut missing = Vec::new();
    for (section, folder) in sections {
        for target in manifest.split(section).skip(1) {
            let name = target.split('"').nth(1).unwrap_or_default();
            let file = format!("{folder}/{name}/main.rs");
            if !dockerfile.contains(&file) {
                missing.push(format!("Dockerfile: has no {file}, without which cargo refuses the manifest"));
            }
        }
    }
    missing
}

/// The tests do not build the image, and cargo refuses a manifest that names a missing file.
#[test]
fn the_image_has_a_file_for_every_target() {
    let files = files_of_root();
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let (manifest, dockerfile) = (text("Cargo.toml"), text("Dockerfile"));
    expect_none(&targets_without_file(manifest.expect("a manifest"), dockerfile.expect("a recipe")));
}

/// The rule must be able to fail.
#[test]
fn a_target_without_a_file_is_found() {
    let manifest = "[[bench]]\nname = \"a\"\n\n[[test]]\nname = \"b\"\ntest = false\n";
    assert_eq!(targets_without_file(manifest, "touch benches/a/main.rs tests/b/main.rs").len(), 0);
    assert_eq!(targets_without_file(manifest, "touch benches/a/main.rs").len(), 1);
}

/// A reader must be able to remember a file; tests do not count, because they are read one by one.
#[test]
fn files_fit_in_the_head() {
    let files = ["src", "crates/throttle/src"].map(files_below).concat();
    let files = files.iter().filter(|file| file.is("rs") || file.is("lua"));
    expect_none(&files.filter_map(too_long).collect::<Vec<_>>());
}

/// The rule must be able to fail.
#[test]
fn files_that_are_too_long_are_found() {
    let lines = |count: usize| "let x = 1;\n".repeat(count);
    let long = |text: String| too_long(&Source::sample("src/redis_client/x.rs", &text)).is_some();
    assert!(long(lines(LINES_MAX + 1)));
    assert!(!long(lines(LINES_MAX)));
    assert!(!long(format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", lines(LINES_MAX), lines(500))));
}
