//! What the live daemons of a stream do, for explanations.

use redis::RedisResult;

use crate::redis_client::Partition;
use crate::types::UnixMs;
use crate::views::system;

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
    let daemons = system::live_daemons(first, now).await?;
    Ok(match daemons.as_slice() {
        [] => LiveDaemons::None,
        daemons if daemons.iter().any(|daemon| daemon.entry.name.sends()) => LiveDaemons::Sending,
        _ => LiveDaemons::ReadingOnly,
    })
}
