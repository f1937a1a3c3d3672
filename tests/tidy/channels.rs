//! How many files name a channel: adding one must be a folder and a line in the registry.

use crate::source::{Keep, Source, expect_none, rust_below, stripped, tests_begin};

/// The most files that may name a channel: its name, its stored form, its section of the configuration.
const FILES_MAX: usize = 3;

/// Names of channels as code writes them.
const NAMES: [&str; 6] = ["Email", "Webhook", "EmailConfig", "WebhookConfig", "\"email\"", "\"webhook\""];

/// What may name channels without being counted.
const NOT_COUNTED: [NotCounted; 4] = [
    NotCounted { path: "src/channels/email/", reason: "the channel's own folder" },
    NotCounted { path: "src/channels/webhook/", reason: "the channel's own folder" },
    NotCounted { path: "src/channels/registry.rs", reason: "the registry" },
    NotCounted { path: "src/demo/", reason: "receivers on this machine, which speak SMTP and HTTP" },
];

/// Files that name channels for now, each with what takes the name away.
const STILL_NAMING: [NotCounted; 6] = [
    NotCounted { path: "src/cli/check_config/reach.rs", reason: "the warning about the sender, to be the channel's" },
    NotCounted { path: "src/cli/contact/add.rs", reason: "flags, to be made from the registry" },
    NotCounted { path: "src/cli/listen.rs", reason: "the receivers of src/demo as a verb" },
    NotCounted { path: "src/cli/send_test.rs", reason: "flags, to be made from the registry" },
    NotCounted { path: "src/cli/subject/import_reader.rs", reason: "columns, to be made from the registry" },
    NotCounted { path: "src/cli/subject/set.rs", reason: "flags, to be made from the registry" },
];

/// Files and folders that may name channels.
struct NotCounted {
    path: &'static str,
    reason: &'static str,
}

/// Files that name a channel in code, outside of its folder and the registry.
fn naming_channels(files: &[Source]) -> Vec<&str> {
    let is_counted =
        |file: &&Source| !NOT_COUNTED.iter().any(|other| file.path.starts_with(other.path) && !other.reason.is_empty());
    files.iter().filter(is_counted).filter(|file| names_a_channel(file)).map(|file| file.path.as_str()).collect()
}

fn names_a_channel(file: &Source) -> bool {
    let before_tests: Vec<&str> = file.text.lines().take(tests_begin(&file.text)).collect();
    let code = stripped(&before_tests.join("\n"), Keep::Strings);
    let in_word = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    NAMES.iter().any(|name| {
        code.match_indices(name).any(|(at, _)| {
            let (before, after) = (code[..at].chars().next_back(), code[at + name.len()..].chars().next());
            // Names from other crates and re-exports of a folder are written with a path; a string ends by itself.
            name.starts_with('"') || !(in_word(before) || in_word(after))
        })
    })
}

/// Whoever adds a channel has to find every place.
#[test]
fn few_files_name_a_channel() {
    let files = rust_below("src");
    let naming = naming_channels(&files);
    println!("{} files name a channel: {}", naming.len(), naming.join(", "));
    let is_known = |path: &str| STILL_NAMING.iter().any(|known| known.path == path && !known.reason.is_empty());
    let gone = STILL_NAMING.iter().filter(|known| !naming.contains(&known.path));
    let mut violations: Vec<String> =
        gone.map(|known| format!("{} names no channel any more: take it off the list", known.path)).collect();
    let own: Vec<&str> = naming.into_iter().filter(|path| !is_known(path)).collect();
    if own.len() > FILES_MAX {
        violations.extend(own.iter().map(|path| format!("{path} names a channel, at most {FILES_MAX} files may")));
    }
    expect_none(&violations);
}

/// The rule must be able to fail, and leave comments, tests and the channels' own files alone.
#[test]
fn files_that_name_a_channel_are_found() {
    let of = |path: &str, text: &str| naming_channels(&[Source::sample(path, text)]).len();
    for text in ["match x { Channel::Email => 1 }", "let a: WebhookConfig = b;", "if name == \"webhook\" {}"] {
        assert_eq!(of("src/cli/x.rs", text), 1, "{text}");
        assert_eq!(of("src/channels/registry.rs", text) + of("src/channels/email/x.rs", text), 0, "{text}");
    }
    for text in ["// Channel::Email", "let emails = 1;", "#[cfg(test)]\nmod tests {\n    use Channel::Email;\n}"] {
        assert_eq!(of("src/cli/x.rs", text), 0, "{text}");
    }
}
