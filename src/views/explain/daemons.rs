//! Which daemons of a stream live, as far as explanations need it.

use redis::RedisResult;

use crate::events::DaemonEntry;
use crate::redis_client::Partition;
use crate::types::{UnixMs, keys};

/// How long after its last heartbeat a daemon counts as live: that is said, and decides nothing.
const DAEMON_LASTS_MS: i64 = 5_000;

/// The daemons of a stream that live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LiveDaemons {
    None,
    /// Each was started to send nothing.
    ReadingOnly,
    /// One sends, or several do.
    Sending,
}

/// Said where every daemon that runs was started so.
pub(super) const SENDS_NOTHING: &str =
    "The daemons that run send nothing: each was started with `--no-send` or `delivery.send = false`.";

/// The daemons that live at `now`; `first` is the first partition of their stream.
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
