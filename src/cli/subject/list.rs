//! `subject list`: every subject for which something is set.

use clap::Args;
use redis::RedisResult;

use super::show::{HEADING, MAY_SHRINK};
use crate::cli::connect::{self, CliConnection};
use crate::cli::context::CliContext;
use crate::cli::whole_number::from_one;
use crate::redis_client::{ErrorKind, Scan, error_kind};
use crate::subjects::Plans;
use crate::subjects::record::SubjectField;
use crate::terminal::output::{Format, FormatArgs, Output, Table, escaped_bytes, say, say_empty};
use crate::views::SubjectView;

/// Hashes that are read in one write.
const CHUNK: usize = 500;

#[derive(Debug, Args)]
#[command(
    after_help = "Complete and in the order of the names, unless --limit cuts it short. Secrets are shown as ***.

Examples:
  quotabell subject list
  quotabell subject list --limit 20
  quotabell subject list --json | jq -r 'select(.contacts == []) | .subject'"
)]
pub struct SubjectListArgs {
    /// Only the first N [default: all]
    #[arg(long, value_name = "N", value_parser = from_one::<u64>)]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub async fn run(args: SubjectListArgs, context: &CliContext) -> anyhow::Result<()> {
    let config = context.config()?;
    let plans = config.plans()?;
    let redis = connect::redis(&config).await?;
    let keys = scan(&redis).await?;
    let mut left = args.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut keys = keys.as_slice();
    let mut printed = 0;
    let mut output = Output::stdout();
    let mut table = Table::new(&HEADING).may_shrink(MAY_SHRINK);
    while left > 0 && !keys.is_empty() {
        let (chunk, rest) = keys.split_at(keys.len().min(CHUNK).min(left));
        let shown = read(&redis, chunk, &plans).await?;
        (keys, left, printed) = (rest, left - shown.len(), printed + shown.len());
        output.list(args.format.format(), &mut table, &shown, SubjectView::row)?;
    }
    if printed == 0 && args.format.format() == Format::Table {
        say_empty("no subjects");
    }
    output.finish()
}

/// Every subject's key, once each: SCAN may return a key more than once. A million keys take some 60 MB here, and
/// nothing but time on the server.
async fn scan(redis: &CliConnection) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    let what = "list subjects";
    // In a cluster they lie on all of its primaries.
    for server in redis.explained(what, redis.client().primaries().await)? {
        let mut scan = Scan::keys(redis.keys().subject_pattern());
        while let Some(slice) = redis.explained(what, scan.next::<Vec<u8>>(&server).await)? {
            keys.extend(slice);
        }
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// The subjects of these keys, without those that are gone meanwhile; names on stderr each key that is no hash.
async fn read(redis: &CliConnection, keys: &[Vec<u8>], plans: &Plans) -> anyhow::Result<Vec<SubjectView>> {
    let mut pipeline = redis::pipe();
    pipeline.ignore_errors();
    for key in keys {
        pipeline.cmd("HGETALL").arg(key);
    }
    let hashes: Vec<RedisResult<Vec<SubjectField>>> = redis.pipe("read subjects", &pipeline).await?;
    let now = redis.server_time().await?;
    let mut shown = Vec::with_capacity(keys.len());
    for (key, fields) in keys.iter().zip(hashes) {
        match fields {
            Err(error) if error_kind(&error) == ErrorKind::WrongType => {
                let key = escaped_bytes(key);
                say(format_args!("warning: key {key:?} is not a hash: nothing of this subject can be read"));
            }
            fields => {
                let fields = redis.explained("read subjects", fields)?;
                if !fields.is_empty() {
                    shown.push(SubjectView::from_fields(
                        &key[redis.keys().subject_prefix().len()..],
                        &fields,
                        plans,
                        now,
                    ));
                }
            }
        }
    }
    Ok(shown)
}
