//! An import points only downwards in the list of layers in ARCHITECTURE.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::circles::Modules;
use crate::source::{Source, expect_none, rust_below};

/// The heading before the list in ARCHITECTURE.md: the list is the next fenced block.
const HEADING: &str = "## The layers";

/// The layers of `src` in ARCHITECTURE.md, top first. `main` and `lib` are above all.
fn layers_of(architecture: &str) -> Vec<String> {
    let section = architecture.split(HEADING).nth(1).unwrap_or_default();
    let block = section.split("```").nth(1).unwrap_or_default();
    let first_words = block.lines().filter_map(|line| line.split_whitespace().next());
    first_words.filter_map(|word| word.strip_suffix('/')).filter(|name| *name != "src").map(str::to_owned).collect()
}

fn layers() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    layers_of(&fs::read_to_string(path).expect("ARCHITECTURE.md"))
}

/// Imports that point upwards, or involve a folder that is not in the list.
fn wrong_imports(files: &[Source], layers: &[String]) -> Vec<String> {
    let place = |part: &str| layers.iter().position(|layer| layer == part);
    let mut violations = Vec::new();
    for import in Modules::of(files).imports() {
        let (from, to) = (import.from.part(), import.to.part());
        if from == to || matches!(from, "main" | "lib") {
            continue;
        }
        match (place(from), place(to)) {
            (Some(from), Some(to)) if from < to => {}
            (Some(_), Some(_)) => {
                violations.push(format!("{} imports {}, which lies above it", import.from.path, import.to.path));
            }
            _ => violations.push(format!("{} imports {}: one of them is no layer", import.from.path, import.to.path)),
        }
    }
    violations
}

/// Newcomers learn the list first; an upward import would make it false.
#[test]
fn imports_point_downwards() {
    let (files, layers) = (rust_below("src"), layers());
    assert!(files.len() > 50, "only {} files were found", files.len());
    assert!(layers.len() > 10, "ARCHITECTURE.md lists {layers:?}");
    let folders = files.iter().map(Source::part).filter(|part| !matches!(*part, "main" | "lib"));
    let unlisted: BTreeSet<&str> = folders.filter(|part| !layers.iter().any(|layer| layer == part)).collect();
    let mut violations: Vec<String> =
        unlisted.iter().map(|part| format!("src/{part} is no layer of ARCHITECTURE.md")).collect();
    violations.extend(wrong_imports(&files, &layers));
    expect_none(&violations);
}

/// The rule must find every form of import, and must ignore comments, strings and tests.
#[test]
fn imports_upwards_are_found() {
    let layers: Vec<String> = ["cli", "ledger", "redis_client", "types"].map(str::to_owned).into();
    let of = |path: &str, text: &str| {
        let others =
            ["src/cli/mod.rs", "src/ledger/mod.rs", "src/redis_client/mod.rs", "src/types/mod.rs", "src/lib.rs"];
        let mut files: Vec<Source> = others.iter().map(|path| Source::sample(path, "pub struct X;")).collect();
        files.retain(|file| file.path != path);
        files.push(Source::sample(path, text));
        wrong_imports(&files, &layers).len()
    };
    assert_eq!(of("src/types/mod.rs", "use crate::redis_client::X;"), 1);
    assert_eq!(of("src/redis_client/mod.rs", "use crate::{\n    types::X,\n    ledger::{X, Y},\n    cli,\n};"), 2);
    assert_eq!(of("src/redis_client/mod.rs", "fn f() { crate::cli::serve() }"), 1);
    assert_eq!(of("src/redis_client/a.rs", "use super::super::cli::X;"), 1);
    assert_eq!(of("src/other/mod.rs", "use crate::types::X;"), 1);
    assert_eq!(of("src/cli/mod.rs", "use crate::types::X;\nuse crate::redis_client;"), 0);
    assert_eq!(of("src/redis_client/mod.rs", "// as crate::cli does\nconst A: &str = \"crate::cli::X\";"), 0);
    assert_eq!(of("src/redis_client/mod.rs", "#[cfg(test)]\nmod tests {\n    use crate::cli::X;\n}"), 0);
}

/// Only the block with the list is read.
#[test]
fn layers_are_read_from_the_list() {
    let text = "a\n\n## The layers\n\n```text\nmain.rs  lib.rs\ncli/     commands\ntypes/   words\n```\n\n```text\nother/\n```\n";
    assert_eq!(layers_of(text), ["cli", "types"]);
}
