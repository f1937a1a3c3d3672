//! Exit codes: 0 success, 1 failure, 2 usage, 78 configuration; an error ends with its hint; a closed pipe is no error.

use std::io::Read as _;
use std::process::{Command, Stdio};

use crate::support::binary::quotabell;
use crate::support::redis_server::{RedisServer, free_port};
use crate::support::table::Table;

/// Scripts distinguish failures by the exit code.
#[test]
fn each_kind_of_failure_has_its_own_code() {
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let code = |arguments: &[&str]| quotabell(arguments.iter().copied()).redis(&nobody).run().code;
    assert_eq!(code(&["--version"]), 0);
    assert_eq!(code(&["emit", "--help"]), 0);
    assert_eq!(code(&["check-config", "--offline"]), 0);
    assert_eq!(code(&["check-config"]), 1);
    assert_eq!(code(&["emit", "--subject", "alice"]), 1);
    assert_eq!(code(&["emit"]), 2);
    assert_eq!(code(&["emit", "--subject", "alice", "--units", "0"]), 2);
    assert_eq!(code(&["no-such-command"]), 2);
    assert_eq!(code(&[]), 2);
    assert_eq!(code(&["subject", "list", "--config", "/absent.toml"]), 78);
    assert_eq!(code(&["man", "no-such-command"]), 2);
}

/// Every error must say what to do.
#[test]
fn every_error_ends_with_a_hint() {
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    for arguments in [
        vec![],
        vec!["emit"],
        vec!["emit", "--subjct", "alice"],
        vec!["subject"],
        vec!["subject", "show", "alice"],
        vec!["subject", "set", "alice"],
        vec!["subject", "import", "/absent.csv"],
        vec!["refused", "list", "--limit", "0"],
        vec!["deliveries", "list", "--state", "lost"],
        vec!["check-config", "--config", "/absent.toml"],
        vec!["man", "no-such-command"],
    ] {
        let finished = quotabell(arguments.iter().copied()).redis(&nobody).run();
        let last = finished.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("hint: ") && !last.ends_with('.'), "{arguments:?}: {}", finished.stderr);
        assert!(finished.stdout.is_empty() && finished.code != 0, "{arguments:?}: {}", finished.stdout);
    }
}

/// The most common mistakes, word by word.
#[test]
fn wrong_command_lines_are_explained() {
    let mut table = Table::default();
    for (name, arguments) in [
        ("misspelt_option", vec!["emit", "--subjct", "alice"]),
        ("missing_option", vec!["emit"]),
        ("misspelt_command", vec!["emti"]),
        ("bad_units", vec!["emit", "--subject", "alice", "--units", "1e3"]),
        ("negative_units", vec!["emit", "--subject", "alice", "--units", "-5"]),
        ("negative_credit", vec!["emit", "--subject", "alice", "--credit", "-5"]),
        ("no_events", vec!["emit", "--subject", "alice", "--count", "0"]),
        ("no_lines_of_a_list", vec!["alerts", "--limit", "0"]),
        ("list_of_a_command_that_only_lists", vec!["alerts", "list"]),
        ("bad_time", vec!["emit", "--subject", "alice", "--ts", "2026-11-21"]),
        ("bad_metric", vec!["emit", "--subject", "alice", "--metric", "API calls"]),
        ("empty_id", vec!["emit", "--subject", "alice", "--id", ""]),
        ("bad_zone", vec!["subject", "set", "alice", "--timezone", "Hanoi"]),
        ("bad_limit", vec!["subject", "set", "alice", "--limit", "5000"]),
        ("bad_window", vec!["subject", "set", "alice", "--limit", "requests=600/hours"]),
        (
            "same_window",
            vec!["subject", "set", "alice", "--limit", "requests=600/hour", "--limit", "requests=5/day 7/hour"],
        ),
        (
            "none_and_a_limit",
            vec!["subject", "set", "alice", "--limit", "requests=600/hour", "--limit", "requests=none"],
        ),
        ("bad_billing_day", vec!["subject", "set", "alice", "--billing-day", "0"]),
        ("late_billing_day", vec!["subject", "set", "alice", "--billing-day", "32"]),
        ("bad_threshold", vec!["subject", "set", "alice", "--threshold", "0"]),
        ("doubled_threshold", vec!["subject", "set", "alice", "--threshold", "80", "--threshold", "80"]),
        ("unknown_plan", vec!["subject", "set", "alice", "--plan", "fre"]),
        ("url_without_scheme", vec!["subject", "set", "alice", "--webhook", "example.com/hook"]),
        (
            "secret_not_base64",
            vec!["subject", "set", "alice", "--webhook", "https://a.test", "--webhook-secret", "hunter2"],
        ),
        (
            "secret_without_webhook",
            vec!["subject", "set", "alice", "--email", "a@b.test", "--webhook-secret", "hunter2"],
        ),
        ("bad_address", vec!["subject", "set", "alice", "--email", "alice"]),
        ("unwritable_address", vec!["subject", "set", "alice", "--email", "alice@[192.0.2.1]"]),
        ("nothing_to_set", vec!["subject", "set", "alice"]),
        ("unknown_state", vec!["deliveries", "list", "--state", "lost"]),
        ("bad_day", vec!["alerts", "--day", "yesterday"]),
        ("subject_without_its_option", vec!["alerts", "alice"]),
        ("subject_of_a_list_below_a_command", vec!["deliveries", "list", "--state", "dead", "alice"]),
        ("subject_of_an_event", vec!["emit", "alice"]),
        ("subject_named_already", vec!["emit", "--subject", "alice", "bob"]),
        ("option_for_a_subject_that_stands_by_itself", vec!["usage", "--subject", "alice"]),
        ("option_for_a_subject_below_a_command", vec!["subject", "set", "--subject=alice", "--plan", "free"]),
        ("option_for_the_first_of_two_words", vec!["contact", "mute", "--subject", "alice", "a@b.test"]),
        ("surplus_word", vec!["top", "alice"]),
        ("surplus_address", vec!["send-test", "a@b.test"]),
        ("surplus_day", vec!["alerts", "2026-11-21"]),
        ("surplus_word_beside_another", vec!["explain", "alice", "bob"]),
        ("bad_id", vec!["deliveries", "retry", "zzz"]),
        ("id_and_filter", vec!["deliveries", "retry", "--all", "alice"]),
        ("word_with_an_escape", vec!["alerts", "\u{1b}[2Jalice"]),
    ] {
        let finished = quotabell(arguments.iter().copied()).run();
        assert_eq!(finished.code, 2, "{arguments:?}: {}", finished.stderr);
        let line = arguments.join(" ").replace('\u{1b}', "ESC");
        table.add(format!("{name}: quotabell {line}"), finished.told());
    }
    insta::assert_snapshot!(table);
}

/// A mistyped secret is still nearly a secret.
#[test]
fn a_refused_secret_is_not_shown() {
    let finished =
        quotabell(["subject", "set", "a", "--webhook", "https://a.test", "--webhook-secret", "hunter2"]).run();
    assert!(!finished.told().contains("hunter2"), "{}", finished.told());
}

/// An unreachable Redis is reported with its address, never with its password.
#[test]
fn an_unreachable_redis_is_named_without_its_password() {
    let url = format!("redis://user:topsecret@127.0.0.1:{}", free_port());
    let finished = quotabell(["subject", "list"]).redis(&url).run();
    assert_eq!(finished.code, 1);
    assert!(finished.stderr.contains("redis://user:***@127.0.0.1"), "{}", finished.stderr);
    assert!(!finished.stderr.contains("topsecret"), "{}", finished.stderr);
}

/// Each fault of Redis needs another fix.
#[test]
fn a_wrong_password_and_a_wrong_type_have_hints_of_their_own() {
    let server = RedisServer::start_with(&["--save", "", "--requirepass", "right"]);
    let login = quotabell(["subject", "list"]).redis(&server.url()).run();
    assert!(login.code == 1 && login.stderr.contains("hint: check user and password"), "{}", login.stderr);
    let url = server.url().replace("redis://", "redis://:right@");
    let mut connection = redis::Client::open(url.as_str()).expect("a URL").get_connection().expect("it runs");
    let () = redis::cmd("SET").arg("usage").arg("x").query(&mut connection).expect("set");
    let wrong = quotabell(["emit", "--subject", "alice"]).redis(&url).run();
    assert!(wrong.code == 1 && wrong.stderr.contains("hint: a key of quotabell holds"), "{}", wrong.stderr);
}

/// `redis.url_file` contains the URL, as containers mount secrets.
#[test]
fn the_url_can_come_from_a_file() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("url");
    std::fs::write(&path, format!("{}\n", server.url())).expect("the folder is writable");
    let finished = quotabell(["check-config"]).env("QUOTABELL__REDIS__URL_FILE", &path).run();
    assert!(finished.stderr.contains("Redis answers"), "{}", finished.stderr);
    assert_eq!(finished.code, 0);
    let absent = quotabell(["check-config"]).env("QUOTABELL__REDIS__URL_FILE", "/absent").run();
    assert!(absent.code == 78 && absent.stderr.contains("/absent"), "{}", absent.stderr);
}

/// For an unwritable folder the hint names another folder, not only another server.
#[test]
fn a_data_folder_that_can_not_be_used_is_named_in_the_hint() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "no folder").expect("the folder is writable");
    let run = quotabell(["run"]).env("QUOTABELL__HTTP__LISTEN", "127.0.0.1:0");
    let run = run.env("QUOTABELL__REDIS__EMBEDDED_PORT", free_port().to_string());
    let finished = run.env("QUOTABELL__REDIS__DATA_DIR", file.join("data")).run();
    assert_eq!(finished.code, 1, "{}", finished.stderr);
    let hint = finished.stderr.lines().last().unwrap_or_default();
    assert!(hint.starts_with("hint: redis.data_dir ") && hint.contains("redis.url"), "{}", finished.stderr);
}

/// The embedded server runs only after `run` starts it: that is no fault of the configuration.
#[test]
fn check_config_does_not_miss_the_embedded_server() {
    let port = free_port().to_string();
    let path = std::env::var_os("PATH").expect("a PATH with redis-server");
    let finished = quotabell(["check-config"]).env("QUOTABELL__REDIS__EMBEDDED_PORT", &port).env("PATH", path).run();
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert!(finished.stderr.contains("`quotabell run` starts it"), "{}", finished.stderr);
}

/// `quotabell ... | head -1` must end quietly.
#[test]
fn a_closed_pipe_ends_quietly() {
    for arguments in [&["completions", "bash"][..], &["check-config", "--offline"], &["--help"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_quotabell"))
            .args(arguments)
            .env_clear()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().expect("stderr is piped").read_to_string(&mut stderr).expect("stderr is UTF-8");
        assert_eq!((child.wait().expect("it ends").code(), stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

/// Pipes and files must get no escape sequences.
#[test]
fn output_that_is_no_terminal_is_plain() {
    let server = RedisServer::start();
    quotabell(["subject", "set", "alice", "--plan", "free"]).redis(&server.url()).run().expect_done();
    for variables in [&[][..], &[("NO_COLOR", "1")], &[("TERM", "dumb")], &[("TERM", "xterm-256color")]] {
        for arguments in [&["subject", "list"][..], &["--help"], &["emit", "--nonsense"]] {
            let run = quotabell(arguments.iter().copied()).redis(&server.url());
            let run = variables.iter().fold(run, |run, (name, value)| run.env(name, value));
            let told = run.run().told();
            assert!(!told.contains('\u{1b}'), "{arguments:?} {variables:?}: {told:?}");
        }
    }
}
