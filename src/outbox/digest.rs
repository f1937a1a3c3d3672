//! The operator's daily digest of failed and waiting deliveries, for the operator's contacts that get notices.
//!
//! The id of a digest follows from its due time, so each contact gets one, even if several daemons create it. Each
//! digest begins where the previous one ended, so every given-up delivery is in one of them, even if no daemon ran for
//! days. Never changes other deliveries.

use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, RedisResult};
use tokio_util::sync::CancellationToken;

use super::enqueue::{NewDelivery, enqueue};
use super::error::{Operation, OutboxError};
use super::forget_in_digests::forget_erased;
use super::new_deliveries::NewDeliveries;
use crate::contacts::Contact;
use crate::contacts::resolver::ContactResolver;
use crate::redis_client::{Partition, Partitions};
use crate::types::alert::digest_of;
use crate::types::daily::DailyTime;
use crate::types::{Channel, DailyDigest, DeadDelivery, DeliveryId, Notification, Subject, UnixMs};

/// Maximum number of dead deliveries, and of subjects without contacts, that a digest names.
const NAMED_MAX: usize = 20;

/// Interval between two reads of the clock of Redis.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Creates the digest of each day.
#[derive(Debug, Clone)]
pub struct DigestLoop {
    /// All partitions. The digest covers all of them and is stored in the first.
    pub partitions: Partitions,
    /// Finds the operator's contacts.
    pub contacts: Arc<ContactResolver>,
    /// The due time.
    pub daily: DailyTime,
    /// Notified when deliveries were created.
    pub new_deliveries: NewDeliveries,
}

impl DigestLoop {
    /// Creates digests until `stop`, beginning with the last one that was due, unless it exists. Safe to cancel at any
    /// time.
    ///
    /// # Errors
    ///
    /// [`OutboxError`]; the next run then creates the digest.
    pub async fn run(self, stop: CancellationToken) -> Result<(), OutboxError> {
        let mut made = None;
        while !stop.is_cancelled() {
            let now = self.first().client.server_time().await.map_err(|error| self.failed(error))?;
            let due = self.daily.last_two(now);
            if due != made {
                self.make(now).await?;
                made = due;
            }
            let _ = tokio::time::timeout(LOOK_EVERY, stop.cancelled()).await;
        }
        Ok(())
    }

    /// Creates the last digest that was due before `now`, unless it exists. It covers the time since the previous
    /// digest, or a day if there was none. If there is nothing to report, it sends nothing.
    ///
    /// # Errors
    ///
    /// [`OutboxError`]; some contacts may already have it.
    pub async fn make(&self, now: UnixMs) -> Result<(), OutboxError> {
        let Some((day_before, until)) = self.daily.last_two(now) else { return Ok(()) };
        let from = self.made_until().await.map_err(|error| self.failed(error))?.unwrap_or(day_before);
        if from >= until {
            return Ok(());
        }
        let digest = self.read((from, until)).await.map_err(|error| self.failed(error))?;
        let DailyDigest { dead, waiting, .. } = digest;
        let notification = Notification::Digest(digest);
        let Partition { client, keys } = self.first();
        if dead > 0 || waiting > 0 {
            for contact in self.recipients() {
                enqueue(client, keys, NewDelivery { notification: &notification, contact }).await?;
            }
            tracing::info!(dead, waiting, "queued the digest for the operator");
            self.new_deliveries.signal_of(keys.partition()).notify_one();
        }
        // Also if there is nothing to report any more: a daemon that died here may have created the digest.
        let ids: Vec<DeliveryId> = self.recipients().map(|contact| notification.delivery_to(&contact.id)).collect();
        forget_erased(&self.partitions, &ids).await.map_err(|error| self.failed(error))?;
        // Last: if the daemon dies before this, the same digest is created again with the same id.
        let stored = client.query(redis::cmd("SET").arg(keys.digest()).arg(until.0)).await;
        stored.map_err(|error| self.failed(error))
    }

    /// When the newest digest was due.
    async fn made_until(&self) -> RedisResult<Option<UnixMs>> {
        let Partition { client, keys } = self.first();
        let until: Option<i64> = client.query(redis::cmd("GET").arg(keys.digest())).await?;
        Ok(until.map(UnixMs))
    }

    fn recipients(&self) -> impl Iterator<Item = &Contact> {
        self.contacts.operator().iter().filter(|one| one.notices).map(|one| &one.contact)
    }

    async fn read(&self, (from_ms, until_ms): (UnixMs, UnixMs)) -> RedisResult<DailyDigest> {
        let Partition { client, keys } = self.first();
        let instance: Option<String> = client.query(redis::cmd("HGET").arg(keys.checkpoint()).arg("instance")).await?;
        let id = digest_of(&[&instance.unwrap_or_default(), keys.name(), &until_ms.to_string()]);
        let mut digest = DailyDigest {
            id: format!("digest_{id}"),
            from_ms,
            until_ms,
            dead: 0,
            dead_first: Vec::new(),
            waiting: 0,
            waiting_first: Vec::new(),
        };
        for partition in self.partitions.iter() {
            add_dead(&mut digest, partition).await?;
            add_waiting(&mut digest, partition).await?;
        }
        Ok(digest)
    }

    fn first(&self) -> &Partition {
        self.partitions.first()
    }

    fn failed(&self, error: RedisError) -> OutboxError {
        OutboxError::redis(Operation::Query, format_args!("the digest of {}", self.first().keys.name()))(error)
    }
}

/// The deliveries of a partition that were given up in that time.
async fn add_dead(digest: &mut DailyDigest, Partition { client, keys }: &Partition) -> RedisResult<()> {
    let (after, until) = (format!("({}", digest.from_ms.0), digest.until_ms.0);
    digest.dead += client.query::<u64>(redis::cmd("ZCOUNT").arg(keys.dead()).arg(&after).arg(until)).await?;
    let left = NAMED_MAX - digest.dead_first.len();
    let mut command = redis::cmd("ZRANGEBYSCORE");
    command.arg(keys.dead()).arg(&after).arg(until).arg("WITHSCORES").arg("LIMIT").arg(0).arg(left);
    let ids: Vec<(String, i64)> = client.query(&command).await?;
    for (id, at) in ids {
        let id = DeliveryId::from_stored(&id);
        let mut command = redis::cmd("HMGET");
        command.arg(keys.delivery(&id)).arg(&["subject", "channel", "last_error"]);
        let [subject, channel, error]: [Option<String>; 3] = client.query(&command).await?;
        digest.dead_first.push(DeadDelivery {
            id,
            subject: subject.unwrap_or_default(),
            channel: channel.as_deref().and_then(Channel::from_stored).unwrap_or(Channel::None),
            error: error.unwrap_or_default(),
            at_ms: UnixMs(at),
        });
    }
    Ok(())
}

/// The alerts of a partition that currently wait for a contact, and the first of their subjects.
async fn add_waiting(digest: &mut DailyDigest, Partition { client, keys }: &Partition) -> RedisResult<()> {
    digest.waiting += client.query::<u64>(redis::cmd("ZCARD").arg(keys.waiting())).await?;
    let mut from = b"-".to_vec();
    while digest.waiting_first.len() < NAMED_MAX {
        let mut command = redis::cmd("ZRANGEBYLEX");
        command.arg(keys.waiting()).arg(&from).arg("+").arg("LIMIT").arg(0).arg(1);
        let found: Vec<Vec<u8>> = client.query(&command).await?;
        let Some(name) = found.first().and_then(|member| member.split(|byte| *byte == 0).next()) else { break };
        digest.waiting_first.extend(Subject::parse(name).ok());
        // A member is the subject, NUL, the delivery's id: SOH sorts after all members of this subject.
        from = [b"(", name, b"\x01"].concat();
    }
    Ok(())
}
