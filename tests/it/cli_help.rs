//! The help of all commands.

use crate::support::binary::quotabell;
use crate::support::table::Table;
use clap::CommandFactory as _;
use quotabell::cli::Cli;

/// A command, given by its words.
struct Command {
    words: String,
    /// Whether it does something itself: others only contain commands.
    does_something: bool,
}

/// All commands and nested commands.
fn commands() -> Vec<Command> {
    fn add(command: &clap::Command, words: &str, commands: &mut Vec<Command>) {
        let does_something = words.is_empty() || !command.is_subcommand_required_set();
        commands.push(Command { words: words.to_owned(), does_something });
        for inner in command.get_subcommands() {
            add(inner, format!("{words} {}", inner.get_name()).trim_start(), commands);
        }
    }
    let mut commands = Vec::new();
    add(&Cli::command(), "", &mut commands);
    assert!(commands.len() > 40);
    commands
}

fn help(command: &str) -> String {
    quotabell(command.split_whitespace().chain(["--help"])).run().expect_done()
}

/// Help is the documentation that is always at hand: changes must be visible.
#[test]
fn every_command_explains_itself() {
    let pages: Table =
        commands().iter().map(|Command { words, .. }| (format!("quotabell {words} --help"), help(words))).collect();
    insta::assert_snapshot!("help", pages);
}

/// An example explains an option.
#[test]
fn every_command_that_does_something_has_examples() {
    for Command { words: command, .. } in commands().iter().filter(|command| command.does_something) {
        assert!(
            help(command).contains("Examples:\n  quotabell") || help(command).contains("Examples:\n  printf"),
            "{command}"
        );
    }
}

/// Every command must accept the configuration option, also after the command.
#[test]
fn every_command_takes_the_configuration() {
    for Command { words: command, .. } in commands() {
        assert!(help(&command).contains("--config <FILE>"), "{command}");
    }
}

/// A manual line break within a sentence would be followed by another one where the terminal wraps.
#[test]
fn no_sentence_of_the_help_is_broken_by_hand() {
    fn judge(command: &clap::Command) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let goes_on = help.lines().find(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
        assert_eq!(goes_on, None, "{}", command.get_name());
        command.get_subcommands().for_each(judge);
    }
    judge(&Cli::command());
}

/// People copy examples: a manual page must not join or wrap their lines.
#[test]
fn manual_pages_keep_the_lines_of_examples() {
    for Command { words: command, .. } in commands().iter().filter(|command| command.does_something) {
        let page = quotabell(["man"].into_iter().chain(command.split_whitespace())).run().expect_done();
        assert!(!page.contains(".SH EXTRA"), "{command}");
        let (_, examples) = page.split_once("\n.SH EXAMPLES\n.nf\n").unwrap_or_else(|| panic!("{command}: {page}"));
        let (examples, _) = examples.split_once("\n.fi\n").unwrap_or_else(|| panic!("{command}: {page}"));
        assert!(examples.starts_with("quotabell") || examples.starts_with("printf"), "{command}: {examples}");
        assert!(
            page.lines().any(|line| line.starts_with(".TH ") && line.contains(env!("CARGO_PKG_VERSION"))),
            "{command}"
        );
    }
}

/// Packagers need these.
#[test]
fn completions_and_manual_pages_are_printed() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(quotabell(["completions", shell]).run().expect_done().contains("check-config"), "{shell}");
    }
    let page = quotabell(["man"]).run().expect_done();
    assert!(page.contains(".TH quotabell 1") && page.contains("check\\-config"), "{page}");
    let page = quotabell(["man", "check-config"]).run().expect_done();
    insta::with_settings!({filters => vec![(r"quotabell \d+\.\d+\.\d+", "quotabell VERSION")]}, {
        insta::assert_snapshot!("man_check_config", page);
    });
    let page = quotabell(["man", "subject", "set"]).run().expect_done();
    assert!(page.contains(".TH quotabell-subject-set 1") && page.contains("webhook\\-secret"), "{page}");
}

/// Packages contain a page for each command; a page that another one refers to must exist.
#[test]
fn manual_pages_of_all_commands_are_written_to_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_str().expect("UTF-8");
    quotabell(["man", "--dir", dir]).run().expect_done();
    let mut written: Vec<String> = std::fs::read_dir(folder.path())
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    let mut expected: Vec<String> = commands()
        .iter()
        .map(|Command { words, .. }| format!("{}.1", format!("quotabell {words}").trim_end().replace(' ', "-")))
        .collect();
    written.sort();
    expected.sort();
    assert_eq!(written, expected);
    let reference = regex::Regex::new(r"quotabell[a-z\\-]*\(1\)").expect("a pattern");
    for name in &written {
        let page = std::fs::read_to_string(folder.path().join(name)).expect("the page is there");
        for found in reference.find_iter(&page) {
            let referred = found.as_str().replace("\\-", "-").replace("(1)", ".1");
            assert!(written.contains(&referred), "{name} refers to {referred}");
        }
    }
    let missing = quotabell(["man", "--dir", "/nowhere"]).run();
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("write the manual page /nowhere/quotabell-"), "{}", missing.stderr);
    assert_eq!(quotabell(["man", "--dir", dir, "usage"]).run().code, 2);
}
