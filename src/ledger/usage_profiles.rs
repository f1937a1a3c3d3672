//! Stores what is usual for subjects: the wrapper of `usage_profiles.lua`, and reads.
//!
//! [`crate::evaluation`] alone writes profiles. A profile that can't be read counts as missing.

use std::sync::LazyLock;

use redis::RedisResult;

use super::query::run;
use crate::forecast::UsageProfile;
use crate::forecast::observation::IDLE_DAYS_MAX;
use crate::redis_client::{Partition, Scan, Script};
use crate::types::{Day, Metric, Subject, UnixMs, keys};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("usage_profiles.lua")));

/// Lifetime of the profiles of a bucket after the last write, seconds.
pub(super) const TTL_S: u64 = 86_400 * IDLE_DAYS_MAX as u64;
/// Number of profiles per write.
const WRITTEN_AT_ONCE: usize = 500;

/// A profile as it was found.
#[derive(Debug, Clone, PartialEq)]
pub enum FoundProfile {
    /// There is none.
    Missing,
    /// It is cut, or of another version.
    Unreadable,
    /// It was read.
    Read(UsageProfile),
}

impl FoundProfile {
    fn of(stored: Option<Vec<u8>>) -> Self {
        let Some(stored) = stored else { return Self::Missing };
        UsageProfile::from_stored(&stored).map_or(Self::Unreadable, Self::Read)
    }

    /// The profile, if it was read.
    pub fn read(self) -> Option<UsageProfile> {
        if let Self::Read(profile) = self { Some(profile) } else { None }
    }
}

/// What a pass begins with, and what its writes store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PassMark {
    /// Number of erasures so far: [`write()`] stores nothing after another one.
    pub erasure_epoch: u64,
    /// Server time at which the last pass over all subjects began.
    pub passed: Option<UnixMs>,
    /// Server time at which the last pass that found usage began. It may not have ended.
    pub used: Option<UnixMs>,
    /// Server time since which passes found usage at least once a day.
    pub resumed: Option<UnixMs>,
}

/// Whether something was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfilesReply {
    /// It is stored.
    Stored,
    /// A subject was erased since the mark was read: nothing is stored.
    Stale,
}

/// Reads the mark.
pub async fn mark(Partition { client, keys }: &Partition) -> RedisResult<PassMark> {
    let mut command = redis::cmd("HMGET");
    command.arg(keys.checkpoint()).arg(&["erasure_epoch", "profiled_ms", "used_ms", "resumed_ms"]);
    let (erasure_epoch, passed, used, resumed): (Option<u64>, Option<i64>, Option<i64>, Option<i64>) =
        client.query(&command).await?;
    let [passed, used, resumed] = [passed, used, resumed].map(|at| at.map(UnixMs));
    Ok(PassMark { erasure_epoch: erasure_epoch.unwrap_or(0), passed, used, resumed })
}

/// Reads the profiles of subjects of one bucket.
pub async fn read(
    Partition { client, keys }: &Partition,
    metric: &Metric,
    bucket: u8,
    subjects: &[&Subject],
) -> RedisResult<Vec<FoundProfile>> {
    let mut command = redis::cmd("HMGET");
    command.arg(keys.profiles(metric, bucket));
    subjects.iter().for_each(|subject| {
        command.arg(subject.as_str());
    });
    let stored: Vec<Option<Vec<u8>>> = client.query(&command).await?;
    Ok(stored.into_iter().map(FoundProfile::of).collect())
}

/// Reads the profiles of subjects in metrics, with one request.
pub async fn read_each(
    Partition { client, keys }: &Partition,
    of: &[(&Subject, &Metric)],
) -> RedisResult<Vec<FoundProfile>> {
    let mut pipeline = redis::pipe();
    for (subject, metric) in of {
        let key = keys.profiles(metric, keys::bucket(subject.as_str()));
        pipeline.cmd("HGET").arg(key).arg(subject.as_str());
    }
    let stored: Vec<Option<Vec<u8>>> = run(client, &pipeline).await?;
    Ok(stored.into_iter().map(FoundProfile::of).collect())
}

/// Stores profiles of subjects of one bucket, given the number of erasures before their counters were read, and the
/// times of usage of the mark. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection; also if the partition was moved to another deployment.
pub async fn write(
    Partition { client, keys }: &Partition,
    mark: PassMark,
    metric: &Metric,
    bucket: u8,
    profiles: &[(&Subject, &UsageProfile)],
) -> RedisResult<ProfilesReply> {
    for profiles in profiles.chunks(WRITTEN_AT_ONCE) {
        let mut call = SCRIPT.call().key(keys.checkpoint()).key(keys.profiles(metric, bucket));
        call = call.arg(mark.erasure_epoch).arg(TTL_S);
        for at in [mark.used, mark.resumed] {
            call = call.arg(at.map(|at| at.0.to_string()).unwrap_or_default());
        }
        for (subject, profile) in profiles {
            call = call.arg(subject.as_str()).arg(profile.to_stored());
        }
        if reply(&call.run::<String>(client).await?) == ProfilesReply::Stale {
            return Ok(ProfilesReply::Stale);
        }
    }
    Ok(ProfilesReply::Stored)
}

/// Stores that a pass that began at this server time has ended.
///
/// # Errors
///
/// As [`write()`].
pub async fn end_pass(
    Partition { client, keys }: &Partition,
    erasure_epoch: u64,
    began: UnixMs,
) -> RedisResult<ProfilesReply> {
    let call = SCRIPT.call().key(keys.checkpoint()).arg(erasure_epoch).arg(began.0);
    Ok(reply(&call.run::<String>(client).await?))
}

fn reply(text: &str) -> ProfilesReply {
    if text == "stored" { ProfilesReply::Stored } else { ProfilesReply::Stale }
}

/// Removes the profiles of a bucket whose subjects used nothing for a long time before this day, and unreadable ones.
/// Other subjects keep the hash alive. Returns those that used nothing on this day.
pub async fn remove_idle(
    Partition { client, keys }: &Partition,
    metric: &Metric,
    bucket: u8,
    today: Day,
) -> RedisResult<Vec<(Subject, UsageProfile)>> {
    let key = keys.profiles(metric, bucket);
    let oldest = today.since_epoch() - i64::from(IDLE_DAYS_MAX) - 1;
    let (mut scan, mut inactive) = (Scan::hash(&key), Vec::new());
    while let Some(found) = scan.next::<(Vec<u8>, Vec<u8>)>(client).await? {
        let mut idle = Vec::new();
        for (name, stored) in found {
            match UsageProfile::from_stored(&stored).filter(|profile| i64::from(profile.today()) >= oldest) {
                None => idle.push(name),
                Some(profile) if i64::from(profile.today()) >= today.since_epoch() => {}
                Some(profile) => inactive.extend(Subject::parse(&name).ok().map(|subject| (subject, profile))),
            }
        }
        if !idle.is_empty() {
            let () = client.query(redis::cmd("HDEL").arg(&key).arg(idle)).await?;
        }
    }
    Ok(inactive)
}
