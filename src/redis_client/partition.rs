//! A partition as code gets it: its keys, with a client whose commands without a key go to the server that serves them.

use std::collections::HashSet;
use std::sync::Arc;

use redis::RedisResult;

use crate::types::{Keys, PartitionNumber, Subject};

use super::client::RedisClient;

/// One usage stream with everything that belongs to it, all in one hash slot.
#[derive(Debug, Clone)]
pub struct Partition {
    /// Redis.
    pub client: Arc<RedisClient>,
    /// Every key of the partition, and those of subjects.
    pub keys: Keys,
}

/// Every partition of a stream, on shared connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Partitions {
    /// In the order of their numbers; never empty.
    all: Arc<[Partition]>,
}

impl Partition {
    /// Which one it is.
    pub const fn number(&self) -> PartitionNumber {
        self.keys.partition()
    }
}

impl Partitions {
    /// The partitions of `keys`, which are those of any of them, on the connections of `client`. Connects nowhere yet.
    pub fn new(client: &RedisClient, keys: &Keys) -> Self {
        let partition = |number| {
            let keys = keys.of_sibling(number);
            Partition { client: Arc::new(client.routed_by(keys.stream())), keys }
        };
        Self { all: PartitionNumber::all(keys.partition().count()).map(partition).collect() }
    }

    /// The one to which a subject belongs.
    pub fn partition_of(&self, subject: &Subject) -> &Partition {
        let number = self.first().number().of_sibling(subject.as_str().as_bytes());
        &self.all[number.get() as usize]
    }

    /// The first one. What belongs to no subject is kept here: caps, codes and confirm links of verifications.
    pub fn first(&self) -> &Partition {
        &self.all[0]
    }

    /// All of them, in the order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Partition> + Clone {
        self.all.iter()
    }

    /// One partition on each primary that serves any, for commands that each of these servers must get once.
    ///
    /// # Errors
    ///
    /// Nobody tells which servers these are.
    pub async fn one_per_primary(&self) -> RedisResult<Vec<Partition>> {
        let (mut servers, mut found) = (HashSet::new(), Vec::new());
        for partition in self.iter() {
            if servers.insert(partition.client.default_server().await?) {
                found.push(partition.clone());
            }
        }
        Ok(found)
    }

    /// How many there are: at least one.
    pub fn count(&self) -> u32 {
        self.first().number().count()
    }
}
