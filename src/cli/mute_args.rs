//! `--for`, `--until` and `--reason`, for the commands that mute.

use std::time::Duration;

use clap::Args;

use super::connect::CliConnection;
use crate::terminal::hint;
use crate::types::mute::MuteError;
use crate::types::{Mute, MuteEnd, duration};

/// The duration and the reason of a mute.
#[derive(Debug, Args)]
pub struct MuteArgs {
    /// Duration of the mute, such as 2h or 3d [default: until it is unmuted]
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration, conflicts_with = "until")]
    pub duration: Option<Duration>,
    /// End of the mute, such as 2026-11-21T08:37:00Z
    #[arg(long, value_name = "TIME")]
    pub until: Option<MuteEnd>,
    /// The reason, shown beside the mute
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

impl MuteArgs {
    /// The mute, with its end by the server's clock.
    pub async fn into_mute(self, redis: &CliConnection) -> anyhow::Result<Mute> {
        let Self { duration, until, reason } = self;
        let end = duration.map(MuteEnd::After).or(until).unwrap_or(MuteEnd::Never);
        let now = redis.server_time().await?;
        let hint = |error: &MuteError| match error {
            MuteError::Reason => "shorten the reason to one line",
            _ => "`--for 2h` and `--until 2026-11-21T08:37:00Z` name an end",
        };
        Mute::new(end, reason, now).map_err(|error| hint::usage(&error, hint(&error)))
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "a duration is a number and a unit, such as 30m, 2h or 3d".to_owned())
}
