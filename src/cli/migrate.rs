//! `migrate`: moves all stored data to another deployment.

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use super::context::CliContext;
use crate::config::Config;
use crate::migration::{Migration, MigrationError, MigrationSummary};
use crate::redis_client::endpoint::Deployment;
use crate::redis_client::{Partition, Partitions, RedisConfig, RedisEndpoint};
use crate::terminal::hint::{self, usage, with_hint};
use crate::terminal::output::{self, FormatArgs, pluralize, say};
use crate::types::{PARTITIONS_MAX, PartitionNumber};
use crate::views::changed_separator;

#[derive(Debug, Args)]
#[command(
    after_help = "Stop the daemons at the source first; producers may continue, writing to either side. The command \
    copies counters, flags with their time to live, records, deliveries with their due times, the times since which \
    contacts fail, subjects, and events that nobody has counted, and compares them in both directions. Not copied: \
    what the limiters of the check API have let through, caps and cooldowns; bounds and circuits of destinations are \
    measured again. The target must be empty. Repeat an interrupted run, or undo it with --undo. Then point producers \
    and daemons to the target, and run the command once more: it copies events that reached the source meanwhile. No \
    daemon starts at the source any more, nor at a half-copied target.

Exit codes: 0 everything is at the target, and compared; 1 it is not, 2 the command line is wrong

Examples:
  quotabell migrate --to redis+cluster://node1:7000,node2:7000 --partitions 8
  quotabell migrate --from redis://old:6379 --to redis://new:6379 --partitions 1 --json
  quotabell migrate --to redis://new:6379 --partitions 1 --undo"
)]
pub struct MigrateArgs {
    /// The URL of the source [default: redis.url of the configuration]
    #[arg(long, value_name = "URL")]
    pub from: Option<String>,
    /// The URL of the target
    #[arg(long, value_name = "URL")]
    pub to: String,
    /// The number of partitions at the target, its stream.partitions
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(PARTITIONS_MAX)))]
    pub partitions: u32,
    /// Give up a move that is not complete: remove what was copied to the target, and let daemons work at the source
    #[arg(long)]
    pub undo: bool,
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Copies and compares the data, and prints what was copied.
pub async fn run(args: MigrateArgs, context: &CliContext) -> anyhow::Result<()> {
    let MigrateArgs { from, to, partitions, undo, format } = args;
    let config = context.config()?;
    let source = match from {
        Some(url) => endpoint(&config, &url, "--from")?,
        None => config.endpoint()?,
    };
    let target = endpoint(&config, &to, "--to")?;
    if source.to_string() == target.to_string() {
        return Err(usage(
            format_args!("--from and --to are the same deployment, {target}"),
            "name another one with --to: another server, another cluster, or another database",
        ));
    }
    let first = config.keys().of_sibling(PartitionNumber::first(1));
    let client = source.client(first.stream())?;
    let count = stored_count(&Partition { client: client.into(), keys: first.clone() }).await;
    let advice = count.as_ref().err().map_or("", |error| hint::of_call(error, source.deployment()));
    let count = with_hint(count.with_context(|| format!("look how many partitions are at {source}")), advice)?;
    let opened = |endpoint: &RedisEndpoint, count| -> anyhow::Result<Partitions> {
        let keys = first.of_sibling(PartitionNumber::first(count));
        Ok(Partitions::new(&endpoint.client(keys.stream())?, &keys))
    };
    let (from, to) = (opened(&source, count)?, opened(&target, partitions)?);
    let of_source = pluralize(count, "partition", "partitions");
    say(format_args!("from {source} with {of_source} to {target} with {partitions}"));
    let to_shown = target.to_string();
    let migration = Migration { from: &from, to: &to, to_shown: &to_shown };
    if undo {
        let undone = migration.undo(|step| say(step)).await;
        let removed = with_hint_of(undone, &source, &target)?;
        return output::print(&format, &json!({"removed": removed}), |output| {
            output.pairs(&[
                ("removed", pluralize(removed, "key of the target", "keys of the target")),
                ("next", "daemons may start at the source".to_owned()),
            ])
        });
    }
    if let Ok(Some(warning)) = changed_separator::warning(&from).await {
        say(format_args!("warning: {warning}"));
    }
    let migrated = migration.run(|step| say(step)).await;
    let MigrationSummary { elements, entries } = with_hint_of(migrated, &source, &target)?;
    output::print(&format, &json!({"elements": elements, "entries": entries}), |output| {
        output.pairs(&[
            ("compared", format!("{elements} fields and members")),
            ("appended", pluralize(entries, "entry of streams", "entries of streams")),
            ("next", format!("set redis.url and stream.partitions = {partitions}, and start the daemons")),
        ])
    })
}

fn with_hint_of<T>(
    done: Result<T, MigrationError>,
    source: &RedisEndpoint,
    target: &RedisEndpoint,
) -> anyhow::Result<T> {
    // The error does not say which deployment it is about.
    let deployments = [source.deployment(), target.deployment()];
    let deployment = deployments.into_iter().find(|of| *of != Deployment::Cluster).unwrap_or(Deployment::Cluster);
    let advice = done.as_ref().err().map_or_else(String::new, |error| advice_on(error, deployment));
    with_hint(done, advice)
}

fn endpoint(config: &Config, url: &str, option: &str) -> anyhow::Result<RedisEndpoint> {
    let section = RedisConfig { url: url.into(), url_file: None, ..config.redis.clone() };
    RedisEndpoint::from_config(&section).map_err(|error| {
        usage(
            format_args!("{option}: {:#}", anyhow::Error::from(error)),
            "docs/configuration.md lists the forms of a URL",
        )
    })
}

/// The number of partitions of the source, from the checkpoint of its only partition or of the first of several.
async fn stored_count(only: &Partition) -> redis::RedisResult<u32> {
    for keys in [only.keys.clone(), only.keys.of_sibling(PartitionNumber::first(2))] {
        let read = redis::cmd("HGET").arg(keys.checkpoint()).arg("partitions").to_owned();
        if let Some(count) = only.client.query(&read).await? {
            return Ok(count);
        }
    }
    Ok(1)
}

fn advice_on(error: &MigrationError, deployment: Deployment) -> String {
    let advice = match error {
        MigrationError::MovedElsewhere { checkpoint, .. } => {
            return format!(
                "both would send the same alerts: continue to that target, with --to written the same way, or give \
                 that move up with --undo and the same --to and --partitions. If that target is gone, \
                 HDEL {checkpoint} moved_to at the source, for each partition"
            );
        }
        MigrationError::Redis { source, .. } => hint::of_call(source, deployment),
        MigrationError::OtherSettings(_) => {
            "name an empty deployment, or make its settings those of the source; nothing was written"
        }
        MigrationError::Totals(_) => "docs/operations.md tells what the user needs",
        MigrationError::NothingStored(_) => "is it the right server, and the right stream.key?",
        MigrationError::Format { .. } => "run the version of quotabell that wrote it",
        MigrationError::Daemon { .. } => "drain it (SIGTERM); the lease of a killed daemon ends after 5 s",
        MigrationError::NotEmpty(_) => "name an empty deployment, or another stream.key; nothing was written",
        MigrationError::OldEntries { .. } => {
            "the clock of the target is behind: delete these entries after you have sent them again"
        }
        MigrationError::UnknownKey(_) => {
            "a newer version wrote it: run that one, or delete the key if it is not quotabell's"
        }
        MigrationError::NoSubject(_) => "delete it, it can't be delivered",
        MigrationError::Differs { .. } => "somebody writes to one of the two: stop that, and run it again",
        MigrationError::CountedSince => "give the move up with --undo, and begin it again",
        MigrationError::Unmarked(_) => {
            "what the source has counted since is not at the target: compare both before you go on"
        }
        MigrationError::Complete(_) => "nothing is removed; a move back needs an empty deployment",
        MigrationError::EventsAtTarget { .. } => {
            "they would be removed: let producers send them to the source, and delete them from the streams of the target"
        }
    };
    advice.to_owned()
}
