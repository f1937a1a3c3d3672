//! What the documents name exists: settings, metrics, commands with their options, and the members of JSON examples.

use std::collections::BTreeSet;

use clap::CommandFactory as _;
use quotabell::cli::Cli;
use quotabell::config::DEFAULTS;
use quotabell::types::meters;
use serde_json::{Value, json};

use crate::documentation::{documents, quoted, settings_of, text_of};
use crate::support::api::Documented;
use crate::support::contacts_api::ContactsApi;
use crate::support::echo_receiver::{Echo, EchoReceiver};
use crate::support::eventually::eventually;
use crate::support::grant_notices::grant_notice;
use crate::support::outbox::{RESETS_AT, subject};
use crate::support::webhook_receiver::{secret, verify};

/// What stands behind the name of a file.
const FILES: &[&str] = &["md", "rs", "lua", "yaml", "toml", "json", "txt", "html"];
/// The name of a section is also that of a library of Redis.
const LUA_FUNCTION: &str = "redis.acl_check_cmd";

/// The code of a document with its name: blocks, and text between backticks.
fn code() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for document in documents() {
        let text = text_of(&document);
        for (at, part) in text.split("```").enumerate() {
            match at % 2 {
                0 => all.extend(quoted(part).into_iter().map(|code| (document.clone(), code.replace('\n', " ")))),
                _ => all.push((document.clone(), part.to_owned())),
            }
        }
    }
    all
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|letter: char| !letter.is_ascii_lowercase() && !matches!(letter, '_' | '.'))
        .map(|word| word.trim_matches('.'))
}

/// The name of a setting that does not exist, if `code` is one: `retry.firsst` or `retry.firsst = "5s"`.
fn unknown_setting<'a>(code: &'a str, known: &BTreeSet<String>) -> Option<&'a str> {
    let name = code.split(" = ").next().unwrap_or_default();
    let (section, key) = name.split_once('.')?;
    let is_name = key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') && !FILES.contains(&key);
    // Settings outside a section are known by `.key`, which is also how the end of a file name looks.
    let is_section = !section.is_empty() && known.iter().any(|setting| setting.split('.').next() == Some(section));
    (is_name && is_section && !known.contains(name) && name != LUA_FUNCTION).then_some(name)
}

/// A setting that was renamed is set by readers of the document and refused by the daemon.
#[test]
fn every_setting_that_a_document_names_exists() {
    let known: BTreeSet<String> =
        settings_of(DEFAULTS).into_iter().map(|setting| format!("{}.{}", setting.section, setting.key)).collect();
    assert_eq!(unknown_setting("retry.second = 5", &known), Some("retry.second"));
    assert_eq!(
        ["retry.first", "retry.rs", "other.second", ".deb"].map(|name| unknown_setting(name, &known)),
        [None; 4]
    );
    let names = code();
    let names = names.iter().filter_map(|(document, code)| Some((document, unknown_setting(code, &known)?)));
    let unknown: Vec<_> = names.collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// A query for a metric that does not exist is an empty graph.
#[test]
fn every_metric_that_a_document_names_exists() {
    let is_known = |name: &str| {
        let name = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        meters::ALL.iter().any(|meter| meter.name == name)
    };
    for (document, code) in code() {
        for name in words(&code).filter(|word| word.starts_with("quotabell_") && !word.ends_with('_')) {
            // The crate of the limiters has a name of this form.
            assert!(is_known(name) || name == "quotabell_throttle", "{document} names {name}");
        }
    }
}

/// The command that a line of words names, with its path; `None` for words that name none.
fn command_of(words: &[&str]) -> Option<(String, clap::Command)> {
    let (mut command, mut path) = (Cli::command(), String::new());
    for word in words {
        match command.find_subcommand(word) {
            Some(inner) => {
                path = format!("{path} {word}").trim_start().to_owned();
                command = inner.clone();
            }
            None if command.has_subcommands()
                && !word.starts_with('-')
                && word.bytes().all(|b| b.is_ascii_lowercase()) =>
            {
                return None;
            }
            None => break,
        }
    }
    Some((path, command))
}

/// Commands and options that this code names and that do not exist, and the paths of the commands that do.
fn commands_in(code: &str) -> (Vec<String>, Vec<String>) {
    let (mut unknown, mut known) = (Vec::new(), Vec::new());
    let code = code.replace("\\\n", " ");
    for line in code.lines() {
        let line = line.split(" # ").next().unwrap_or_default().split(['|', ';']).next().unwrap_or_default();
        let Some((_, rest)) = line.split_once("quotabell ").filter(|(before, _)| before.trim().is_empty()) else {
            continue;
        };
        let words: Vec<&str> = rest.split_whitespace().collect();
        if words[..1] == ["..."] {
            continue;
        }
        let Some((path, command)) = command_of(&words) else {
            unknown.push(rest.to_owned());
            continue;
        };
        let options =
            words.iter().filter_map(|word| word.strip_prefix("--")).map(|word| word.split('=').next().unwrap_or(word));
        for option in options.filter(|option| !["help", "config", "version"].contains(option)) {
            if !command.get_arguments().any(|argument| argument.get_long() == Some(option)) {
                unknown.push(format!("{path} --{option}"));
            }
        }
        known.push(path);
    }
    (unknown, known)
}

/// The names of the commands that do something.
fn commands(command: &clap::Command, path: &str, all: &mut Vec<String>) {
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        let path = format!("{path} {}", inner.get_name()).trim_start().to_owned();
        if !inner.is_subcommand_required_set() {
            all.push(path.clone());
        }
        commands(inner, &path, all);
    }
}

/// A command that was renamed fails where it is needed, and one that no document names is found by nobody.
#[test]
fn every_command_that_a_document_names_exists_and_every_command_is_named() {
    assert_eq!(commands_in("quotabell deliveries repeat ID").0, ["deliveries repeat ID"]);
    assert_eq!(commands_in("quotabell emit --subject a --unit 3").0, ["emit --unit"]);
    let mut named = BTreeSet::new();
    let mut unknown = Vec::new();
    for (document, code) in code() {
        let (missing, known) = commands_in(&code);
        unknown.extend(missing.into_iter().map(|name| format!("{document}: {name}")));
        named.extend(known);
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    let mut all = Vec::new();
    commands(&Cli::command(), "", &mut all);
    // Tables and lists name a command without the name of the program.
    let text: String = code().into_iter().map(|(_, code)| format!("{code}\n")).collect();
    let is_named = |path: &String| named.contains(path) || text.lines().any(|line| line.starts_with(path.as_str()));
    let forgotten: Vec<&String> = all.iter().filter(|path| !is_named(path)).collect();
    assert!(forgotten.is_empty(), "no document names {forgotten:?}");
}

/// The members of an object and of those in it, with `[]` for the elements of a list.
fn members(value: &Value, at: &str, all: &mut BTreeSet<String>) {
    for (name, inner) in value.as_object().into_iter().flatten() {
        all.insert(format!("{at}.{name}"));
        members(inner, &format!("{at}.{name}"), all);
    }
    value.as_array().into_iter().flatten().for_each(|inner| members(inner, &format!("{at}[]"), all));
}

fn members_of(value: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    members(value, "", &mut all);
    all
}

/// Clients are written by the examples. Those of webhooks are compared with webhooks that a daemon sent, the others
/// with the OpenAPI document, with which the tests of the API compare every answer.
#[tokio::test]
async fn every_json_example_has_the_members_of_a_real_message() {
    let api = ContactsApi::start().await;
    let mut receiver = EchoReceiver::start(Echo::Right).await;
    let new = json!({"channel": "webhook", "url": receiver.url("/hook"), "secret": secret(9)});
    let id = api.add("alice", &new).await;
    let question = verify(&receiver.next().await, &secret(9)).body;
    eventually("verified", || async { api.is_verified("alice", &id).await.then_some(()) }).await;
    api.use_units("alice", 80).await;
    let alert = verify(&receiver.next().await, &secret(9)).body;
    api.outbox.raise_notice(&grant_notice(&subject("alice"), RESETS_AT)).await;
    let notice = verify(&receiver.next().await, &secret(9)).body;
    api.daemon.drain().await;
    let webhooks = [question, alert, notice];

    let documented = Documented::read();
    let mut examples = 0;
    for (document, code) in code() {
        let Some(example) = code.strip_prefix("json\n") else { continue };
        let example: Value =
            serde_json::from_str(example).unwrap_or_else(|error| panic!("{document}: {error}: {code}"));
        match webhooks.iter().find(|webhook| webhook["type"] == example["type"]) {
            Some(webhook) => assert_eq!(members_of(&example), members_of(webhook), "{document}: {example}"),
            None => assert!(documented.has_a_schema_for(&example), "{document}: no schema has {example}"),
        }
        examples += 1;
    }
    assert!(examples > 1, "{examples} examples");
    assert!(!documented.has_a_schema_for(&json!({"allowed": true, "subjekt": "alice"})), "the test can fail");
}
