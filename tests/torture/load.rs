//! The producers: realistic events, or entries of random bytes, appended regardless of Redis' state.

use std::time::Duration;

use quotabell::redis_client::RedisClient;
use quotabell::types::Separator;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio_util::sync::CancellationToken;

use crate::support::traffic::Traffic;

use crate::fuzz::FuzzedEntries;
use crate::trial::{Background, slash};

/// Maximum time of one append; the stream shows whether it succeeded.
const APPEND_MAX: Duration = Duration::from_secs(1);
/// Interval of appends: about 2,000 events per second.
const PACE: Duration = Duration::from_millis(10);
/// Maximum number of events per append.
const EVENTS_AT_ONCE: u32 = 40;

/// What to append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadKind {
    /// Realistic events, valid and invalid, at a moderate rate.
    Traffic,
    /// The same events, of subjects that form trees.
    Trees,
    /// This number of entries with random fields and bytes, as fast as possible.
    Fuzzed(u64),
}

/// A running producer.
pub struct Load(Background<Produced>);

/// The appended entries.
#[derive(Debug, Default)]
pub struct Produced {
    /// The ids from the server, by partition.
    pub acknowledged: Vec<Vec<String>>,
}

/// An entry: its fields and values.
pub type Words = Vec<Vec<u8>>;

impl Load {
    /// Appends to these streams (with their clients) until stopped.
    pub fn start(streams: Vec<(String, RedisClient)>, seed: u64, kind: LoadKind) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            match kind {
                LoadKind::Traffic => produce(&streams, Traffic::new(seed), Separator::NONE, &stopped).await,
                LoadKind::Trees => produce(&streams, Traffic::of_trees(seed), slash(), &stopped).await,
                LoadKind::Fuzzed(entries) => produce_fuzzed(&streams, seed, entries).await,
            }
        });
        Self(Background { stop, task })
    }

    /// Stops it; a producer of a fixed number of entries ends by itself.
    pub async fn end(self) -> Produced {
        self.0.end().await
    }
}

async fn produce(
    streams: &[(String, RedisClient)],
    mut traffic: Traffic,
    separator: Separator,
    stop: &CancellationToken,
) -> Produced {
    let mut random = StdRng::seed_from_u64(traffic.seed() ^ 1);
    let mut produced = Produced { acknowledged: vec![Vec::new(); streams.len()] };
    let mut paced = tokio::time::interval(PACE);
    paced.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !stop.is_cancelled() {
        paced.tick().await;
        let Some(now_ms) = now_of(&streams[0].1).await else { continue };
        let mut entries: Vec<Vec<Words>> = vec![Vec::new(); streams.len()];
        for _ in 0..random.random_range(1..=EVENTS_AT_ONCE) {
            let event = traffic.event(now_ms);
            let words: Words = event.raw().flat_map(|(name, value)| [name.to_vec(), value.to_vec()]).collect();
            entries[partition_of(&words, separator, streams.len())].push(words);
        }
        append(streams, entries, &mut produced).await;
    }
    produced
}

async fn produce_fuzzed(streams: &[(String, RedisClient)], seed: u64, entries: u64) -> Produced {
    let mut fuzzed = FuzzedEntries::new(seed);
    let mut produced = Produced { acknowledged: vec![Vec::new(); streams.len()] };
    let mut appended = 0;
    while appended < entries {
        let Some(now_ms) = now_of(&streams[0].1).await else { continue };
        let some = 500.min(entries - appended);
        let mut entries: Vec<Vec<Words>> = vec![Vec::new(); streams.len()];
        for _ in 0..some {
            let words = fuzzed.entry(now_ms);
            entries[partition_of(&words, Separator::NONE, streams.len())].push(words);
        }
        append(streams, entries, &mut produced).await;
        appended += some;
    }
    produced
}

/// Server time, ms; `None` if nobody answers.
async fn now_of(client: &RedisClient) -> Option<i64> {
    let time: (i64, i64) = client.query_within(APPEND_MAX, &redis::cmd("TIME")).await.ok()?;
    Some(time.0 * 1000 + time.1 / 1000)
}

/// The partition of the first subject in an entry: CRC-32 of its first part, modulo the number of partitions.
fn partition_of(words: &[Vec<u8>], separator: Separator, partitions: usize) -> usize {
    const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);
    let subject = words.chunks_exact(2).find(|pair| pair[0] == b"subject").map_or(&b""[..], |pair| &pair[1]);
    CRC.checksum(separator.root(subject)) as usize % partitions
}

async fn append(streams: &[(String, RedisClient)], entries: Vec<Vec<Words>>, produced: &mut Produced) {
    for (number, ((stream, client), entries)) in streams.iter().zip(entries).enumerate() {
        let mut pipeline = redis::pipe();
        for words in &entries {
            pipeline.cmd("XADD").arg(stream).arg("*").arg(words);
        }
        if entries.is_empty() {
            continue;
        }
        // If the reply was lost, the stream shows whether the entries were appended.
        if let Ok(Ok(ids)) = tokio::time::timeout(APPEND_MAX, client.pipe::<Vec<String>>(&pipeline)).await {
            produced.acknowledged[number].extend(ids);
        }
    }
}
