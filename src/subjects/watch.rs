//! Notices changes of subjects: client tracking by prefix, on its own connections.
//!
//! A server reports every write to a key with the subjects' prefix or of grants, including a plain HSET. In a cluster
//! all primaries hold such keys, so the listener connects to each of them. While one of the connections may be dead, or
//! another server has become a primary, no cached settings count as fresh. Several PINGs per second detect a dead
//! connection within the second that a change may take.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::redis_client::backoff::{Backoff, BackoffPolicy};
use crate::redis_client::endpoint::{Primary, RedisEndpoint, TOPOLOGY_REFRESH_INTERVAL};
use crate::types::Keys;
use crate::types::keys::{GRANTS_PREFIX, subject_with_grants};

/// Interval of PINGs on a connection.
const PING_EVERY: Duration = Duration::from_millis(300);
/// Maximum time for a reply before the connection counts as dead. The sum with [`PING_EVERY`] is below the promised
/// second.
const PING_TIMEOUT: Duration = Duration::from_millis(500);
/// If more subjects change between two looks, any subject counts as changed.
const CHANGES_MAX: usize = 100_000;

const _: () = assert!(PING_EVERY.as_millis() + PING_TIMEOUT.as_millis() < 1000);
const _: () = assert!(PING_EVERY.as_millis() + TOPOLOGY_REFRESH_INTERVAL.as_millis() < 1000);

/// The changes since the last look: [`ChangeListener::run`] fills it, readers empty it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ChangeFeed(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    pending: Mutex<Pending>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    live: bool,
    all: bool,
    subjects: HashSet<Vec<u8>>,
}

/// The changes since the last look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubjectChanges {
    /// These subjects, possibly none.
    Of(Vec<Vec<u8>>),
    /// Any subject may have changed.
    Any,
}

impl ChangeFeed {
    /// Returns the changes since the last call. Always [`SubjectChanges::Any`] while nobody listens to Redis.
    pub fn take_changes(&self) -> SubjectChanges {
        let mut pending = self.0.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let subjects = std::mem::take(&mut pending.subjects);
        let all = std::mem::take(&mut pending.all);
        if all || !pending.live { SubjectChanges::Any } else { SubjectChanges::Of(subjects.into_iter().collect()) }
    }

    /// Whether somebody listens to Redis, so that unreported subjects are unchanged.
    pub fn is_live(&self) -> bool {
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner).live
    }

    /// Waits for a change since the last call of [`Self::take_changes`].
    pub async fn arrived(&self) {
        self.0.arrived.notified().await;
    }

    /// Reports that settings of any subject may have changed, because the plans have.
    pub fn all_changed(&self) {
        self.note(SubjectChanges::Any);
    }

    /// Reports changes, which the next [`Self::take_changes`] returns.
    pub fn note(&self, change: SubjectChanges) {
        let mut pending = self.0.pending.lock().unwrap_or_else(PoisonError::into_inner);
        match change {
            SubjectChanges::Any => pending.all = true,
            SubjectChanges::Of(subjects) => {
                pending.subjects.extend(subjects);
                if pending.subjects.len() > CHANGES_MAX {
                    pending.subjects.clear();
                    pending.all = true;
                }
            }
        }
        drop(pending);
        self.0.arrived.notify_one();
    }

    /// Reports whether somebody listens to Redis.
    pub(crate) fn listening(&self, live: bool) {
        let mut pending = self.0.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.live = live;
        // Changes while nobody listened are unknown.
        pending.all = true;
        drop(pending);
        self.0.arrived.notify_one();
    }
}

/// Listens to Redis for changes of subjects.
#[derive(Debug)]
pub struct ChangeListener {
    endpoint: RedisEndpoint,
    /// Prefix of the keys of subjects.
    prefix: Arc<str>,
    readers: Vec<ChangeFeed>,
}

impl ChangeListener {
    /// A listener that reports to each of `readers`. Connects nowhere yet.
    pub fn new(endpoint: RedisEndpoint, keys: &Keys, readers: Vec<ChangeFeed>) -> Self {
        Self { endpoint, prefix: keys.subject_prefix().into(), readers }
    }

    /// Listens until stopped, and reconnects forever.
    pub async fn run(self, stop: CancellationToken) {
        let mut retries = Backoff::new(BackoffPolicy::RECONNECT);
        while !stop.is_cancelled() {
            let Some(listened) = stop.run_until_cancelled(self.listen(&mut retries)).await else { return };
            self.readers.iter().for_each(|changes| changes.listening(false));
            if let Err(error) = listened {
                tracing::debug!(%error, "listening for changes of subjects was interrupted");
            }
            stop.run_until_cancelled(tokio::time::sleep(retries.next_delay())).await;
        }
    }

    /// Listens to every primary until a connection fails or the primaries change.
    async fn listen(&self, retries: &mut Backoff) -> RedisResult<()> {
        let primaries = self.endpoint.primaries().await?;
        let mut connections = Vec::with_capacity(primaries.len());
        for primary in &primaries {
            connections.push(self.connect(primary).await.inspect_err(|_| primary.suspect())?);
        }
        self.readers.iter().for_each(|changes| changes.listening(true));
        retries.reset();
        loop {
            tokio::time::sleep(PING_EVERY).await;
            for (connection, primary) in connections.iter_mut().zip(&primaries) {
                let pong: RedisResult<Value> = redis::cmd("PING").query_async(connection).await;
                pong.inspect_err(|_| primary.suspect())?;
            }
            if self.endpoint.primaries().await? != primaries {
                return Ok(());
            }
        }
    }

    async fn connect(&self, primary: &Primary) -> RedisResult<MultiplexedConnection> {
        let (readers, prefix) = (self.readers.clone(), Arc::clone(&self.prefix));
        let sender = move |push: PushInfo| -> Result<(), redis::aio::SendError> {
            if push.kind == PushKind::Invalidate {
                let subjects = subjects_in(&push.data, &prefix);
                readers.iter().for_each(|changes| changes.note(subjects.clone()));
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PING_TIMEOUT))
            .set_response_timeout(Some(PING_TIMEOUT))
            .set_push_sender(sender);
        let client = primary.node().client_resp3()?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut command = redis::cmd("CLIENT");
        command.arg("TRACKING").arg("ON").arg("BCAST");
        command.arg("PREFIX").arg(&*self.prefix).arg("PREFIX").arg(GRANTS_PREFIX);
        let () = command.query_async(&mut connection).await?;
        Ok(connection)
    }
}

/// The subjects that an invalidation names; a flush names none and means all.
fn subjects_in(data: &[Value], prefix: &str) -> SubjectChanges {
    let Some(Value::Array(keys)) = data.first() else { return SubjectChanges::Any };
    let subject = |key: &Value| match key {
        Value::BulkString(key) => {
            key.strip_prefix(prefix.as_bytes()).or_else(|| subject_with_grants(key)).map(<[u8]>::to_vec)
        }
        _ => None,
    };
    SubjectChanges::Of(keys.iter().filter_map(subject).collect())
}
