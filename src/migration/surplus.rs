//! The reverse comparison: finds keys and elements of the target that the source does not have.

use redis::{Pipeline, RedisResult};

use crate::redis_client::{Partition, RedisClient, Scan};
use crate::types::{KeyFamily, Keys};

use super::error::MigrationError;
use super::target::Target;

/// Keys with the progress of the target, and keys that are compared in another way.
const LEFT_OUT: [&str; 7] = ["checkpoint", "actions", "alert_log", "outbox", "refused", "totals", "lease"];
/// The sorted sets of deliveries. Members of expired deliveries are ignored, because the source trims them later.
const OF_DELIVERIES: [&str; 6] = ["due", "pending", "waiting", "grouped", "deliveries", "dead"];
/// A key with less remaining lifetime may already have expired in the source.
const ENDS_SOON_MS: i64 = 60_000;
/// Number of keys per read.
const KEYS_AT_ONCE: usize = 1_000;

impl Target<'_> {
    /// Records every key of the target with more elements than were copied. Call it after the comparison.
    pub(super) async fn compare_back(&mut self) -> Result<(), MigrationError> {
        for (number, Partition { client, keys }) in (0..).zip(self.partitions.iter()) {
            let redis = MigrationError::redis(format!("look what else {} has at the target", keys.stream()));
            let server = client.primary().await.map_err(&redis)?;
            let mut scan = Scan::keys(keys.pattern());
            while let Some(mut found) = scan.next::<String>(&server).await.map_err(&redis)? {
                let is_compared =
                    |key: &String| KeyFamily::parse(keys, key).is_some_and(|family| !LEFT_OUT.contains(&family.name));
                found.retain(is_compared);
                for key in self.larger(number, &server, found).await.map_err(&redis)? {
                    let family = KeyFamily::parse(keys, &key).map_or("", |family| family.name);
                    let is_more = match OF_DELIVERIES.contains(&family) {
                        true => readable(&server, keys, &key).await.map_err(&redis)? > self.size_of(number, &key),
                        false => !ends_soon(&server, &key).await.map_err(&redis)?,
                    };
                    if is_more {
                        self.differs(&key);
                    }
                }
            }
        }
        Ok(())
    }

    /// Subjects with settings in the target that were not copied.
    pub(super) async fn other_subjects(&self) -> Result<Vec<String>, MigrationError> {
        let Partition { client, keys } = self.partitions.first();
        let redis = MigrationError::redis("look which subjects are at the target");
        let mut others = Vec::new();
        for server in client.primaries().await.map_err(&redis)? {
            let mut scan = Scan::keys(keys.subject_pattern());
            while let Some(found) = scan.next::<Vec<u8>>(&server).await.map_err(&redis)? {
                let keys = found.iter().map(|key| String::from_utf8_lossy(key).into_owned());
                others.extend(keys.filter(|key| self.size_of(0, key) == 0));
            }
        }
        Ok(others)
    }

    /// The keys that have more elements than were copied.
    async fn larger(&self, number: u32, server: &RedisClient, found: Vec<String>) -> RedisResult<Vec<String>> {
        let mut types = redis::pipe();
        found.iter().for_each(|key| {
            types.cmd("TYPE").arg(key);
        });
        if found.is_empty() {
            return Ok(found);
        }
        let types: Vec<String> = server.pipe(&types).await?;
        let mut sizes = redis::pipe();
        for (key, kind) in found.iter().zip(&types) {
            let command = match kind.as_str() {
                "hash" => "HLEN",
                "set" => "SCARD",
                "zset" => "ZCARD",
                "list" => "LLEN",
                _ => "EXISTS",
            };
            sizes.cmd(command).arg(key);
        }
        let sizes: Vec<u64> = server.pipe(&sizes).await?;
        let larger = found.into_iter().zip(sizes).filter(|(key, size)| *size > self.size_of(number, key));
        Ok(larger.map(|(key, _)| key).collect())
    }
}

/// The number of readable deliveries in a sorted set.
async fn readable(server: &RedisClient, keys: &Keys, key: &str) -> RedisResult<u64> {
    let members: Vec<Vec<u8>> = server.query(redis::cmd("ZRANGE").arg(key).arg(0).arg(-1)).await?;
    let mut readable = 0;
    for members in members.chunks(KEYS_AT_ONCE) {
        let mut pipeline = Pipeline::new();
        for member in members {
            // For a delivery that waits for a contact, the subject precedes the id.
            let id = member.rsplit(|byte| *byte == 0).next().unwrap_or_default();
            pipeline.cmd("EXISTS").arg([keys.delivery_prefix().as_bytes(), id].concat());
        }
        readable += server.pipe::<Vec<u64>>(&pipeline).await?.into_iter().sum::<u64>();
    }
    Ok(readable)
}

async fn ends_soon(server: &RedisClient, key: &str) -> RedisResult<bool> {
    let left: i64 = server.query(redis::cmd("PTTL").arg(key)).await?;
    // -1: no expiry, -2: expired.
    Ok(left != -1 && left < ENDS_SOON_MS)
}
