//! The layers of the configuration: defaults, file, variables, and what is shown of them.

use std::fs;
use std::path::Path;

use crate::support::binary::{Quotabell, quotabell};
use serde_json::{Value, json};
use tempfile::TempDir;

fn folder_with(text: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("quotabell.toml"), text).expect("the folder is writable");
    folder
}

fn check(folder: &Path) -> Quotabell {
    quotabell(["check-config", "--offline", "--json", "--config", "quotabell.toml"]).within(folder)
}

fn settings(run: Quotabell) -> Value {
    run.run().expect_json().remove(0)
}

/// A default that nobody overrides must hold; each layer must win over the lower ones.
#[test]
fn variables_win_over_the_file_and_the_file_over_the_defaults() {
    let folder = folder_with("[webhook]\ntimeout = \"5s\"\nallow_http = true\n[delivery]\nconcurrency = 8\n");
    let settings = settings(check(folder.path()).env("QUOTABELL__WEBHOOK__TIMEOUT", "7s"));
    assert_eq!(settings["webhook"]["timeout"], "7s");
    assert_eq!(settings["webhook"]["allow_http"], true);
    assert_eq!(settings["delivery"]["concurrency"], 8);
    assert_eq!(settings["retry"]["first"], "5s");
}

/// If plans were merged, an invisible limit of the embedded plan would stay in force.
#[test]
fn a_plan_in_the_file_replaces_the_embedded_one_whole() {
    let folder = folder_with(
        "[plans.free]\nlimits = { tokens = 7 }\n[plans.pro]\nlimits = { requests = 1 }\nthresholds = [50]\n",
    );
    let settings = settings(check(folder.path()));
    assert_eq!(settings["plans"]["free"], json!({"limits": {"tokens": 7}, "thresholds": [80, 100]}));
    assert_eq!(settings["plans"]["pro"], json!({"limits": {"requests": 1}, "thresholds": [50]}));
}

/// Containers have nothing but variables.
#[test]
fn every_kind_of_setting_can_come_from_a_variable() {
    let folder = folder_with("");
    let run = check(folder.path())
        .env("QUOTABELL__DEFAULT_PLAN", "pro")
        .env("QUOTABELL__PLANS__PRO", r#"{"limits":{"requests":10},"thresholds":[90]}"#)
        .env("QUOTABELL__PLANS__PRO__LIMITS__TOKENS", "20")
        .env("QUOTABELL__PLANS__PRO__LIMITS__CALLS", "600/hour")
        .env("QUOTABELL__PLANS__PRO__LIMITS__JOBS", r#"["5000/day", "600/hour"]"#)
        .env("QUOTABELL__PLANS__FREE__THRESHOLDS", "[50,75]")
        .env("QUOTABELL__FALLBACK", r#"{"contacts":[{"channel":"email","address":"a@b.test"}]}"#)
        .env("QUOTABELL__DELIVERY__CONCURRENCY", "3")
        .env("QUOTABELL__RETRY__FACTOR", "2")
        .env("QUOTABELL__WEBHOOK__ALLOW_HTTP", "true")
        .env("QUOTABELL__EMAIL__TEMPLATES", "")
        .env("QUOTABELL__LOG__FORMAT", "json")
        .env("QUOTABELL__STREAM__KEY", "007");
    let settings = settings(run);
    assert_eq!(settings["default_plan"], "pro");
    let limits = json!({"requests": 10, "tokens": 20, "calls": ["600/hour"], "jobs": ["600/hour", "5000/day"]});
    assert_eq!(settings["plans"]["pro"], json!({"limits": limits, "thresholds": [90]}));
    assert_eq!(settings["plans"]["free"], json!({"limits": {"requests": 5000}, "thresholds": [50, 75]}));
    assert_eq!(settings["fallback"]["contacts"][0]["address"], "a@b.test");
    assert_eq!(settings["delivery"]["concurrency"], 3);
    assert_eq!(settings["retry"]["factor"], 2.0);
    assert_eq!(settings["webhook"]["allow_http"], true);
    assert_eq!(settings["email"]["templates"], Value::Null);
    assert_eq!(settings["log"]["format"], "json");
    // Text that looks like a number stays text if the setting is text.
    assert_eq!(settings["stream"]["key"], "007");
}

/// `QUOTABELL_CONFIG` names the file, `--config` wins over it, before the command as well as after.
#[test]
fn the_file_is_named_by_variable_or_option_on_either_side_of_the_command() {
    let folder = folder_with("default_plan = \"x\"\n[plans.x]\nlimits = {}\n");
    fs::write(folder.path().join("other.toml"), "[stream]\nkey = \"other\"\n").expect("the folder is writable");
    let run = |arguments: &[&str]| {
        let run = quotabell(arguments.iter().copied()).within(folder.path()).env("QUOTABELL_CONFIG", "quotabell.toml");
        settings(run)
    };
    assert_eq!(run(&["check-config", "--offline", "--json"])["default_plan"], "x");
    for arguments in [
        ["--config", "other.toml", "check-config", "--offline", "--json"],
        ["check-config", "--offline", "--json", "--config", "other.toml"],
    ] {
        let settings = run(&arguments);
        assert_eq!((&settings["default_plan"], &settings["stream"]["key"]), (&json!("free"), &json!("other")));
    }
}

/// An option that looks mandatory would mislead a user who forgot another argument.
#[test]
fn the_usage_of_a_command_does_not_ask_for_the_option_that_a_variable_replaces() {
    let told = quotabell(["subject", "set"]).env("QUOTABELL_CONFIG", "quotabell.toml").run().told();
    assert!(told.contains("Usage: ") && !told.contains("--config"), "{told}");
}

/// People paste the output into tickets.
#[test]
fn secrets_are_not_shown() {
    let folder = folder_with(
        "[redis]\nurl = \"redis://user:topsecret@h:1/2\"\n[email]\nsmtp_url = \"smtps://u:topsecret@h:465\"\n\
         [[fallback.contacts]]\nchannel = \"webhook\"\nurl = \"https://x.test/\"\nsecret = \"whsec_dG9wc2VjcmV0dG9wc2VjcmV0dG9wc2VjcmV0\"\n",
    );
    let text = quotabell(["check-config", "--offline", "--config", "quotabell.toml"]).within(folder.path()).run();
    let shown = text.expect_done();
    assert!(!shown.contains("topsecret") && !shown.contains("dG9wc2VjcmV0"), "{shown}");
    for masked in ["redis://user:***@h:1/2", "smtps://u:***@h:465", "secret = \"***\""] {
        assert!(shown.contains(masked), "{shown}");
    }
}

/// A duration written as 3d and shown as 3days would raise doubts.
#[test]
fn durations_are_shown_as_they_are_written() {
    let folder = folder_with("[retry]\ngive_up_after = \"8d\"\nmax_interval = \"36h\"\n[webhook]\ntimeout = \"90s\"\n");
    let settings = settings(check(folder.path()));
    assert_eq!(settings["retry"]["give_up_after"], "8d");
    assert_eq!((&settings["retry"]["max_interval"], &settings["webhook"]["timeout"]), (&json!("36h"), &json!("90s")));
}

/// The output is a configuration: it can be saved and named with --config.
#[test]
fn the_settings_in_effect_are_a_configuration() {
    let shown = quotabell(["check-config", "--offline"]).run().expect_done();
    let folder = folder_with(&shown);
    let again = quotabell(["check-config", "--offline", "--config", "quotabell.toml"]).within(folder.path()).run();
    assert_eq!(again.expect_done(), shown);
}

const URL_AND_FILE: [(&str, &str); 2] = [("redis", "url"), ("email", "smtp_url")];

fn section(section: &str, key: &str, value: &str) -> String {
    format!("[{section}]\n{key} = {value:?}\n")
}

/// A variable over a file's `_file` must win, so that the daemon does not use a server that the file names.
#[test]
fn of_a_value_and_its_file_the_later_layer_wins() {
    for (name, key) in URL_AND_FILE {
        let (file_key, url) = (format!("{key}_file"), if name == "redis" { "redis://h:1" } else { "smtp://h:1" });
        let variable = |key: &str| format!("QUOTABELL__{}__{}", name.to_uppercase(), key.to_uppercase());
        let secret = tempfile::NamedTempFile::new().expect("a temporary file");
        let (path, shown) = (secret.path(), secret.path().to_str().expect("UTF-8"));
        fs::write(path, url).expect("the file is writable");

        let file_names_a_file = folder_with(&section(name, &file_key, "/absent"));
        let over_file = settings(check(file_names_a_file.path()).env(&variable(key), url));
        assert_eq!((&over_file[name][key], &over_file[name][&file_key]), (&json!(url), &Value::Null));
        let file_names_a_url = folder_with(&section(name, key, "nonsense"));
        let over_url = settings(check(file_names_a_url.path()).env(&variable(&file_key), path));
        assert_eq!((&over_url[name][key], &over_url[name][&file_key]), (&Value::Null, &json!(shown)));
        // The defaults contain a URL, which is no contradiction.
        let file_names_our_file = folder_with(&section(name, &file_key, shown));
        let over_default = settings(check(file_names_our_file.path()));
        assert_eq!((&over_default[name][key], &over_default[name][&file_key]), (&Value::Null, &json!(shown)));
        // Compose files write `${NAME:-}` for an unset variable: an empty variable counts as unset.
        let empty = settings(check(file_names_our_file.path()).env(&variable(key), ""));
        assert_eq!(empty[name][&file_key], shown);
        let both = check(file_names_a_url.path()).env(&variable(key), "").env(&variable(&file_key), path);
        assert_eq!(settings(both)[name][&file_key], shown);
    }
}

/// The output must be accepted by --config; a URL beside its file would be refused there.
#[test]
fn settings_with_a_url_from_a_file_are_a_configuration() {
    let folder = folder_with("[redis]\nurl_file = \"url\"\n");
    fs::write(folder.path().join("url"), "redis://h:1\n").expect("the folder is writable");
    let shown = quotabell(["check-config", "--offline", "--config", "quotabell.toml"]).within(folder.path()).run();
    fs::write(folder.path().join("again.toml"), shown.expect_done()).expect("the folder is writable");
    let again = quotabell(["check-config", "--offline", "--config", "again.toml"]).within(folder.path()).run();
    assert!(again.expect_done().contains("url_file = \"url\""));
}

/// Compose files write `${NAME:-}` for an unset variable of any setting.
#[test]
fn an_empty_variable_counts_as_not_set() {
    let folder = folder_with("[delivery]\nconcurrency = 3\n[email]\nfrom = \"a@b.test\"\n");
    let mut run = check(folder.path());
    for name in [
        "REDIS__URL",
        "DELIVERY__CONCURRENCY",
        "EMAIL__FROM",
        "WEBHOOK__TIMEOUT",
        "PLANS__FREE__LIMITS",
        "DEFAULT_PLAN",
    ] {
        run = run.env(&format!("QUOTABELL__{name}"), "");
    }
    let settings = settings(run);
    assert_eq!(settings["redis"]["url"], "embedded");
    assert_eq!(settings["delivery"]["concurrency"], 3);
    assert_eq!(settings["email"]["from"], "a@b.test");
    assert_eq!(settings["plans"]["free"]["limits"], json!({"requests": 5000}));
}

/// A staging container that names its Redis in a variable must not use the server in the file's `url_file`.
#[test]
fn a_variable_of_a_whole_section_wins_over_the_files_url_file() {
    let folder = folder_with("[redis]\nurl_file = \"/absent\"\n");
    let settings = settings(check(folder.path()).env("QUOTABELL__REDIS", r#"{"url":"redis://h:1"}"#));
    assert_eq!((&settings["redis"]["url"], &settings["redis"]["url_file"]), (&json!("redis://h:1"), &Value::Null));
}

/// Variable names ignore case: a variable for a plan with a capital letter must not create another plan.
#[test]
fn a_variable_means_the_plan_of_the_file_whatever_its_case() {
    let folder = folder_with("[plans.Pro]\nlimits = { requests = 5000 }\n");
    let settings = settings(check(folder.path()).env("QUOTABELL__PLANS__PRO__LIMITS", r#"{"requests":100}"#));
    assert_eq!(settings["plans"]["Pro"]["limits"], json!({"requests": 100}));
    assert_eq!(settings["plans"]["pro"], Value::Null);
}
