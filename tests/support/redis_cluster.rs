//! A real cluster of three primaries with one or three replicas: on free ports, in temporary folders, killed on drop.

use std::cell::Cell;

use quotabell::redis_client::RedisClient;
use redis::FromRedisValue;

use super::eventually::eventually;
use super::redis_server::{RedisServer, free_port};

const PRIMARIES: usize = 3;
const SLOTS: usize = 16384;

/// The nodes: the first three started as primaries, the last one as the replica of the primary of the stream `usage`.
#[derive(Debug)]
pub struct RedisCluster {
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Waits until every node knows every other and all slots are served.
    pub async fn start() -> Self {
        Self::start_with(1).await
    }

    /// As [`Self::start`], with a replica for each primary.
    pub async fn start_of_six() -> Self {
        Self::start_with(PRIMARIES).await
    }

    async fn start_with(replicas: usize) -> Self {
        let (nodes, ports): (Vec<RedisServer>, Vec<String>) = (0..PRIMARIES + replicas).map(|_| Self::node()).unzip();
        let cluster = Self { nodes };
        for (at, bus) in ports.iter().enumerate() {
            let epoch = (at + 1).to_string();
            cluster.tell(at, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
            if at < PRIMARIES {
                let (first, last) = (at * SLOTS / PRIMARIES, (at + 1) * SLOTS / PRIMARIES - 1);
                cluster.tell(at, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).await;
            }
            if at > 0 {
                let port = cluster.nodes[at].port().to_string();
                cluster.tell(0, &["CLUSTER", "MEET", "127.0.0.1", &port, bus]).await;
            }
        }
        let known = format!("cluster_known_nodes:{}", cluster.nodes.len());
        cluster.agrees(|info| info.contains("cluster_state:ok") && info.contains(&known)).await;
        let owner = cluster.primary_of("usage").await;
        for replica in 0..replicas {
            let id = cluster.id((owner + replica) % PRIMARIES).await;
            eventually("the replica is told whom to follow", || async {
                cluster.try_on::<()>(PRIMARIES + replica, &["CLUSTER", "REPLICATE", &id]).await.ok()
            })
            .await;
        }
        for node in 0..cluster.nodes.len() {
            eventually("every node knows the replicas", || async {
                let known: String = cluster.try_on(node, &["CLUSTER", "NODES"]).await.ok()?;
                (known.matches("slave").count() == replicas && !known.contains("handshake")).then_some(())
            })
            .await;
        }
        cluster.replicates(owner).await;
        cluster
    }

    /// A node, and the port of its cluster bus.
    fn node() -> (RedisServer, String) {
        const OPTIONS: [&str; 12] = [
            "--save",
            "",
            "--appendonly",
            "no",
            "--repl-diskless-sync-delay",
            "0",
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "1000",
            "--cluster-replica-validity-factor",
            "0",
        ];
        let bus = Cell::new(0);
        let node = RedisServer::start_with_each(|| {
            bus.set(free_port());
            OPTIONS
                .iter()
                .map(ToString::to_string)
                .chain(["--cluster-port".to_owned(), bus.get().to_string()])
                .collect()
        });
        (node, bus.get().to_string())
    }

    /// The value of `redis.url`, with `user_info` (`user:password@`) before the hosts. It names two of the nodes.
    pub fn url(&self, user_info: &str) -> String {
        let [a, b] = [1, 2].map(|at| self.nodes[at].port());
        format!("redis+cluster://{user_info}127.0.0.1:{a},127.0.0.1:{b}")
    }

    /// A client of one node.
    pub fn client(&self, node: usize) -> RedisClient {
        self.nodes[node].client()
    }

    pub async fn try_on<T: FromRedisValue>(&self, node: usize, words: &[&str]) -> redis::RedisResult<T> {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        self.client(node).query(&command).await
    }

    async fn tell(&self, node: usize, words: &[&str]) {
        let () = self.try_on(node, words).await.unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }

    async fn id(&self, node: usize) -> String {
        self.try_on(node, &["CLUSTER", "MYID"]).await.expect("it answers")
    }

    /// Waits for the node that serves a key.
    pub async fn primary_of(&self, key: &str) -> usize {
        eventually("a node serves the key", || async {
            for node in 0..self.nodes.len() {
                if self.try_on::<bool>(node, &["EXISTS", key]).await.is_ok() {
                    return Some(node);
                }
            }
            None
        })
        .await
    }

    /// Waits until every reachable node reports this state of the cluster.
    async fn agrees(&self, holds: impl Fn(&str) -> bool) {
        for node in 0..self.nodes.len() {
            eventually("the nodes agree", || async {
                let info: String = self.try_on(node, &["CLUSTER", "INFO"]).await.ok()?;
                holds(&info).then_some(())
            })
            .await;
        }
    }

    /// Waits until the replica receives its primary's writes. The link is up earlier, and for up to a second the writes
    /// of a dying primary would be lost.
    async fn replicates(&self, primary: usize) {
        let key = "{usage}.replicated";
        self.tell(primary, &["SET", key, "1"]).await;
        eventually("the replica follows", || async {
            let keys: u64 = self.try_on(PRIMARIES, &["DBSIZE"]).await.ok()?;
            (keys == 1).then_some(())
        })
        .await;
        // This write comes through the stream and not with the initial copy.
        self.tell(primary, &["DEL", key]).await;
        eventually("the replica follows every write", || async {
            (self.try_on::<u64>(PRIMARIES, &["DBSIZE"]).await.ok()? == 0).then_some(())
        })
        .await;
    }

    /// Makes a replica a primary without slots, like a node that was just added.
    pub async fn becomes_empty_primary(&self, node: usize) {
        self.tell(node, &["CLUSTER", "RESET", "SOFT"]).await;
        let line = self.line_of(0, 0).await;
        let (port, bus) =
            line.split(' ').nth(1).and_then(|at| at.split_once(':')?.1.split_once('@')).expect("an address");
        let bus = bus.split(',').next().expect("a number");
        self.tell(node, &["CLUSTER", "MEET", "127.0.0.1", port, bus]).await;
        for at in 0..self.nodes.len() {
            eventually("every node takes it for a primary", || async {
                self.line_of(at, node).await.contains("master - ").then_some(())
            })
            .await;
        }
        eventually("it knows who serves the slots", || async {
            let info: String = self.try_on(node, &["CLUSTER", "INFO"]).await.ok()?;
            info.contains("cluster_slots_assigned:16384").then_some(())
        })
        .await;
    }

    /// Makes a node without slots the replica of a primary.
    pub async fn becomes_replica(&self, node: usize, primary: usize) {
        let id = self.id(primary).await;
        eventually("it is told whom to follow", || async {
            self.try_on::<()>(node, &["CLUSTER", "REPLICATE", &id]).await.ok()
        })
        .await;
        for at in 0..self.nodes.len() {
            eventually("every node takes it for a replica", || async {
                self.line_of(at, node).await.contains("slave ").then_some(())
            })
            .await;
        }
    }

    /// The line of CLUSTER NODES about `node` on the node `by`; empty if unknown.
    async fn line_of(&self, by: usize, node: usize) -> String {
        let known: String = self.try_on(by, &["CLUSTER", "NODES"]).await.unwrap_or_default();
        let address = format!(":{}@", self.nodes[node].port());
        known.lines().find(|line| line.contains(&address)).unwrap_or_default().to_owned()
    }

    /// The nodes that serve slots, according to the first node that answers.
    pub async fn primaries(&self) -> Vec<usize> {
        let ports = |node: &RedisServer| format!("127.0.0.1:{}@", node.port());
        let known: String = self.try_on(0, &["CLUSTER", "NODES"]).await.expect("it answers");
        let is_primary =
            |node: &RedisServer| known.lines().any(|line| line.contains(&ports(node)) && line.contains("master"));
        (0..self.nodes.len()).filter(|at| is_primary(&self.nodes[*at])).collect()
    }

    /// Waits until another node serves the slots of a killed one.
    pub async fn is_replaced(&self, dead: usize) {
        let address = format!("127.0.0.1:{}@", self.nodes[dead].port());
        for node in (0..self.nodes.len()).filter(|node| *node != dead) {
            eventually("another node serves its slots", || async {
                let known: String = self.try_on(node, &["CLUSTER", "NODES"]).await.ok()?;
                let info: String = self.try_on(node, &["CLUSTER", "INFO"]).await.ok()?;
                let serves = |line: &str| line.contains(&address) && line.split(' ').count() > 8;
                (info.contains("cluster_state:ok") && !known.lines().any(serves)).then_some(())
            })
            .await;
        }
    }

    /// Waits until every node is up, every slot is served, and every replica follows its primary.
    pub async fn is_whole(&self) {
        for node in 0..self.nodes.len() {
            eventually("the cluster is whole", || async {
                let known: String = self.try_on(node, &["CLUSTER", "NODES"]).await.ok()?;
                let info: String = self.try_on(node, &["CLUSTER", "INFO"]).await.ok()?;
                let role: String = self.try_on(node, &["INFO", "replication"]).await.ok()?;
                let follows = role.contains("role:master") || role.contains("master_link_status:up");
                let is_whole = follows
                    && info.contains("cluster_state:ok")
                    && !known.contains("fail")
                    && known.matches(" master ").count() + known.matches("myself,master ").count() == PRIMARIES;
                is_whole.then_some(())
            })
            .await;
        }
    }

    /// Waits until the replicas of a primary have its current data. Redis moves keys without waiting for replicas: if a
    /// primary dies meanwhile, some moved keys are lost, and no program can restore them.
    pub async fn is_replicated(&self, primary: usize) {
        let offsets = async |name: &str| {
            let info: String = self.try_on(primary, &["INFO", "replication"]).await.expect("it answers");
            let numbers = info.split([',', '\r', '\n']).filter_map(|part| part.strip_prefix(name)?.parse::<u64>().ok());
            numbers.collect::<Vec<u64>>()
        };
        let written = offsets("master_repl_offset:").await[0];
        eventually("the replicas have what was moved", || async {
            let reached = offsets("offset=").await;
            (!reached.is_empty() && reached.iter().all(|offset| *offset >= written)).then_some(())
        })
        .await;
    }

    /// Starts moving a key's slot: from now on nodes redirect commands for missing keys.
    pub async fn begin_move(&self, key: &str, to: usize) -> Move {
        let from = self.primary_of(key).await;
        let slot: u64 = self.try_on(from, &["CLUSTER", "KEYSLOT", key]).await.expect("it answers");
        let (from_id, to_id) = (self.id(from).await, self.id(to).await);
        let slot = slot.to_string();
        self.tell(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
        self.tell(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
        Move { slot, from, to, to_id }
    }

    /// Moves up to `count` keys; returns whether there were any.
    pub async fn move_keys(&self, moving: &Move, count: usize) -> bool {
        let count = count.to_string();
        let keys: Vec<String> =
            self.try_on(moving.from, &["CLUSTER", "GETKEYSINSLOT", &moving.slot, &count]).await.expect("keys");
        if keys.is_empty() {
            return false;
        }
        self.move_these(moving, &keys).await;
        true
    }

    /// Moves these keys, at least one of which must exist.
    pub async fn move_these(&self, moving: &Move, keys: &[String]) {
        let port = self.nodes[moving.to].port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        let _: String = self.try_on(moving.from, &words).await.expect("they are moved");
    }

    /// Moves the remaining keys, and tells every node the new owner of the slot.
    pub async fn end_move(&self, moving: Move) {
        while self.move_keys(&moving, 20).await {}
        let others = (0..self.nodes.len()).filter(|node| *node != moving.to && *node != moving.from);
        for node in [moving.to, moving.from].into_iter().chain(others) {
            // A replica learns it from its primary and refuses the command.
            let _: redis::RedisResult<()> =
                self.try_on(node, &["CLUSTER", "SETSLOT", &moving.slot, "NODE", &moving.to_id]).await;
        }
    }
}

/// A moving slot.
#[derive(Debug)]
pub struct Move {
    pub slot: String,
    pub from: usize,
    pub to: usize,
    to_id: String,
}
