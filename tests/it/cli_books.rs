//! Shared behavior of `usage`, `alerts` and `deliveries`: they show a real daemon's data, lists fit a terminal,
//! failures have hints.

use crate::support::binary::quotabell;
use crate::support::books::{hide_what_varies, ids, record, run, server_time, with_dead};
use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::outbox::{Outbox, alert, in_period, subject, webhook};
use crate::support::receivers::{Answer, HttpCatcher};
use crate::support::redis_server::{RedisServer, free_port};
use crate::support::table::Table;
use quotabell::types::{Alert, Day};
use serde_json::json;

/// 24 bytes, the minimum of a secret.
const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz";

/// The whole path for an operator: scripts and people rely on fields and columns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_daemon_did_is_shown() {
    let server = RedisServer::start();
    let outbox = Outbox::on(server);
    let server = &outbox.server;
    let takes = HttpCatcher::start([]).await.expect("a receiver");
    let gone = HttpCatcher::start([Answer::status(422).header("webhook-delivery", "abort-message")])
        .await
        .expect("a receiver");
    let set = |line: String| run(server, &line).expect_done();
    set(format!("subject set alice --limit requests=10 --webhook {} --webhook-secret {SECRET}", takes.url("/hook")));
    set(format!("subject set bob --threshold 90 --webhook {} --webhook-secret {SECRET}", gone.url("/hook")));
    let _daemon = DaemonSetup::on(&server.url()).start().await;
    // One after another, so that their order in time is known.
    let alerts = ["alice --units 8", "bob --units 4500", "carol --units 4000"];
    for (before, arguments) in alerts.into_iter().enumerate() {
        run(server, &format!("emit --subject {arguments}")).expect_done();
        let enough = move |done: u64| (done > before as u64).then_some(());
        eventually("one alert more has its delivery", || async { enough(outbox.totals().await.made) }).await;
    }
    run(server, "emit --subject alice --metric tokens --units 5").expect_done();
    eventually("every attempt has ended and everything is counted", || async {
        let totals = outbox.totals().await;
        (totals.delivered == 1 && totals.dead == 1 && totals.pending == 1 && totals.counted == 4).then_some(())
    })
    .await;

    let day = Day::in_utc(server_time(&outbox.client).await).expect("a day");
    let mut shown = Table::default();
    for line in ["usage alice", "usage bob", "alerts", "deliveries list"] {
        for line in [line.to_owned(), format!("{line} --json")] {
            shown.add(&line, run(server, &line).told());
        }
    }
    let usage = run(server, "usage alice --json").expect_json();
    let of_alice = &run(server, "alerts --subject alice --json").expect_json()[0];
    let requests = &usage[0]["metrics"][0]["windows"][0];
    assert_eq!((&requests["window"], &requests["period"]), (&json!("day"), &json!(day)));
    assert_eq!(requests["alerts"][0]["id"], of_alice["id"]);
    for state in ["delivered", "dead", "pending"] {
        let listed = run(server, &format!("deliveries list --json --state {state}")).expect_json();
        let id = ids(&listed)[0];
        for line in [format!("deliveries show {id}"), format!("deliveries show --json {id}")] {
            shown.add(format!("{line} ({state})"), run(server, &line).told());
        }
    }
    hide_what_varies().bind(|| insta::assert_snapshot!("what_the_daemon_did", shown));
}

/// People need a text if a list is empty; programs need an empty list.
#[test]
fn an_empty_list_is_told_to_a_terminal() {
    let server = RedisServer::start();
    for (line, told) in [
        ("alerts", "no alerts\r\n"),
        ("alerts --day 2026-01-01", "the alerts of that period are no longer kept\r\n"),
        ("alerts --period 2026-W01", "the alerts of that period are no longer kept\r\n"),
        ("deliveries list", "no deliveries\r\n"),
        ("refused list", "no refused events\r\n"),
        ("refused list --limit 3", "no refused events\r\n"),
        ("refused", "no refused events\r\n"),
        ("refused --limit 3", "no refused events\r\n"),
        ("subject list", "no subjects\r\n"),
        ("alerts --json", ""),
        ("deliveries list --json", ""),
        ("refused list --json", ""),
        ("refused --json", ""),
        ("subject list --json", ""),
    ] {
        let arguments = || quotabell(line.split_whitespace()).redis(&server.url());
        assert_eq!(arguments().run_on_terminal(), told, "{line}");
        assert_eq!(arguments().run().told(), "exit 0", "{line}");
    }
}

/// On a terminal a list must fit the width; in a pipe it must lose nothing.
#[tokio::test]
async fn lists_fit_a_terminal_of_80_columns() {
    let long = "x".repeat(200);
    let (outbox, dead) = with_dead(&[&long, "bob", "dave"]).await;
    run(&outbox.server, &format!("deliveries discard {}", dead[2])).expect_done();
    outbox.fan_out_new(&alert(&subject("carol"), 80), &[webhook("a"), webhook(&"x".repeat(60))]).await;
    let disabled = json!({"reason": "failing", "detail": "HTTP 500", "at": "2026-11-21T08:37:00.123Z"});
    let contact =
        json!({"channel": "webhook", "url": format!("https://x.test/{long}"), "secret": SECRET, "disabled": disabled});
    outbox.set_contacts(&subject(&long), &json!([contact]).to_string()).await;
    let day = Day::in_utc(server_time(&outbox.client).await).expect("a day");
    let facts = alert(&subject(&long), 80);
    record(&outbox.client, &in_period(Alert { used: 123_456, limit: 123_456, ..facts }, day)).await;
    let contacts = format!("contact list {long}");
    let commands = ["deliveries list", "deliveries destinations", "alerts", "subject list", contacts.as_str()];
    for command in commands {
        let whole = if command == "deliveries destinations" { "x".repeat(60) } else { long.clone() };
        let on_terminal = || quotabell(command.split(' ')).redis(&outbox.server.url());
        let shown = on_terminal().env("NO_COLOR", "1").print_on_terminal();
        assert!(shown.lines().count() > 1, "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        assert!(shown.contains('…') && !shown.contains('\x1b'), "{shown:?}");
        assert!(run(&outbox.server, command).expect_done().contains(&whole), "{command}");
    }
    let shown = quotabell(["deliveries", "list"]).redis(&outbox.server.url()).print_on_terminal();
    assert!(shown.contains("\x1b[31mdead\x1b[0m") && shown.contains("\x1b[33mpending\x1b[0m"), "{shown:?}");
    assert_eq!(outbox.state(&dead[0]).await, "dead");
}

/// Each command distinguishes its failures.
#[tokio::test]
async fn failures_have_their_codes_and_hints() {
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let folder = tempfile::tempdir().expect("a folder");
    let broken = folder.path().join("broken.toml");
    std::fs::write(&broken, "default_plan = \"gold\"\n").expect("written");
    let commands =
        ["usage alice", "alerts", "deliveries list", "deliveries show delivery_1", "deliveries replay --all"];
    for command in commands {
        let away = quotabell(command.split(' ')).redis(&nobody).run();
        assert!(away.code == 1 && away.stdout.is_empty(), "{command}: {}", away.told());
        assert!(away.stderr.contains(&nobody) && away.stderr.contains("\nhint: is Redis running"), "{}", away.stderr);
        let bad = quotabell(command.split(' ')).env("QUOTABELL_CONFIG", &broken).run();
        assert!(bad.code == 78 && bad.stderr.contains("\nhint: "), "{command}: {}", bad.told());
    }
    for line in ["usage", "usage alice --day today", "alerts --limit 0", "deliveries replay", "deliveries show x"] {
        assert_eq!(quotabell(line.split(' ')).run().code, 2, "{line}");
    }
    let server = RedisServer::start();
    let () = server.client().query(redis::cmd("SET").arg("quota_subject:alice").arg("x")).await.expect("set");
    let wrong = run(&server, "usage alice");
    assert!(wrong.code == 1 && wrong.stderr.contains("hint: a key of quotabell"), "{}", wrong.stderr);
}

/// With another configuration than the daemon's, a command would show limits that are not in force.
#[test]
fn plans_that_are_not_the_daemons_are_warned_of_once() {
    let server = RedisServer::start();
    run(&server, "subject set alice --email a@b.test --webhook http://127.0.0.1:1/hook").expect_done();
    let mut admin = server.sync_client().get_connection().expect("it runs");
    let commands = [
        "check-config",
        "emit --subject alice",
        "subject set alice --plan free",
        "subject show alice",
        "subject list",
        "subject import -",
        "contact list alice",
        "contact mute alice a@b.test",
        "contact add alice --email c@d.test",
        "contact remove alice c@d.test",
        "usage alice",
        "check alice",
        "alerts",
        "deliveries list",
        "refused list",
        "send-test --subject alice --contact a@b.test",
        "subject remove alice",
    ];
    for (fingerprint, expected) in [(None, 0), (Some("another"), 1), (Some("c07e501971453be8"), 0)] {
        if let Some(fingerprint) = fingerprint {
            let mut command = redis::cmd("HSET");
            let () = command
                .arg("quota_checkpoint:{usage}")
                .arg("fingerprint")
                .arg(fingerprint)
                .query(&mut admin)
                .expect("set");
        }
        for command in commands {
            let told = run(&server, command).stderr;
            let warned = told.matches("warning: the plans of this configuration").count();
            assert_eq!(warned, expected, "{command} with {fingerprint:?}: {told}");
        }
    }
}
