//! The checks of Redis: it answers, it is fit, the stored state fits this configuration, and the user has the rights.
//! Writes nothing.

use redis::RedisResult;

use super::findings::Findings;
use super::permissions::{self, Permissions};
use crate::app::startup::{check_server, check_stored_layout, unread_streams};
use crate::cli::connect::{self, CliConnection};
use crate::config::Config;
use crate::ledger::commit_settings::TrimPolicy;
use crate::ledger::stored_partitions::stored_partitions;
use crate::redis_client::endpoint::Deployment;
use crate::redis_client::server::{InspectError, ServerReadiness};
use crate::redis_client::{
    EmbeddedError, EmbeddedServer, ErrorKind, Partitions, RedisClient, ServerInfo, error_kind, inspect,
};
use crate::terminal::hint;
use crate::views::changed_separator;

/// Maximum number of missing permissions that are listed; more would hide the rest of the report.
const NAMED_MAX: usize = 5;

/// Adds a finding for each check of Redis. If Redis does not answer, the other checks are skipped.
pub(super) async fn check(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let redis = connect::redis_with_any_partitions(config).await?;
    let servers = match inspect_all(&redis).await {
        Ok(servers) => servers,
        Err(error) => {
            findings.note("Redis", not_inspected(&redis, error));
            return Ok(());
        }
    };
    findings.note("Redis", fitness(&redis, &servers));
    if servers.iter().any(|server| !server.aof_enabled) {
        findings.warn(
            "this Redis keeps no append-only file: a crash of the server loses all data since its last snapshot \
             (`redis-cli config set appendonly yes`, and in its configuration file)",
        );
    }
    match stored_state(&redis).await {
        Ok((said, warning)) => {
            findings.note("stored state", Ok(said));
            warning.iter().for_each(|warning| findings.warn(warning));
        }
        Err(error) => findings.note("stored state", Err(error)),
    }
    // A checkpoint that can't be read is a finding already.
    if let Ok(Some(warning)) = changed_separator::warning(&redis.partitions).await {
        findings.warn(&warning);
    }
    let target = &redis.endpoint;
    let user = target.username();
    let user = user.as_deref().unwrap_or("default");
    // These connections are inside a transaction meanwhile, so nothing else may use them.
    let client = target.client(redis.keys().stream())?;
    let rights = rights_on_all(&client, target.deployment(), &redis.partitions, config.stream.trim).await;
    match redis.explained("ask Redis what its user may do", rights) {
        Ok(Permissions::Unknown) => findings.warn(&format!(
            "user {user:?} may not use MULTI, so its rights could not be checked; `quotabell run` tries a commit on keys of its own at start"
        )),
        rights => findings.note("rights", rights.and_then(|rights| permissions_to_result(user, rights))),
    }
    Ok(())
}

/// The text for a server that could not be asked. For an embedded one, names the server that `run` would start.
fn not_inspected(redis: &CliConnection, error: InspectError) -> anyhow::Result<String> {
    match error {
        InspectError::Redis(error) if redis.is_embedded && error_kind(&error) == ErrorKind::Unreachable => {
            let binary = EmbeddedServer::binary().ok_or(EmbeddedError::NoBinary)?;
            Ok(format!("the embedded Redis is not running; `quotabell run` starts it ({})", binary.display()))
        }
        InspectError::Redis(error) => redis.explained("ask Redis what it is", Err(error)),
        error => Err(hint::failed(&error, error.hint())),
    }
}

/// The properties of each server that holds keys.
async fn inspect_all(redis: &CliConnection) -> Result<Vec<ServerInfo>, InspectError> {
    redis.endpoint.check_slots().await?;
    let mut servers = Vec::new();
    for server in redis.client().primaries().await? {
        servers.push(inspect(&server).await?);
    }
    Ok(servers)
}

/// The user's rights on each server that holds keys: a user belongs to a server, not to a cluster.
async fn rights_on_all(
    client: &RedisClient,
    deployment: Deployment,
    partitions: &Partitions,
    trim: TrimPolicy,
) -> RedisResult<Permissions> {
    for server in client.primaries().await? {
        for partition in partitions.iter() {
            match permissions::check(&server, deployment, &partition.keys, trim).await? {
                Permissions::Enough => {}
                other => return Ok(other),
            }
        }
    }
    Ok(Permissions::Enough)
}

fn fitness(redis: &CliConnection, servers: &[ServerInfo]) -> anyhow::Result<String> {
    let mut software = Vec::new();
    for info in servers {
        check_server(info, &redis.endpoint)?;
        match info.readiness() {
            ServerReadiness::Ready => software.push(format!("{} {}", info.software, info.version)),
            ServerReadiness::Replica => {
                return Err(hint::failed(
                    format_args!("Redis at {} is a replica", redis.shown),
                    "name the primary in redis.url; the daemon waits until this one is promoted",
                ));
            }
            ServerReadiness::Loading => {
                return Err(hint::failed(
                    format_args!("Redis at {} is loading its data", redis.shown),
                    "try again in a moment; the daemon waits for it",
                ));
            }
        }
    }
    software.dedup();
    let at = match redis.endpoint.deployment() {
        Deployment::Standalone => redis.shown.to_owned(),
        Deployment::Sentinel | Deployment::Cluster => redis.endpoint.connected_to(),
    };
    Ok(format!("Redis answers ({at}): {}", software.join(", ")))
}

/// The stored state, and a warning if it is unwise.
async fn stored_state(redis: &CliConnection) -> anyhow::Result<(String, Option<String>)> {
    let (keys, partitions) = (redis.keys(), &redis.partitions);
    let stored = stored_partitions(partitions).await;
    let stored = redis.explained(format_args!("read {}", keys.checkpoint()), stored)?;
    check_stored_layout(partitions, &stored)?;
    let is_begun = stored.checkpoints.iter().any(|checkpoint| checkpoint.format.is_some());
    let streams = match partitions.count() {
        1 => format!("stream {}", keys.stream()),
        count => format!("streams {0}:0 to {0}:{1}", keys.name(), count - 1),
    };
    let said = match is_begun {
        true => format!("what is stored of {streams} is of this version"),
        false => format!("nothing has been counted of {streams} yet"),
    };
    Ok((said, unread_streams(&stored)))
}

fn permissions_to_result(user: &str, rights: Permissions) -> anyhow::Result<String> {
    let Permissions::Lacking(lacking) = rights else {
        return Ok(format!("user {user:?} may do what the daemon does"));
    };
    let named = lacking[..lacking.len().min(NAMED_MAX)].join(", ");
    let more = match lacking.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Err(hint::failed(
        format_args!("user {user:?} has no right to {named}{more}"),
        "run this as the daemon's user, and give that user the right to these commands, to the keys quota_* and to the \
         stream (ACL SETUSER)",
    ))
}
