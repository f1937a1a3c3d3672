//! Planned moves of the primary with the documented commands: they lose no acknowledged event.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quotabell::redis_client::RedisClient;
use tokio_util::sync::CancellationToken;

use crate::support::daemon::DaemonSetup;
use crate::support::eventually::eventually;
use crate::support::redis_server::RedisServer;
use crate::support::sentinel_service::{SERVICE, SentinelService};
use crate::support::surviving::{agrees, counted, run};

/// Daily limit.
const LIMIT: u64 = 60;

fn daemon_on(url: &str) -> DaemonSetup {
    DaemonSetup::on(url)
        .env("QUOTABELL__STREAM__TRIM", "never")
        .env("QUOTABELL__PLANS__FREE__LIMITS", &format!(r#"{{"requests":{LIMIT}}}"#))
}

/// Appends events until stopped, and counts the acknowledged ones.
struct Producer {
    stored: Arc<AtomicU64>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Producer {
    fn start(client: RedisClient) -> Self {
        let (stored, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let (count, stopped) = (Arc::clone(&stored), stop.clone());
        let task = tokio::spawn(async move {
            for number in 0_u64.. {
                if stopped.is_cancelled() {
                    return;
                }
                let mut add = redis::cmd("XADD");
                add.arg("usage").arg("*").arg("subject").arg(format!("s-{}", number % 7));
                if client.query::<String>(&add).await.is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { stored, stop, task }
    }

    async fn stores(&self, more: u64) {
        let wanted = self.stored.load(Ordering::Relaxed) + more;
        eventually("events are stored", || async { (self.stored.load(Ordering::Relaxed) >= wanted).then_some(()) })
            .await;
    }

    /// Number of acknowledged events.
    async fn stop(self) -> u64 {
        self.stop.cancel();
        self.task.await.expect("it does not panic");
        self.stored.load(Ordering::Relaxed)
    }
}

/// With REPLICAOF NO ONE on the new server, the old one accepted 800 more events, and all were lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_by_replication_loses_no_event_that_was_acknowledged() {
    let [old, new] = [(); 2].map(|()| RedisServer::start_to_be_followed());
    let daemon = daemon_on(&old.url()).start().await;
    let producer = Producer::start(old.client());
    producer.stores(200).await;
    let () = run(&new.client(), &["REPLICAOF", "127.0.0.1", &old.port().to_string()]).await;
    eventually("the old server knows that the new one follows", || async {
        let info: String = run(&old.client(), &["INFO", "replication"]).await;
        info.contains("state=online").then_some(())
    })
    .await;
    producer.stores(200).await;
    // Producers continue meanwhile.
    let () = run(&old.client(), &["FAILOVER", "TO", "127.0.0.1", &new.port().to_string(), "TIMEOUT", "10000"]).await;
    let role = async |server: &RedisServer| -> String {
        let info: String = run(&server.client(), &["INFO", "replication"]).await;
        info.lines().find_map(|line| line.strip_prefix("role:")).unwrap_or_default().to_owned()
    };
    eventually("the roles are changed", || async {
        (role(&old).await == "slave" && role(&new).await == "master").then_some(())
    })
    .await;
    daemon.drain().await;
    let daemon = daemon_on(&new.url()).start().await;
    let before = producer.stop().await;
    let producer = Producer::start(new.client());
    producer.stores(200).await;
    let stored = before + producer.stop().await;
    eventually("all that was acknowledged is counted", || async {
        (counted(&new.client()).await >= stored).then_some(())
    })
    .await;
    assert_eq!(counted(&new.client()).await, stored);
    agrees(&new.client(), LIMIT).await;
    daemon.drain().await;
}

/// A requested failover loses writes to the old primary, unless the producers wait and the replica has everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_by_sentinels_loses_no_event_that_was_acknowledged() {
    let service = SentinelService::start().await;
    let daemon = daemon_on(&service.url("")).start().await;
    let producer = Producer::start(service.client(0));
    producer.stores(500).await;
    let before = producer.stop().await;
    // WAIT concerns the writes of its own connection.
    let mut connection = service.servers[0].sync_client().get_connection().expect("connected");
    let () = redis::cmd("SET").arg("failover_check").arg(1).arg("EX").arg(60).query(&mut connection).expect("written");
    let replicas: u64 = redis::cmd("WAIT").arg(1).arg(10_000).query(&mut connection).expect("answered");
    assert!(replicas >= 1, "a replica has everything");
    let sentinel = redis::Client::open(format!("redis://127.0.0.1:{}", service.sentinels[0].port())).expect("a URL");
    let mut sentinel = sentinel.get_connection().expect("connected");
    let () = redis::cmd("SENTINEL").arg("FAILOVER").arg(SERVICE).query(&mut sentinel).expect("it begins");
    let primary = service.primary_other_than(0).await;
    let producer = Producer::start(service.client(primary));
    producer.stores(200).await;
    let stored = before + producer.stop().await;
    let survivor = service.client(primary);
    eventually("all that was acknowledged is counted", || async { (counted(&survivor).await >= stored).then_some(()) })
        .await;
    assert_eq!(counted(&survivor).await, stored);
    agrees(&survivor, LIMIT).await;
    daemon.drain().await;
}
