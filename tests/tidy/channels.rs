//! How many files name a channel: adding one must be a folder and a line in the registry.

use crate::source::{Exception, Keep, Source, excepted, expect_none, rust_below, stripped, tests_begin};

/// The most files that may name a channel: its name, its stored form, its section of the configuration.
const FILES_MAX: usize = 3;

/// Names of channels as code writes them.
const NAMES: [&str; 10] = [
    "Email",
    "Webhook",
    "EmailConfig",
    "WebhookConfig",
    "\"email\"",
    "\"webhook\"",
    "email::",
    "webhook::",
    ".email.",
    ".webhook.",
];

/// What may name channels without being counted.
const NOT_COUNTED: [Exception; 5] = [
    Exception { of: "src/channels/email/", reason: "the channel's own folder" },
    Exception { of: "src/channels/webhook/", reason: "the channel's own folder" },
    Exception { of: "src/channels/registry.rs", reason: "the registry" },
    Exception { of: "src/demo/", reason: "receivers on this machine, which speak SMTP and HTTP" },
    Exception { of: "src/cli/listen.rs", reason: "prints what those receivers receive" },
];

/// Files that name a channel in code, outside of its folder and the registry.
fn naming_channels(files: &[Source]) -> Vec<&str> {
    let is_counted = |file: &&Source| !excepted(&NOT_COUNTED, |path| file.path.starts_with(path));
    files.iter().filter(is_counted).filter(|file| names_a_channel(file)).map(|file| file.path.as_str()).collect()
}

fn names_a_channel(file: &Source) -> bool {
    let before_tests: Vec<&str> = file.text.lines().take(tests_begin(&file.text)).collect();
    let code = stripped(&before_tests.join("\n"), Keep::Strings);
    let in_word = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    NAMES.iter().any(|name| {
        code.match_indices(name).any(|(at, _)| {
            let (before, after) = (code[..at].chars().next_back(), code[at + name.len()..].chars().next());
            // A string and a path end by themselves.
            let ends_by_itself = name.ends_with(['"', ':', '.']);
            !(name.starts_with(char::is_alphabetic) && in_word(before) || !ends_by_itself && in_word(after))
        })
    })
}

/// Whoever adds a channel has to find every place.
#[test]
fn few_files_name_a_channel() {
    let files = rust_below("src");
    let naming = naming_channels(&files);
    println!("{} files name a channel: {}", naming.len(), naming.join(", "));
    expect_none(&match naming.len() > FILES_MAX {
        true => naming.iter().map(|path| format!("{path} names a channel, at most {FILES_MAX} files may")).collect(),
        false => Vec::new(),
    });
}

/// The rule must be able to fail, and leave comments, tests and the channels' own files alone.
#[test]
fn files_that_name_a_channel_are_found() {
    let of = |path: &str, text: &str| naming_channels(&[Source::sample(path, text)]).len();
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
