//! `subject import` on a real server.

use std::fs;
use std::path::Path;

use crate::support::binary::{Quotabell, quotabell};
use crate::support::redis_server::RedisServer;

fn field(server: &RedisServer, subject: &str, field: &str) -> Option<String> {
    let mut connection = server.sync_client().get_connection().expect("it runs");
    redis::cmd("HGET").arg(format!("quota_subject:{subject}")).arg(field).query(&mut connection).expect("a hash")
}

fn subjects(server: &RedisServer) -> usize {
    let mut connection = server.sync_client().get_connection().expect("it runs");
    let keys: Vec<String> = redis::cmd("KEYS").arg("quota_subject:*").query(&mut connection).expect("keys");
    keys.len()
}

fn import(server: &RedisServer, folder: &Path, text: &str, options: &[&str]) -> Quotabell {
    fs::write(folder.join("subjects"), text).expect("the folder is writable");
    quotabell(["subject", "import", "subjects"].iter().chain(options).copied()).redis(&server.url()).within(folder)
}

const MIXED: &str = "\
subject,plan,timezone,limit:requests,thresholds,email,webhook,webhook_secret
alice,free,UTC,100,\"50,80\",a@b.test,,
bob,gold,,,,,,
carol,,Hanoi,,,,,
,free,,,,,,
dave,,,0,,,,
erin,,,none,,,,
frank,free
grace,,,,,,example.com,
heidi,,,,,,,whsec_AAAA
ivan,,,,,,https://x.test/h,
";

/// A file with bad lines is normal: each must be reported, and none may stop the others.
#[test]
fn bad_lines_are_reported_and_the_others_imported() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let finished = import(&server, folder.path(), MIXED, &[]).run();
    assert_eq!(finished.code, 1);
    insta::with_settings!({filters => vec![(r"whsec_[A-Za-z0-9+/=]{44}", "whsec_GENERATED")]}, {
        insta::assert_snapshot!(finished.told());
    });
    assert_eq!(field(&server, "alice", "thresholds").as_deref(), Some("50,80"));
    assert_eq!(field(&server, "alice", "limit:requests").as_deref(), Some("100"));
    assert!(field(&server, "ivan", "contacts").is_some_and(|contacts| contacts.contains("whsec_")));
    assert_eq!(subjects(&server), 2);
}

/// An unreachable limit is probably a mistake, and is imported anyway, with a warning.
#[test]
fn limits_that_contradict_each_other_are_warned_of() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = "subject,limit:requests\nalice,600/hour 5000/day\nbob,600/hour 500/day\n";
    let warning =
        "line 3: warning: the limits of requests: 600/hour is above 500/day: the limit of the day is reached first";
    for options in [&["--dry-run"][..], &[]] {
        let finished = import(&server, folder.path(), text, options).run();
        assert_eq!((finished.code, finished.stderr.matches("reached first").count()), (0, 1), "{}", finished.told());
        assert!(finished.stderr.contains(warning), "{}", finished.told());
    }
    assert_eq!(field(&server, "bob", "limit:requests").as_deref(), Some("600/hour 500/day"));
}

/// A check must write nothing and find the same lines.
#[test]
fn a_dry_run_writes_nothing_and_needs_no_redis() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let finished = import(&server, folder.path(), MIXED, &["--dry-run"]).redis("redis://127.0.0.1:1").run();
    assert_eq!((finished.code, subjects(&server)), (1, 0));
    assert_eq!(finished.stderr.lines().filter(|line| line.starts_with("line ")).count(), 7, "{}", finished.stderr);
    // A secret that is not stored need not be kept.
    assert!(!finished.stdout.contains("whsec_"), "{}", finished.stdout);
}

/// More lines than one write holds, from stdin, as JSON Lines.
#[test]
fn many_json_lines_are_imported_from_stdin() {
    let server = RedisServer::start();
    let text: String =
        (0..1201).map(|number| format!("{{\"subject\":\"s{number}\",\"limit:requests\":{}}}\n", number + 1)).collect();
    let finished = quotabell(["subject", "import", "-", "--json"]).redis(&server.url()).stdin(&text).run();
    let summary = finished.expect_json().remove(0);
    assert_eq!((&summary["imported"], subjects(&server)), (&1201.into(), 1201));
    assert_eq!(field(&server, "s1200", "limit:requests").as_deref(), Some("1201"));
}

/// Windows and billing days, as a spreadsheet and as a program write them.
#[test]
fn windows_and_billing_days_are_imported() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let csv = "subject,billing_day,billing_month,limit:requests\nalice,15,4,5000/day 600/hour\nbob,32,,\ncarol,0,,\n\
               dave,,,7/hour 7/hour\nerin,31,,\nfrank,,13,\n";
    let finished = import(&server, folder.path(), csv, &[]).run();
    assert_eq!(field(&server, "alice", "limit:requests").as_deref(), Some("600/hour 5000/day"));
    assert_eq!(field(&server, "alice", "billing_day").as_deref(), Some("15"));
    assert_eq!(field(&server, "alice", "billing_month").as_deref(), Some("4"));
    assert_eq!(field(&server, "erin", "billing_day").as_deref(), Some("31"));
    for (line, why) in [
        (3, "billing_day: \"32\": a billing day is a day of the month, 1 to 31"),
        (4, "billing_day: \"0\": a billing day is a day of the month, 1 to 31"),
        (5, "limit:requests: two limits for the same window, 7/hour and 7/hour: a window has one"),
        (7, "billing_month: \"13\": a billing month is a month of the year, 1 to 12"),
    ] {
        assert!(finished.stderr.contains(&format!("line {line}: {why}")), "{}", finished.stderr);
    }
    let json = "{\"subject\":\"alice\",\"limit:requests\":[7,\"600/month\"],\"billing_day\":1}\n";
    import(&server, folder.path(), json, &[]).run().expect_done();
    assert_eq!(field(&server, "alice", "limit:requests").as_deref(), Some("7/day 600/month"));
    assert_eq!(field(&server, "alice", "billing_day").as_deref(), Some("1"));
}

/// An invalid locale makes a bad line: otherwise the customer would get another language.
#[test]
fn locales_are_imported() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let finished = import(&server, folder.path(), "subject,locale\nalice,VI\nbob,vi_VN\ncarol,ja\n", &[]).run();
    assert_eq!(field(&server, "alice", "locale").as_deref(), Some("vi"));
    assert_eq!(field(&server, "carol", "locale").as_deref(), Some("ja"));
    assert!(
        finished.stderr.contains("line 3: locale: \"vi_VN\" is not a language tag (BCP 47)"),
        "{}",
        finished.stderr
    );
    import(&server, folder.path(), "{\"subject\":\"alice\",\"locale\":\"pt-br\"}\n", &[]).run().expect_done();
    assert_eq!(field(&server, "alice", "locale").as_deref(), Some("pt-BR"));
}

/// The file can set the filter of each contact, in CSV and JSON.
#[test]
fn thresholds_and_metrics_of_contacts_are_imported() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let heard = |subject: &str| {
        let stored = field(&server, subject, "contacts").expect("contacts");
        let contacts: Vec<serde_json::Value> = serde_json::from_str(&stored).expect("a list");
        contacts.iter().map(|contact| format!("{} {}", contact["thresholds"], contact["metrics"])).collect::<Vec<_>>()
    };
    let csv = "subject,email,email_thresholds,email,email_thresholds,email_metrics\n\
        alice,a@b.test,,cto@b.test,\"100, 80\",requests\nbob,a@b.test,1001,,,\ncarol,,80,,,\n";
    let finished = import(&server, folder.path(), csv, &[]).run();
    assert_eq!(heard("alice"), ["null [\"requests\"]", "[80,100] null"]);
    assert!(finished.stderr.contains("line 3: email 1: \"1001\": a threshold must be"), "{}", finished.stderr);
    assert!(finished.stderr.contains("line 4: email thresholds 1 has no email 1"), "{}", finished.stderr);
    let json = r#"{"subject":"dave","email":["a@b.test","b@b.test"],"email_thresholds":[null,[80,100]],"email_metrics":["all","tokens,requests"]}"#;
    import(&server, folder.path(), json, &[]).run().expect_done();
    assert_eq!(heard("dave"), ["null null", "[80,100] [\"requests\",\"tokens\"]"]);
    import(&server, folder.path(), r#"{"subject":"dave","email":"b@b.test","email_thresholds":"all"}"#, &[])
        .run()
        .expect_done();
    assert_eq!(heard("dave"), ["null [\"requests\",\"tokens\"]"]);
}

/// A line that can't be imported is told by a dry run too: somebody relies on it before the file is used.
#[test]
fn paths_and_contacts_of_branches_are_checked_also_by_a_dry_run() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let csv = "subject,plan,email,email_subtree\nacme,free,a@b.test,true\nacme//x,free,,\na/b/c/d/e,free,,\n\
        a/b/c/d,free,a@b.test,true\nb/c,,b@b.test,false\n";
    let told = |separator: &str, options: &[&str]| {
        import(&server, folder.path(), csv, options).env("QUOTABELL__SUBJECTS__SEPARATOR", separator).run()
    };
    let deep = "line 5: subject a/b/c/d: subtree has no meaning: a subject of 4 levels has none below it";
    let paths =
        ["line 3: subject acme//x: subject has an empty part", "line 4: subject a/b/c/d/e: subject has 5 levels", deep];
    let flat = "subtree has no meaning: without subjects.separator, subjects have no levels";
    let flat = [format!("line 2: subject acme: {flat}"), format!("line 5: subject a/b/c/d: {flat}")];
    for options in [&["--dry-run"][..], &[]] {
        let done = if options.is_empty() { "imported" } else { "would import" };
        let run = told("/", options);
        assert!(run.code == 1 && run.stderr.contains(&format!("{done} 2 lines")), "{}", run.told());
        assert!(paths.iter().all(|why| run.stderr.contains(why)), "{}", run.told());
        let run = told("", options);
        assert!(run.code == 1 && run.stderr.contains(&format!("{done} 3 lines")), "{}", run.told());
        assert!(flat.iter().all(|why| run.stderr.contains(why.as_str())), "{}", run.told());
    }
}

/// Each alert goes to each contact: a file with thousands by mistake must be refused, as must additions beyond the
/// maximum.
#[test]
fn more_contacts_than_are_allowed_are_refused_with_the_setting() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let row = |subject: &str, range: std::ops::Range<usize>| {
        let addresses: Vec<String> = range.map(|number| format!("{number}@b.test")).collect();
        serde_json::json!({"subject": subject, "email": addresses}).to_string()
    };
    let said = "16 contacts are the maximum of a subject (subjects.contacts_max)";
    for options in [&[][..], &["--dry-run"]] {
        let text = [row("alice", 0..17), row("bob", 0..16)].join("\n");
        let finished = import(&server, folder.path(), &text, options).run();
        assert!(finished.code == 1 && finished.stderr.contains(&format!("line 1: {said}")), "{}", finished.told());
        assert!(finished.stderr.contains("1 line"), "bob is imported: {}", finished.told());
    }
    assert!(field(&server, "alice", "contacts").is_none() && field(&server, "bob", "contacts").is_some());
    let many: Vec<String> = (0..17).map(|number| format!("--email={number}@b.test")).collect();
    let set = ["subject", "set", "bob"].into_iter().chain(many.iter().map(String::as_str)).collect();
    for arguments in [set, vec!["contact", "add", "bob", "--email", "17@b.test"]] {
        let refused = quotabell(arguments).redis(&server.url()).run();
        assert!(refused.code == 1 && refused.stderr.contains(said), "{}", refused.told());
    }
    import(&server, folder.path(), &row("bob", 1..17), &[]).run().expect_done();
}

/// A subject that is copied from its own output must lose nothing without a message.
#[test]
fn what_show_prints_is_imported_where_it_holds_no_contacts() {
    let server = RedisServer::start();
    let run = |arguments: &[&str]| quotabell(arguments.iter().copied()).redis(&server.url());
    let set = ["--plan", "free", "--limit", "requests=600/hour 5000/day", "--threshold", "50", "--billing-day", "15"];
    run(&[&["subject", "set", "alice", "--timezone", "UTC", "--locale", "vi"], &set[..]].concat()).run().expect_done();
    run(&["subject", "set", "bob", "--plan", "free"]).run().expect_done();
    for subject in ["alice", "bob"] {
        let shown = run(&["subject", "show", subject, "--json"]).run().expect_done();
        let copy = shown.replacen(&format!("\"{subject}\""), "\"copy\"", 1);
        run(&["subject", "remove", "copy"]).run();
        run(&["subject", "import", "-"]).stdin(&copy).run().expect_done();
        assert_eq!(run(&["subject", "show", "copy", "--json"]).run().expect_done(), copy);
    }
    run(&["subject", "set", "bob", "--email", "a@b.test"]).run().expect_done();
    let shown = run(&["subject", "show", "bob", "--json"]).run().expect_done();
    let refused = run(&["subject", "import", "-"]).stdin(&shown).run();
    let why =
        "line 1: contacts must be empty, because they are listed without secrets: use the fields email and webhook";
    assert!(refused.code == 1 && refused.stderr.contains(why), "{}", refused.told());
}

/// An empty cell changes nothing.
#[test]
fn empty_cells_leave_settings_alone() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    import(&server, folder.path(), "subject,plan,email\nalice,free,a@b.test\n", &[]).run().expect_done();
    import(&server, folder.path(), "subject,plan,email,timezone\nalice,,,UTC\n", &[]).run().expect_done();
    assert_eq!(field(&server, "alice", "plan").as_deref(), Some("free"));
    assert!(field(&server, "alice", "contacts").is_some());
}

/// The hint for bad lines says to import again: that must not change the secrets of receivers.
#[test]
fn importing_again_keeps_the_secrets_of_webhooks() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = "subject,email,webhook,webhook_secret\nalice,,https://a.test,\nbob,b@b.test,,\ncarol,,https://c.test,\n";
    let first = import(&server, folder.path(), text, &[]).run().expect_done();
    assert_eq!(first.lines().count(), 2, "{first}");
    let before = [field(&server, "alice", "contacts"), field(&server, "carol", "contacts")];
    let again = import(&server, folder.path(), text, &[]).run().expect_done();
    assert_eq!(again, "");
    assert_eq!([field(&server, "alice", "contacts"), field(&server, "carol", "contacts")], before);
    // Also if a broken key forces each line to be written separately.
    let mut connection = server.sync_client().get_connection().expect("it runs");
    let () = redis::cmd("SET").arg("quota_subject:dave").arg("x").query(&mut connection).expect("set");
    let more = format!("{text}dave,,https://d.test,\nerin,,https://e.test,\n");
    let broken = import(&server, folder.path(), &more, &[]).run();
    assert_eq!((broken.code, broken.stdout.lines().count()), (1, 1), "{}{}", broken.stdout, broken.stderr);
    assert!(broken.stdout.starts_with("erin  whsec_"), "{}", broken.stdout);
    assert_eq!([field(&server, "alice", "contacts"), field(&server, "carol", "contacts")], before);
}

/// A subject that occurs twice in the file has one secret: the printed one.
#[test]
fn a_subject_twice_in_a_file_has_the_secret_that_is_printed() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = "subject,webhook\nalice,https://a.test\nalice,https://a.test\n";
    let printed = import(&server, folder.path(), text, &[]).run().expect_done();
    assert_eq!(printed.lines().count(), 1, "{printed}");
    let secret = printed.split_whitespace().nth(1).expect("a secret");
    assert!(field(&server, "alice", "contacts").is_some_and(|contacts| contacts.contains(secret)), "{printed}");
}

/// A key of another type affects only its own line, not the five hundred of the same write.
#[test]
fn a_key_of_another_type_spoils_only_its_line() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut connection = server.sync_client().get_connection().expect("it runs");
    let () = redis::cmd("SET").arg("quota_subject:bob").arg("x").query(&mut connection).expect("set");
    let text = "subject,plan\nalice,free\nbob,free\ncarol,free\n";
    let finished = import(&server, folder.path(), text, &[]).run();
    assert!(
        finished.code == 1 && finished.stderr.contains("line 3: subject bob: \"WRONGTYPE\""),
        "{}",
        finished.stderr
    );
    assert_eq!(field(&server, "carol", "plan").as_deref(), Some("free"));
}

/// A misspelled column would import a file without its plans.
#[test]
fn a_bad_header_stops_the_import() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    for text in ["subject,paln\nalice,free\n", "plan\nfree\n"] {
        let finished = import(&server, folder.path(), text, &[]).run();
        assert!(finished.code == 1 && finished.stderr.contains("line 1: "), "{}", finished.stderr);
        assert_eq!(subjects(&server), 0);
    }
}

/// Lines before the first unreadable one are imported, and the output says so.
#[test]
fn an_open_quote_ends_the_import_after_the_good_lines() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let finished = import(&server, folder.path(), "subject,plan\nalice,free\n\"bob,free\n", &[]).run();
    assert_eq!(finished.code, 1);
    assert!(finished.stderr.contains("imported 1 line") && finished.stderr.contains("line 3"), "{}", finished.stderr);
    assert_eq!(subjects(&server), 1);
}

/// A nightly import must neither unmute a contact nor remove a customer's consent.
#[test]
fn contacts_that_are_named_again_keep_what_is_known_of_them() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut connection = server.sync_client().get_connection().expect("it runs");
    let main = r#"{"id":"main","channel":"email","address":"a@b.test","muted":true}"#;
    let confirmed = r#"{"id":"c_9","channel":"email","address":"own@b.test","verified":true}"#;
    let stored = format!("[{main},{confirmed},{{\"channel\":\"email\",\"address\":\"old@b.test\"}},7]");
    for (subject, contacts) in [("alice", stored.as_str()), ("bob", "[{]")] {
        let key = format!("quota_subject:{subject}");
        let () = redis::cmd("HSET").arg(key).arg("contacts").arg(contacts).query(&mut connection).expect("written");
    }
    let text = "subject,email\nalice,a@b.test\nbob,b@b.test\ncarol,c@b.test\n";
    let finished = import(&server, folder.path(), text, &[]).run();
    assert_eq!(field(&server, "alice", "contacts"), Some(format!("[{main},{confirmed},7]")));
    assert!(finished.stderr.contains("line 2: warning: kept contacts that can't be read"), "{}", finished.stderr);
    assert!(finished.stderr.contains("line 3: subject bob: its field contacts is not a JSON array"));
    assert_eq!((finished.code, field(&server, "bob", "contacts").as_deref()), (1, Some("[{]")));
    import(&server, folder.path(), text, &["--replace-all-contacts"]).run().expect_done();
    assert_eq!(field(&server, "alice", "contacts"), Some(format!("[{main}]")));
    assert!(field(&server, "bob", "contacts").is_some_and(|contacts| contacts.contains("b@b.test")));
}

/// A team's chats can be imported with its customers, and are checked before anything is written.
#[test]
fn formats_and_headers_are_imported() {
    let server = RedisServer::start();
    let lines = r#"{"subject":"a","webhook":"https://x.test/a","webhook_format":"slack","webhook_headers":{"X-Team":"ops"}}
{"subject":"b","webhook":["https://x.test/b","https://y.test/b"],"webhook_format":[null,"teams"],"webhook_headers":[null,{"X-Team":"b"}]}
{"subject":"c","webhook":"https://x.test/c","webhook_format":"template:gone"}
{"subject":"d","webhook":"https://x.test/d","webhook_headers":"[1]"}
"#;
    let run = quotabell(["subject", "import", "-"]).redis(&server.url()).stdin(lines).run();
    assert_eq!(run.code, 1, "{}", run.told());
    assert!(run.stderr.contains("line 3: there is no template \"gone\""), "{}", run.stderr);
    assert!(run.stderr.contains("line 4: webhook headers must be a JSON object of strings"), "{}", run.stderr);
    assert_eq!(run.stdout.lines().count(), 1, "only the standard one needs a secret: {}", run.stdout);
    let csv =
        "subject,webhook,webhook_format,webhook_headers\ne,https://x.test/e,discord,\"{\"\"X-Team\"\":\"\"e\"\"}\"\n";
    quotabell(["subject", "import", "-"]).redis(&server.url()).stdin(csv).run().expect_done();
    let contacts = |subject: &str| {
        let shown = quotabell(["subject", "show", subject, "--json"]).redis(&server.url()).run().expect_json();
        shown[0]["contacts"].as_array().expect("contacts").iter().map(|one| one["format"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(contacts("a"), ["slack"]);
    assert_eq!(contacts("b"), [serde_json::Value::Null, "teams".into()]);
    assert_eq!(contacts("e"), ["discord"]);
}

/// Two customers whose ids a spreadsheet has rounded to one number would silently share one count.
#[test]
fn what_a_spreadsheet_has_done_to_subjects_is_warned_of() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = "subject;plan;;\r\n1.23457E+14;free;;\r\n1.23457E+14;free;;\r\n;;;\r\nal\u{200b}ice;free;;\r\nbob ;free;;\r\n\
                \"carol \";free;;\r\nbob;free;;\r\n";
    let finished = import(&server, folder.path(), text, &[]).run();
    assert_eq!(finished.code, 0, "{}", finished.told());
    let warnings: Vec<&str> = finished.stderr.lines().filter(|line| line.contains(": warning: ")).collect();
    let exponent = "subject \"1.23457E+14\" is a number in exponent form: if a spreadsheet has rounded it, format the \
                    column as text";
    let expected = [
        format!("line 2: warning: {exponent}"),
        format!("line 3: warning: {exponent}"),
        "line 3: warning: subject \"1.23457E+14\" is also named in line 2: each of the two lines changes it".to_owned(),
        "line 5: warning: subject \"al\\u{200b}ice\" holds invisible letters: U+200B".to_owned(),
        "line 6: warning: subject \"bob\": the spaces around it were left out".to_owned(),
        "line 7: warning: subject \"carol \" begins or ends with a space, which is part of it".to_owned(),
        "line 8: warning: subject \"bob\" is also named in line 6: each of the two lines changes it".to_owned(),
    ];
    assert_eq!(warnings, expected);
    assert_eq!(subjects(&server), 4);
}

/// An empty file must not look like a successful import.
#[test]
fn an_empty_file_is_an_error() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let finished = import(&server, folder.path(), "\u{feff}\r\n", &[]).run();
    assert_eq!(finished.code, 1, "{}", finished.told());
    assert!(finished.stderr.contains("the file is empty"), "{}", finished.told());
}
