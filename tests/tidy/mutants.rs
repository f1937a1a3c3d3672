//! The lists of `make mutants` match the code, so that an outdated list is noticed at once and not only by a run of all
//! mutants.

use crate::source::{Source, expect_none, files_below};

/// Faults of a list: bugs whose text is not exactly once in its file, replacements in scripts that are longer, and
/// missing tests.
fn unfit(list: &Source, files: &[Source]) -> Vec<String> {
    let table: toml::Table = list.text.parse().expect("TOML");
    let mutants = table["mutant"].as_array().expect("a list of tables");
    mutants.iter().flat_map(|mutant| faults(mutant, files)).map(|fault| format!("{}: {fault}", list.path)).collect()
}

fn faults(mutant: &toml::Value, files: &[Source]) -> Vec<String> {
    let text = |field: &str| mutant[field].as_str().expect("a text");
    let (name, path) = (text("name"), text("file"));
    let of_file = files.iter().find(|file| file.path == path).map_or("", |file| file.text.as_str());
    let mut faults = Vec::new();
    let times = of_file.matches(text("text")).count();
    if times != 1 {
        faults.push(format!("{name}: its text is found {times} times in {path}"));
    }
    // Scripts are changed in the binaries.
    if path.ends_with(".lua") && text("replacement").len() > text("text").len() {
        faults.push(format!("{name}: its replacement is longer than its text"));
    }
    for test in mutant["caught_by"].as_array().expect("a list") {
        let test = test.as_str().expect("a text");
        if !is_there(test, files) {
            faults.push(format!("{name}: there is no test {test}"));
        }
    }
    faults
}

/// Whether a test with this name exists: `it e2e_log::a_line`, `lib redis_client::resp::tests::a_line`, `torture
/// network`.
fn is_there(test: &str, files: &[Source]) -> bool {
    let Some((target, name)) = test.split_once(' ') else { return false };
    let (modules, function) = name.rsplit_once("::").unwrap_or((name, ""));
    let modules = modules.trim_end_matches("::tests").replace("::", "/");
    let path = match target {
        "lib" => format!("src/{modules}"),
        "limiters" => format!("crates/throttle/tests/limiters/{modules}"),
        "torture" => return files.iter().any(|file| file.path == format!("tests/torture/{name}.rs")),
        _ => format!("tests/{target}/{modules}"),
    };
    let paths = [format!("{path}.rs"), format!("{path}/mod.rs"), format!("{path}/tests.rs")];
    let declared = format!("fn {function}(");
    files.iter().any(|file| paths.contains(&file.path) && file.text.contains(&declared))
}

#[test]
fn each_planted_bug_has_its_place_and_its_test() {
    let files = ["src", "crates", "templates", "tests"].map(files_below).concat();
    let lists: Vec<&Source> = files.iter().filter(|file| file.path.starts_with("tests/mutants/")).collect();
    assert!(lists.len() >= 3, "the lists are found");
    expect_none(&lists.into_iter().flat_map(|list| unfit(list, &files)).collect::<Vec<_>>());
}

#[test]
fn a_bug_without_a_place_or_a_test_is_found() {
    let list = |file: &str, text: &str, test: &str| {
        let mutant = format!(
            "[[mutant]]\nname = 'n'\nfile = '{file}'\ntext = '{text}'\nreplacement = 'other'\ncaught_by = ['{test}']"
        );
        Source::sample("tests/mutants/a.toml", &mutant)
    };
    let files = [
        Source::sample("src/a.rs", "once twice twice fn of_lib("),
        Source::sample("src/a.lua", "once longer"),
        Source::sample("tests/it/b.rs", "fn of_it("),
    ];
    for (file, text, test, faults) in [
        ("src/a.rs", "once", "it b::of_it", 0),
        ("src/a.rs", "once", "lib a::tests::of_lib", 0),
        ("src/a.rs", "once", "it b::of_lib", 1),
        ("src/a.rs", "once", "it of_it", 1),
        ("src/a.rs", "twice", "torture b", 2),
        ("src/a.rs", "never", "it b::of_it", 1),
        ("src/a.lua", "once", "it b::of_it", 1),
        ("src/a.lua", "longer", "it b::of_it", 0),
    ] {
        assert_eq!(unfit(&list(file, text, test), &files).len(), faults, "{file} {text} {test}");
    }
}
