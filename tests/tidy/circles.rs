//! Finds the imports between files, and cycles of imports.
//!
//! A path is followed through `pub use` to the file that defines its item: a `mod.rs` that re-exports its files imports
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Keep, Source, expect_none, rust_below, stripped, tests_begin};

/// The modules of `src` by their path: `["wire", "client"]` for `src/redis_client/client.rs`, none for `src/lib.rs`.
pub struct Modules<'a> {
    files: BTreeMap<Vec<String>, Module<'a>>,
}

struct Module<'a> {
    source: &'a Source,
    /// Its imports: paths from the root or from the module itself, as written.
    imports: Vec<Vec<String>>,
    /// Its re-exports by name.
    exports: BTreeMap<String, Vec<String>>,
}

/// An import of one file by another.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Import<'a> {
    pub from: &'a Source,
    pub to: &'a Source,
}

impl<'a> Modules<'a> {
    pub fn of(files: &'a [Source]) -> Self {
        let modules = files.iter().map(|source| (module_path(&source.path), Module::of(source)));
        Self { files: modules.collect() }
    }

    /// Each pair of files once.
    pub fn imports(&self) -> Vec<Import<'a>> {
        let mut found = BTreeSet::new();
        for (path, module) in &self.files {
            for import in &module.imports {
                if let Some(to) = self.defining(path, import, 0)
                    && to.path != module.source.path
                {
                    found.insert(Import { from: module.source, to });
                }
            }
        }
        found.into_iter().collect()
    }

    /// The file that defines `import`, written in the module `within`. `None` for other crates.
    fn defining(&self, within: &[String], import: &[String], depth: usize) -> Option<&'a Source> {
        // Endless re-exports would not compile.
        if depth > 16 {
            return None;
        }
        let (mut at, rest) = self.start(within, import)?;
        let mut names = rest.iter();
        for name in names.by_ref() {
            at.push(name.clone());
            if self.files.contains_key(&at) {
                continue;
            }
            at.pop();
            let module = self.files.get(&at)?;
            return match module.exports.get(name) {
                Some(export) => self.defining(&at, export, depth + 1).or(Some(module.source)),
                None => Some(module.source),
            };
        }
        self.files.get(&at).map(|module| module.source)
    }

    /// The module where a path starts, and the rest of the path.
    fn start<'p>(&self, within: &[String], import: &'p [String]) -> Option<(Vec<String>, &'p [String])> {
        let (mut at, mut rest) = (within.to_vec(), import);
        match rest.first()?.as_str() {
            "crate" | "quotabell" => return Some((Vec::new(), &rest[1..])),
            "self" => return Some((at, &rest[1..])),
            "super" => {}
            child => {
                at.push(child.to_owned());
                return self.files.contains_key(&at).then_some((at, &rest[1..]));
            }
        }
        while rest.first().is_some_and(|name| name == "super") {
            at.pop()?;
            rest = &rest[1..];
        }
        Some((at, rest))
    }
}

impl<'a> Module<'a> {
    fn of(source: &'a Source) -> Self {
        let before_tests: Vec<&str> = source.text.lines().take(tests_begin(&source.text)).collect();
        let code = stripped(&before_tests.join("\n"), Keep::Code);
        let (mut imports, mut exports) = (Vec::new(), BTreeMap::new());
        let mut rest = String::with_capacity(code.len());
        for statement in code.split_inclusive(';') {
            let Some(use_at) = use_of(statement) else {
                rest.push_str(statement);
                continue;
            };
            let (before, used) = statement.split_at(use_at);
            let public = before.trim_end().ends_with(')') || before.trim_end().ends_with("pub");
            rest.push_str(before);
            for (path, name) in expanded(used.trim_start_matches("use").trim_end_matches(';')) {
                if public {
                    exports.insert(name, path);
                } else {
                    imports.push(path);
                }
            }
        }
        imports.extend(inline_paths(&rest));
        Self { source, imports, exports }
    }
}

/// Position of the `use` in a statement, if there is one.
fn use_of(statement: &str) -> Option<usize> {
    let at = statement.rfind("use ")?;
    let before = statement[..at].trim_end();
    let starts =
        before.is_empty() || before.ends_with([';', '}', ']']) || before.ends_with("pub") || before.ends_with(')');
    starts.then_some(at)
}

/// The paths of a `use` without braces, each with the name that it defines.
fn expanded(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    if let Some(open) = tree.find('{') {
        let prefix: Vec<String> = words(&tree[..open]);
        let inner = tree[open + 1..].rfind('}').map_or("", |close| &tree[open + 1..open + 1 + close]);
        let branches = split_branches(inner).into_iter().flat_map(|branch| expanded(&branch));
        let joined = branches.map(|(path, name)| {
            let own = if path.first().is_some_and(|first| first == "self") { &path[1..] } else { &path[..] };
            ([prefix.as_slice(), own].concat(), name)
        });
        return joined.collect();
    }
    let (path, renamed) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name.trim())));
    let path = words(path);
    let name = renamed.map(str::to_owned).or_else(|| path.last().cloned()).unwrap_or_default();
    if path.is_empty() { Vec::new() } else { vec![(path, name)] }
}

/// Splits a list at commas outside of braces.
fn split_branches(list: &str) -> Vec<String> {
    let (mut depth, mut branches, mut branch) = (0, Vec::new(), String::new());
    for letter in list.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                branches.push(std::mem::take(&mut branch));
                continue;
            }
            _ => {}
        }
        branch.push(letter);
    }
    branches.push(branch);
    branches.retain(|branch| !branch.trim().is_empty());
    branches
}

fn words(path: &str) -> Vec<String> {
    path.split("::").map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

/// Paths in code without an import: `crate::a::b`, `super::b`, and `b::c` for everything that may be a module.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let is_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let candidates = code.split(|letter| !is_path(letter)).filter(|word| word.contains("::"));
    candidates.map(|word| words(word.trim_matches(':'))).filter(|path| path.len() > 1).collect()
}

fn module_path(path: &str) -> Vec<String> {
    let below = path.strip_prefix("src/").unwrap_or(path);
    let below = below.strip_suffix(".rs").unwrap_or(below);
    let below = below.strip_suffix("/mod").unwrap_or(below);
    if below == "lib" { Vec::new() } else { below.split('/').map(str::to_owned).collect() }
}

/// Files that import each other, directly or indirectly, one line per cycle.
fn circles(files: &[Source]) -> Vec<String> {
    let modules = Modules::of(files);
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in modules.imports() {
        next.entry(&import.from.path).or_default().insert(&import.to.path);
    }
    let reached = |from: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(file) = open.pop() {
            for to in next.get(file.as_str()).into_iter().flatten() {
                if seen.insert((*to).to_owned()) {
                    open.push((*to).to_owned());
                }
            }
        }
        seen
    };
    let all: BTreeMap<&str, BTreeSet<String>> = next.keys().map(|file| (*file, reached(file))).collect();
    let mut found = BTreeSet::new();
    for (file, seen) in &all {
        if seen.contains(*file) {
            let together = all.iter().filter(|(other, theirs)| seen.contains(**other) && theirs.contains(*file));
            found.insert(together.map(|(other, _)| *other).collect::<Vec<_>>().join(", "));
        }
    }
    found.into_iter().map(|files| format!("these import each other: {files}")).collect()
}

/// Files in a cycle can only be understood, moved and tested together.
#[test]
fn no_files_import_each_other_in_a_circle() {
    expect_none(&circles(&rust_below("src")));
}

/// The rule must find a cycle through re-exports and inline paths, and must not report a re-export alone.
#[test]
fn circles_are_found() {
    let of = |texts: &[(&str, &str)]| {
        let files: Vec<Source> = texts.iter().map(|(path, text)| Source::sample(path, text)).collect();
        circles(&files).len()
    };
    let lib = ("src/lib.rs", "pub mod a;");
    let facade = ("src/a/mod.rs", "mod b;\nmod c;\npub use b::B;\npub use c::{C, D as E};");
    assert_eq!(of(&[lib, facade, ("src/a/b.rs", "use super::C;"), ("src/a/c.rs", "pub struct C;")]), 0);
    assert_eq!(of(&[lib, facade, ("src/a/b.rs", "use super::C;"), ("src/a/c.rs", "use super::B;")]), 1);
    assert_eq!(of(&[lib, facade, ("src/a/b.rs", "use crate::a::E;"), ("src/a/c.rs", "fn f() { super::b::g() }")]), 1);
    let uses_child = ("src/a/mod.rs", "mod b;\nuse b::B;\npub struct A;");
    assert_eq!(of(&[lib, uses_child, ("src/a/b.rs", "use super::A;")]), 1);
    assert_eq!(of(&[lib, uses_child, ("src/a/b.rs", "#[cfg(test)]\nmod tests {\n    use super::super::A;\n}")]), 0);
}
