//! The documents match the code: keys, defaults, metrics, reasons, names of tests, and the users of Redis.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::support::receivers::{Answer, HttpCatcher, SmtpCatcher, SmtpSetup};
use quotabell::api::routes::{Access, ROUTES};
use quotabell::config::DEFAULTS;
use quotabell::redis_client::RedisClient;
use quotabell::types::meters::{self, MeterKind};
use quotabell::types::{Keys, RefusalReason};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::support::api::Caller;
use crate::support::binary::quotabell;
use crate::support::daemon::NO_FOLDER;
use crate::support::echo_receiver::{Echo, EchoReceiver};
use crate::support::eventually::eventually;
use crate::support::redis_server::{RedisServer, free_port};
use crate::support::redis_users::{PASSWORD, documented_user, expect_nothing_refused, set_user};

const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

pub(crate) fn text_of(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The cells of every row of every table in the text.
fn rows(markdown: &str) -> Vec<Vec<String>> {
    let is_row = |line: &&str| line.starts_with('|') && !line.starts_with("|---");
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    markdown.lines().filter(is_row).map(cells).collect()
}

/// The texts between backticks.
pub(crate) fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// A setting in `config/default.toml`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Setting {
    pub section: String,
    pub key: String,
    /// The value's text; `unset` if it is commented out.
    default: String,
}

pub(crate) fn settings_of(defaults: &str) -> Vec<Setting> {
    let mut section = String::new();
    let mut settings = Vec::new();
    for line in defaults.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
        }
        let optional = line.strip_prefix("# ");
        let Some((key, value)) = optional.unwrap_or(line).split_once(" = ") else { continue };
        if !key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
            continue;
        }
        let default = if optional.is_some() { "unset".to_owned() } else { format!("`{value}`") };
        settings.push(Setting { section: section.clone(), key: key.to_owned(), default });
    }
    settings
}

fn settings_documented(markdown: &str) -> Vec<Setting> {
    let mut section = String::new();
    let mut settings = Vec::new();
    for row in rows(markdown) {
        let name = quoted(&row[0]).first().map(|name| (*name).to_owned());
        match name {
            Some(name) if name.starts_with('[') => section = name.trim_matches(['[', ']']).replace("NAME", "free"),
            Some(key) => settings.push(Setting {
                section: section.clone(),
                key,
                default: row[1].strip_prefix("`free`: ").unwrap_or(&row[1]).to_owned(),
            }),
            None => {}
        }
    }
    settings
}

/// A default that was changed in one place is wrong in the other.
#[test]
fn every_setting_is_documented_with_its_default() {
    let documented = settings_documented(&text_of("docs/configuration.md"));
    let settings = settings_of(DEFAULTS);
    assert!(settings.len() > 30, "{settings:?}");
    let both: BTreeSet<&Setting> = documented.iter().collect();
    for setting in &settings {
        assert!(both.contains(setting), "docs/configuration.md lacks {setting:?}");
    }
    assert_eq!(documented.len(), settings.len(), "docs/configuration.md names settings that are not there");
}

/// The routes of the first table of docs/http-api.md, with what it says about their token. A cell may shorten later
/// routes: `DELETE ...` repeats the path, `/retry` replaces its end.
fn routes_documented(markdown: &str) -> BTreeSet<(String, String, String)> {
    let table = markdown.lines().skip_while(|line| !line.starts_with("| route |")).skip(2);
    let table: Vec<&str> = table.take_while(|line| line.starts_with('|')).collect();
    let mut routes = BTreeSet::new();
    for row in rows(&table.join("\n")) {
        let (mut method, mut path) = (String::new(), String::new());
        for name in quoted(&row[0]) {
            match name.split_once(' ') {
                Some((other, "...")) => other.clone_into(&mut method),
                Some((named, at)) => (method, path) = (named.to_owned(), at.to_owned()),
                None => path.replace_range(path.rfind('/').expect("a path")..path.len(), name),
            }
            routes.insert((method.clone(), path.clone(), row[1].clone()));
        }
    }
    routes
}

/// Authors of clients without the OpenAPI document use that table.
#[test]
fn every_route_is_documented_with_its_token() {
    let routes = ROUTES.iter().map(|route| {
        let token = match route.access {
            Access::Open => "open".to_owned(),
            Access::IfSet(scope) => format!("`{scope}`, if a token is set"),
            Access::Needs(scope) => format!("`{scope}`"),
        };
        (route.method.to_owned(), route.path.to_owned(), token)
    });
    let (routes, documented): (BTreeSet<_>, _) = (routes.collect(), routes_documented(&text_of("docs/http-api.md")));
    let lacks: Vec<_> = routes.difference(&documented).collect();
    let invents: Vec<_> = documented.difference(&routes).collect();
    assert!(lacks.is_empty() && invents.is_empty(), "docs/http-api.md lacks {lacks:?}, and has {invents:?} too many");
}

/// Dashboards are built with that table.
#[test]
fn every_metric_is_documented_with_its_kind() {
    let operations = text_of("docs/operations.md");
    let rows = rows(&operations);
    let documented: Vec<(&str, &str)> = rows
        .iter()
        .filter_map(|row| Some((*quoted(&row[0]).first()?, row.get(1)?.as_str())))
        .filter(|(name, _)| name.starts_with("quotabell_"))
        .collect();
    for meter in meters::ALL {
        let kind = match meter.kind {
            MeterKind::Counter | MeterKind::LabelledCounter => "counter",
            MeterKind::Gauge => "gauge",
            MeterKind::Histogram => "histogram",
        };
        assert!(documented.contains(&(meter.name, kind)), "docs/operations.md lacks {} as a {kind}", meter.name);
        let row = rows.iter().find(|row| quoted(&row[0]).first() == Some(&meter.name)).expect("documented");
        // Empty cells are omitted: a row without labels has three cells. Such a counter begins with 0.
        let is_plain = row.len() == 3;
        assert!(kind != "counter" || is_plain == (meter.kind == MeterKind::Counter), "{}: labels", meter.name);
    }
    assert_eq!(documented.len(), meters::ALL.len(), "docs/operations.md names metrics that are not there");
    for path in ["packaging/alerts.yaml", "packaging/grafana/quotabell.json"] {
        for name in quoted_metrics(&text_of(path)) {
            // The series of a histogram have a suffix.
            let name = name.trim_end_matches("_bucket").trim_end_matches("_count");
            assert!(meters::ALL.iter().any(|meter| meter.name == name), "{path} asks for {name}");
        }
    }
}

/// An operator looks up the rule of an alarm; and a rule with a label that does not exist never fires.
#[test]
fn every_alert_rule_is_documented_and_asks_for_labels_that_exist() {
    let rules = text_of("packaging/alerts.yaml");
    let operations = text_of("docs/operations.md");
    let named: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let rows = rows(&operations);
    let documented: BTreeSet<&str> =
        rows.iter().flat_map(|row| row[0].split(", ")).filter(|name| name.starts_with("Quotabell")).collect();
    assert_eq!(named.iter().copied().collect::<BTreeSet<_>>(), documented);
    assert!(named.len() == documented.len() && named.len() > 10, "{named:?}");
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap_or_default();
        for part in ["expr: ", "severity: ", "summary: ", "runbook_url: "] {
            assert_eq!(rule.matches(part).count(), 1, "{name}: {part}");
        }
        let link = rule.split("runbook_url: ").nth(1).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let (document, anchor) = link.split_once('#').unwrap_or_else(|| panic!("{name}: {link} has no anchor"));
        assert!(anchors(&text_of(document)).iter().any(|heading| heading == anchor), "{name}: no heading {link}");
        let expression = rule.split("expr: ").nth(1).and_then(|rest| rest.split("labels: ").next()).unwrap_or_default();
        for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
            assert_eq!(expression.matches(open).count(), expression.matches(close).count(), "{name}: {open}");
        }
        // A customer's receiver that fails for days must not cause an alarm.
        assert!(!expression.contains("quotabell_deliveries_dead") && !expression.contains("oldest_pending"), "{name}");
        for matcher in expression.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
            for (label, values) in matcher.split(',').filter_map(|one| one.split_once('=')) {
                let values = values.trim_matches(['~', '"']).split('|');
                let known: &[&str] = match label.trim_end_matches('!') {
                    "channel" => &["email", "webhook", "none"],
                    "outcome" => &["delivered", "rejected", "transient", "permanent"],
                    "state" => &["delivered", "dead", "open"],
                    "le" => &["600"],
                    "decision" => &["error_.*"],
                    "class" => &["transient", "permanent"],
                    "status" => &["503"],
                    other => panic!("{name}: a matcher of {other}"),
                };
                values.for_each(|value| assert!(known.contains(&value), "{name}: {label}={value}"));
            }
        }
    }
}

/// Helm reads no file outside the chart. A cluster whose rules are older than the documents warns of the wrong things.
#[test]
fn the_rules_of_the_chart_and_of_the_manifests_are_those_of_packaging() {
    let rules = text_of("packaging/alerts.yaml");
    let hint = "run make kubernetes";
    assert_eq!(text_of("packaging/helm/quotabell/alerts.yaml"), rules, "packaging/helm/quotabell/alerts.yaml: {hint}");
    let indented: Vec<String> = rules.lines().map(|line| format!("  {line}").trim_end().to_owned()).collect();
    assert!(text_of("packaging/kubernetes/monitoring.yaml").contains(&indented.join("\n")), "monitoring.yaml: {hint}");
}

fn quoted_metrics(rules: &str) -> Vec<&str> {
    let words = rules.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("quotabell_")).collect()
}

/// An operator looks up the reason of a refusal.
#[test]
fn every_reason_is_documented_in_its_order() {
    let operations = text_of("docs/operations.md");
    let known = RefusalReason::ALL.map(|reason| reason.as_str());
    let rows = rows(&operations);
    let names = rows.iter().flat_map(|row| quoted(&row[0]));
    let documented: Vec<&str> = names.filter(|name| known.contains(name)).collect();
    assert_eq!(documented, known);
}

/// Authors of external tools use the table of keys.
#[test]
fn every_key_is_documented() {
    let family = |text: &str| -> Option<String> {
        let name = text.strip_prefix("quota_")?;
        let name = name.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_').next()?;
        Some(name.to_owned()).filter(|name| !name.is_empty())
    };
    let table = text_of("docs/redis-keys.md");
    let documented: BTreeSet<String> = rows(&table).iter().flat_map(|row| quoted(&row[0])).filter_map(family).collect();
    let module = text_of("src/types/keys.rs");
    let code = module.split("#[cfg(test)]").next().unwrap_or_default();
    let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut spelled: BTreeSet<String> = code.flat_map(|line| line.split('"')).filter_map(family).collect();
    assert!(spelled.remove("reader"), "a channel is no key");
    assert_eq!(documented, spelled);
}

/// A promise without its test is only a sentence.
#[test]
fn every_test_named_under_the_guarantees_exists() {
    let guarantees = text_of("docs/guarantees.md");
    let named: Vec<(&str, &str)> = quoted(&guarantees).into_iter().filter_map(|name| name.split_once("::")).collect();
    let named: Vec<_> = named.into_iter().filter(|(file, _)| *file != "file").collect();
    assert!(named.len() > 30, "{named:?}");
    for (file, name) in named {
        let path = if file.starts_with("src/") { file.to_owned() } else { test_file(file) };
        assert!(text_of(&path).contains(&format!("fn {name}(")), "{path} has no test {name}");
    }
}

/// The file of the tests with this name: `tests/NAME.rs`, or in the folder of a test binary.
fn test_file(name: &str) -> String {
    let folders = ["tests", "tests/it", "tests/kill", "tests/model", "tests/torture"];
    let mut paths = folders.iter().map(|folder| format!("{folder}/{name}.rs"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    paths.find(|path| root.join(path).exists()).unwrap_or_else(|| panic!("no file {name}.rs in {folders:?}"))
}

/// Every Markdown document of the repository.
pub(crate) fn documents() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let in_folder = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(root.join(folder)).expect("a readable folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}{name}")).collect()
    };
    ["", "docs/", "docs/decisions/", "docs/internals/"].map(in_folder).concat()
}

/// The targets of the links in a text without pictures, which `make picture` draws.
fn links(markdown: &str) -> Vec<&str> {
    let follows = |(at, _): (usize, &str)| {
        let opens = markdown[..at].rfind('[').unwrap_or(0);
        let picture = markdown[..opens].ends_with('!');
        (!picture).then(|| markdown[at + 2..].split(')').next().unwrap_or_default())
    };
    markdown.match_indices("](").filter_map(follows).collect()
}

/// The anchors of a text's headings in GitHub's form.
fn anchors(markdown: &str) -> Vec<String> {
    let slug = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
        kept.collect::<String>().replace(' ', "-")
    };
    markdown.lines().filter(|line| line.starts_with('#')).map(slug).collect()
}

/// When a section moves to another document, its links must follow.
#[test]
fn every_link_between_the_documents_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut followed = 0;
    for document in documents() {
        let text = text_of(&document);
        for link in links(&text).into_iter().filter(|link| !link.starts_with("http")) {
            let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
            let folder = Path::new(&document).parent().expect("a folder");
            let target = if path.is_empty() { document.clone() } else { folder.join(path).display().to_string() };
            assert!(root.join(&target).exists(), "{document} leads to {link}, which is not there");
            if let Some(anchor) = anchor {
                let there = anchors(&text_of(&target));
                assert!(there.iter().any(|heading| heading == anchor), "{document} leads to {link}: no such heading");
            }
            followed += 1;
        }
    }
    assert!(followed > 50, "{followed} links");
}

/// Readers find a document by the map of its folder.
#[test]
fn the_map_names_every_document() {
    for folder in ["docs/", "docs/decisions/"] {
        let map = text_of(&format!("{folder}README.md"));
        let named = links(&map);
        let all = documents();
        // The decisions have their own map.
        let below = all.iter().filter_map(|document| document.strip_prefix(folder));
        for document in below.filter(|name| !name.starts_with("decisions/")) {
            assert!(document == "README.md" || named.contains(&document), "{folder}README.md lacks {document}");
        }
    }
}

/// The first minute with the program.
#[test]
fn the_configuration_of_the_quick_start_is_valid() {
    let readme = text_of("README.md");
    assert!(readme.contains("quotabell run --config config/quickstart.toml"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/quickstart.toml");
    let arguments = ["check-config", "--offline", "--config", file.to_str().expect("UTF-8")];
    quotabell(arguments).run().expect_done();
}

/// The server and its documented users.
struct Served {
    server: RedisServer,
}

impl Served {
    async fn start() -> Self {
        let server = RedisServer::start();
        for user in ["quotabell", "operator", "producer", "platform"] {
            set_user(&server.client(), &documented_user(user)).await;
        }
        Self { server }
    }

    fn url(&self, user: &str) -> String {
        format!("redis://{user}:{PASSWORD}@127.0.0.1:{}", self.server.port())
    }

    fn client(&self, user: &str) -> RedisClient {
        RedisClient::new(redis::Client::open(self.url(user)).expect("a URL"))
    }

    fn quotabell(&self, user: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quotabell"));
        command.args(arguments).env_clear().env("QUOTABELL__REDIS__URL", self.url(user)).kill_on_drop(true);
        for (name, value) in [
            ("WEBHOOK__ALLOW_HTTP", "true"),
            ("WEBHOOK__ALLOW_PRIVATE_NETWORKS", "true"),
            ("HTTP__LISTEN", "127.0.0.1:0"),
            ("CONSOLE__LISTEN", "off"),
        ] {
            command.env(format!("QUOTABELL__{name}"), value);
        }
        command
    }

    async fn set(&self, subject: &str, url: &str) {
        let contacts = format!(r#"[{{"channel":"webhook","url":"{url}","secret":"{SECRET}"}}]"#);
        self.set_contacts(subject, &contacts).await;
    }

    async fn set_contacts(&self, subject: &str, contacts: &str) {
        let mut command = redis::cmd("HSET");
        command
            .arg(format!("{}{subject}", quotabell::types::keys::SUBJECT_PREFIX_DEFAULT))
            .arg("contacts")
            .arg(contacts);
        let () = self.client("platform").query(&command).await.expect("the platform may set subjects");
    }

    async fn append(&self, subject: &str) {
        let mut command = redis::cmd("XADD");
        command.arg("usage").arg("*").arg("subject").arg(subject).arg("units").arg(4000).arg("id").arg(subject);
        let _: String = self.client("producer").query(&command).await.expect("a producer may append");
    }

    /// Waits until a total is `count`.
    async fn total(&self, name: &str, count: u64) {
        let client = self.server.client();
        let mut command = redis::cmd("HGET");
        command.arg(Keys::new("usage").totals()).arg(name);
        eventually(&format!("{count} {name}"), || async {
            (client.query::<Option<u64>>(&command).await == Ok(Some(count))).then_some(())
        })
        .await;
    }

    /// Fails if the server has refused any command.
    async fn expect_nothing_refused(&self) {
        expect_nothing_refused(&self.server.client()).await;
    }
}

async fn ends_well(mut daemon: Child) {
    let pid = i32::try_from(daemon.id().expect("it runs")).expect("a process id");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM).expect("it runs");
    assert_eq!(daemon.wait().await.expect("it ends").code(), Some(0));
}

/// A command that the document lacks would stop a daemon in production.
#[tokio::test(flavor = "multi_thread")]
async fn the_documented_users_of_redis_may_do_all_their_work() {
    let served = Served::start().await;
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let gone = HttpCatcher::start([Answer::status(422).header("webhook-delivery", "abort-message")])
        .await
        .expect("a receiver");
    served.set("alice", &receiver.url("/hook")).await;
    served.set("carol", &gone.url("/hook")).await;
    let mut mailbox = SmtpCatcher::start(SmtpSetup::default()).await.expect("a mail server");
    // More alerts than one read of the outbox returns.
    let storm = 100;
    for number in 0..storm {
        served.append(&format!("storm:{number}")).await;
    }
    let frank = r#"[{"channel":"email","address":"frank@b.test"}]"#;
    served.set_contacts("frank", frank).await;
    // With caps, because they need further commands.
    let (port, token) = (free_port(), "0123456789abcdef0123456789abcdef");
    let mut run = served.quotabell("quotabell", &["run"]);
    run.env("QUOTABELL__EMAIL__SMTP_URL", mailbox.url()).env("QUOTABELL__EMAIL__PER_MINUTE", "9");
    run.env("QUOTABELL__WEBHOOK__PER_DESTINATION", "9/1s");
    run.env("QUOTABELL__HTTP__LISTEN", format!("127.0.0.1:{port}")).env("QUOTABELL__HTTP__TOKEN", token);
    run.env("QUOTABELL__REDIS__DATA_DIR", NO_FOLDER);
    run.env("QUOTABELL__HTTP__PUBLIC_URL", "https://quota.example.com");
    let daemon = run.stderr(Stdio::null()).spawn().expect("the daemon starts");

    // Another group with an unacknowledged entry, which trimming has to check.
    let admin = served.server.client();
    let mut group = redis::cmd("XGROUP");
    group.arg("CREATE").arg("usage").arg("others").arg("0").arg("MKSTREAM");
    let () = admin.query(&group).await.expect("a group");
    served.append("alice").await;
    let mut read = redis::cmd("XREADGROUP");
    read.arg("GROUP").arg("others").arg("one").arg("COUNT").arg(1).arg("STREAMS").arg("usage").arg(">");
    let _: redis::Value = admin.query(&read).await.expect("an entry");

    // Delivered, dead, and waiting for a contact; a repeated id and an invalid event.
    for subject in ["carol", "frank", "bob", "bob", ""] {
        served.append(subject).await;
    }
    served.total("delivered", 2).await;
    served.total("dead", 1).await;
    served.total("made", 4 + storm).await;
    assert!(mailbox.next().await.text().contains("List-Unsubscribe:"), "the mail has its link");
    served.set("bob", &receiver.url("/hook")).await;
    served.total("delivered", 3).await;
    receiver.next().await;

    // Contacts that a subject's own side adds: one is asked by email, one is verified at once.
    let api = Caller::at(([127, 0, 0, 1], port).into()).with_token(token);
    let asked = EchoReceiver::start(Echo::Right).await;
    let mut asked_by_mail = String::new();
    for contact in [
        json!({"channel": "webhook", "url": asked.url("/hook")}),
        json!({"channel": "email", "address": "office@b.test"}),
    ] {
        let answer = api.post("/v1/subjects/frank/contacts", &contact).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        asked_by_mail = format!("/v1/subjects/frank/contacts/{}", answer.json()["id"].as_str().expect("an id"));
    }
    for again in [202, 202, 429] {
        assert_eq!(api.post(&format!("{asked_by_mail}/verification"), &json!({})).await.status, again);
    }
    assert_eq!(api.post(&format!("{asked_by_mail}/verify"), &json!({"code": "000000"})).await.status, 403);
    assert_eq!(api.get("/v1/subjects/frank/contacts").await.status, 200);
    assert_eq!(api.post("/confirm/nobodys", &json!({})).await.status, 410);
    for line in [r#"verifications_total{outcome="verified"} 1"#, r#"verifications_total{outcome="sent"} 4"#] {
        eventually(line, || async { api.get("/metrics").await.text.contains(line).then_some(()) }).await;
    }

    for arguments in [
        &["subject", "set", "dave", "--limit", "requests=7", "--email", "d@b.test"][..],
        &["subject", "set", "dave", "--clear", "limits"],
        &["subject", "set", "dave", "--webhook", "https://d.test"],
        &["subject", "show", "dave"],
        &["subject", "list"],
        &["subject", "remove", "dave"],
        &["subject", "remove", "--everything", "erin"],
        &["history", "alice"],
        &["top", "--by", "percent"],
        &["whatif", "--limit", "requests=10/day"],
        &["emit", "--subject", "erin", "--count", "3"],
        &["usage", "alice"],
        &["check", "dave", "--record"],
        &["alerts"],
        &["refused", "list"],
        &["refused", "list", "--limit", "1"],
        &["deliveries", "list"],
        &["deliveries", "list", "--state", "dead", "--limit", "1"],
        &["deliveries", "replay", "--all"],
        &["send-test", "--subject", "alice"],
    ] {
        let output = served.quotabell("operator", arguments).output().await.expect("the command runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // Four alerts and four requests for consent.
    served.total("delivered", 8).await;
    ends_well(daemon).await;
    served.expect_nothing_refused().await;
}

/// A user who runs the check with the wrong Redis user must be told that, instead of being told to grant more rights.
#[tokio::test]
async fn check_config_is_to_be_run_as_the_daemons_user() {
    let served = Served::start().await;
    let checked = async |user| {
        let output = served.quotabell(user, &["check-config"]).output().await.expect("the command runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    let (code, told) = checked("operator").await;
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("no right to XREAD") && told.contains("run this as the daemon's user"), "{told}");
    let (code, told) = checked("quotabell").await;
    assert!(code == Some(0) && told.contains("its rights could not be checked"), "{told}");
    let mut command = redis::cmd("ACL");
    let () =
        served.server.client().query(command.arg(&["SETUSER", "quotabell", "+multi", "+discard"])).await.expect("set");
    let (code, told) = checked("quotabell").await;
    assert!(code == Some(0) && told.contains("may do what the daemon does"), "{told}");
}

/// The test above must be able to fail: it must notice a missing command.
#[tokio::test]
async fn a_refused_command_is_noticed() {
    let served = Served::start().await;
    let mut command = redis::cmd("XLEN");
    command.arg("usage");
    assert!(served.client("producer").query::<u64>(&command).await.is_err());
    let refused: Vec<redis::Value> = served.server.client().query(redis::cmd("ACL").arg("LOG")).await.expect("a log");
    assert_eq!(refused.len(), 1);
}
