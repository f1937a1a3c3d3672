//! The state that the last daemon left in Redis: the layout, the number of partitions, keys of a wrong type.

use redis::RedisResult;

use crate::redis_client::{ErrorKind, Partition, Partitions, RedisClient, error_kind};
use crate::types::{Keys, PARTITIONS_MAX, PartitionNumber};

/// The state that the last daemon left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPartitions {
    /// One checkpoint per partition.
    pub checkpoints: Vec<StoredCheckpoint>,
    /// State of another number of partitions.
    pub others: Option<OtherPartitions>,
    /// Streams of another number of partitions without any counts: nobody reads them.
    pub unread: Vec<String>,
}

/// A checkpoint of another number of partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherPartitions {
    /// Its key.
    pub checkpoint: String,
    /// The number of partitions in it.
    pub count: u32,
}

/// The stored layout, to compare with the one that this daemon knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredCheckpoint {
    /// `format` of the checkpoint.
    pub format: Option<String>,
    /// `partitions` of the checkpoint.
    pub partitions: Option<u32>,
    /// `fingerprint` of the checkpoint.
    pub fingerprint: Option<String>,
    /// `moved_to` of the checkpoint: the target of a migration that moved everything.
    pub moved_to: Option<String>,
    /// `migration` of the checkpoint: the progress of a migration to this deployment.
    pub migration: Option<String>,
    /// The first of the partition's keys with a wrong type.
    pub misplaced: Option<WrongKeyType>,
}

/// A key with a wrong type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongKeyType {
    /// The key.
    pub key: String,
    /// Its type, in the words of Redis.
    pub found: String,
    /// The required type.
    pub wanted: &'static str,
}

/// Reads the stored checkpoints, and checks the types of the partitions' keys.
pub async fn stored_partitions(partitions: &Partitions) -> RedisResult<StoredPartitions> {
    let mut checkpoints = Vec::new();
    for Partition { client, keys } in partitions.iter() {
        checkpoints.push(stored(client, keys).await?);
    }
    let (others, unread) = others(partitions).await?;
    Ok(StoredPartitions { checkpoints, others, unread })
}

async fn stored(client: &RedisClient, keys: &Keys) -> RedisResult<StoredCheckpoint> {
    let misplaced = misplaced(client, keys).await?;
    if misplaced.is_some() {
        return Ok(StoredCheckpoint { misplaced, ..StoredCheckpoint::default() });
    }
    let mut command = redis::cmd("HMGET");
    command.arg(keys.checkpoint()).arg(&["format", "partitions", "fingerprint", "moved_to", "migration"]);
    let (format, partitions, fingerprint, moved_to, migration) = client.query(&command).await?;
    Ok(StoredCheckpoint { format, partitions, fingerprint, moved_to, migration, misplaced })
}

/// Searches for the checkpoints and streams of another number of partitions, which have other names. A checkpoint that
/// counts one partition and has a number in its name belongs to a stream with that name.
async fn others(partitions: &Partitions) -> RedisResult<(Option<OtherPartitions>, Vec<String>)> {
    let Partition { client, keys } = partitions.first();
    let several = PartitionNumber::all(PARTITIONS_MAX);
    let all = several.chain([PartitionNumber::first(1)]).map(|partition| keys.of_sibling(partition));
    let others: Vec<Keys> =
        all.filter(|other| partitions.iter().all(|own| own.keys.stream() != other.stream())).collect();
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    for other in &others {
        pipeline.cmd("HGET").arg(other.checkpoint()).arg("partitions");
        pipeline.cmd("EXISTS").arg(other.stream());
    }
    let replies: Vec<RedisResult<Option<u32>>> = client.pipe(&pipeline).await?;
    let mut answers = Vec::new();
    for reply in replies {
        match reply {
            Ok(answer) => answers.push(answer),
            // The key is not ours, and a user who may not read it has never written it.
            Err(error) if matches!(error_kind(&error), ErrorKind::WrongType | ErrorKind::Denied) => answers.push(None),
            Err(error) => return Err(error),
        }
    }
    let mut unread = Vec::new();
    for (other, answers) in others.iter().zip(answers.chunks_exact(2)) {
        match answers {
            [Some(count), _] if (*count == 1) == (other.partition().count() == 1) => {
                return Ok((Some(OtherPartitions { checkpoint: other.checkpoint(), count: *count }), Vec::new()));
            }
            [None, Some(1)] => unread.push(other.stream().to_owned()),
            _ => {}
        }
    }
    Ok((None, unread))
}

async fn misplaced(client: &RedisClient, keys: &Keys) -> RedisResult<Option<WrongKeyType>> {
    let wanted = [
        (keys.stream().to_owned(), "stream"),
        (keys.checkpoint(), "hash"),
        (keys.outbox(), "stream"),
        (keys.refused(), "stream"),
        (keys.totals(), "hash"),
        (keys.lease(), "string"),
        (keys.destinations(), "zset"),
        (keys.destinations_unhealthy(), "zset"),
        (keys.deliveries(), "zset"),
        (keys.dead(), "zset"),
    ];
    let mut pipeline = redis::pipe();
    for (key, _) in &wanted {
        pipeline.cmd("TYPE").arg(key);
    }
    let found: Vec<String> = client.pipe(&pipeline).await?;
    let mut pairs = wanted.into_iter().zip(found).filter(|((_, wanted), found)| found != "none" && found != wanted);
    Ok(pairs.next().map(|((key, wanted), found)| WrongKeyType { key, found, wanted }))
}
