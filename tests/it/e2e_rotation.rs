//! The password of Redis that changes while the daemon runs.

use std::path::PathBuf;

use crate::support::receivers::HttpCatcher;
use nix::sys::signal::Signal;

use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::redis_server::RedisServer;
use crate::support::redis_users::{PASSWORD, documented_user, set_user};
use crate::support::surviving::{agrees, all_counted, run};
use crate::support::webhook_receiver::secret;

/// Daily limit.
const LIMIT: u64 = 20;
/// The daemon's log line about a refused password.
const REFUSED: &str = "Redis refused the user or the password";

/// A daemon that logs in as the documented user, with the password in a file.
struct Rotated {
    server: RedisServer,
    daemon: Daemon,
    receiver: HttpCatcher,
    url_file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Rotated {
    async fn start() -> Self {
        let server = RedisServer::start();
        set_user(&server.client(), &documented_user("quotabell")).await;
        let receiver = HttpCatcher::start([]).await.expect("a receiver");
        let folder = tempfile::tempdir().expect("a folder");
        let url_file = folder.path().join("redis_url");
        std::fs::write(&url_file, url(&server, PASSWORD)).expect("written");
        let contact = format!(r#"[{{"channel":"webhook","url":"{}","secret":"{}"}}]"#, receiver.url("/"), secret(1));
        let daemon = DaemonSetup::on("")
            .env("QUOTABELL__REDIS__URL_FILE", url_file.to_str().expect("a path"))
            .env("QUOTABELL__FALLBACK__CONTACTS", &contact)
            .env("QUOTABELL__STREAM__TRIM", "never")
            .env("QUOTABELL__PLANS__FREE__LIMITS", &format!(r#"{{"requests":{LIMIT}}}"#))
            .start()
            .await;
        Self { server, daemon, receiver, url_file, _folder: folder }
    }

    /// Writes another password to the file, like a platform that rotates secrets.
    fn write_password(&self, password: &str) {
        let next = self.url_file.with_extension("next");
        std::fs::write(&next, url(&self.server, password)).expect("written");
        std::fs::rename(&next, &self.url_file).expect("moved");
    }

    async fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        run(&self.server.client(), words).await
    }

    /// Closes every connection of the daemon.
    async fn disconnect(&self) {
        let ended: u64 = self.run(&["CLIENT", "KILL", "USER", "quotabell"]).await;
        assert!(ended > 0, "it was connected");
    }

    /// Uses up the limit of a subject: all is counted, and exactly both alerts arrive.
    async fn counts_and_sends(&mut self, subject: &str) {
        self.use_up(subject).await;
        self.catches_up().await;
    }

    async fn use_up(&self, subject: &str) {
        for _ in 0..LIMIT {
            let _: String = self.run(&["XADD", "usage", "*", "subject", subject]).await;
        }
    }

    async fn catches_up(&mut self) {
        all_counted(&self.server.client()).await;
        self.daemon.becomes_ready().await;
        for _ in 0..2 {
            tokio::time::timeout(WAIT_MAX, self.receiver.next()).await.expect("an alert arrives");
        }
        agrees(&self.server.client(), LIMIT).await;
        assert!(self.receiver.try_next().is_none(), "nothing is sent twice");
    }

    fn times_said(&self, text: &str) -> usize {
        self.daemon.lines_after(0).iter().filter(|line| line.contains(text)).count()
    }
}

fn url(server: &RedisServer, password: &str) -> String {
    format!("redis://quotabell:{password}@127.0.0.1:{}", server.port())
}

/// A daemon with a withdrawn password used to need a restart, although its file was updated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_whose_password_was_withdrawn_says_so_and_continues_when_the_file_is_mended() {
    let mut rotated = Rotated::start().await;
    rotated.counts_and_sends("alice").await;

    let () = rotated.run(&["ACL", "SETUSER", "quotabell", "resetpass", ">next"]).await;
    rotated.disconnect().await;
    rotated.use_up("bob").await;
    let said = rotated.daemon.says(REFUSED).await;
    assert!(said.contains("quotabell") && said.contains(rotated.url_file.to_str().expect("a path")), "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
    rotated.daemon.says("counting has stopped until this is mended").await;
    let ready = rotated.daemon.get("/readyz").await;
    assert!(ready.status == 503 && ready.body.contains("(login)"), "{ready:?}");

    // If the file names another server, no password may be sent there.
    std::fs::write(&rotated.url_file, "redis://quotabell:next@127.0.0.1:1").expect("written");
    let lines = rotated.daemon.lines();
    let refused = || async { rotated.run::<Vec<redis::Value>>(&["ACL", "LOG"]).await.len() };
    eventually("it tries again", || async { (refused().await > 1).then_some(()) }).await;
    rotated.write_password("next");
    rotated.catches_up().await;
    rotated.daemon.says_again("Redis accepted the user and the password again", lines).await;
    assert_eq!(rotated.times_said(REFUSED), 1, "it is said once, not at each try");
    rotated.daemon.drain().await;
}

/// The procedure of docs/operations.md: with two valid passwords for a while, nothing stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_rotated_without_a_refused_login() {
    let mut rotated = Rotated::start().await;
    rotated.counts_and_sends("alice").await;

    let () = rotated.run(&["ACL", "SETUSER", "quotabell", ">next"]).await;
    rotated.write_password("next");
    rotated.daemon.signal(Signal::SIGHUP);
    let said = rotated.daemon.says("redis.url_file has changed").await;
    assert!(!said.contains("next start") && !said.contains("next@"), "{said}");
    let () = rotated.run(&["ACL", "SETUSER", "quotabell", &format!("<{PASSWORD}")]).await;
    rotated.disconnect().await;
    rotated.counts_and_sends("bob").await;
    assert_eq!(rotated.times_said(REFUSED), 0);
    assert!(!rotated.daemon.has_said("they take effect at the next start"));
    let refused: Vec<redis::Value> = rotated.run(&["ACL", "LOG"]).await;
    assert!(refused.is_empty(), "{refused:?}");
    rotated.daemon.drain().await;
}
