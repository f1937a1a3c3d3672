//! Erases subjects from the alerts of the levels above them, which name their largest children: the wrapper of
//! `forget_in_alerts.lua`.
//!
//! These alerts belong to the levels above, so they stay and lose the names. The records of alerts are the ledger's.

use std::sync::LazyLock;

use redis::RedisResult;

use super::subject_deliveries::deliveries_of;
use crate::redis_client::replace_field::replace_field;
use crate::redis_client::{Partition, Script};
use crate::types::{Alert, Branch, NotificationKind, Subject};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::with_prelude(include_str!("forget_in_alerts.lua")));

/// Number of alerts per read.
const ALERTS_AT_ONCE: usize = 500;
/// Maximum number of passes over the deliveries of a level: nothing new names an erased subject, but an attempt that
/// was under way may have fanned out an alert again.
const PASSES_MAX: usize = 10;

/// Removes the subjects of a branch from the undelivered alerts and the deliveries of the levels `above` it.
/// Repeatable. Call it after the counters of the branch are removed, because new alerts name subjects with counters.
///
/// # Errors
///
/// The error of Redis or of the connection; some alerts may already be changed.
pub async fn forget_in_alerts(partition: &Partition, above: &[Subject], branch: &Branch) -> RedisResult<()> {
    if above.is_empty() {
        return Ok(());
    }
    in_outbox(partition, branch).await?;
    for _ in 0..PASSES_MAX {
        let mut is_changed = false;
        for level in above {
            is_changed |= in_deliveries(partition, level, branch).await?;
        }
        if !is_changed {
            break;
        }
    }
    Ok(())
}

async fn in_outbox(Partition { client, keys }: &Partition, branch: &Branch) -> RedisResult<()> {
    let (outbox, mut from) = (keys.outbox(), "-".to_owned());
    loop {
        let mut command = redis::cmd("XRANGE");
        command.arg(&outbox).arg(&from).arg("+").arg("COUNT").arg(ALERTS_AT_ONCE);
        let entries: Vec<(String, Vec<Vec<u8>>)> = client.query(&command).await?;
        let Some((last, _)) = entries.last() else { return Ok(()) };
        from = format!("({last}");
        for (id, values) in &entries {
            if let Some(without) = values.get(1).and_then(|json| without(json, branch)) {
                let _: String = SCRIPT.call().key(&outbox).arg(id).arg(without).run(client).await?;
            }
        }
    }
}

/// Returns whether a delivery named a subject of the branch.
async fn in_deliveries(partition: &Partition, level: &Subject, branch: &Branch) -> RedisResult<bool> {
    let Partition { client, keys } = partition;
    let field = NotificationKind::Alert.as_str();
    let mut is_changed = false;
    for ids in deliveries_of(partition, Some(level)).await?.chunks(ALERTS_AT_ONCE) {
        let mut pipeline = redis::pipe();
        for id in ids {
            pipeline.cmd("HGET").arg(keys.delivery(id)).arg(field);
        }
        let alerts: Vec<Option<Vec<u8>>> = client.pipe(&pipeline).await?;
        let names_one = |json: &Option<Vec<u8>>| json.as_ref().is_some_and(|json| without(json, branch).is_some());
        for (id, _) in ids.iter().zip(&alerts).filter(|(_, json)| names_one(json)) {
            replace_field(client, &keys.delivery(id), field, |json| without(json.as_bytes(), branch)).await?;
            is_changed = true;
        }
    }
    Ok(is_changed)
}

/// The alert without the subjects of a branch; `None` if it names none of them.
fn without(json: &[u8], branch: &Branch) -> Option<String> {
    let mut alert: Alert = serde_json::from_slice(json).ok()?;
    alert.forget(branch).then(|| serde_json::to_string(&alert).expect("plain strings and numbers serialise"))
}
