//! Counts the files that name a channel: adding a channel must need only a folder and a line in the registry.

use std::path::Path;

use crate::source::{Exception, Keep, Source, excepted, expect_none, rust_below, stripped, tests_begin};

/// Maximum number of files that may name a channel: its name, its stored form, its options, its section of the
/// configuration.
const FILES_MAX: usize = 4;

/// Files that may name channels without being counted, in addition to the channels' folders.
const NOT_COUNTED: [Exception; 3] = [
    Exception { of: "src/channels/registry.rs", reason: "the registry" },
    Exception { of: "src/demo/", reason: "receivers on this machine, which speak SMTP and HTTP" },
    Exception { of: "src/cli/listen.rs", reason: "prints what those receivers receive" },
];

/// The channels: each has a folder with its name.
fn channels() -> Vec<String> {
    let folders = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/channels")).expect("a folder");
    let folders = folders.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir());
    folders.map(|path| path.file_name().expect("a name").to_string_lossy().into_owned()).collect()
}

/// The forms in which code names a channel.
fn names_of(channel: &str) -> [String; 5] {
    let words = channel.split('_').map(|word| format!("{}{}", word[..1].to_uppercase(), &word[1..]));
    let variant: String = words.collect();
    let config = format!("{variant}Config");
    [variant, config, format!("\"{channel}\""), format!("{channel}::"), format!(".{channel}.")]
}

/// Files that name a channel in code, outside of its folder and the registry.
fn naming_channels<'a>(files: &'a [Source], channels: &[String]) -> Vec<&'a str> {
    let is_counted = |file: &&Source| {
        let is_own = channels.iter().any(|channel| file.path.starts_with(&format!("src/channels/{channel}/")));
        !is_own && !excepted(&NOT_COUNTED, |path| file.path.starts_with(path))
    };
    let names: Vec<String> = channels.iter().flat_map(|channel| names_of(channel)).collect();
    files
        .iter()
        .filter(is_counted)
        .filter(|file| names_a_channel(file, &names))
        .map(|file| file.path.as_str())
        .collect()
}

fn names_a_channel(file: &Source, names: &[String]) -> bool {
    let before_tests: Vec<&str> = file.text.lines().take(tests_begin(&file.text)).collect();
    let code = stripped(&before_tests.join("\n"), Keep::Strings);
    let in_word = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    names.iter().any(|name| {
        code.match_indices(name.as_str()).any(|(at, _)| {
            let (before, after) = (code[..at].chars().next_back(), code[at + name.len()..].chars().next());
            // A string or a path has its own end.
            let ends_by_itself = name.ends_with(['"', ':', '.']);
            !(name.starts_with(char::is_alphabetic) && in_word(before) || !ends_by_itself && in_word(after))
        })
    })
}

/// Somebody who adds a channel has to find every place.
#[test]
fn few_files_name_a_channel() {
    let files = rust_below("src");
    let channels = channels();
    assert!(channels.iter().any(|channel| channel == "email"), "{channels:?}");
    let naming = naming_channels(&files, &channels);
    println!("{} files name a channel: {}", naming.len(), naming.join(", "));
    expect_none(&match naming.len() > FILES_MAX {
        true => naming.iter().map(|path| format!("{path} names a channel, at most {FILES_MAX} files may")).collect(),
        false => Vec::new(),
    });
}

/// The rule must be able to fail, and must ignore comments, tests and the channels' own files.
#[test]
fn files_that_name_a_channel_are_found() {
    let channels = ["email", "webhook"].map(str::to_owned);
    let of = |path: &str, text: &str| naming_channels(&[Source::sample(path, text)], &channels).len();
    for text in [
        "match x { Channel::Email => 1 }",
        "let a: WebhookConfig = b;",
        "if name == \"webhook\" {}",
        "use a::email::X;",
        "config.email.smtp_url = masked;",
    ] {
        assert_eq!(of("src/cli/x.rs", text), 1, "{text}");
        assert_eq!(of("src/channels/registry.rs", text) + of("src/channels/email/x.rs", text), 0, "{text}");
    }
    for text in [
        "// Channel::Email",
        "let emails = 1;",
        "fail2email::x();",
        "#[cfg(test)]\nmod tests {\n    use Channel::Email;\n}",
    ] {
        assert_eq!(of("src/cli/x.rs", text), 0, "{text}");
    }
}
