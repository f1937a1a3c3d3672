//! Whether a notification is not fanned out yet.

use redis::RedisResult;

use crate::redis_client::Partition;
use crate::types::UnixMs;

/// Number of outbox entries that are read at once.
const OUTBOX_READ: usize = 1_000;
/// Maximum number of outbox reads in the search for a notification: a storm raises many at once.
const OUTBOX_READS_MAX: usize = 20;

/// Whether the outbox has a notification with this id. Its entry is not older than `since`.
pub(super) async fn waits_in_outbox(
    Partition { client, keys }: &Partition,
    id: &str,
    since: UnixMs,
) -> RedisResult<bool> {
    let mut from = format!("{}-0", since.0);
    for _ in 0..OUTBOX_READS_MAX {
        let mut command = redis::cmd("XRANGE");
        command.arg(keys.outbox()).arg(&from).arg("+").arg("COUNT").arg(OUTBOX_READ);
        let entries: Vec<(String, Vec<String>)> = client.query(&command).await?;
        if entries.iter().any(|(_, values)| values.get(1).is_some_and(|json| json.contains(id))) {
            return Ok(true);
        }
        match entries.last() {
            Some((last, _)) if entries.len() == OUTBOX_READ => from = format!("({last}"),
            _ => break,
        }
    }
    Ok(false)
}
