//! The daemon on a primary that Sentinels watch: during failovers, with logins, and with wrong URLs.

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use quotabell::redis_client::config::RedisConfig;
use quotabell::redis_client::{RedisClient, RedisEndpoint};
use tokio_util::sync::CancellationToken;

use crate::support::binary::quotabell;
use crate::support::daemon::{Daemon, DaemonSetup};
use crate::support::eventually::eventually;
use crate::support::redis_server::free_port;
use crate::support::redis_users::{PASSWORD, documented, documented_user, expect_nothing_refused, set_user};
use crate::support::sentinel_service::{Passwords, SentinelService};
use crate::support::surviving::{agrees, all_counted, counted, length};

const SUBJECTS: u64 = 7;
/// Daily limit.
const LIMIT: u64 = 60;

fn endpoint(url: &str) -> RedisEndpoint {
    let config =
        RedisConfig { url: url.into(), url_file: None, data_dir: "unused".into(), embedded_port: 1, ca_file: None };
    RedisEndpoint::from_config(&config).expect("a good URL")
}

fn daemon_on(url: &str) -> DaemonSetup {
    DaemonSetup::on(url)
        .env("QUOTABELL__STREAM__TRIM", "never")
        .env("QUOTABELL__PLANS__FREE__LIMITS", &format!(r#"{{"requests":{LIMIT}}}"#))
        .env("QUOTABELL__STREAM__BATCH_ENTRIES", "20")
}

/// Appends events until stopped, in any state of the primary, like a producer that asks the Sentinels.
async fn produce(url: String, stop: CancellationToken) {
    let client = endpoint(&url).client("usage").expect("a client");
    for number in 0_u64.. {
        if stop.is_cancelled() {
            return;
        }
        let mut command = redis::cmd("XADD");
        command.arg("usage").arg("*").arg("subject").arg(format!("s-{}", number % SUBJECTS));
        // If the reply was lost, the stream shows whether the event survived.
        let _: Result<String, _> = client.query_within(std::time::Duration::from_millis(500), &command).await;
    }
}

async fn more_are_counted(client: &RedisClient, events: u64) {
    let before = counted(client).await;
    eventually("counting goes on", || async { (counted(client).await > before + events).then_some(()) }).await;
}

async fn is_ready(daemon: &mut Daemon) {
    let address = daemon.http().await;
    eventually("/readyz says 200", || async {
        crate::support::daemon::http_get(address, "/readyz").await.is_some_and(|page| page.status == 200).then_some(())
    })
    .await;
}

/// A dying primary loses the writes that the replica had not received. Everything that survived must be counted and
/// raised once, by a daemon that is not restarted and has only the documented rights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_costs_no_event_that_survives_and_doubles_none() {
    let mut service = SentinelService::start().await;
    for server in &service.servers {
        set_user(&server.client(), &documented_user("quotabell")).await;
        set_user(&server.client(), &documented("docs/deployments.md", "ACL SETUSER quotabell +role")).await;
    }
    let mut daemon = daemon_on(&service.url(&format!("quotabell:{PASSWORD}@"))).start().await;
    let first = format!("primary 127.0.0.1:{}", service.servers[0].port());
    assert!(daemon.has_said(&first), "the log names the primary");
    let stop = CancellationToken::new();
    let producer = tokio::spawn(produce(service.url(""), stop.clone()));
    more_are_counted(&service.servers[0].client(), 200).await;
    service.servers[0].kill();
    service.is_primary(1).await;
    let survivor = service.servers[1].client();
    more_are_counted(&survivor, 200).await;
    stop.cancel();
    producer.await.expect("the producer ends");
    all_counted(&survivor).await;
    agrees(&survivor, LIMIT).await;
    is_ready(&mut daemon).await;
    daemon.says("Redis has another primary").await;
    expect_nothing_refused(&survivor).await;
    daemon.drain().await;
}

/// A primary that hung still considers itself primary: a daemon that keeps using it would count lost events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_was_replaced_while_it_hung_is_left() {
    let service = SentinelService::start().await;
    let daemon = daemon_on(&service.url("")).start().await;
    let stop = CancellationToken::new();
    let producer = tokio::spawn(produce(service.url(""), stop.clone()));
    let old = &service.servers[0];
    more_are_counted(&old.client(), 100).await;
    let pid = Pid::from_raw(i32::try_from(old.pid()).expect("a process id"));
    nix::sys::signal::kill(pid, Signal::SIGSTOP).expect("it runs");
    service.is_primary(1).await;
    let survivor = service.servers[1].client();
    more_are_counted(&survivor, 100).await;
    nix::sys::signal::kill(pid, Signal::SIGCONT).expect("it is stopped");
    service.replicates(1).await;
    more_are_counted(&survivor, 100).await;
    stop.cancel();
    producer.await.expect("the producer ends");
    all_counted(&survivor).await;
    agrees(&survivor, LIMIT).await;
    daemon.drain().await;
    // A replica lags until its link is up.
    service.replicates(1).await;
    assert_eq!(length(&old.client()).await, length(&survivor).await, "the old primary follows");
}

/// A missing Sentinel must not block the daemon, and a wrong answer must not be final.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_sentinel_is_enough() {
    let mut service = SentinelService::start().await;
    let url = service.url("");
    let daemon = daemon_on(&url).start().await;
    for sentinel in &mut service.sentinels[..2] {
        sentinel.kill();
    }
    let command = quotabell(["usage", "alice"]).redis(&url).run();
    assert_eq!(command.code, 0, "{}", command.stderr);
    service.sentinels[2].kill();
    let mut daemon = daemon;
    daemon.says("no Sentinel or node names the primary").await;
    let producer = service.servers[0].client();
    let () = producer.query(redis::cmd("XADD").arg("usage").arg("*").arg("subject").arg("alice")).await.expect("added");
    all_counted(&producer).await;
    let command = quotabell(["usage", "alice"]).redis(&url).run();
    assert!(command.code == 1 && command.stderr.contains("no Sentinel answers"), "{}", command.stderr);
    daemon.drain().await;
}

/// Many Sentinels require a login; a refused login must be reported as theirs.
#[tokio::test]
async fn sentinels_may_demand_the_login_of_the_servers_or_one_of_their_own() {
    let demands = |of_sentinels| Passwords { of_servers: Some(PASSWORD), of_sentinels: Some(of_sentinels) };
    let checked = |url: &str| quotabell(["check-config"]).redis(url).run().stderr;
    let same = SentinelService::start_with(demands(PASSWORD)).await;
    let told = checked(&same.url(&format!(":{PASSWORD}@")));
    assert!(told.contains(&format!("primary 127.0.0.1:{}", same.servers[0].port())), "{told}");

    let own = SentinelService::start_with(demands("of-its-own")).await;
    let url = own.url(&format!(":{PASSWORD}@"));
    let told = checked(&url);
    assert!(told.contains("the Sentinel at 127.0.0.1:") && told.contains("refuses the login"), "{told}");
    assert!(told.contains("sentinel_pass") && !told.contains(PASSWORD), "{told}");
    let told = checked(&format!("{url}?sentinel_pass=of-its-own"));
    assert!(told.contains(&format!("primary 127.0.0.1:{}", own.servers[0].port())), "{told}");
}

/// A daemon with an unknown service name would otherwise wait forever.
#[tokio::test]
async fn urls_that_name_something_else_end_the_start_with_what_to_do() {
    let service = SentinelService::start().await;
    let other_name = service.url("").replace("mymaster", "yourmaster");
    let ended = DaemonSetup::on(&other_name).run_to_its_end().await;
    ended.expect_code(1, &["watches no service \"yourmaster\", only mymaster", "sentinel monitor"]);
    let told = quotabell(["check-config"]).redis(&other_name).run();
    assert!(told.code == 1 && told.stderr.contains("watches no service \"yourmaster\""), "{}", told.stderr);

    let server = &service.servers[0];
    let no_sentinel = format!("redis+sentinel://127.0.0.1:{}/mymaster/0", server.port());
    let ended = DaemonSetup::on(&no_sentinel).run_to_its_end().await;
    ended.expect_code(1, &["is no Sentinel", "redis://host:6379"]);

    let sentinel = format!("redis://127.0.0.1:{}", service.sentinels[0].port());
    let ended = DaemonSetup::on(&sentinel).run_to_its_end().await;
    ended.expect_code(1, &["is a Sentinel, which holds no data", "redis+sentinel://"]);
}

/// Waiting must be logged, or a daemon whose Sentinels are down looks dead.
#[tokio::test]
async fn sentinels_that_are_away_are_waited_for() {
    let away = free_port();
    let known = format!("redis+sentinel://127.0.0.1:{away}/mymaster");
    let mut daemon = DaemonSetup::on(&known).spawn();
    let said = daemon.says("waiting for Redis").await;
    assert!(said.contains("no Sentinel answers") && said.contains(&away.to_string()), "{said}");
    let command = quotabell(["usage", "alice"]).redis(&known).run();
    assert!(command.code == 1 && command.stderr.contains("are the Sentinels running there?"), "{}", command.stderr);
}

/// A failover during the daemon's start turns the primary of its first answer into a replica. A daemon that keeps that
/// answer would wait forever for its promotion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_while_the_daemon_starts_does_not_hold_it_up() {
    let service = SentinelService::start().await;
    // Another obstacle, so that the daemon has its first answer by the time of the change.
    let mut scarce = redis::cmd("CONFIG");
    scarce.arg("SET").arg("min-replicas-to-write").arg(5);
    let () = service.servers[0].client().query(&scarce).await.expect("set");
    let mut daemon = daemon_on(&service.url("")).spawn();
    daemon.says("waiting for Redis").await;
    service.fail_over(0).await;
    service.replicates(1).await;
    is_ready(&mut daemon).await;
    daemon.drain().await;
}
