//! The live daemons of a stream, and the state of its partitions.

use redis::RedisResult;
use schemars::JsonSchema;
use serde::Serialize;

use super::Observer;
use crate::events::{DaemonEntry, DaemonName};
use crate::ledger::query::lag;
use crate::redis_client::Partition;
use crate::types::timestamp::Rfc3339;
use crate::types::{StreamId, UnixMs, keys};

/// How long after its last heartbeat a daemon counts as live. Only what is shown uses this.
const DAEMON_LASTS_MS: i64 = 5_000;

/// Which daemons run, and what each partition waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "System")]
pub struct SystemView {
    pub read_at: Rfc3339,
    pub daemons: Vec<DaemonView>,
    #[schemars(length(min = 1))]
    pub partitions: Vec<PartitionView>,
}

/// A live daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Daemon")]
pub struct DaemonView {
    /// Its host, the address of its HTTP port, and a number, divided by slashes.
    #[schemars(with = "String")]
    pub name: DaemonName,
    /// Whether it sends deliveries; false for one that was started to count only.
    pub sends: bool,
    /// The fingerprint of its plans: those of all daemons should be equal.
    pub plans: String,
    /// Its last heartbeat.
    pub seen_at: Rfc3339,
    /// The partitions that it reads.
    pub reads: Vec<u32>,
}

/// A partition of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "PartitionState")]
pub struct PartitionView {
    pub partition: u32,
    pub stream: String,
    /// The daemon that reads it; null if none does.
    #[schemars(with = "Option<String>")]
    pub reader: Option<DaemonName>,
    /// Number of entries that are not counted yet.
    pub lag: u64,
    /// When the oldest of them arrived; null if there are none.
    pub oldest_arrived_at: Option<Rfc3339>,
    /// The newest counted entry; null before the first one.
    pub checkpoint: Option<StreamId>,
    /// When it was counted.
    pub committed_at: Option<Rfc3339>,
}

/// A live daemon of the stream, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedDaemon {
    pub(super) entry: DaemonEntry,
    seen_at: UnixMs,
}

/// The daemons that are live at `now`. `first` is the first partition of their stream.
pub(super) async fn live_daemons(first: &Partition, now: UnixMs) -> RedisResult<Vec<ListedDaemon>> {
    let Partition { client, keys } = first;
    let mut command = redis::cmd("ZRANGEBYSCORE");
    command.arg(keys::DAEMONS).arg(now.0 - DAEMON_LASTS_MS).arg("+inf").arg("WITHSCORES");
    let members: Vec<(String, i64)> = client.query(&command).await?;
    let listed = members.iter().filter_map(|(member, seen_ms)| {
        Some(ListedDaemon { entry: DaemonEntry::parse(member)?, seen_at: UnixMs(*seen_ms) })
    });
    Ok(listed.filter(|daemon| daemon.entry.stream == keys.name()).collect())
}

impl Observer {
    /// Reads daemons and partitions: four calls for each partition.
    pub async fn system(&self) -> RedisResult<SystemView> {
        let first = self.partitions.first();
        let now = first.client.server_time().await?;
        let mut partitions = Vec::new();
        for partition in self.partitions.iter() {
            partitions.push(PartitionView::read(partition).await?);
        }
        let view = |ListedDaemon { entry: DaemonEntry { name, plans, .. }, seen_at }| {
            let is_reader = |partition: &&PartitionView| partition.reader.as_ref() == Some(&name);
            let reads = partitions.iter().filter(is_reader).map(|partition| partition.partition).collect();
            DaemonView { sends: name.sends(), plans, seen_at: Rfc3339(seen_at), reads, name }
        };
        // After a change of its plans, a daemon is listed twice for some seconds: the newest heartbeat comes last.
        let mut daemons: Vec<DaemonView> = live_daemons(first, now).await?.into_iter().rev().map(view).collect();
        daemons.sort_by(|a, b| a.name.cmp(&b.name));
        daemons.dedup_by(|later, kept| later.name == kept.name);
        Ok(SystemView { read_at: Rfc3339(now), daemons, partitions })
    }
}

impl PartitionView {
    async fn read(Partition { client, keys }: &Partition) -> RedisResult<Self> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("GET").arg(keys.lease());
        pipeline.cmd("HMGET").arg(keys.checkpoint()).arg("id").arg("committed_at_ms");
        type Read = (Option<String>, (Option<String>, Option<i64>));
        let (reader, (id, committed_ms)): Read = client.pipe(&pipeline).await?;
        let lag = lag(client, keys).await?;
        let from = id.as_ref().map_or_else(|| "-".to_owned(), |id| format!("({id}"));
        let mut command = redis::cmd("XRANGE");
        command.arg(keys.stream()).arg(from).arg("+").arg("COUNT").arg(1);
        let oldest: Vec<(String, Vec<redis::Value>)> =
            if lag == 0 { Vec::new() } else { client.query(&command).await? };
        let arrived = oldest.first().and_then(|(id, _)| StreamId::parse(id.as_bytes()));
        Ok(Self {
            partition: keys.partition().get(),
            stream: keys.stream().to_owned(),
            reader: reader.map(|name| DaemonName::from_stored(&name)),
            lag,
            oldest_arrived_at: arrived.and_then(|id| i64::try_from(id.ms).ok()).map(|ms| Rfc3339(UnixMs(ms))),
            checkpoint: id.and_then(|id| StreamId::parse(id.as_bytes())),
            committed_at: committed_ms.map(|ms| Rfc3339(UnixMs(ms))),
        })
    }
}
