//! The live daemons of a stream, for explanations.

use redis::RedisResult;

use crate::events::DaemonEntry;
use crate::redis_client::Partition;
use crate::types::{UnixMs, keys};

/// How long after its last heartbeat a daemon counts as live. Only explanations use this.
const DAEMON_LASTS_MS: i64 = 5_000;

/// The live daemons of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LiveDaemons {
    None,
    /// All of them were started to send nothing.
    ReadingOnly,
    /// At least one of them sends.
    Sending,
}

/// The text if all live daemons were started to send nothing.
pub(super) const SENDS_NOTHING: &str =
    "The daemons that run send nothing: each was started with `--no-send` or `delivery.send = false`.";

/// The daemons that are live at `now`. `first` is the first partition of their stream.
pub(super) async fn live_daemons(first: &Partition, now: UnixMs) -> RedisResult<LiveDaemons> {
    let Partition { client, keys } = first;
    let mut command = redis::cmd("ZRANGEBYSCORE");
    command.arg(keys::DAEMONS).arg(now.0 - DAEMON_LASTS_MS).arg("+inf");
    let members: Vec<String> = client.query(&command).await?;
    let daemons = members.iter().filter_map(|member| DaemonEntry::parse(member));
    let senders: Vec<bool> =
        daemons.filter(|daemon| daemon.stream == keys.name()).map(|daemon| daemon.name.sends()).collect();
    Ok(match senders.as_slice() {
        [] => LiveDaemons::None,
        senders if senders.contains(&true) => LiveDaemons::Sending,
        _ => LiveDaemons::ReadingOnly,
    })
}
