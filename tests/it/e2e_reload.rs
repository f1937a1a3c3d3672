//! Plans that change while the daemon runs.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::support::api::Caller;
use crate::support::binary::{Finished, quotabell};
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::outbox::Outbox;
use nix::sys::signal::Signal;
use serde_json::json;

const TOKEN: &str = "a-token-for-one-test-0123456789";

/// A daemon with its plans in a file.
struct Planned {
    outbox: Outbox,
    daemon: Daemon,
    api: Caller,
    address: SocketAddr,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Planned {
    async fn start(limit: &str) -> Self {
        let outbox = Outbox::start();
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("quotabell.toml");
        write(&file, limit);
        let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__HTTP__TOKEN", TOKEN);
        let mut daemon = setup.env("QUOTABELL_CONFIG", file.to_str().expect("a path")).start().await;
        let address = daemon.http().await;
        let api = Caller::at(address).with_token(TOKEN);
        Self { outbox, daemon, api, address, file, _folder: folder }
    }

    /// Uses units of the subject, and waits until this number of alerts was raised.
    async fn use_units(&self, units: &str, counted: u64, raised: u64) {
        let _: String = self.outbox.run("XADD", &["usage", "*", "subject", "alice", "units", units]).await;
        eventually("it is counted", || async { (self.outbox.totals().await.counted == counted).then_some(()) }).await;
        assert_eq!(self.outbox.totals().await.raised, raised);
    }

    /// The limit in a check's response.
    async fn checked_limit(&self) -> u64 {
        let answer = self.api.post("/v1/check", &json!({"subject": "alice"})).await;
        answer.json()["limits"][0]["limit"].as_u64().unwrap_or_else(|| panic!("{}", answer.text))
    }

    fn reload(&self, token: Option<&str>) -> Finished {
        let command = quotabell(["reload", "--url", &format!("http://{}", self.address)]);
        match token {
            Some(token) => command.env("QUOTABELL__HTTP__TOKEN", token).run(),
            None => command.run(),
        }
    }

    async fn metric(&mut self, line: &str) -> bool {
        self.daemon.get("/metrics").await.body.lines().any(|shown| shown == line)
    }
}

fn write_plans(file: &std::path::Path, text: &str) {
    std::fs::write(file, text).expect("written");
}

fn write(file: &std::path::Path, limit: &str) {
    std::fs::write(file, format!("[plans.free]\nlimits = {{ requests = {limit} }}\nthresholds = [80, 100]\n"))
        .expect("written");
}

fn fails(call: &Finished, said: &[&str]) {
    assert_eq!((call.code, call.stdout.as_str()), (1, ""), "{}", call.told());
    assert!(said.iter().all(|said| call.stderr.contains(said)), "{}", call.told());
}

/// A plan with a new limit must not need a restart, and a mistake in a plan must not stop counting.
#[tokio::test]
async fn a_hangup_puts_new_plans_into_effect_or_refuses_them_whole() {
    let mut daemon = Planned::start("1000").await;
    daemon.use_units("500", 1, 0).await;
    assert_eq!(daemon.checked_limit().await, 1000);

    write(&daemon.file, "600");
    daemon.daemon.signal(Signal::SIGHUP);
    daemon.daemon.says("plans were read again and are in effect").await;
    assert_eq!(daemon.checked_limit().await, 600);
    daemon.use_units("1", 2, 1).await;
    assert!(daemon.metric("quotabell_reloads_total{outcome=\"applied\"} 1").await);

    write(&daemon.file, "[\"700/hour\", \"600/day\"]");
    daemon.daemon.signal(Signal::SIGHUP);
    let said = daemon.daemon.says("the limit of the day is reached first").await;
    assert!(said.contains("plans.free.limits.requests: 700/hour is above 600/day"), "{said}");

    write(&daemon.file, "\"600/fortnight\"");
    daemon.daemon.signal(Signal::SIGHUP);
    let said = daemon.daemon.says("plans were not reloaded").await;
    assert!(said.contains("plans.free.limits.requests") && said.contains("fortnight"), "{said}");
    daemon.use_units("98", 3, 1).await;
    daemon.use_units("1", 4, 2).await;
    assert!(daemon.metric("quotabell_reloads_total{outcome=\"refused\"} 1").await);
    let body = daemon.daemon.get("/metrics").await.body;
    // A series for each former fingerprint would add one per reload.
    let in_effect: Vec<&str> = body.lines().filter(|line| line.starts_with("quotabell_plans_info{")).collect();
    assert!(in_effect.len() == 1 && in_effect[0].ends_with(" 1"), "{in_effect:?}");
}

/// A producer with a new type of events must not wait for a restart.
#[tokio::test]
async fn a_hangup_puts_new_rules_for_events_into_effect() {
    let mut daemon = Planned::start("1000").await;
    let event = json!({"specversion": "1.0", "id": "1", "source": "/s", "type": "chat", "subject": "alice",
        "data": {"n": 5}});
    let body = event.to_string();
    let send =
        || daemon.api.send("POST", "/v1/events", &[("content-type", "application/cloudevents+json")], body.clone());
    send().await.expect_problem(400, "events.types has no rule for \"chat\"");
    let plans = std::fs::read_to_string(&daemon.file).expect("it is there");
    write_plans(&daemon.file, &format!("{plans}[events.types.chat.metrics]\nrequests = \"data.n\"\n"));
    daemon.daemon.signal(Signal::SIGHUP);
    daemon.daemon.says("the rules of events.types have changed and are in effect").await;
    let answer = send().await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    eventually("it is counted", || async { (daemon.outbox.totals().await.counted == 1).then_some(()) }).await;
}

/// The log must name other changed settings, which need a restart; it must not show their values, which may be
/// passwords.
#[tokio::test]
async fn a_hangup_names_the_settings_that_wait_for_the_next_start() {
    let mut daemon = Planned::start("1000").await;
    let more = "[webhook]\ntimeout = \"29s\"\n[email]\nsmtp_url = \"smtps://u:hunter2@mail.example.net\"\n";
    write(&daemon.file, "2000");
    let text = std::fs::read_to_string(&daemon.file).expect("it is there");
    std::fs::write(&daemon.file, format!("{text}{more}")).expect("written");
    daemon.daemon.signal(Signal::SIGHUP);
    let said = daemon.daemon.says("other settings changed too").await;
    assert!(said.contains("email.smtp_url, webhook.timeout"), "{said}");
    assert!(!said.contains("hunter2") && !said.contains("29s"), "{said}");
    daemon.daemon.says("plans were read again and are in effect").await;
    assert_eq!(daemon.checked_limit().await, 2000);
}

/// The result of a reload must be reported at once.
#[tokio::test]
async fn the_command_says_what_became_of_the_plans() {
    let daemon = Planned::start("1000").await;
    assert!(daemon.reload(Some(TOKEN)).expect_done().starts_with("reloaded: the plans are as before, fingerprint "));
    write(&daemon.file, "2000");
    assert!(daemon.reload(Some(TOKEN)).expect_done().starts_with("reloaded: new plans are in effect, fingerprint "));
    assert_eq!(daemon.checked_limit().await, 2000);
    // Counting ignores it, so the fingerprint stays.
    write_plans(&daemon.file, "[plans.free]\nlimits = { requests = 2000 }\nthresholds = [80, 100]\nrefuse_at = 120\n");
    assert!(daemon.reload(Some(TOKEN)).expect_done().starts_with("reloaded: new plans are in effect, fingerprint "));
    let again = quotabell(["reload", "--json", "--url", &format!("http://{}", daemon.address)]);
    let again = &again.env("QUOTABELL__HTTP__TOKEN", TOKEN).run().expect_json()[0];
    assert!(again["fingerprint"].is_string() && again["changed"] == false, "{again}");
    assert!(again["tokens_changed"] == false && again["rules_changed"] == false, "{again}");
    let plans = std::fs::read_to_string(&daemon.file).expect("it is there");
    let file = daemon.file.with_file_name("gateway");
    std::fs::write(&file, "a-gateway's-token-0123456789").expect("written");
    let gateway = format!("[[http.tokens]]\nname = \"gateway\"\nfile = {file:?}\nscopes = [\"check\"]\n");
    write_plans(&daemon.file, &format!("{plans}{gateway}[events.types.chat.metrics]\nrequests = \"data.n\"\n"));
    let more = daemon.reload(Some(TOKEN));
    assert!(more.expect_done().ends_with(", new tokens are in effect, new rules of events.types are in effect\n"));
    // A machine without certificate authorities: none are needed without TLS.
    let bare = quotabell(["reload", "--url", &format!("http://{}", daemon.address)]);
    let bare = bare.env("QUOTABELL__HTTP__TOKEN", TOKEN).env("SSL_CERT_FILE", "/absent").env("SSL_CERT_DIR", "/absent");
    assert!(bare.run().expect_done().starts_with("reloaded: the plans are as before"));
    write(&daemon.file, "-1");
    fails(&daemon.reload(Some(TOKEN)), &["422", "plans.free.limits.requests", "stay in effect"]);
    assert_eq!(daemon.checked_limit().await, 2000);
    fails(&daemon.reload(None), &["needs a token", "SIGHUP"]);
    fails(&daemon.reload(Some("another-token-0123456789")), &["401"]);
}

/// A daemon that waits for Redis must survive a reload.
#[tokio::test]
async fn a_hangup_before_redis_is_there_is_no_end() {
    let setup = DaemonSetup::on("redis://127.0.0.1:1").env("QUOTABELL__LOG__LEVEL", "info");
    let mut daemon = setup.spawn();
    daemon.says("waiting for Redis").await;
    daemon.signal(Signal::SIGHUP);
    daemon.says("plans were read again").await;
    daemon.signal(Signal::SIGTERM);
    daemon.ended().await.expect_code(0, &["stopped before Redis was ready"]);
}

/// A reload in the first moment of a daemon's life used to kill it.
#[tokio::test]
async fn a_hangup_while_the_daemon_starts_is_no_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("quotabell.toml");
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).expect("a pipe with a name");
    let setup = DaemonSetup::on("redis://127.0.0.1:1").env("QUOTABELL_CONFIG", file.to_str().expect("a path"));
    let mut daemon = setup.spawn();
    // Opening it waits until the daemon reads its configuration; the daemon then waits for the text.
    let path = file.clone();
    let open = tokio::task::spawn_blocking(move || std::fs::OpenOptions::new().write(true).open(path));
    let mut configuration = open.await.expect("no panic").expect("the daemon reads it");
    daemon.signal(Signal::SIGHUP);
    let next = folder.path().join("next.toml");
    write(&next, "1000");
    std::fs::rename(&next, &file).expect("moved");
    std::io::Write::write_all(&mut configuration, b"[log]\nlevel = \"info\"\n").expect("the daemon reads it");
    drop(configuration);
    daemon.says("plans were read again").await;
    daemon.signal(Signal::SIGTERM);
    daemon.ended().await.expect_code(0, &["stopped before Redis was ready"]);
}

/// An empty file from a deployment would give every customer the embedded plan.
#[tokio::test]
async fn a_file_that_has_become_empty_is_refused_unless_it_is_forced() {
    let daemon = Planned::start("700").await;
    for empty in ["", "# nothing but a comment\n"] {
        write_plans(&daemon.file, empty);
        fails(&daemon.reload(Some(TOKEN)), &["422", "the configuration file sets nothing any more", "reload --force"]);
        assert_eq!(daemon.checked_limit().await, 700);
    }
    let forced = quotabell(["reload", "--force", "--url", &format!("http://{}", daemon.address)]);
    forced.env("QUOTABELL__HTTP__TOKEN", TOKEN).run().expect_done();
    assert_eq!(daemon.checked_limit().await, 5000, "the embedded plan");
}

/// A plan removed by mistake would leave its customers without the intended limits.
#[tokio::test]
async fn a_plan_that_subjects_name_is_dropped_only_by_force() {
    let mut daemon = Planned::start("700").await;
    let plans = |pro: &str| format!("{pro}[plans.free]\nlimits = {{ requests = 700 }}\nthresholds = [80, 100]\n");
    let pro = "[plans.pro]\nlimits = { requests = 9 }\nthresholds = [80]\n";
    write_plans(&daemon.file, &plans(pro));
    daemon.reload(Some(TOKEN)).expect_done();
    write_plans(&daemon.file, &plans(""));
    daemon.reload(Some(TOKEN)).expect_done();

    write_plans(&daemon.file, &plans(pro));
    daemon.reload(Some(TOKEN)).expect_done();
    let _: u64 = daemon.outbox.run("HSET", &["quota_subject:alice", "plan", "pro"]).await;
    let () = daemon.outbox.run("SET", &["quota_subject:odd", "no hash"]).await;
    write_plans(&daemon.file, &plans(""));
    fails(
        &daemon.reload(Some(TOKEN)),
        &["422", "plans.pro is gone, and subjects name it, such as \"alice\"", "--force"],
    );
    daemon.daemon.signal(Signal::SIGHUP);
    daemon.daemon.says("plans were not reloaded").await;
    let forced = quotabell(["reload", "--force", "--url", &format!("http://{}", daemon.address)]);
    forced.env("QUOTABELL__HTTP__TOKEN", TOKEN).run().expect_done();
}

/// A file that was cut off before `[http]` would open `/v1/check` to everybody, and close the reload that repairs it.
#[tokio::test]
async fn a_token_is_taken_away_only_by_force() {
    let outbox = Outbox::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("quotabell.toml");
    write(&file, "700");
    let cut_off = std::fs::read_to_string(&file).expect("it is there");
    write_plans(&file, &format!("{cut_off}[http]\ntoken = \"{TOKEN}\"\n"));
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL_CONFIG", file.to_str().expect("a path"));
    let mut daemon = setup.start().await;
    let address = daemon.http().await;
    let status = async || Caller::at(address).post("/v1/check", &json!({"subject": "alice"})).await.status;

    write_plans(&file, &cut_off);
    daemon.signal(Signal::SIGHUP);
    let said = daemon.says("plans were ").await;
    assert!(said.contains("http.token is gone") && said.contains("reload --force"), "{said}");
    assert_eq!(status().await, 401);
    let forced = quotabell(["reload", "--force", "--url", &format!("http://{address}")]);
    forced.env("QUOTABELL__HTTP__TOKEN", TOKEN).run().expect_done();
    assert_eq!(status().await, 200);
}

/// A setting that was changed back must not be reported as waiting for a restart.
#[tokio::test]
async fn a_setting_that_was_restored_waits_for_nothing() {
    let mut daemon = Planned::start("1000").await;
    let plans = "[plans.free]\nlimits = { requests = 1000 }\nthresholds = [80, 100]\n";
    write_plans(&daemon.file, &format!("{plans}[webhook]\ntimeout = \"29s\"\n"));
    daemon.daemon.signal(Signal::SIGHUP);
    daemon.daemon.says("plans were read again and are in effect").await;
    assert!(daemon.daemon.has_said("other settings changed too"));
    let lines = daemon.daemon.lines();
    write_plans(&daemon.file, plans);
    daemon.daemon.signal(Signal::SIGHUP);
    daemon.daemon.says_again("plans were read again and are in effect", lines).await;
    let again = daemon.daemon.lines_after(lines);
    assert!(!again.iter().any(|line| line.contains("have changed too")), "{again:?}");
}

/// A new token must apply without a restart, and any other new secret must be reported as waiting for one.
#[tokio::test]
async fn a_reload_puts_a_new_token_into_effect_and_names_other_files_that_have_changed() {
    let outbox = Outbox::start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path").to_owned();
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("written");
    write("token", TOKEN);
    write("smtp", "smtp://127.0.0.1:1");
    let setup = DaemonSetup::on(&outbox.server.url()).env("QUOTABELL__HTTP__TOKEN_FILE", &path("token"));
    let mut daemon = setup.env("QUOTABELL__EMAIL__SMTP_URL_FILE", &path("smtp")).start().await;
    let address = daemon.http().await;
    let status = async |token: &str| Caller::at(address).with_token(token).get("/v1/subjects").await.status;
    assert_eq!(status(TOKEN).await, 200);

    let rotated = "another-token-0123456789abcdef";
    write("token", rotated);
    write("smtp", "smtp://127.0.0.1:2");
    daemon.signal(Signal::SIGHUP);
    daemon.says("plans were read again and are in effect").await;
    assert_eq!((status(rotated).await, status(TOKEN).await), (200, 401));
    let named = daemon.says("the contents of files that settings name have changed").await;
    assert!(named.contains("email.smtp_url_file") && !named.contains("127.0.0.1:2"), "{named}");
    daemon.says("the tokens of the API have changed and are in effect").await;
    daemon.drain().await;
}
