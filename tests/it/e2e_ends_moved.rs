//! Ends of alerts that are still to be sent when everything moves: to another deployment, or to a replica.

use crate::support::binary::quotabell;
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::{WAIT_MAX, eventually};
use crate::support::proxy::Proxy;
use crate::support::receivers::HttpCatcher;
use crate::support::redis_server::RedisServer;
use crate::support::surviving::run;
use crate::support::webhook_receiver::secret;
use quotabell::outbox::totals;
use quotabell::redis_client::RedisClient;
use quotabell::types::Keys;
use serde_json::{Value, json};

/// The command on this deployment.
fn command(url: &str, partitions: &str, line: &str) {
    let command = quotabell(line.split_whitespace()).env("QUOTABELL__STREAM__PARTITIONS", partitions);
    command.redis(url).run().expect_done();
}

fn setup(url: &str, partitions: &str) -> DaemonSetup {
    DaemonSetup::on(url)
        .env("QUOTABELL__STREAM__PARTITIONS", partitions)
        .env("QUOTABELL__PLANS__FREE__LIMITS", r#"{"requests":100}"#)
}

/// The type and the subject of the next message.
async fn next(receiver: &mut HttpCatcher) -> (String, String) {
    let caught = tokio::time::timeout(WAIT_MAX, receiver.next()).await.expect("a request in time");
    let body: Value = serde_json::from_slice(&caught.body).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    (text(&body["type"]), text(&body["data"]["subject"]))
}

fn message(kind: &str, subject: &str) -> (String, String) {
    (format!("quota.{kind}"), subject.to_owned())
}

/// A daemon on this server, with an alert of alice whose end is pending, because sending is paused.
async fn with_pending_end(url: &str, client: &RedisClient, receiver: &mut HttpCatcher) -> Daemon {
    let contacts = json!([{"id": "hook", "channel": "webhook", "url": receiver.url("/"), "secret": secret(1),
        "resolved": true}]);
    for subject in ["alice", "bob"] {
        let key = format!("quota_subject:{subject}");
        let _: u64 = run(client, &["HSET", &key, "contacts", &contacts.to_string()]).await;
    }
    let daemon = setup(url, "1").start().await;
    command(url, "1", "emit --subject alice --units 85");
    assert_eq!(next(receiver).await, message("threshold_reached", "alice"));
    let counted = async |what: &str, delivered: u64, pending: u64| {
        eventually(what, || async {
            let now = totals(client, &Keys::new("usage")).await.ok()?;
            (now.delivered == delivered && now.pending == pending).then_some(())
        })
        .await;
    };
    counted("the alert is recorded", 1, 0).await;
    command(url, "1", "deliveries pause");
    command(url, "1", "subject set alice --limit requests=200");
    counted("the end is pending", 1, 1).await;
    daemon
}

/// The pending end is sent, once: the end of another alert, which is found later, is next.
async fn is_told_once(url: &str, partitions: &str, receiver: &mut HttpCatcher) {
    command(url, partitions, "deliveries resume");
    assert_eq!(next(receiver).await, message("resolved", "alice"));
    command(url, partitions, "emit --subject bob --units 85");
    assert_eq!(next(receiver).await, message("threshold_reached", "bob"));
    command(url, partitions, "subject set bob --limit requests=200");
    assert_eq!(next(receiver).await, message("resolved", "bob"));
    assert!(receiver.try_next().is_none());
}

/// An end would be lost with the old deployment, or told by both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pending_end_is_told_once_after_a_migration() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let daemon = with_pending_end(&old.url(), &old.client(), &mut receiver).await;
    daemon.drain().await;
    let (from, to) = (old.url(), new.url());
    quotabell(["migrate", "--from", &from, "--to", &to, "--partitions", "2", "--json"]).run().expect_done();
    let daemon = setup(&to, "2").start().await;
    is_told_once(&to, "2", &mut receiver).await;
    daemon.drain().await;
}

/// A daemon that goes on at the replica finds the end there, and must not raise it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pending_end_is_told_once_after_a_failover() {
    let [old, new] = [(); 2].map(|()| RedisServer::start_to_be_followed());
    let proxy = Proxy::to(old.port()).await;
    let mut receiver = HttpCatcher::start([]).await.expect("a receiver");
    let _: String = run(&new.client(), &["REPLICAOF", "127.0.0.1", &old.port().to_string()]).await;
    let mut daemon = with_pending_end(&proxy.url(), &old.client(), &mut receiver).await;
    eventually("the replica has the end", || async {
        let now = totals(&new.client(), &Keys::new("usage")).await.ok()?;
        (now.pending == 1).then_some(())
    })
    .await;
    let _: String = run(&new.client(), &["REPLICAOF", "NO", "ONE"]).await;
    proxy.turn(new.port());
    is_told_once(&new.url(), "1", &mut receiver).await;
    daemon.becomes_ready().await;
    daemon.drain().await;
}
