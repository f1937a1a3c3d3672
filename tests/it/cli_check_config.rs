//! `check-config`: every check on real servers, without writing anything.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use crate::channels_email::key_of;
use crate::support;
use crate::support::binary::{Finished, Quotabell, quotabell};
use crate::support::certificates::Certificates;
use crate::support::outbox::Outbox;
use crate::support::receivers::{Phase, Reply, SmtpCatcher, SmtpSetup, Times};
use crate::support::redis_server::{RedisServer, free_port};
use crate::support::table::Table;
use redis::{Commands as _, Connection};
use tokio::net::{TcpListener, TcpStream};

fn check(url: &str) -> Quotabell {
    quotabell(["check-config"]).redis(url)
}

/// The findings on stderr, without addresses and versions that vary between runs.
fn snapshot<const N: usize>(name: &str, cases: [(&str, Finished); N]) {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT");
    settings.add_filter(r"(Redis|Valkey) \d+\.\d+\.\d+", "SERVER");
    settings.add_filter(r"(/[\w.-]+)+/(redis|valkey)-server", "BINARY");
    // Depends on this machine.
    settings.add_filter(r"zone data: IANA .*", "zone data: IANA VERSION");
    // Servers use different words.
    settings.add_filter(r"(?m)NoPerm: .*$", "NoPerm: THE SERVER'S WORDS");
    // These tests are not about a mail server at port 25 of this machine.
    settings.add_filter(r"(?m)^(warning: no mail server at|ok: the mail server takes mail \() ?localhost:25.*\n", "");
    let told = cases.map(|(case, finished)| (case, format!("{}exit {}", finished.stderr, finished.code)));
    settings.bind(|| insta::assert_snapshot!(name, told.into_iter().collect::<Table>()));
}

fn connection(server: &RedisServer) -> Connection {
    server.sync_client().get_connection().expect("it runs")
}

fn acl(connection: &mut Connection, rules: &str) {
    let mut command = redis::cmd("ACL");
    for word in rules.split(' ') {
        command.arg(word);
    }
    let () = command.query(connection).expect("the user is made");
}

/// Everything works: each check reports success, and the server is unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_works_is_said_and_nothing_is_written() {
    let outbox = Outbox::start();
    let mut mail = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    let before = outbox.dump().await;
    let finished = check(&outbox.server.url()).env("QUOTABELL__EMAIL__SMTP_URL", mail.url()).run();
    assert!(finished.stdout.contains("[plans.free]") && finished.stdout.contains("[retry]"), "{}", finished.stdout);
    snapshot("everything_works", [("everything works", finished)]);
    assert_eq!(outbox.dump().await, before);
    assert!(mail.try_next().is_none() && mail.connections() == 1, "it logs in and sends nothing");
}

/// If a queued command were run after all, it would count, trim or delete: also a ledger in use must stay unchanged.
#[tokio::test]
async fn a_ledger_that_is_in_use_stays_untouched() {
    let outbox = Outbox::start();
    let alert = support::outbox::alert(&support::outbox::subject("alice"), 80);
    outbox.fan_out_new(&alert, &[]).await;
    let () = outbox.run("XADD", &["usage", "*", "subject", "alice"]).await;
    let () = outbox.run("HSET", &["quota_checkpoint:{usage}", "id", "0-0", "format", "2", "partitions", "1"]).await;
    let before = outbox.dump().await;
    let finished = check(&outbox.server.url()).run();
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert_eq!(outbox.dump().await, before);
}

/// A missing right would otherwise show only when the stream is full.
#[test]
fn rights_that_are_missing_are_named() {
    let server = RedisServer::start();
    let mut admin = connection(&server);
    acl(&mut admin, "SETUSER app on >pw ~usage ~quota_* +@all -xtrim -@admin");
    acl(&mut admin, "SETUSER narrow on >pw ~usage ~quota_checkpoint* +@all");
    acl(&mut admin, "SETUSER plain on >pw ~* +@all -multi");
    acl(&mut admin, "SETUSER right on >pw ~usage ~quota_* +@all -@admin -@dangerous +info");
    let of = |user: &str| check(&server.url().replace("://", &format!("://{user}:pw@")));
    let cases = [
        ("no right to trim", of("app").run()),
        ("no right to keys", of("narrow").run()),
        ("rights that can't be asked for", of("plain").run()),
        ("rights enough", of("right").run()),
    ];
    snapshot("rights", cases);
    // Features that are not configured need no rights.
    assert_eq!(of("app").env("QUOTABELL__STREAM__TRIM", "never").run().code, 0);
    let keys: Vec<String> = admin.keys("*").expect("KEYS works");
    assert!(keys.is_empty(), "{keys:?}");
}

/// A first email under a cap opens a window: without the right for that nothing is sent, although the configuration
/// used to be reported as valid.
#[test]
fn the_right_to_open_a_window_of_mails_is_asked_for() {
    let server = RedisServer::start();
    let mut admin = connection(&server);
    let others = "~quota_alert* ~quota_lease* ~quota_window* ~quota_verify* ~quota_console*";
    let () = redis::cmd("ACL")
        .arg(&["SETUSER", "app", "on", ">pw", "~usage", "~quota_*", "+@all", "-set"])
        .arg(format!("(+set {others})"))
        .query(&mut admin)
        .expect("the user is made");
    let finished = check(&server.url().replace("://", "://app:pw@")).run();
    assert!(finished.stderr.contains("SET on quota_cap:{usage}:email"), "{}", finished.stderr);
}

/// A ledger with another version or another number of partitions: the daemon would refuse it, so this command does too.
#[test]
fn stored_state_that_does_not_fit_is_a_failure() {
    let server = RedisServer::start();
    let mut admin = connection(&server);
    let mut finding = |field: &str, value: &str| {
        let () = admin.del("quota_checkpoint:{usage}").expect("removed");
        let () = admin.hset("quota_checkpoint:{usage}", field, value).expect("set");
        check(&server.url()).run()
    };
    let other_format = finding("format", "99");
    let other_partitions = finding("partitions", "4");
    let () = admin.del("quota_checkpoint:{usage}").expect("removed");
    let () = admin.set("quota_checkpoint:{usage}", "x").expect("set");
    let cases = [
        ("another format", other_format),
        ("another number of partitions", other_partitions),
        ("a key of another type", check(&server.url()).run()),
    ];
    snapshot("stored_state_that_does_not_fit", cases);
}

/// A server that evicts loses counts silently; a server that requires a password is not a missing server.
#[test]
fn a_server_that_will_not_do_is_refused() {
    let evicting = RedisServer::start_with(&["--save", "", "--maxmemory-policy", "allkeys-lru"]);
    let locked = RedisServer::start_with(&["--save", "", "--requirepass", "right"]);
    let replica = RedisServer::start_with(&["--save", "", "--replicaof", &format!("127.0.0.1 {}", free_port())]);
    let cases = [("it evicts", evicting), ("it wants a password", locked), ("it is a replica", replica)];
    snapshot("servers_that_will_not_do", cases.map(|(case, server)| (case, check(&server.url()).run())));
}

/// A missing database is not a problem of the version: one digit of the URL is wrong.
#[test]
fn a_database_that_the_server_lacks_is_named() {
    let server = RedisServer::start();
    let url = format!("{}/99", server.url().trim_end_matches('/'));
    snapshot("no_such_database", [("no such database", check(&url).run())]);
    let run =
        |command: &str| quotabell(command.split(' ')).redis(&url).env("QUOTABELL__HTTP__LISTEN", "127.0.0.1:0").run();
    for command in ["run", "subject list"] {
        let finished = run(command);
        assert_eq!(finished.code, 1, "{}", finished.stderr);
        for said in [url.as_str(), "the server has no database 99", "/0 to /15"] {
            assert!(finished.stderr.contains(said), "{command}: {}", finished.stderr);
        }
    }
}

/// One failure must not hide the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_is_tried() {
    let nobody = format!("127.0.0.1:{}", free_port());
    let both = check(&format!("redis://{nobody}")).env("QUOTABELL__EMAIL__SMTP_URL", format!("smtp://{nobody}")).run();
    let server = RedisServer::start();
    let mail = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    mail.program(Phase::Greeting, Reply::Say("421 busy"), Times::Always);
    let finished = check(&server.url()).env("QUOTABELL__EMAIL__SMTP_URL", mail.url()).run();
    snapshot("connections_that_fail", [("nothing works", both), ("the mail server refuses", finished)]);
}

/// A server that accepts connections but no email would otherwise fail with the first alert.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mail_server_that_takes_no_mail_is_a_failure() {
    let server = RedisServer::start();
    let mut mail = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    let check = |contacts: &str| {
        check(&server.url())
            .env("QUOTABELL__EMAIL__SMTP_URL", mail.url())
            .env("QUOTABELL__EMAIL__FROM", "alerts@example.test")
            .env("QUOTABELL__FALLBACK__CONTACTS", contacts)
            .run()
    };
    let contact = r#"[{"channel":"email","address":"ops@example.com"}]"#;
    let refusing = |phase, line| mail.program(phase, Reply::Say(line), Times::Once);
    for (phase, line, contacts, code) in [
        (Phase::Mail, "530 5.7.0 Must issue a STARTTLS command first", "[]", 1),
        (Phase::Rcpt, "554 5.7.1 Relay access denied", "[]", 1),
        (Phase::Rcpt, "550 relay not permitted", "[]", 1),
        (Phase::Rcpt, "550 5.1.1 no such user", contact, 1),
        // The sender's address need not accept email.
        (Phase::Rcpt, "550 5.1.1 no such user", "[]", 0),
    ] {
        refusing(phase, line);
        let finished = check(contacts);
        assert_eq!(finished.code, code, "{line}: {}", finished.stderr);
        if code == 1 {
            for said in ["failed: the mail server at 127.0.0.1:", &line[..3], "hint: "] {
                assert!(finished.stderr.contains(said), "{line}: {}", finished.stderr);
            }
            let failed = finished.stderr.lines().find(|line| line.starts_with("failed: ")).expect("a failure");
            assert!(["5.7.", "5.1.1"].iter().all(|status| failed.matches(status).count() <= 1), "{failed}");
        }
    }
    assert!(mail.try_next().is_none(), "it sends nothing");
}

/// If no attempt could call a fallback contact, every alert for it would be lost.
#[test]
fn a_fallback_contact_that_may_not_be_called_is_a_failure() {
    let server = RedisServer::start();
    let secret = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let contacts = |url: &str| format!(r#"[{{"channel":"webhook","url":"{url}","secret":"{secret}"}}]"#);
    let check = |url: &str| check(&server.url()).env("QUOTABELL__FALLBACK__CONTACTS", contacts(url));
    for url in ["http://203.0.113.9/hook", "https://10.0.0.7/hook", "https://localhost/hook"] {
        let finished = check(url).run();
        assert_eq!(finished.code, 1, "{url}: {}", finished.stderr);
        assert!(finished.stderr.contains("failed: fallback contact c_"), "{}", finished.stderr);
    }
    // An address needs no query.
    for (url, code) in [
        ("http://hooks.example.com/hook", 1),
        ("https://10.0.0.7/hook", 1),
        ("https://127.0.0.1/hook", 1),
        ("https://localhost/hook", 0),
    ] {
        for section in ["FALLBACK", "OPERATOR"] {
            let variable = format!("QUOTABELL__{section}__CONTACTS");
            let finished = quotabell(["check-config", "--offline"]).env(&variable, contacts(url)).run();
            let said = format!("failed: {} contact c_", section.to_lowercase());
            assert_eq!(
                (finished.code, finished.stderr.contains(&said)),
                (code, code == 1),
                "{url}: {}",
                finished.told()
            );
        }
    }
    // Two of a kind are counted and named once; one has its hint only once.
    let two = contacts("https://10.0.0.7/a").replace(']', ",") + &contacts("https://10.0.0.7/b")[1..];
    let told = |contacts: &str| {
        let run = quotabell(["check-config", "--offline"]).env("QUOTABELL__FALLBACK__CONTACTS", contacts);
        let finished = run.run();
        let from = finished.stderr.find("error: ").expect("an error");
        finished.stderr[from..].to_owned()
    };
    assert_eq!(
        (told(&two).as_str(), told(&contacts("https://10.0.0.7/a")).as_str()),
        (
            "error: 2 of 3 checks failed: contacts\nhint: each line that begins with failed has its hint below it\n",
            "error: 1 of 2 checks failed: contacts\nhint: the line that begins with failed has its hint below it\n",
        )
    );
    let allowed = check("http://127.0.0.1:9/hook")
        .env("QUOTABELL__WEBHOOK__ALLOW_HTTP", "true")
        .env("QUOTABELL__WEBHOOK__ALLOW_PRIVATE_NETWORKS", "true")
        .run();
    assert!(allowed.code == 0 && allowed.stderr.contains("ok: fallback contact c_"), "{}", allowed.stderr);
}

/// The URL of a chat allows posting into it, and people paste the output of a check into tickets.
#[test]
fn the_url_of_a_chat_is_shown_nowhere() {
    let server = RedisServer::start();
    let contact = |url: &str| format!(r#"[{{"channel":"webhook","format":"slack","url":"{url}"}}]"#);
    for url in ["http://203.0.113.9/services/SECRETPATH", "203.0.113.9/services/SECRETPATH"] {
        for section in ["FALLBACK", "OPERATOR"] {
            for more in [&["--offline"][..], &[]] {
                let line = ["check-config"].into_iter().chain(more.iter().copied());
                let variable = format!("QUOTABELL__{section}__CONTACTS");
                let finished = quotabell(line).redis(&server.url()).env(&variable, contact(url)).run();
                let told = finished.told();
                assert!(told.contains("203.0.113.9") && !told.contains("SECRETPATH"), "{section}: {told}");
            }
        }
    }
    let added = ["contact", "add", "alice", "--format", "slack", "--webhook", "http://203.0.113.9/services/SECRETPATH"];
    let told = quotabell(added).redis(&server.url()).run().told();
    assert!(told.contains("webhook.allow_http = false refuses") && !told.contains("SECRETPATH"), "{told}");
}

/// A contact with a threshold that no plan has gets nothing.
#[test]
fn a_threshold_that_no_plan_has_is_warned_of() {
    let contacts = r#"[{"channel":"email","address":"a@b.test","thresholds":[85,100],"plans":["free"]}]"#;
    let checked = quotabell(["check-config", "--offline"]).env("QUOTABELL__OPERATOR__CONTACTS", contacts).run();
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    assert!(checked.stderr.contains("hears 85%, a threshold that no plan has"), "{}", checked.stderr);
    assert!(
        !checked.stderr.contains("hears 100%") && checked.stdout.contains("plans = [\"free\"]"),
        "{}",
        checked.stdout
    );
}

/// An operator would wait for forecasts and for a digest that never come.
#[test]
fn forecasts_and_digests_without_effect_are_warned_of() {
    let pager = |more: &str| format!(r#"{{"channel":"webhook","url":"https://x.test/","id":"pager"{more}}}"#);
    let slack = pager(r#","format":"slack","digest":"1h""#).replace("pager", "slack");
    let secret = "0123456789abcdef0123456789abcdef";
    let pagerduty = pager(&format!(r#","format":"pagerduty","secret":"{secret}","digest":"1h""#));
    let checked = |windows: &str| {
        let command = quotabell(["check-config", "--offline"]);
        let command = command.env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":["10/hour","50/day"]}"#);
        let command = command.env("QUOTABELL__PLANS__FREE__FORECAST", format!(r#"{{"windows":{windows}}}"#));
        let checked = command.env("QUOTABELL__OPERATOR__CONTACTS", format!("[{slack},{pagerduty}]")).run();
        assert_eq!(checked.code, 0, "{}", checked.stderr);
        checked.stderr
    };
    let warned = checked(r#"["day","month"]"#);
    let said = "warning: operator.contacts: pager has a digest, which has no effect with pagerduty\n";
    assert!(warned.contains(said) && !warned.contains("slack has"), "{warned}");
    assert!(warned.contains("plans.free.forecast.windows: the plan has no limit of a month"), "{warned}");
    assert!(!warned.contains("limit of a day") && !warned.contains("is empty"), "{warned}");
    assert!(checked("[]").contains("plans.free.forecast.windows is empty: no forecast is told"));
}

/// An operator who lowers a limit must learn that customers are no longer warned before its end.
#[test]
fn a_threshold_that_no_limit_of_its_plan_lets_come_due_is_warned_of() {
    let checked = |thresholds: &str| {
        let limits = r#"{"requests":["1000/hour","5000/day"]}"#;
        let command = quotabell(["check-config", "--offline"]).env("QUOTABELL__PLANS__FREE__LIMITS", limits);
        let checked = command.env("QUOTABELL__PLANS__FREE__THRESHOLDS", thresholds).run();
        assert_eq!(checked.code, 0, "{}", checked.stderr);
        checked.stderr
    };
    let warned = checked(r#"[80,"remaining:5000","used:90000"]"#);
    let said = "plans.free.thresholds: remaining:5000 is never due, no limit of the plan is higher";
    assert!(warned.contains(said) && !warned.contains("used:90000"), "{warned}");
    // The hourly limit is lower, and the daily limit is not.
    assert!(!checked(r#"[80,"remaining:4999"]"#).contains("never due"));
}

/// Other programs use HTTPS_PROXY, so an operator could search for days why webhooks do not. The password of that proxy
/// is not shown.
#[test]
fn a_proxy_of_the_environment_is_ignored_with_a_warning() {
    let run = || quotabell(["check-config", "--offline"]).env("HTTPS_PROXY", "http://u:hunter2@proxy.test:3128");
    let ignored = run().run();
    let said = "warning: HTTPS_PROXY is ignored and webhooks use no proxy: set webhook.proxy to use one";
    assert!(ignored.stderr.contains(said), "{}", ignored.stderr);
    let named = run().env("QUOTABELL__WEBHOOK__PROXY", "http://u:hunter2@proxy.test:3128").run();
    assert!(!named.stderr.contains("HTTPS_PROXY"), "{}", named.stderr);
    assert!(named.stdout.contains("proxy.test:3128") && !named.stdout.contains("hunter2"), "{}", named.stdout);
    let wrong = run().env("QUOTABELL__WEBHOOK__PROXY", "socks5://u:hunter2@proxy.test").run();
    assert_eq!(wrong.code, 78);
    assert!(wrong.stderr.contains("webhook.proxy") && !wrong.stderr.contains("hunter2"), "{}", wrong.stderr);
}

/// Email from example.com is refused or lost without another message. A mail server for experiments accepts it.
#[test]
fn a_sender_that_is_the_example_is_warned_of_where_mail_leaves() {
    let warns = |url: &str, from: Option<&str>| {
        let run = quotabell(["check-config", "--offline"]);
        let run = if url.is_empty() { run } else { run.env("QUOTABELL__EMAIL__SMTP_URL", url) };
        let run = from.into_iter().fold(run, |run, from| run.env("QUOTABELL__EMAIL__FROM", from));
        run.run().stderr.contains("warning: email.from is still an example")
    };
    let real = "smtp://mail.example.net:25";
    for from in [None, Some("alerts@example.com"), Some("Acme <alerts@Example.com>"), Some("quota@example.com")] {
        assert!(warns(real, from), "{from:?}");
        for local in ["smtp://127.0.0.1:1025", "smtp://localhost:1025", "smtp://[::1]:1025"] {
            assert!(!warns(local, from), "{local} {from:?}");
        }
    }
    assert!(!warns(real, Some("a@b.test")) && !warns("", None));
}

/// Names may contain colons and commas that nobody quotes as the RFC requires.
#[test]
fn a_sender_may_have_any_name() {
    for (from, code) in
        [("Acme, Inc.: alerts <a@b.test>", 0), ("a@b.test", 0), ("Acme: alerts", 78), ("Acme <a b>", 78)]
    {
        let finished = quotabell(["check-config", "--offline"]).env("QUOTABELL__EMAIL__FROM", from).run();
        assert_eq!(finished.code, code, "{from}: {}", finished.stderr);
    }
}

/// Without email contacts no mail server is needed; with one it is.
#[test]
fn the_default_mail_server_is_missed_only_where_it_is_wanted() {
    let server = RedisServer::start();
    let finished = check(&server.url()).run();
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let fallback = r#"[{"channel":"email","address":"ops@example.com"}]"#;
    let wanted = check(&server.url()).env("QUOTABELL__FALLBACK__CONTACTS", fallback).run();
    if finished.stderr.contains("warning: no mail server") {
        assert!(wanted.code == 1 && wanted.stderr.contains("failed: the mail server"), "{}", wanted.stderr);
    }
}

/// Without a binary `run` would fail, so this command does too.
#[test]
fn the_embedded_server_needs_a_binary() {
    let port = free_port().to_string();
    let offline = || quotabell(["check-config"]).env("QUOTABELL__REDIS__EMBEDDED_PORT", &port);
    let path = std::env::var_os("PATH").expect("a PATH");
    let cases = [
        ("without a binary", offline().env("PATH", "/nowhere").run()),
        ("with a binary", offline().env("PATH", path).run()),
    ];
    snapshot("embedded", cases);
    let server = RedisServer::start();
    let runs = quotabell(["check-config"]).env("QUOTABELL__REDIS__EMBEDDED_PORT", server.port().to_string()).run();
    assert!(runs.code == 0 && runs.stderr.contains("ok: Redis answers"), "{}", runs.stderr);
}

/// People copy the example first, and packages install it with packaging/quotabell.service: it must start unchanged.
#[test]
fn the_example_and_the_unit_start_as_they_are() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = || quotabell(["check-config", "--offline", "--config", "config/example.toml"]).within(root);
    let unit = std::fs::read_to_string(root.join("packaging/quotabell.service")).expect("the unit is there");
    let package = std::fs::read_to_string(root.join("packaging/nfpm.yaml")).expect("the package is there");
    assert!(package.contains("config/example.toml, dst: /etc/quotabell/quotabell.toml, type: config|noreplace"));
    assert!(unit.contains("\nExecStart=/usr/bin/quotabell run --config /etc/quotabell/quotabell.toml\n"));
    assert!(package.contains("files/quotabell, dst: /usr/bin/quotabell,"));
    let variables = |start: &str| -> Vec<(String, String)> {
        let lines = unit.lines().filter_map(|line| line.strip_prefix(start));
        lines.filter_map(|line| line.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let with =
        |variables: &[(String, String)]| variables.iter().fold(example(), |run, (name, value)| run.env(name, value));
    for run in [example(), with(&variables("Environment="))] {
        let finished = run.run();
        assert_eq!(finished.code, 0, "{}", finished.stderr);
    }
    // The credentials in the unit's comments: if uncommented, they override the file.
    let credentials = tempfile::tempdir().expect("a folder");
    let (_key_folder, key) = key_of(1024);
    let key = std::fs::read_to_string(key).expect("the key is there");
    let secrets = [
        ("redis_url", "redis://:pw@127.0.0.1:6379"),
        ("smtp_url", "smtps://u:pw@mail.example.com"),
        ("http_token", "0123456789abcdef0123456789abcdef"),
        ("dkim_key", key.as_str()),
    ];
    for (name, secret) in secrets {
        std::fs::write(credentials.path().join(name), secret).expect("written");
    }
    let mut uncommented = variables("Environment=");
    let folder = credentials.path().to_str().expect("UTF-8");
    uncommented.extend(variables("#Environment=").into_iter().map(|(name, value)| (name, value.replace("%d", folder))));
    // The file states the other required key.
    let file = std::fs::read_to_string(root.join("config/example.toml")).expect("the example is there");
    let config = credentials.path().join("quotabell.toml");
    std::fs::write(
        &config,
        format!("{file}\n[email.dkim]\ndomain = \"example.com\"\nselector = \"q1\"\nkey_file = \"/etc/dkim.pem\"\n"),
    )
    .expect("written");
    let run = quotabell(["check-config", "--offline", "--config", config.to_str().expect("UTF-8")]);
    let finished = uncommented.iter().fold(run, |run, (name, value)| run.env(name, value)).run();
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    for (name, _) in secrets {
        assert!(finished.stdout.contains(&format!("{folder}/{name}")), "{}", finished.stdout);
    }
}

/// A key that root wrote with the document's commands was unreadable for the unit or the image, although `check-config`
/// as root reported success.
#[test]
fn check_config_judges_as_the_daemons_user() {
    let (folder, key) = key_of(1024);
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    open(folder.path(), 0o755);
    open(&key, 0o600);
    let run = |user: &[&str]| {
        let run = quotabell([&["check-config", "--offline"], user].concat());
        let run =
            run.env("QUOTABELL__EMAIL__DKIM__DOMAIN", "example.com").env("QUOTABELL__EMAIL__DKIM__SELECTOR", "q1");
        run.env("QUOTABELL__EMAIL__DKIM__KEY_FILE", key.to_str().expect("UTF-8")).run()
    };
    assert_eq!(run(&[]).code, 0, "whoever wrote it can read it");
    let is_root = std::fs::metadata(&key).expect("it is there").uid() == 0;
    let as_other = run(&["--user", "10001"]);
    match is_root {
        true => {
            assert_eq!(as_other.code, 78, "{}", as_other.told());
            assert!(as_other.stderr.contains("email.dkim.key_file"), "{}", as_other.stderr);
            open(&key, 0o644);
            assert_eq!(run(&["--user", "10001"]).code, 0);
        }
        false => assert!(as_other.code == 1 && as_other.stderr.contains("run it as root"), "{}", as_other.told()),
    }
    assert_eq!(run(&["--user", "no-such-user"]).code, 2);
}

/// Files are checked before anything is connected to: exit 78.
#[test]
fn what_is_wrong_with_files_ends_it_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("alert.txt"), "{{ subject }}\n{{ useed }}\n").expect("written");
    for (name, value) in [
        ("QUOTABELL__EMAIL__TEMPLATES", folder.path().to_str().expect("UTF-8")),
        ("QUOTABELL__EMAIL__TEMPLATES", "/absent"),
        ("QUOTABELL__EMAIL__CA_FILE", "/absent.pem"),
        ("QUOTABELL__REDIS__URL_FILE", "/absent"),
        ("QUOTABELL__REDIS__URL", "redis//oops"),
        ("QUOTABELL__EMAIL__SMTP_URL", "smtp://user:topsecret@mail.example.com:25"),
    ] {
        let finished = quotabell(["check-config", "--offline"]).env(name, value).run();
        assert!(finished.code == 78 && finished.stdout.is_empty(), "{name}={value}: {}", finished.told());
        assert!(finished.stderr.contains("\nhint: ") && !finished.stderr.contains("topsecret"), "{}", finished.stderr);
    }
    let broken = quotabell(["check-config", "--offline"]).env("QUOTABELL__EMAIL__TEMPLATES", folder.path()).run();
    assert!(broken.stderr.contains("alert.txt, line 2: \"useed\" is not known"), "{}", broken.stderr);
}

/// A copy for the operator would be written in the standard form, which its receiver does not accept.
#[test]
fn a_template_that_a_contact_of_the_operator_names_must_be_there() {
    let contact = r#"[{"channel":"webhook","url":"https://a.test/","format":"template:gone"}]"#;
    for section in ["FALLBACK", "OPERATOR"] {
        let variable = format!("QUOTABELL__{section}__CONTACTS");
        let finished = quotabell(["check-config", "--offline"]).env(&variable, contact).run();
        assert_eq!(finished.code, 78, "{section}: {}", finished.stderr);
        let said = format!(r#"{}.contacts[0]: there is no template "gone""#, section.to_lowercase());
        assert!(finished.stderr.contains(&said), "{}", finished.stderr);
    }
}

/// Commands reach Redis as the daemon does: with the authorities of `redis.ca_file` only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_trust_the_authorities_of_the_configuration() {
    let server = RedisServer::start();
    let certificates = Certificates::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (acceptor, plain) = (certificates.acceptor(), server.port());
    let proxy = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            tokio::spawn(async move {
                let mut redis = TcpStream::connect(("127.0.0.1", plain)).await.expect("Redis runs");
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut redis).await;
            });
        }
    });
    let command = |line: &str| quotabell(line.split(' ')).redis(&format!("rediss://localhost:{port}"));
    for line in ["subject list", "alerts", "check-config"] {
        let trusted = command(line).env("QUOTABELL__REDIS__CA_FILE", certificates.authority_file()).run();
        assert_eq!(trusted.code, 0, "{line}: {}", trusted.stderr);
        let untrusted = command(line).run();
        assert!(untrusted.code == 1 && untrusted.stderr.contains("redis.ca_file"), "{line}: {}", untrusted.stderr);
    }
    proxy.abort();
}

/// With an untranslated default language everybody gets English.
#[test]
fn a_default_locale_without_templates_is_warned_of() {
    let checked = quotabell(["check-config", "--offline"]).env("QUOTABELL__EMAIL__LOCALE", "ja-JP").run();
    assert_eq!(checked.code, 0);
    let warning = "email.locale is ja-JP, which has no templates: emails are written in en";
    assert!(checked.stderr.contains(warning), "{}", checked.stderr);
    let checked = quotabell(["check-config", "--offline"]).env("QUOTABELL__EMAIL__LOCALE", "vi-VN").run();
    assert!(!checked.stderr.contains("email.locale"), "{}", checked.stderr);
}

/// In an image without ca-certificates every webhook failed without an earlier warning.
#[test]
fn a_machine_without_certificate_authorities_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = || quotabell(["check-config", "--offline"]).env("SSL_CERT_DIR", folder.path());
    let told = check().env("SSL_CERT_FILE", "/dev/null").run();
    assert_eq!(told.code, 0, "{}", told.stderr);
    let said =
        "has no certificate authorities, so no certificate is trusted: install ca-certificates, or set webhook.ca_file";
    assert!(told.stderr.contains(said), "{}", told.stderr);
}

/// The first partition may have counted nothing yet: the separator of any partition's last commit tells that ids change
/// their meaning, and that subjects may belong to other partitions.
#[test]
fn another_separator_is_told_whatever_partition_has_counted() {
    let server = RedisServer::start();
    let fields = [("id", "5-0"), ("format", "2"), ("separator", "")];
    let () = connection(&server).hset_multiple("quota_checkpoint:{usage:1}", &fields).expect("set");
    let () = connection(&server).hset("quota_subject:acme/a", "plan", "free").expect("set");
    let checked =
        check(&server.url()).env("QUOTABELL__STREAM__PARTITIONS", "2").env("QUOTABELL__SUBJECTS__SEPARATOR", "/").run();
    let told = "subjects.separator is \"/\", and was \"\" at the last commit: 1 subject with settings contains it \
         (acme/a) and will be levels of a tree; those subjects may belong to another partition, where they begin at zero";
    assert!(checked.stderr.contains(told), "{}", checked.stderr);
}
