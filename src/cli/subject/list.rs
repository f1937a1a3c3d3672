//! `subject list`: every subject for which something is set.

use clap::Args;

use super::show::{HEADING, RawField, Shown};
use crate::cli::Surroundings;
use crate::cli::connect::{self, Redis};
use crate::cli::output::{Format, FormatArgs, Output, Table};
use crate::types::keys::SUBJECT_PREFIX;

/// Keys that one SCAN looks at: short enough that other clients notice nothing.
const SCAN_COUNT: usize = 1000;
/// Hashes that are read in one write.
const CHUNK: usize = 500;

/// Arguments of `subject list`.
#[derive(Debug, Args)]
#[command(
    after_help = "Complete and in the order of the names, unless --limit cuts it short. Secrets are shown as ***.

Examples:
  quotabell subject list
  quotabell subject list --limit 20
  quotabell subject list --json | jq -r 'select(.contacts == []) | .subject'"
)]
pub struct ListArgs {
    /// Only the first N [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// How to print.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Prints the subjects.
///
/// # Errors
///
/// A bad configuration, Redis, or stdout.
pub async fn run(args: ListArgs, surroundings: &Surroundings) -> anyhow::Result<()> {
    let config = surroundings.config()?;
    let redis = connect::redis(&config)?;
    let mut keys = scan(&redis).await?;
    if let Some(limit) = args.limit {
        keys.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    }
    let mut output = Output::stdout();
    let mut table = Table::new(&HEADING);
    for keys in keys.chunks(CHUNK) {
        let shown = read(&redis, keys).await?;
        match args.format.format() {
            Format::Json => shown.iter().try_for_each(|shown| output.json(shown))?,
            Format::Table => output.rows(&mut table, &shown.iter().map(Shown::row).collect::<Vec<_>>())?,
        }
    }
    output.finish()
}

/// Every subject's key, once each: SCAN may return a key more than once. A million keys take some 60 MB here, and nothing but
/// time on the server.
async fn scan(redis: &Redis) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    let mut cursor = 0_u64;
    loop {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(format!("{SUBJECT_PREFIX}*")).arg("COUNT").arg(SCAN_COUNT);
        command.arg("TYPE").arg("hash");
        let (next, page): (u64, Vec<Vec<u8>>) = redis.query("list subjects", &command).await?;
        keys.extend(page);
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

async fn read(redis: &Redis, keys: &[Vec<u8>]) -> anyhow::Result<Vec<Shown>> {
    let mut pipeline = redis::pipe();
    for key in keys {
        pipeline.cmd("HGETALL").arg(key);
    }
    let hashes: Vec<Vec<RawField>> = redis.pipe("read subjects", &pipeline).await?;
    let present = keys.iter().zip(&hashes).filter(|(_, fields)| !fields.is_empty());
    Ok(present.map(|(key, fields)| Shown::of(&key[SUBJECT_PREFIX.len()..], fields)).collect())
}
