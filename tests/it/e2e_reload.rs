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

/// A daemon whose plans stand in a file.
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

    /// Uses units of the one subject, and waits until so many alerts were raised.
    async fn use_units(&self, units: &str, counted: u64, raised: u64) {
        let _: String = self.outbox.run("XADD", &["usage", "*", "subject", "alice", "units", units]).await;
        eventually("it is counted", || async { (self.outbox.totals().await.counted == counted).then_some(()) }).await;
        assert_eq!(self.outbox.totals().await.raised, raised);
    }

    /// The limit that a check sees.
    async fn checked_limit(&self) -> u64 {
        let answer = self.api.post("/v1/check", &json!({"subject": "alice"})).await;
        answer.json()["limits"][0]["limit"].as_u64().unwrap_or_else(|| panic!("{}", answer.text))
    }

    fn reload(&self, token: Option<&str>) -> Finished {
        let verb = quotabell(["reload", "--url", &format!("http://{}", self.address)]);
        match token {
            Some(token) => verb.env("QUOTABELL__HTTP__TOKEN", token).run(),
            None => verb.run(),
        }
    }

    async fn metric(&mut self, line: &str) -> bool {
        self.daemon.get("/metrics").await.body.lines().any(|shown| shown == line)
    }
}

fn write(file: &std::path::Path, limit: &str) {
    std::fs::write(file, format!("[plans.free]\nlimits = {{ requests = {limit} }}\nthresholds = [80, 100]\n"))
        .expect("written");
}

fn fails(call: &Finished, said: &[&str]) {
    assert_eq!((call.code, call.stdout.as_str()), (1, ""), "{}", call.told());
    assert!(said.iter().all(|said| call.stderr.contains(said)), "{}", call.told());
}

/// A plan that is sold with a higher limit from today on must not need a restart, and one with a mistake must not end
/// the counting.
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
    let in_effect = body.lines().filter(|line| line.starts_with("quotabell_plans_info{") && line.ends_with(" 1"));
    assert_eq!(in_effect.count(), 1, "{body}");
}

/// Whoever changed more than the plans must know what to restart for; a value in a log may be a password.
#[tokio::test]
async fn a_hangup_names_the_settings_that_wait_for_the_next_start() {
    let mut daemon = Planned::start("1000").await;
    let more = "[webhook]\ntimeout = \"29s\"\n[email]\nsmtp_url = \"smtps://u:hunter2@mail.example.net\"\n";
    write(&daemon.file, "2000");
    let text = std::fs::read_to_string(&daemon.file).expect("it is there");
    std::fs::write(&daemon.file, format!("{text}{more}")).expect("written");
    daemon.daemon.signal(Signal::SIGHUP);
    let said = daemon.daemon.says("settings beside the plans have changed too").await;
    assert!(said.contains("email.smtp_url, webhook.timeout"), "{said}");
    assert!(!said.contains("hunter2") && !said.contains("29s"), "{said}");
    daemon.daemon.says("plans were read again and are in effect").await;
    assert_eq!(daemon.checked_limit().await, 2000);
}

/// Whoever changes plans wants to hear at once what became of them.
#[tokio::test]
async fn the_verb_says_what_became_of_the_plans() {
    let daemon = Planned::start("1000").await;
    assert!(daemon.reload(Some(TOKEN)).expect_done().starts_with("the plans are as before, fingerprint "));
    write(&daemon.file, "2000");
    assert!(daemon.reload(Some(TOKEN)).expect_done().starts_with("new plans are in effect, fingerprint "));
    assert_eq!(daemon.checked_limit().await, 2000);
    let again = quotabell(["reload", "--json", "--url", &format!("http://{}", daemon.address)]);
    let again = &again.env("QUOTABELL__HTTP__TOKEN", TOKEN).run().expect_json()[0];
    assert!(again["fingerprint"].is_string() && again["changed"] == false, "{again}");
    write(&daemon.file, "-1");
    fails(&daemon.reload(Some(TOKEN)), &["422", "plans.free.limits.requests", "stay in effect"]);
    assert_eq!(daemon.checked_limit().await, 2000);
    fails(&daemon.reload(None), &["needs a token", "SIGHUP"]);
    fails(&daemon.reload(Some("another-token-0123456789")), &["401"]);
}

/// A daemon that waits for Redis has not begun to count, and must not die of a reload.
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
