//! Which server is the primary for a key, as far as is known: learnt from Sentinels or from the nodes of a cluster, and
//! shared by all connections of an endpoint.
//!
//! Whoever meets a server that is none any more says so ([`Topology::suspect`]); then the next one that needs a primary
//! asks anew, and the others wait for its answer. [`Topology::watch`] asks all the time, because a primary that was
//! replaced while it is cut off still answers. Read next: [`super::sentinel`] and [`super::cluster`], who is asked.

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

/// How often [`Topology::watch`] asks. What a new primary is told of a subject has to take effect within a second, so
/// it has to be listened to by then.
pub const TOPOLOGY_REFRESH_INTERVAL: Duration = Duration::from_millis(400);

/// What is known of the primaries.
#[derive(Debug)]
pub struct Topology {
    source: TopologySource,
    known: RwLock<Option<Arc<HashSlotMap>>>,
    /// A server that failed or sent us away since the last answer.
    suspect: Mutex<Option<RedisAddress>>,
    is_outdated: AtomicBool,
    /// One asks, the others wait for what comes of it; its error, where that is none.
    asking: tokio::sync::Mutex<Option<RedisError>>,
    /// Answers and failures so far.
    asked: AtomicU64,
}

/// Who tells.
#[derive(Debug)]
pub enum TopologySource {
    /// Sentinels.
    Sentinel(Sentinels),
    /// Nodes of a cluster.
    Cluster(ClusterNodes),
}

impl Topology {
    /// Nothing is known yet. Connects nowhere.
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

    /// The primary that serves the slot; asks where that is not known.
    ///
    /// # Errors
    ///
    /// Nobody tells; [`DeploymentError::UncoveredSlots`] where there is none.
    pub async fn primary_of(&self, slot: HashSlot) -> RedisResult<Arc<RedisNode>> {
        primary_in(&*self.map().await?, slot)
    }

    /// As [`Self::primary_of`], and asks in any case.
    ///
    /// # Errors
    ///
    /// As [`Self::primary_of`].
    pub async fn ask_primary_of(&self, slot: HashSlot) -> RedisResult<Arc<RedisNode>> {
        primary_in(&*self.ask(None).await?, slot)
    }

    /// Who serves which slot; asks where that is not known.
    ///
    /// # Errors
    ///
    /// Nobody tells.
    pub async fn map(&self) -> RedisResult<Arc<HashSlotMap>> {
        if !self.is_outdated.load(Ordering::Acquire)
            && let Some(map) = self.known()
        {
            return Ok(map);
        }
        self.ask(None).await
    }

    /// What was told last.
    pub fn known(&self) -> Option<Arc<HashSlotMap>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A server could not be reached, or is no primary: the next one who needs a primary asks anew.
    pub fn suspect(&self, node: &RedisAddress) {
        *self.suspect.lock().unwrap_or_else(PoisonError::into_inner) = Some(node.clone());
        self.outdate();
    }

    /// What is known contradicts what a server says of itself: the next one who needs a primary asks anew.
    pub fn outdate(&self) {
        self.is_outdated.store(true, Ordering::Release);
    }

    /// A node of the cluster said that another one serves a slot now. Gives that node, having asked it.
    ///
    /// # Errors
    ///
    /// A host that can't stand in a certificate, where TLS is spoken.
    pub async fn moved(&self, address: &RedisAddress) -> RedisResult<Arc<RedisNode>> {
        let owner = self.other(address)?;
        // Where it does not answer, the call that goes there fails by itself.
        let _ = self.ask(Some(&owner.address)).await;
        Ok(owner)
    }

    /// Another server with the settings of these.
    ///
    /// # Errors
    ///
    /// A host that can't stand in a certificate, where TLS is spoken.
    pub fn other(&self, address: &RedisAddress) -> RedisResult<Arc<RedisNode>> {
        match &self.source {
            TopologySource::Sentinel(sentinels) => sentinels.node_at(address).map(Arc::new),
            TopologySource::Cluster(nodes) => nodes.node_at(address).map(Arc::new),
        }
    }

    /// Whether this server is known to be no primary any more.
    pub fn is_replaced(&self, node: &RedisAddress) -> bool {
        self.known().is_some_and(|map| map.primaries().iter().all(|primary| primary.address != *node))
    }

    /// Asks all the time until stopped, and logs what changes.
    pub async fn watch(&self, stop: CancellationToken) {
        let mut is_silent = false;
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(TOPOLOGY_REFRESH_INTERVAL) => {}
            }
            match self.ask(None).await {
                Ok(_) if is_silent => {
                    is_silent = false;
                    tracing::info!("it is known again which server is primary");
                }
                Ok(_) => {}
                Err(error) if !is_silent => {
                    is_silent = true;
                    tracing::warn!(%error, "no Sentinel or node says which server is primary: a failover would go unnoticed");
                }
                Err(_) => {}
            }
        }
    }

    async fn ask(&self, owner: Option<&RedisAddress>) -> RedisResult<Arc<HashSlotMap>> {
        let ended = self.asked.load(Ordering::Acquire);
        let mut failed = self.asking.lock().await;
        // Each by itself, the callers of servers that hang would ask one after the other.
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
