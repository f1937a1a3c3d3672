//! A partition: its keys, and a client whose commands without a key go to the server of these keys.

use std::collections::HashSet;
use std::sync::Arc;

use redis::RedisResult;

use crate::types::{Keys, PartitionNumber, Subject};

use super::client::RedisClient;

/// One usage stream with everything that belongs to it, all in one hash slot.
#[derive(Debug, Clone)]
pub struct Partition {
    /// The client.
    pub client: Arc<RedisClient>,
    /// Every key of the partition and of its subjects.
    pub keys: Keys,
}

/// Every partition of a stream, on shared connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Partitions {
    /// Sorted by number; never empty.
    all: Arc<[Partition]>,
}

impl Partition {
    /// Its number.
    pub const fn number(&self) -> PartitionNumber {
        self.keys.partition()
    }
}

impl Partitions {
    /// The partitions of the stream of `keys`, on the connections of `client`. Connects nowhere yet.
    pub fn new(client: &RedisClient, keys: &Keys) -> Self {
        let partition = |number| {
            let keys = keys.of_sibling(number);
            Partition { client: Arc::new(client.routed_by(keys.stream())), keys }
        };
        Self { all: PartitionNumber::all(keys.partition().count()).map(partition).collect() }
    }

    /// The partition of a subject, or all of them without one.
    pub fn of_subject_or_all(&self, subject: Option<&Subject>) -> impl Iterator<Item = &Partition> {
        let number = subject.map(|subject| self.partition_of(subject).number());
        self.iter().filter(move |partition| number.is_none_or(|number| number == partition.number()))
    }

    /// The partition of a subject.
    pub fn partition_of(&self, subject: &Subject) -> &Partition {
        let number = self.first().keys.partition_of(subject.as_str().as_bytes());
        &self.all[number.get() as usize]
    }

    /// The first partition. It also stores what concerns all partitions, such as caps, verifications, links and the log
    /// of actions.
    pub fn first(&self) -> &Partition {
        &self.all[0]
    }

    /// All partitions, sorted by number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Partition> + Clone {
        self.all.iter()
    }

    /// One partition per primary, for commands that each server must get once.
    ///
    /// # Errors
    ///
    /// No Sentinel or node knows the servers.
    pub async fn one_per_primary(&self) -> RedisResult<Vec<Partition>> {
        let (mut servers, mut found) = (HashSet::new(), Vec::new());
        for partition in self.iter() {
            if servers.insert(partition.client.default_server().await?) {
                found.push(partition.clone());
            }
        }
        Ok(found)
    }

    /// Number of partitions: at least one.
    pub fn count(&self) -> u32 {
        self.first().number().count()
    }
}
