//! A real primary with replicas, watched by three real Sentinels: on free ports, in temporary folders, killed on drop.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use quotabell::redis_client::RedisClient;
use tempfile::TempDir;

use super::eventually::eventually;
use super::proxy::Proxy;
use super::redis_server::{RedisServer, free_port, server_binary};

/// The Sentinels' name for the primary.
pub const SERVICE: &str = "mymaster";
/// Options of the servers.
const OPTIONS: [&str; 8] =
    ["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
/// Number of Sentinels; two of them must agree that the primary is down.
const SENTINELS: usize = 3;

/// Intervals of a Sentinel, in milliseconds: short, so that Sentinels find each other sooner. The long TILT-TRIGGER
/// keeps a Sentinel working although a busy machine did not run it for 2 s.
const PERIODS: [&str; 6] = ["PUBLISH-PERIOD", "200", "INFO-PERIOD", "1000", "TILT-TRIGGER", "60000"];
/// The interval after they have found each other. A Sentinel that missed a failover turns the new primary back into a
/// replica after four intervals; the leader of the failover looks for the new primary once a second.
const PERIODS_AFTERWARDS: [&str; 2] = ["PUBLISH-PERIOD", "750"];

/// The servers and their Sentinels.
#[derive(Debug)]
pub struct SentinelService {
    pub servers: Vec<RedisServer>,
    /// The proxies before the servers, one each; may be empty.
    pub proxies: Vec<Proxy>,
    pub sentinels: Vec<Sentinel>,
    passwords: Passwords,
}

/// Passwords of servers and Sentinels; `None`: no login.
#[derive(Debug, Clone, Copy, Default)]
pub struct Passwords {
    pub of_servers: Option<&'static str>,
    pub of_sentinels: Option<&'static str>,
}

/// One Sentinel.
#[derive(Debug)]
pub struct Sentinel {
    child: Child,
    port: u16,
    /// Its log lines.
    said: Arc<Mutex<Vec<String>>>,
    _directory: TempDir,
}

impl SentinelService {
    /// A primary and one replica that follows it.
    pub async fn start() -> Self {
        Self::start_with(Passwords::default()).await
    }

    /// As [`Self::start`], with logins.
    pub async fn start_with(passwords: Passwords) -> Self {
        let mut options = OPTIONS.to_vec();
        let mut lines = String::new();
        if let Some(password) = passwords.of_servers {
            options.extend(["--requirepass", password, "--masterauth", password]);
            lines = format!("sentinel auth-pass {SERVICE} {password}\n");
        }
        if let Some(password) = passwords.of_sentinels {
            lines.push_str(&format!("requirepass {password}\n"));
        }
        let primary = RedisServer::start_with(&options);
        let port = primary.port().to_string();
        let replica = RedisServer::start_with(&[&options[..], &["--replicaof", "127.0.0.1", &port]].concat());
        let service = Self { servers: vec![primary, replica], proxies: Vec::new(), sentinels: Vec::new(), passwords };
        service.watched(&lines).await
    }

    /// As [`Self::start`], with a proxy before each server for Sentinels, replicas and daemons. Sentinels wait longer
    /// before they declare a server dead, because in a test of hours the test decides that.
    pub async fn start_behind_proxies() -> Self {
        let (mut servers, mut proxies) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            // Before its server, which announces the port, so that nobody else can take it.
            let proxy = Proxy::to(0).await;
            let port = proxy.port().to_string();
            let mut options = [&OPTIONS[..], &["--replica-announce-port", &port]].concat();
            let primary = proxies.first().map(|proxy: &Proxy| proxy.port().to_string());
            if let Some(primary) = &primary {
                options.extend(["--replicaof", "127.0.0.1", primary]);
            }
            let server = RedisServer::start_with(&options);
            proxy.turn(server.port());
            proxies.push(proxy);
            servers.push(server);
        }
        Self { servers, proxies, sentinels: Vec::new(), passwords: Passwords::default() }
            .watched(&format!("sentinel down-after-milliseconds {SERVICE} 3000\n"))
            .await
    }

    /// Starts the Sentinels, after a replica is connected.
    async fn watched(mut self, lines: &str) -> Self {
        self.replicates(0).await;
        let watched = self.known_port(0);
        self.sentinels.extend((0..SENTINELS).map(|_| Sentinel::start(watched, lines)));
        self.set_periods(&PERIODS).await;
        for sentinel in &self.sentinels {
            sentinel.knows_all(&self.client_of(sentinel)).await;
        }
        self.set_periods(&PERIODS_AFTERWARDS).await;
        self
    }

    async fn set_periods(&self, periods: &[&str]) {
        for sentinel in &self.sentinels {
            let mut debug = redis::cmd("SENTINEL");
            debug.arg("DEBUG").arg(periods);
            let () = self.client_of(sentinel).query(&debug).await.expect("a Sentinel of 7.0 or later");
        }
    }

    /// A server's port, as Sentinels know it.
    fn known_port(&self, server: usize) -> u16 {
        self.proxies.get(server).map_or_else(|| self.servers[server].port(), Proxy::port)
    }

    /// A client of one of the servers.
    pub fn client(&self, server: usize) -> RedisClient {
        client(self.servers[server].port(), self.passwords.of_servers)
    }

    fn client_of(&self, sentinel: &Sentinel) -> RedisClient {
        client(sentinel.port, self.passwords.of_sentinels)
    }

    /// The value of `redis.url`, with `user_info` (`user:password@`) before the hosts.
    pub fn url(&self, user_info: &str) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis+sentinel://{user_info}{}/{SERVICE}/0", hosts.join(","))
    }

    /// Waits until the other servers follow this one and have all of its current data.
    pub async fn replicates(&self, primary: usize) {
        let held = eventually("the primary says what it holds", || self.held_by(primary)).await;
        eventually("the replicas follow and have it all", || self.follow(primary, held)).await;
    }

    /// Waits until all Sentinels name one server, and the others follow it and have all of its data from the first time
    /// it was named. Returns the server: a failover may be reverted by another one.
    pub async fn settled(&self) -> usize {
        let sentinels = self.clients_of_sentinels();
        let named = Mutex::new(None);
        eventually("the replicas follow the server that the Sentinels name", || async {
            let primary = self.named_by_all(&sentinels).await?;
            let before = *named.lock().expect("no look panics");
            match before {
                Some((before, held)) if before == primary => self.follow(primary, held).await.map(|()| primary),
                _ => {
                    let held = self.held_by(primary).await?;
                    *named.lock().expect("no look panics") = Some((primary, held));
                    None
                }
            }
        })
        .await
    }

    /// Length of a primary's replication stream; `None` if it is no primary.
    async fn held_by(&self, primary: usize) -> Option<u64> {
        let info = replication(&self.client(primary)).await?;
        info.contains("role:master").then(|| offset(&info, "master_repl_offset:"))?
    }

    /// Whether all others follow this server and have this much of its stream.
    async fn follow(&self, primary: usize, held: u64) -> Option<()> {
        for at in (0..self.servers.len()).filter(|at| *at != primary) {
            let info = replication(&self.client(at)).await?;
            let has_it = offset(&info, "slave_repl_offset:")? >= held;
            (has_it && info.contains("master_link_status:up")).then_some(())?;
        }
        self.held_by(primary).await.map(drop)
    }

    /// Waits until all Sentinels name the same server, other than this one. Returns it.
    pub async fn primary_other_than(&self, former: usize) -> usize {
        let sentinels = self.clients_of_sentinels();
        eventually("the Sentinels name another server", || async {
            self.named_by_all(&sentinels).await.filter(|primary| *primary != former)
        })
        .await
    }

    /// Makes the Sentinels replace the primary. Returns the new primary.
    pub async fn fail_over(&self, primary: usize) -> usize {
        let sentinels = self.clients_of_sentinels();
        eventually("another server takes the primary's place", || async {
            if named_by(&sentinels[0]).await? == self.known_port(primary).to_string() {
                // Sentinels refuse this for some time after a failover and during one. A started failover is reverted
                // if a Sentinel has not noticed the new primary and turns it back into a replica.
                let mut command = redis::cmd("SENTINEL");
                let _: Result<(), _> = sentinels[0].query(command.arg("FAILOVER").arg(SERVICE)).await;
            }
            self.named_by_all(&sentinels).await.filter(|successor| *successor != primary)
        })
        .await
    }

    fn clients_of_sentinels(&self) -> Vec<RedisClient> {
        self.sentinels.iter().map(|sentinel| self.client_of(sentinel)).collect()
    }

    /// The server that all Sentinels name.
    async fn named_by_all(&self, sentinels: &[RedisClient]) -> Option<usize> {
        let mut named = Vec::new();
        for sentinel in sentinels {
            named.push(named_by(sentinel).await?);
        }
        let is_named = |at: &usize| named.iter().all(|port| *port == self.known_port(*at).to_string());
        (0..self.servers.len()).find(is_named)
    }

    /// Waits until all Sentinels name this server as the primary, and its own role agrees.
    pub async fn is_primary(&self, server: usize) {
        let port = self.known_port(server).to_string();
        for sentinel in &self.sentinels {
            let client = self.client_of(sentinel);
            eventually("the Sentinel names the other server", || async {
                let mut command = redis::cmd("SENTINEL");
                command.arg("GET-MASTER-ADDR-BY-NAME").arg(SERVICE);
                let named: (String, String) = client.query(&command).await.ok()?;
                (named.1 == port).then_some(())
            })
            .await;
        }
    }
}

fn client(port: u16, password: Option<&str>) -> RedisClient {
    let user_info = password.map(|password| format!(":{password}@")).unwrap_or_default();
    RedisClient::open(&format!("redis://{user_info}127.0.0.1:{port}")).expect("a URL")
}

async fn replication(client: &RedisClient) -> Option<String> {
    client.query(redis::cmd("INFO").arg("replication")).await.ok()
}

impl Sentinel {
    fn start(watched: u16, lines: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let file = directory.path().join("sentinel.conf");
        // Another process may take the port between the check and the bind: try again.
        for _ in 0..20 {
            let port = free_port();
            let configuration = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {SERVICE} 127.0.0.1 {watched} 2\n\
                 sentinel down-after-milliseconds {SERVICE} 700\nsentinel failover-timeout {SERVICE} 2000\n{lines}\n",
                directory.path().display()
            );
            fs::write(&file, configuration).expect("the folder is writable");
            let mut child = Command::new(server_binary())
                .arg(&file)
                .arg("--sentinel")
                .current_dir(directory.path())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .expect("the server is there: it was started before");
            let mut log = BufReader::new(child.stdout.take().expect("stdout is piped"));
            let mut line = String::new();
            while log.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                if line.contains("Sentinel ID is") {
                    let said = Arc::new(Mutex::new(Vec::new()));
                    let keep = Arc::clone(&said);
                    std::thread::spawn(move || {
                        log.lines().map_while(Result::ok).for_each(|line| keep.lock().expect("no panic").push(line));
                    });
                    return Self { child, port, said, _directory: directory };
                }
                line.clear();
            }
            let _ = child.wait();
        }
        panic!("no Sentinel started on any of 20 free ports");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it can be waited for");
    }

    /// Waits until it knows the replica and the other Sentinels, because a failover needs both.
    async fn knows_all(&self, client: &RedisClient) {
        eventually("the Sentinel knows replica and other Sentinels", || async {
            let mut command = redis::cmd("SENTINEL");
            command.arg("MASTER").arg(SERVICE);
            let fields: std::collections::HashMap<String, String> = client.query(&command).await.ok()?;
            let is = |name: &str, count: usize| fields.get(name).is_some_and(|value| *value == count.to_string());
            (is("num-slaves", 1) && is("num-other-sentinels", SENTINELS - 1)).then_some(())
        })
        .await;
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = self.said.lock().expect("no panic").join("\n");
            eprintln!("--- the Sentinel at {}\n{said}\n---", self.port);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The port of the primary, according to one Sentinel.
async fn named_by(sentinel: &RedisClient) -> Option<String> {
    let mut command = redis::cmd("SENTINEL");
    sentinel
        .query::<(String, String)>(command.arg("GET-MASTER-ADDR-BY-NAME").arg(SERVICE))
        .await
        .ok()
        .map(|(_, port)| port)
}

/// A replication offset that a server reports.
fn offset(info: &str, field: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix(field)?.trim().parse().ok())
}
