mod support;
use support::daemon::DaemonSetup;
use support::redis_server::RedisServer;
#[tokio::test]
async fn probe() {
    let server = RedisServer::start();
    for _ in 0..8 {
        let t = std::time::Instant::now();
        let mut d = DaemonSetup::on(&server.url()).spawn();
        d.http().await;
        let h = t.elapsed();
        d.says("quotabell is ready").await;
        eprintln!("{h:?} {:?}", t.elapsed());
        d.kill().await;
    }
}
