//! Which server is the primary of a key, according to Sentinels or cluster nodes. All connections of an endpoint share
//! it.
//!
//! A caller that finds a server demoted or unreachable calls [`Topology::suspect`]; the next caller that needs a
//! primary asks again, and the others wait for the reply. [`Topology::watch`] keeps asking, because a replaced primary
//! that is cut off still answers. Read next: [`super::sentinel`] and [`super::cluster`], which ask.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use redis::{RedisError, RedisResult};
use tokio_util::sync::CancellationToken;

use super::cluster::{ClusterNodes, NodePreference};
use super::deployment_error::DeploymentError;
use super::hash_slots::{HashSlot, HashSlotMap};
use super::node::RedisNode;
use super::redis_url::RedisAddress;
use super::sentinel::Sentinels;

/// How often [`Topology::watch`] asks. Changes of a subject take effect within a second, so the daemon must listen to a
/// new primary within that time.
pub const TOPOLOGY_REFRESH_INTERVAL: Duration = Duration::from_millis(400);

/// What is known about the primaries.
#[derive(Debug)]
pub struct Topology {
    source: TopologySource,
    known: RwLock<Option<Arc<HashSlotMap>>>,
    /// A server that failed or sent a redirect since the latest reply.
    suspect: Mutex<Option<RedisAddress>>,
    is_outdated: AtomicBool,
    /// One caller asks and the others wait for the result; holds the error if asking failed.
    asking: tokio::sync::Mutex<Option<RedisError>>,
    /// Number of replies and failures so far.
    asked: AtomicU64,
}

/// Which servers to ask.
#[derive(Debug)]
pub enum TopologySource {
    /// Sentinels.
    Sentinel(Sentinels),
    /// Nodes of a cluster.
    Cluster(ClusterNodes),
}

/// How Redis is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deployment {
    /// One server.
    Standalone,
    /// A primary and its replicas, watched by Sentinels.
    Sentinel,
    /// A cluster.
    Cluster,
}

impl Topology {
    /// A topology that knows nothing yet. Connects nowhere.
    pub fn new(source: TopologySource) -> Self {
        Self {
            source,
            known: RwLock::default(),
            suspect: Mutex::default(),
            is_outdated: AtomicBool::new(true),
            asking: tokio::sync::Mutex::default(),
            asked: AtomicU64::new(0),
        }
    }

    /// The primary that serves the slot; asks if it is unknown.
    ///
    /// # Errors
    ///
    /// No Sentinel or node knows; [`DeploymentError::UncoveredSlots`] if the slot has no primary.
    pub async fn primary_of(&self, slot: HashSlot) -> RedisResult<Arc<RedisNode>> {
        primary_in(&*self.map().await?, slot)
    }

    /// As [`Self::primary_of`], but always asks.
    ///
    /// # Errors
    ///
    /// As [`Self::primary_of`].
    pub async fn ask_primary_of(&self, slot: HashSlot) -> RedisResult<Arc<RedisNode>> {
        primary_in(&*self.ask(None).await?, slot)
    }

    /// Which server serves which slot; asks if that is unknown.
    ///
    /// # Errors
    ///
    /// No Sentinel or node knows.
    pub async fn map(&self) -> RedisResult<Arc<HashSlotMap>> {
        if !self.is_outdated.load(Ordering::Acquire)
            && let Some(map) = self.known()
        {
            return Ok(map);
        }
        self.ask(None).await
    }

    /// The latest reply.
    pub fn known(&self) -> Option<Arc<HashSlotMap>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A server was unreachable or is no primary: the next caller that needs a primary asks again.
    pub fn suspect(&self, node: &RedisAddress) {
        *self.suspect.lock().unwrap_or_else(PoisonError::into_inner) = Some(node.clone());
        self.outdate();
    }

    /// A server contradicts the latest reply: the next caller that needs a primary asks again.
    pub fn outdate(&self) {
        self.is_outdated.store(true, Ordering::Release);
    }

    /// A cluster node reported that the node at `address` now serves a slot. Asks that node for the topology, and
    /// returns the node.
    ///
    /// # Errors
    ///
    /// TLS is used and the host can't appear in a certificate.
    pub async fn moved(&self, address: &RedisAddress) -> RedisResult<Arc<RedisNode>> {
        let owner = self.other(address)?;
        // If it does not answer, the call to it fails by itself.
        let _ = self.ask(Some(&owner.address)).await;
        Ok(owner)
    }

    /// Another server with the same settings.
    ///
    /// # Errors
    ///
    /// TLS is used and the host can't appear in a certificate.
    pub fn other(&self, address: &RedisAddress) -> RedisResult<Arc<RedisNode>> {
        match &self.source {
            TopologySource::Sentinel(sentinels) => sentinels.node_at(address).map(Arc::new),
            TopologySource::Cluster(nodes) => nodes.node_at(address).map(Arc::new),
        }
    }

    /// The kind of deployment.
    pub const fn deployment(&self) -> Deployment {
        match &self.source {
            TopologySource::Sentinel(_) => Deployment::Sentinel,
            TopologySource::Cluster(_) => Deployment::Cluster,
        }
    }

    /// Whether this server is known to be no longer a primary.
    pub fn is_replaced(&self, node: &RedisAddress) -> bool {
        self.known().is_some_and(|map| map.primaries().iter().all(|primary| primary.address != *node))
    }

    /// Keeps asking until stopped, and logs changes.
    pub async fn watch(&self, stop: CancellationToken) {
        let mut is_silent = false;
        while stop.run_until_cancelled(tokio::time::sleep(TOPOLOGY_REFRESH_INTERVAL)).await.is_some() {
            match self.ask(None).await {
                Ok(_) if is_silent => {
                    is_silent = false;
                    tracing::info!("the daemon found the primary again");
                }
                Ok(_) => {}
                Err(error) if !is_silent => {
                    is_silent = true;
                    tracing::warn!(%error, "no Sentinel or node names the primary: a failover would go unnoticed");
                }
                Err(_) => {}
            }
        }
    }

    async fn ask(&self, owner: Option<&RedisAddress>) -> RedisResult<Arc<HashSlotMap>> {
        let ended = self.asked.load(Ordering::Acquire);
        let mut failed = self.asking.lock().await;
        // If each caller asked for itself, the callers of hanging servers would time out one after another.
        if self.asked.load(Ordering::Acquire) != ended {
            match (failed.as_ref(), self.known()) {
                (Some(error), _) => return Err(error.clone()),
                (None, Some(map)) => return Ok(map),
                (None, None) => {}
            }
        }
        let suspect = self.suspect.lock().unwrap_or_else(PoisonError::into_inner).take();
        let known = self.known();
        let told = match &self.source {
            TopologySource::Sentinel(sentinels) => sentinels.primary().await.map(HashSlotMap::whole),
            TopologySource::Cluster(nodes) => {
                let preference = NodePreference { known: known.as_deref(), owner, suspect: suspect.as_ref() };
                nodes.slot_map(preference).await
            }
        };
        *failed = told.as_ref().err().cloned();
        let map = told.map(|map| self.learn(map));
        self.asked.fetch_add(1, Ordering::Release);
        map
    }

    fn learn(&self, map: HashSlotMap) -> Arc<HashSlotMap> {
        let map = Arc::new(map);
        let before = self.known.write().unwrap_or_else(PoisonError::into_inner).replace(Arc::clone(&map));
        self.is_outdated.store(false, Ordering::Release);
        if let Some(before) = before
            && before.addresses() != map.addresses()
        {
            tracing::info!(before = before.addresses(), now = map.addresses(), "Redis has another primary");
        }
        map
    }
}

fn primary_in(map: &HashSlotMap, slot: HashSlot) -> RedisResult<Arc<RedisNode>> {
    map.primary_of(slot).cloned().ok_or_else(|| {
        let slots = map.uncovered().unwrap_or_default();
        DeploymentError::UncoveredSlots { slots }.into()
    })
}
