//! Warns when `subjects.separator` differs from that of the last commit: ids change their meaning.

use redis::RedisResult;

use crate::redis_client::{Partition, Partitions, Scan};
use crate::types::text::{glob_literal, pluralize};
use crate::types::{Separator, Subject};

/// Maximum number of subjects that the warning names.
const NAMED_MAX: usize = 3;

/// The subjects with settings whose ids contain the separator.
#[derive(Debug, Default)]
struct FoundSubjects {
    count: usize,
    /// Of these, those that are no paths.
    broken: usize,
    names: Vec<String>,
}

/// A sentence about the subjects that change their meaning; `None` if the separator is that of the last commit of each
/// partition, or nothing was committed yet.
pub async fn warning(partitions: &Partitions) -> RedisResult<Option<String>> {
    let separator = partitions.first().keys.separator();
    let mut stored = None;
    for partition in partitions.iter() {
        stored = stored.or(committed_separator(partition).await?.filter(|stored| *stored != separator.to_string()));
    }
    let Some(stored) = stored else { return Ok(None) };
    let changed = format!("subjects.separator is \"{separator}\", and was \"{stored}\" at the last commit");
    let moved = match partitions.first().keys.partition().count() {
        1 => "",
        _ => "; those subjects may belong to another partition, where they begin at zero",
    };
    if separator.is_none() {
        return Ok(Some(format!(
            "{changed}: subjects have no levels any more, and events count for their subject alone{moved}"
        )));
    }
    let found = subjects_with(partitions.first(), separator).await?;
    let count = pluralize(found.count, "subject with settings contains", "subjects with settings contain");
    let names = if found.names.is_empty() { String::new() } else { format!(" ({})", found.names.join(", ")) };
    let broken = match found.broken {
        0 => String::new(),
        broken => {
            format!("; events of {broken} of them are refused, because a part is empty or the levels are too many")
        }
    };
    Ok(Some(format!("{changed}: {count} it{names} and will be levels of a tree{moved}{broken}")))
}

/// The separator of the last commit; `None` if nothing was committed yet.
async fn committed_separator(Partition { client, keys }: &Partition) -> RedisResult<Option<String>> {
    let mut command = redis::cmd("HMGET");
    command.arg(keys.checkpoint()).arg("id").arg("separator");
    let (id, stored): (Option<String>, Option<String>) = client.query(&command).await?;
    Ok(id.map(|_| stored.unwrap_or_default()))
}

async fn subjects_with(Partition { client, keys }: &Partition, separator: Separator) -> RedisResult<FoundSubjects> {
    let prefix = keys.subject_prefix();
    let pattern = format!("{}*{}*", glob_literal(prefix), glob_literal(&separator.to_string()));
    let mut found = FoundSubjects::default();
    for server in client.primaries().await? {
        let mut scan = Scan::keys(&*pattern);
        while let Some(slice) = scan.next::<Vec<u8>>(&server).await? {
            for subject in slice.iter().filter_map(|key| Subject::parse(key.get(prefix.len()..)?).ok()) {
                found.count += 1;
                found.broken += usize::from(separator.check(subject.as_str()).is_err());
                if found.names.len() < NAMED_MAX {
                    found.names.push(subject.to_string());
                }
            }
        }
    }
    found.names.sort();
    Ok(found)
}
