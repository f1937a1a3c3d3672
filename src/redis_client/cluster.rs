//! Asks the nodes of a cluster which node serves which slot.
//!
//! It asks one node after another and starts with a different node each time, so that it does not rely forever on a
//! node that was cut off. Read next: [`super::topology`], which stores the reply.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{FromRedisValue, RedisError, RedisResult, Value, from_redis_value_ref};

use super::connection::NodeConnection;
use super::deployment_error::DeploymentError;
use super::error_kind::{ErrorKind, error_kind};
use super::hash_slots::{HashSlotMap, HashSlotRange};
use super::node::RedisNode;
use super::redis_url::RedisAddress;

/// Maximum time to wait for a node's reply.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The nodes of a cluster to ask.
#[derive(Debug)]
pub struct ClusterNodes {
    /// The nodes that the URL names; at least one.
    seeds: Vec<Arc<RedisNode>>,
    connections: Mutex<HashMap<RedisAddress, Arc<NodeConnection>>>,
    rotation: AtomicUsize,
}

/// Which nodes to ask first, and which one last.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodePreference<'a> {
    /// The latest reply.
    pub known: Option<&'a HashSlotMap>,
    /// A node that was named as the new owner of a slot: asked first.
    pub owner: Option<&'a RedisAddress>,
    /// A node that failed: asked last.
    pub suspect: Option<&'a RedisAddress>,
}

impl ClusterNodes {
    /// The cluster to which these nodes belong.
    pub fn new(seeds: Vec<RedisNode>) -> Self {
        let seeds = seeds.into_iter().map(Arc::new).collect();
        Self { seeds, connections: Mutex::default(), rotation: AtomicUsize::new(0) }
    }

    /// Another server of the cluster.
    ///
    /// # Errors
    ///
    /// TLS is used and the host can't appear in a certificate.
    pub fn node_at(&self, address: &RedisAddress) -> RedisResult<RedisNode> {
        self.seeds[0].with_address(address.clone())
    }

    /// Which node serves which slot, according to the first node that knows all slots. A node that has just joined
    /// knows none. If no node knows all slots, the reply with the most slots counts.
    pub async fn slot_map(&self, preference: NodePreference<'_>) -> RedisResult<HashSlotMap> {
        let mut most: Option<HashSlotMap> = None;
        let mut failure: Option<RedisError> = None;
        for node in self.in_order(preference)? {
            match self.ask(&node).await {
                Ok(map) if map.uncovered().is_none() => return Ok(map),
                Ok(map) if most.as_ref().is_none_or(|most| most.covered() < map.covered()) => most = Some(map),
                Ok(_) => {}
                // An error that waiting does not fix tells more than a timeout.
                Err(error) if failure.as_ref().is_none_or(|kept| error_kind(kept).is_transient()) => {
                    failure = Some(error);
                }
                Err(_) => {}
            }
        }
        most.ok_or_else(|| failure.expect("there is a node to ask"))
    }

    /// The nodes in the order of asking.
    fn in_order(&self, preference: NodePreference<'_>) -> RedisResult<Vec<Arc<RedisNode>>> {
        let mut nodes: Vec<Arc<RedisNode>> = preference.known.map(|map| map.primaries().to_vec()).unwrap_or_default();
        let first = self.rotation.fetch_add(1, Ordering::Relaxed) % nodes.len().max(1);
        nodes.rotate_left(first);
        for seed in &self.seeds {
            if nodes.iter().all(|node| node.address != seed.address) {
                nodes.push(Arc::clone(seed));
            }
        }
        if let Some(owner) = preference.owner {
            nodes.insert(0, Arc::new(self.node_at(owner)?));
        }
        nodes.sort_by_key(|node| preference.suspect == Some(&node.address));
        self.forget_others(&nodes);
        Ok(nodes)
    }

    fn forget_others(&self, nodes: &[Arc<RedisNode>]) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|address, _| nodes.iter().any(|node| node.address == *address));
    }

    fn connection(&self, node: &RedisNode) -> RedisResult<Arc<NodeConnection>> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = connections.get(&node.address) {
            return Ok(Arc::clone(connection));
        }
        let connection = Arc::new(NodeConnection::to(node)?);
        connections.insert(node.address.clone(), Arc::clone(&connection));
        Ok(connection)
    }

    async fn ask(&self, node: &RedisNode) -> RedisResult<HashSlotMap> {
        let name = || node.address.to_string();
        let mut command = redis::cmd("CLUSTER");
        command.arg("SHARDS");
        let reply: RedisResult<Vec<Value>> = self.connection(node)?.query_within(ANSWER_TIMEOUT, &command).await;
        match reply {
            Ok(shards) => slot_map(&shards, node),
            Err(error) => Err(match error_kind(&error) {
                ErrorKind::Login | ErrorKind::Denied | ErrorKind::Deployment => error,
                ErrorKind::Other if error.detail().unwrap_or_default().contains("cluster support disabled") => {
                    DeploymentError::NotACluster { node: name() }.into()
                }
                _ => DeploymentError::NoNode { node: name(), source: error }.into(),
            }),
        }
    }
}

/// Parses the reply of `asked` to CLUSTER SHARDS.
fn slot_map(shards: &[Value], asked: &RedisNode) -> RedisResult<HashSlotMap> {
    let unreadable =
        |what| -> RedisError { DeploymentError::Unreadable { node: asked.address.to_string(), what }.into() };
    let (mut ranges, mut primaries) = (Vec::new(), Vec::new());
    for shard in shards {
        let shard = Fields::from_value(shard)?;
        let slots: Vec<u16> = shard.get("slots")?.ok_or_else(|| unreadable("a shard has no slots"))?;
        let nodes: Vec<Value> = shard.get("nodes")?.ok_or_else(|| unreadable("a shard has no nodes"))?;
        let mut found: Option<ShardPrimary> = None;
        for node in &nodes {
            let node = Fields::from_value(node)?;
            if node.get::<String>("role")?.as_deref() != Some("master") {
                continue;
            }
            let health = node.get::<String>("health")?;
            let is_failed = health.as_deref().is_some_and(|health| health.starts_with("fail"));
            // For a moment after a failover a shard may have two primaries; prefer the one that has not failed.
            if found.as_ref().is_none_or(|found| found.is_failed) {
                found = Some(ShardPrimary { node: Arc::new(address_of(&node, asked)?), is_failed });
            }
        }
        let Some(ShardPrimary { node, is_failed }) = found else { continue };
        for range in slots.chunks_exact(2) {
            ranges.push(HashSlotRange { first: range[0], last: range[1], primary: Arc::clone(&node) });
        }
        // A failed primary without slots is no longer a primary.
        if !is_failed || !slots.is_empty() {
            primaries.push(node);
        }
    }
    if primaries.is_empty() {
        return Err(unreadable("it names no primary"));
    }
    Ok(HashSlotMap::new(ranges, primaries))
}

struct ShardPrimary {
    node: Arc<RedisNode>,
    is_failed: bool,
}

/// The address of a node in the reply. With TLS the node has another port.
fn address_of(node: &Fields<'_>, asked: &RedisNode) -> RedisResult<RedisNode> {
    let unreadable =
        |what| -> RedisError { DeploymentError::Unreadable { node: asked.address.to_string(), what }.into() };
    let port = if asked.tls.is_some() { "tls-port" } else { "port" };
    let port = node.get::<u16>(port)?.ok_or_else(|| unreadable("a node has no port, or none with TLS"))?;
    // A node that does not know its own address means the address at which it was asked.
    let known = |host: &String| !matches!(host.as_str(), "" | "?");
    let host = node.get::<String>("endpoint")?.filter(known).or(node.get::<String>("ip")?.filter(known));
    let host = match (host, &asked.address) {
        (Some(host), _) => host,
        (None, RedisAddress::Tcp { host, .. }) => host.clone(),
        (None, RedisAddress::Unix { .. }) => return Err(unreadable("a node has no address")),
    };
    asked.with_address(RedisAddress::Tcp { host, port })
}

/// Names and values in turn, the form of a map in RESP2.
struct Fields<'a>(&'a [Value]);

impl<'a> Fields<'a> {
    fn from_value(value: &'a Value) -> RedisResult<Self> {
        match value {
            Value::Array(fields) => Ok(Self(fields)),
            _ => Err((redis::ErrorKind::UnexpectedReturnType, "CLUSTER SHARDS answers no list").into()),
        }
    }

    fn get<T: FromRedisValue>(&self, name: &str) -> RedisResult<Option<T>> {
        for field in self.0.chunks_exact(2) {
            if matches!(&field[0], Value::BulkString(found) if found == name.as_bytes()) {
                return match &field[1] {
                    Value::Nil => Ok(None),
                    value => Ok(Some(from_redis_value_ref(value)?)),
                };
            }
        }
        Ok(None)
    }
}
