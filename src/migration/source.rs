//! Reads the data of a partition as chunks for the partitions of the target.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use redis::{FromRedisValue, Pipeline, RedisResult, Value};

use crate::redis_client::{Partition, Partitions, RedisClient, Scan};
use crate::types::{Destination, KeyFamily, Keys};

use super::error::MigrationError;
use super::key_chunk::{Elements, KeyChunk};
use super::target::Target;

/// A field of a hash, and its value.
type Field = (Vec<u8>, Vec<u8>);

/// How the keys of a family are divided among partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyPlacement {
    /// A hash with a field per subject.
    FieldOfSubject,
    /// A hash whose fields end with the subject, after the first colon.
    FieldEndsWithSubject,
    /// A string of one subject, which the key contains before its last four parts.
    Flag,
    /// A key of one subject, which is the end of the key.
    KeyOfSubject,
    /// A hash that names its subject, with its places in the sorted sets of deliveries.
    Delivery,
    /// A sorted set whose members are subjects: the partition of each subject gets its member.
    MemberOfSubject,
    /// Every partition gets the data of all source partitions.
    Shared,
    /// Every partition gets the data of the first source partition that has it.
    SharedByFirst,
    /// The first partition gets it, because it belongs to no subject.
    First,
    /// Copied in another way, or short-lived: leases, caps, cooldowns, states of limiters.
    LeftOut,
}

/// The placement of a family; `None` for a family that this version does not know.
fn placement_of(family: &str) -> Option<KeyPlacement> {
    Some(match family {
        "usage" | "history" | "profile" => KeyPlacement::FieldOfSubject,
        "raised" => KeyPlacement::FieldEndsWithSubject,
        "alert" => KeyPlacement::Flag,
        // The time since which a contact fails: without it the period before disabling would start again.
        "failing" | "subject_deliveries" | "children" | "grants" => KeyPlacement::KeyOfSubject,
        "grants_due" => KeyPlacement::MemberOfSubject,
        "delivery" => KeyPlacement::Delivery,
        // The digest of an event's id does not reveal its subject.
        "metrics" | "seen" | "history_metrics" => KeyPlacement::Shared,
        "paused" => KeyPlacement::SharedByFirst,
        "verify_requests" | "verify_code" | "verify_guesses" | "verify_link" | "verify_sent" => KeyPlacement::First,
        "unverified" | "unsubscribe_key" | "console_key" | "digest" => KeyPlacement::First,
        "portal_key" | "portal_revoked" => KeyPlacement::First,
        "checkpoint" | "actions" | "alert_log" | "outbox" | "refused" | "totals" => KeyPlacement::LeftOut,
        "due" | "pending" | "waiting" | "grouped" | "deliveries" | "dead" => KeyPlacement::LeftOut,
        // The queues of destinations are rebuilt from the deliveries; the health of a destination is learned again.
        "destinations" | "destinations_unhealthy" | "destination" | "leased" | "circuits" => KeyPlacement::LeftOut,
        // Days are archived again from their counters, with the same result.
        "history_progress" => KeyPlacement::LeftOut,
        "lease" | "cap" | "cooldown" | "window" | "verify_open" | "probe" => KeyPlacement::LeftOut,
        "console_link" | "console_form" => KeyPlacement::LeftOut,
        _ => return None,
    })
}

/// Reads one partition.
#[derive(Debug)]
pub(super) struct Source<'a> {
    from: &'a Partition,
    to: &'a Partitions,
}

impl<'a> Source<'a> {
    pub(super) const fn new(from: &'a Partition, to: &'a Partitions) -> Self {
        Self { from, to }
    }

    /// Transfers all chunks to the target.
    pub(super) async fn transfer(&self, target: &mut Target<'_>) -> Result<(), MigrationError> {
        let keys = &self.from.keys;
        let redis = MigrationError::redis(format!("read what {} has stored", keys.stream()));
        // Server-specific data is read from that server.
        let server = self.from.client.primary().await.map_err(&redis)?;
        let mut scan = Scan::keys(keys.pattern());
        // A scan may return a key twice.
        let (hasher, mut given) = (RandomState::new(), HashSet::new());
        while let Some(found) = scan.next::<String>(&server).await.map_err(&redis)? {
            for key in found.iter().filter(|key| given.insert(hasher.hash_one(key))) {
                let Some(family) = KeyFamily::parse(keys, key) else { continue };
                let placement = placement_of(family.name).ok_or_else(|| MigrationError::UnknownKey(key.clone()))?;
                if placement != KeyPlacement::LeftOut {
                    let read = MigrationError::redis(format!("read {key}"));
                    let expires_at_ms = self.expires_at_ms(key).await.map_err(&read)?;
                    // -2: the key has expired meanwhile.
                    if expires_at_ms != -2 {
                        let expires_at_ms = (expires_at_ms >= 0).then_some(expires_at_ms);
                        self.transfer_key(StoredKey { key, family, placement, expires_at_ms }, target).await?;
                    }
                }
            }
        }
        target.flush().await
    }

    async fn expires_at_ms(&self, key: &str) -> RedisResult<i64> {
        self.from.client.query(redis::cmd("PEXPIRETIME").arg(key)).await
    }

    async fn transfer_key(&self, stored: StoredKey<'_>, target: &mut Target<'_>) -> Result<(), MigrationError> {
        let read = MigrationError::redis(format!("read {}", stored.key));
        match stored.placement {
            KeyPlacement::FieldOfSubject | KeyPlacement::FieldEndsWithSubject => {
                self.transfer_fields(stored, target).await
            }
            KeyPlacement::Delivery => self.transfer_delivery(stored, target).await,
            KeyPlacement::Flag => {
                let text: Vec<u8> = self.from.client.query(redis::cmd("GET").arg(stored.key)).await.map_err(&read)?;
                let number = self.number_of(stored.subject_of_flag());
                target.write_chunk(number, stored.chunk(self.keys_of(number), Elements::Text(text))).await
            }
            KeyPlacement::KeyOfSubject => {
                let content = self.content(stored.key).await.map_err(&read)?;
                let number = self.number_of(stored.name_in_key().as_bytes());
                target.write_chunk(number, stored.chunk(self.keys_of(number), content)).await
            }
            KeyPlacement::MemberOfSubject => {
                let Elements::Scores(members) = self.content(stored.key).await.map_err(&read)? else { return Ok(()) };
                for (score, subject) in members {
                    let number = self.number_of(&subject);
                    let content = Elements::Scores(vec![(score, subject)]);
                    target.write_chunk(number, stored.chunk(self.keys_of(number), content)).await?;
                }
                Ok(())
            }
            KeyPlacement::First => {
                let content = self.content(stored.key).await.map_err(&read)?;
                target.write_chunk(0, stored.chunk(self.keys_of(0), content)).await
            }
            KeyPlacement::Shared | KeyPlacement::SharedByFirst => {
                let content = self.content(stored.key).await.map_err(&read)?;
                for number in 0..self.to.count() {
                    let chunk = stored.chunk(self.keys_of(number), content.clone());
                    match stored.placement {
                        KeyPlacement::SharedByFirst => target.take_first(number, chunk).await?,
                        _ => target.take_shared(number, chunk).await?,
                    }
                }
                Ok(())
            }
            KeyPlacement::LeftOut => Ok(()),
        }
    }

    async fn transfer_fields(&self, stored: StoredKey<'_>, target: &mut Target<'_>) -> Result<(), MigrationError> {
        let read = MigrationError::redis(format!("read {}", stored.key));
        let mut scan = Scan::hash(stored.key);
        // A scan may return a field twice.
        let mut given = HashSet::new();
        while let Some(fields) = scan.next::<Field>(&self.from.client).await.map_err(&read)? {
            let mut parts = vec![Vec::new(); self.to.iter().len()];
            for (field, value) in fields.into_iter().filter(|(field, _)| given.insert(field.clone())) {
                let subject = match stored.placement {
                    KeyPlacement::FieldEndsWithSubject => {
                        field.splitn(2, |byte| *byte == b':').nth(1).unwrap_or_default()
                    }
                    _ => &field,
                };
                parts[self.number_of(subject) as usize].push((field, value));
            }
            for (number, fields) in (0..).zip(parts) {
                if !fields.is_empty() {
                    target
                        .write_chunk(number, stored.chunk(self.keys_of(number), Elements::SomeFields(fields)))
                        .await?;
                }
            }
        }
        Ok(())
    }

    /// A delivery is in several sorted sets, depending on its state.
    async fn transfer_delivery(&self, stored: StoredKey<'_>, target: &mut Target<'_>) -> Result<(), MigrationError> {
        let read = MigrationError::redis(format!("read {}", stored.key));
        let client = &self.from.client;
        let fields: Vec<Field> = client.query(redis::cmd("HGETALL").arg(stored.key)).await.map_err(&read)?;
        if fields.is_empty() {
            // It has expired since its expiry was read.
            return Ok(());
        }
        let field =
            |wanted: &str| fields.iter().find(|(name, _)| name == wanted.as_bytes()).map(|(_, value)| value.clone());
        let subject = field("subject").ok_or_else(|| MigrationError::NoSubject(stored.key.to_owned()))?;
        let number = self.number_of(&subject);
        let keys = self.keys_of(number);
        let id = stored.family.rest.trim_start_matches(':').as_bytes().to_vec();
        let waiting = [&subject[..], b"\0", &id].concat();
        let destination = field("destination").unwrap_or_default();
        let destination = Destination::from_stored(&String::from_utf8_lossy(&destination));
        let (own, theirs) = (sorted_sets(&self.from.keys, &destination), sorted_sets(keys, &destination));
        // Not the set in which it was sent: the target may put its members into several partitions.
        let grouped = [&field("group").unwrap_or_default()[..], b"\0", &id].concat();
        let members = [&id, &id, &id, &id, &waiting, &grouped];
        let mut pipeline = redis::pipe();
        for (set, member) in own.iter().zip(members) {
            pipeline.cmd("ZSCORE").arg(set).arg(member);
        }
        let scores: Vec<Option<Vec<u8>>> = client.pipe(&pipeline).await.map_err(&read)?;
        target.write_chunk(number, stored.chunk(keys, Elements::Fields(fields))).await?;
        if scores[0].is_some() {
            // The first lease computes the due time and stores it there.
            let content = Elements::Scores(vec![(b"0".to_vec(), destination.as_str().into())]);
            let key = keys.destinations_unhealthy();
            target.take_shared(number, KeyChunk { key, content, expires_at_ms: None }).await?;
        }
        for ((key, member), score) in theirs.into_iter().zip(members).zip(scores) {
            if let Some(score) = score {
                let content = Elements::Scores(vec![(score, member.clone())]);
                target.write_chunk(number, KeyChunk { key, content, expires_at_ms: None }).await?;
            }
        }
        Ok(())
    }

    /// A whole key of any type.
    async fn content(&self, key: &str) -> RedisResult<Elements> {
        let client = &self.from.client;
        let kind: String = client.query(redis::cmd("TYPE").arg(key)).await?;
        Ok(match kind.as_str() {
            "string" => Elements::Text(client.query(redis::cmd("GET").arg(key)).await?),
            "set" => Elements::Members(client.query(redis::cmd("SMEMBERS").arg(key)).await?),
            "list" => Elements::Values(client.query(redis::cmd("LRANGE").arg(key).arg(0).arg(-1)).await?),
            // `none` means that the key has expired meanwhile.
            "hash" | "none" => Elements::Fields(client.query(redis::cmd("HGETALL").arg(key)).await?),
            _ => {
                let members: Vec<(Vec<u8>, Vec<u8>)> =
                    client.query(redis::cmd("ZRANGE").arg(key).arg(0).arg(-1).arg("WITHSCORES")).await?;
                Elements::Scores(members.into_iter().map(|(member, score)| (score, member)).collect())
            }
        })
    }

    fn number_of(&self, subject: &[u8]) -> u32 {
        self.to.first().keys.partition_of(subject).get()
    }

    fn keys_of(&self, number: u32) -> &'a Keys {
        &self.to.iter().nth(number as usize).unwrap_or_else(|| self.to.first()).keys
    }
}

/// The sorted sets of deliveries, the queue first; in the last two a subject and a group precede the delivery.
fn sorted_sets(keys: &Keys, destination: &Destination) -> [String; 6] {
    [keys.due(destination), keys.pending(), keys.deliveries(), keys.dead(), keys.waiting(), keys.grouped()]
}

/// A key of the source.
#[derive(Debug, Clone, Copy)]
struct StoredKey<'a> {
    key: &'a str,
    family: KeyFamily<'a>,
    placement: KeyPlacement,
    expires_at_ms: Option<i64>,
}

impl StoredKey<'_> {
    fn chunk(&self, keys: &Keys, content: Elements) -> KeyChunk {
        KeyChunk { key: self.family.key_in(keys), content, expires_at_ms: self.expires_at_ms }
    }

    /// The subject in `:<subject>:<metric>:<threshold>:<period>:<units>`; only the subject may contain colons.
    fn subject_of_flag(&self) -> &[u8] {
        self.name_in_key().rsplitn(5, ':').nth(4).unwrap_or_default().as_bytes()
    }

    /// The part after the tag and its colon.
    fn name_in_key(&self) -> &str {
        self.family.rest.strip_prefix(':').unwrap_or(self.family.rest)
    }
}

/// Transfers the settings of all subjects of the source, which belong to no partition.
pub(super) async fn transfer_subjects(
    source: &RedisClient,
    keys: &Keys,
    to: &Keys,
    target: &mut Target<'_>,
) -> Result<(), MigrationError> {
    let prefix = keys.subject_prefix();
    let redis = MigrationError::redis("read the settings of subjects");
    for server in source.primaries().await.map_err(&redis)? {
        let mut scan = Scan::keys(keys.subject_pattern());
        while let Some(found) = scan.next::<Vec<u8>>(&server).await.map_err(&redis)? {
            let hashes: Vec<RedisResult<Value>> = server.pipe(&hashes_of(&found)).await.map_err(&redis)?;
            for (key, hash) in found.iter().zip(hashes) {
                // A key that is not a hash is not a subject.
                let Ok(fields) = hash.and_then(|hash| Ok(Vec::from_redis_value(hash)?)) else { continue };
                let name = String::from_utf8_lossy(key.get(prefix.len()..).unwrap_or_default()).into_owned();
                if !fields.is_empty() {
                    let key = format!("{}{name}", to.subject_prefix());
                    target
                        .write_chunk(0, KeyChunk { key, content: Elements::Fields(fields), expires_at_ms: None })
                        .await?;
                }
            }
        }
    }
    target.flush().await
}

/// Fails if the target has a subject that differs from the source or that the source lacks, because settings would be
/// mixed. Returns the number of the target's subjects.
pub(super) async fn ensure_no_other_subjects(from: &Partition, to: &Partition) -> Result<usize, MigrationError> {
    let mut subjects = 0;
    let redis = MigrationError::redis("look which subjects are at the target");
    for server in to.client.primaries().await.map_err(&redis)? {
        let mut scan = Scan::keys(to.keys.subject_pattern());
        while let Some(found) = scan.next::<Vec<u8>>(&server).await.map_err(&redis)? {
            if found.is_empty() {
                continue;
            }
            let there: Vec<RedisResult<Value>> = server.pipe(&hashes_of(&found)).await.map_err(&redis)?;
            let here: Vec<RedisResult<Value>> = from.client.pipe(&hashes_of(&found)).await.map_err(&redis)?;
            for (key, (there, here)) in found.iter().zip(there.into_iter().zip(here)) {
                let fields = |hash: RedisResult<Value>| -> RedisResult<BTreeMap<Vec<u8>, Vec<u8>>> {
                    Ok(FromRedisValue::from_redis_value(hash?)?)
                };
                let is_same = fields(there).is_ok_and(|there| fields(here).is_ok_and(|here| here == there));
                if !is_same {
                    return Err(MigrationError::OtherSettings(String::from_utf8_lossy(key).into_owned()));
                }
                subjects += 1;
            }
        }
    }
    Ok(subjects)
}

fn hashes_of(keys: &[Vec<u8>]) -> Pipeline {
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    for key in keys {
        pipeline.cmd("HGETALL").arg(key);
    }
    pipeline
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::keys::FAMILY_PREFIX;
    use crate::types::{AlertKey, Metric, Period};

    /// A new family that is missing here would not be copied.
    #[test]
    fn every_family_of_the_table_of_keys_is_known() {
        let table = include_str!("../../docs/redis-keys.md");
        let families: Vec<&str> = table
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.strip_prefix(FAMILY_PREFIX)?.split_once(":{tag}"))
            .map(|(family, _)| family)
            .collect();
        assert!(families.len() > 20);
        let unknown: Vec<&&str> = families.iter().filter(|family| placement_of(family).is_none()).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    /// A subject with colons must not be assigned to another partition.
    #[test]
    fn a_flag_names_its_subject() {
        let keys = Keys::new("usage");
        let (subject, metric) = ("a:b:".parse().expect("legal"), Metric::default());
        let (threshold, period) = ("used:480".parse().expect("legal"), Period::parse("2026-11-21T14Z").expect("legal"));
        let key = keys.flag(&AlertKey { subject: &subject, metric: &metric, threshold, period, units: 480 });
        let family = KeyFamily::parse(&keys, &key).expect("a key of the partition");
        let stored = StoredKey { key: &key, family, placement: KeyPlacement::Flag, expires_at_ms: None };
        assert_eq!(stored.subject_of_flag(), b"a:b:");
        assert_eq!(KeyFamily::parse(&Keys::new("other"), &key), None);
    }
}
