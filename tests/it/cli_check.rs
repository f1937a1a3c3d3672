//! `check` on the command line: the same request as over HTTP, with an exit code for scripts.

use std::fmt::Display;

use crate::support::binary::{Finished, Quotabell, quotabell};
use crate::support::outbox::Outbox;
use crate::support::table::Table;

fn run(books: &Outbox, line: &str) -> Finished {
    prepared(books, line).run()
}

fn prepared(books: &Outbox, line: &str) -> Quotabell {
    quotabell(line.split_whitespace())
        .redis(&books.server.url())
        .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":["100/day","600/month"]}"#)
        .env("QUOTABELL__PLANS__FREE__RATE", r#"{"algorithm":"gcra","requests":"2/1h"}"#)
}

fn snapshot(name: &str, text: impl Display) {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"\b\d+ s\b", "N s");
    settings.add_filter(r"\d{4}-\d\d-\d\d", "YYYY-MM-DD");
    settings.add_filter(r"\d{4}-\d\d\b", "YYYY-MM");
    settings.add_filter(r#""reset_s":\d+"#, r#""reset_s":N"#);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Scripts use the exit code, people the table.
#[tokio::test]
async fn a_subject_is_asked_for_until_it_is_refused() {
    let books = Outbox::start();
    let lines = [
        "check alice",
        "check alice --json",
        "check alice",
        "check alice --json",
        "check bob --units 3",
        "check alice --metric tokens.in --units 9",
    ];
    snapshot("until_it_is_refused", lines.map(|line| (line, run(&books, line).told())).into_iter().collect::<Table>());
}

/// An event is recorded only if that was requested and the request is allowed.
#[tokio::test]
async fn an_event_is_recorded_where_that_is_asked_for() {
    let books = Outbox::start();
    snapshot("recorded", run(&books, "check alice --record --id order-7").told());
    let made = run(&books, "check alice --record --json").expect_json();
    assert_eq!((&made[0]["recorded"], made[0]["event_id"].as_str().map(str::len)), (&true.into(), Some(32)));
    let refused = run(&books, "check alice --record --json");
    assert!(refused.code == 1 && refused.stdout.contains(r#""recorded":false"#), "{}", refused.told());
    let entries: Vec<(String, Vec<String>)> = books.run("XRANGE", &["usage", "-", "+"]).await;
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0].1, ["subject", "alice", "metric", "requests", "units", "1", "id", "order-7"]);
    assert_eq!(run(&books, "check alice --id x").code, 2, "an id of nothing");
}

/// A request that can't be judged must be reported as such, not as refused.
#[tokio::test]
async fn settings_that_cannot_be_read_are_told() {
    let books = Outbox::start();
    let _: u64 = books.run("HSET", &["quota_subject:alice", "plan", "gold"]).await;
    insta::assert_snapshot!(run(&books, "check alice --json").told(), @r#"
    warning: subject "alice": field "plan": "gold" is not one of the configured plans
    error: nothing is judged: settings of subject "alice" can't be read
    hint: fix the field (subject set, or the program that writes it); until then the daemon uses the last good value, or check.on_error
    exit 1
    "#);
    let away = prepared(&books, "check alice").redis("redis://127.0.0.1:1").run();
    assert!(away.code == 1 && away.stderr.contains("hint: is Redis running there?"), "{}", away.told());
}
