//! The children of a subject: which subjects of the level below were used lately, and what they used. The wrapper of
//! `children.lua`.

use std::sync::LazyLock;

use redis::RedisResult;

use super::batch::MetricPeriod;
use super::counter_scan::SubjectCount;
use super::query::run;
use super::read_totals::{counter_of, no_count};
use crate::redis_client::{Partition, Scan, Script};
use crate::types::{Keys, Subject, keys};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("children.lua")));

/// Maximum number of children that are read: those that were used last.
pub const CHILDREN_MAX: usize = 1_000;

/// The key of a subject's children.
pub fn key(keys: &Keys, subject: &Subject) -> String {
    format!("{}{subject}", keys.children_prefix())
}

/// The children of a subject, those that were used last first, at most [`CHILDREN_MAX`].
pub async fn names(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<Vec<Subject>> {
    let mut command = redis::cmd("ZRANGE");
    command.arg(key(keys, subject)).arg(0).arg(CHILDREN_MAX - 1).arg("REV");
    let names: Vec<Vec<u8>> = client.query(&command).await?;
    Ok(names.iter().filter_map(|name| Subject::parse(name).ok()).collect())
}

/// All children of a subject that its list names.
pub async fn all_names(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<Vec<Subject>> {
    let members = Scan::sorted_set(&key(keys, subject)).all::<(Vec<u8>, f64)>(client).await?;
    Ok(members.iter().filter_map(|(name, _)| Subject::parse(name).ok()).collect())
}

/// The committed counts of a subject's children in a period, the largest first; children without a counter are left
/// out.
pub async fn counts(partition: &Partition, subject: &Subject, of: &MetricPeriod) -> RedisResult<Vec<SubjectCount>> {
    let children = names(partition, subject).await?;
    let Partition { client, keys } = partition;
    let key_of = |child: &Subject| keys.usage(&of.metric, of.period, keys::bucket(child.as_str()));
    let mut pipeline = redis::pipe();
    for child in &children {
        pipeline.cmd("HGET").arg(key_of(child)).arg(child.as_str());
    }
    let texts: Vec<Option<String>> = run(client, &pipeline).await?;
    let mut counts = Vec::with_capacity(children.len());
    for (subject, text) in children.into_iter().zip(texts) {
        let Some(text) = text else { continue };
        let used = counter_of(&text).ok_or_else(|| no_count(&key_of(&subject), &subject))?;
        counts.push(SubjectCount { subject, used });
    }
    sort(&mut counts);
    Ok(counts)
}

/// Sorts counts, the largest first.
pub fn sort(counts: &mut [SubjectCount]) {
    counts.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.subject.cmp(&b.subject)));
}

/// Removes the list of a subject's children, and the subject from the list of the level above. The worker then lists
/// again what is used. Repeatable.
///
/// # Errors
///
/// The error of Redis or of the connection; nothing was removed if Redis answered with an error.
pub async fn forget(Partition { client, keys }: &Partition, subject: &Subject) -> RedisResult<()> {
    let mut call = SCRIPT.call().key(keys.checkpoint()).key(key(keys, subject)).arg(subject.as_str());
    if let Some(parent) = keys.separator().ancestors(subject).first() {
        call = call.key(key(keys, parent));
    }
    let _removed: u64 = call.run(client).await?;
    Ok(())
}
