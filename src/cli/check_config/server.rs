//! The checks of Redis: it answers, it is fit, the books in it are of this configuration, the user may work. Writes nothing.

use super::findings::Findings;
use super::rights::{self, Rights};
use crate::app::start::{compare, fit};
use crate::cli::connect::{self, Redis};
use crate::cli::plans::PlansOfConfig;
use crate::config::Config;
use crate::ledger::probe;
use crate::terminal::hint;
use crate::types::Keys;
use crate::wire::server::{InspectError, ServerReadiness};
use crate::wire::{EmbeddedError, EmbeddedServer, ErrorKind, ServerInfo, error_kind, inspect};

/// Rights that are named; more would hide the rest of the report.
const NAMED_MAX: usize = 5;

/// Checks Redis, one finding each. Where it does not answer, the rest is left out.
pub(super) async fn check(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let redis = connect::redis(config)?;
    let info = match inspect(redis.client()).await {
        Ok(info) => info,
        Err(InspectError::Redis(error)) if redis.is_embedded() && error_kind(&error) == ErrorKind::Unreachable => {
            findings.note("Redis", embedded_binary());
            return Ok(());
        }
        Err(InspectError::Redis(error)) => {
            findings.note("Redis", redis.judged("ask Redis what it is", Err(error)));
            return Ok(());
        }
        Err(error) => {
            let missing = hint::failed(error, "redis.url is to name a Redis 7.0 or Valkey 7.2 server, or a later one");
            findings.note("Redis", Err(missing));
            return Ok(());
        }
    };
    findings.note("Redis", fitness(&redis, &info));
    if !info.aof_enabled {
        findings.warn(
            "this Redis keeps no append-only file: a crash of the server loses what came after its last snapshot \
             (`redis-cli config set appendonly yes`, and in its configuration file)",
        );
    }
    let keys = config.keys();
    findings.note("the books", books(&redis, &keys, config).await);
    if let Some(warning) = PlansOfConfig::new(config).difference(redis.client()).await {
        findings.warn(&warning);
    }
    let target = config.endpoint()?;
    let user = target.username().unwrap_or("default");
    // A connection of its own: it is inside a transaction meanwhile.
    let rights = rights::check(&target.client(keys.stream())?, &keys, config.stream.trim).await;
    match redis.judged("ask Redis what its user may do", rights) {
        Ok(Rights::Unknown) => findings.warn(&format!(
            "user {user:?} may not use MULTI, so its rights could not be checked; `quotabell run` rehearses a commit at start"
        )),
        rights => findings.note("rights", rights.and_then(|rights| judge(user, rights))),
    }
    Ok(())
}

/// The server that `run` would start.
fn embedded_binary() -> anyhow::Result<String> {
    match EmbeddedServer::binary() {
        Some(binary) => {
            Ok(format!("the embedded Redis is not running; `quotabell run` starts it ({})", binary.display()))
        }
        None => Err(EmbeddedError::NoBinary.into()),
    }
}

fn fitness(redis: &Redis, info: &ServerInfo) -> anyhow::Result<String> {
    fit(info)?;
    match info.readiness() {
        ServerReadiness::Ready => Ok(format!("Redis answers ({}): {} {}", redis.shown(), info.software, info.version)),
        ServerReadiness::Replica => Err(hint::failed(
            format_args!("Redis at {} is a replica", redis.shown()),
            "name the primary in redis.url; the daemon waits until this one is promoted",
        )),
        ServerReadiness::Loading => Err(hint::failed(
            format_args!("Redis at {} is loading its data", redis.shown()),
            "try again in a moment; the daemon waits for it",
        )),
    }
}

async fn books(redis: &Redis, keys: &Keys, config: &Config) -> anyhow::Result<String> {
    let stored = redis.judged(format_args!("read {}", keys.checkpoint()), probe::stored(redis.client(), keys).await)?;
    compare(keys, &stored, config.stream.partitions)?;
    Ok(match stored.format {
        Some(_) => format!("the books of stream {} are of this version", keys.stream()),
        None => format!("nothing has been counted of stream {} yet", keys.stream()),
    })
}

fn judge(user: &str, rights: Rights) -> anyhow::Result<String> {
    let Rights::Lacking(lacking) = rights else {
        return Ok(format!("user {user:?} may do what the daemon does"));
    };
    let named = lacking[..lacking.len().min(NAMED_MAX)].join(", ");
    let more = match lacking.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Err(hint::failed(
        format_args!("user {user:?} has no right to {named}{more}"),
        "run this as the daemon's user, and give that one the right to these commands, to the keys quota_* and to the stream (ACL \
         SETUSER)",
    ))
}
