//! All documented users of Redis run all commands: on one server, behind Sentinels and in a cluster.

use crate::support::receivers::HttpCatcher;
use quotabell::redis_client::RedisClient;
use quotabell::types::keys::SUBJECT_PREFIX_DEFAULT;

use crate::support::binary::quotabell;
use crate::support::daemon::DaemonSetup;
use crate::support::redis_cluster::RedisCluster;
use crate::support::redis_server::RedisServer;
use crate::support::redis_users::{PASSWORD, documented, documented_user, expect_nothing_refused, set_user};
use crate::support::sentinel_service::SentinelService;

const DEPLOYMENTS: &str = "docs/deployments.md";
/// The operator's commands, in this order.
const COMMANDS: &[&str] = &[
    "subject set dave --limit requests=7 --email d@b.test",
    "subject show dave",
    "subject list",
    "subject mute dave --for 2h",
    "subject unmute dave",
    "contact add dave --email e@b.test",
    "contact list dave",
    "contact mute dave d@b.test",
    "contact unmute dave d@b.test",
    "contact enable dave d@b.test",
    "contact remove dave e@b.test",
    "emit --subject dave --count 3 --id once",
    "usage dave",
    "history dave",
    "top --by percent",
    "check dave --record",
    "alerts",
    "explain dave",
    "refused list",
    "deliveries list",
    "deliveries destinations",
    "deliveries pause",
    "deliveries resume",
    "send-test --subject alice",
    "subject remove dave",
    "subject remove --everything dave",
];

/// Creates the documented users on a server, with the deployment's further rights.
async fn give_rights(server: &RedisClient, more: Option<&str>) {
    for user in ["quotabell", "operator", "producer", "platform"] {
        set_user(server, &documented_user(user)).await;
    }
    for user in ["quotabell", "operator"].iter().filter(|_| more.is_some()) {
        let beginning = format!("ACL SETUSER {user} {}", more.unwrap_or_default());
        set_user(server, &documented(DEPLOYMENTS, &beginning)).await;
    }
}

/// Runs the daemon and each command; `url` belongs to a user. `as_user` is a client of the server that holds a key.
async fn all_work(url: impl Fn(&str) -> String, as_user: impl Fn(&'static str, &'static str) -> RedisClient) {
    let receiver = HttpCatcher::start([]).await.expect("a receiver");
    let secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
    let contacts = format!(r#"[{{"channel":"webhook","url":"{}","secret":"{secret}"}}]"#, receiver.url("/hook"));
    let subject = "quota_subject:alice";
    assert!(subject.starts_with(SUBJECT_PREFIX_DEFAULT));
    let mut set = redis::cmd("HSET");
    set.arg(subject).arg("contacts").arg(contacts);
    let () = as_user("platform", subject).query(&set).await.expect("the platform may set subjects");
    let mut append = redis::cmd("XADD");
    append.arg("usage").arg("*").arg("subject").arg("alice");
    let _: String = as_user("producer", "usage").query(&append).await.expect("a producer may append");
    let daemon = DaemonSetup::on(&url("quotabell")).start().await;
    for command in COMMANDS {
        let finished = quotabell(command.split(' '))
            .redis(&url("operator"))
            .env("QUOTABELL__WEBHOOK__ALLOW_HTTP", "true")
            .env("QUOTABELL__WEBHOOK__ALLOW_PRIVATE_NETWORKS", "true")
            .run();
        assert_eq!(finished.code, 0, "{command}: {}", finished.stderr);
    }
    daemon.drain().await;
}

fn login(user: &str) -> String {
    format!("{user}:{PASSWORD}@")
}

/// A missing right in the documents would stop an operator during an incident.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_users_do_everything_on_one_server() {
    let server = RedisServer::start();
    give_rights(&server.client(), None).await;
    let url = |user: &str| server.url().replace("://", &format!("://{}", login(user)));
    all_work(url, |user, _| RedisClient::open(&url(user)).expect("a URL")).await;
    expect_nothing_refused(&server.client()).await;
}

/// Behind Sentinels every client that looks for the primary asks a server for its role.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_users_do_everything_behind_sentinels() {
    let service = SentinelService::start().await;
    for server in &service.servers {
        give_rights(&server.client(), Some("+role")).await;
    }
    let port = service.servers[0].port();
    let direct = |user: &str| format!("redis://{}127.0.0.1:{port}", login(user));
    all_work(|user| service.url(&login(user)), |user, _| RedisClient::open(&direct(user)).expect("a URL")).await;
    expect_nothing_refused(&service.servers[0].client()).await;
}

/// In a cluster every client asks the nodes, and each node has its own users.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_users_do_everything_in_a_cluster() {
    let cluster = RedisCluster::start().await;
    for node in 0..cluster.nodes.len() {
        give_rights(&cluster.client(node), Some("+cluster|shards")).await;
    }
    let mut owners = std::collections::HashMap::new();
    for key in ["usage", "quota_subject:alice"] {
        owners.insert(key, cluster.nodes[cluster.primary_of(key).await].port());
    }
    let direct = |user: &str, key: &str| format!("redis://{}127.0.0.1:{}", login(user), owners[key]);
    all_work(|user| cluster.url(&login(user)), |user, key| RedisClient::open(&direct(user, key)).expect("a URL")).await;
    for node in 0..cluster.nodes.len() {
        expect_nothing_refused(&cluster.client(node)).await;
    }
}
