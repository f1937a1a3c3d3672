//! Checks whether the Redis user has the daemon's rights, without running its commands.
//!
//! Opens a transaction, queues every command and discards the transaction. The server checks the rights for each
//! command and its keys when it is queued, as it would when the daemon runs it. So the user needs no right to ask about
//! rights. Writes nothing. `run` goes further: it tries a commit on its own keys (`ledger::dry_run`).

use std::collections::BTreeSet;

use redis::{Cmd, RedisResult, Value};

use crate::channels::REGISTRY;
use crate::ledger::children;
use crate::ledger::commit_settings::TrimPolicy;
use crate::redis_client::endpoint::Deployment;
use crate::redis_client::{ErrorKind, RedisClient, error_kind};
use crate::types::{AlertKey, Day, DeliveryId, Destination, Keys, Metric, Subject, Threshold, Units, keys};

/// The placeholder for the key in the lists below. Commas separate the commands.
const KEY: &str = "KEY";

/// Commands without a key.
const SERVER: &str = "PING, INFO, TIME, SCAN 0, SCRIPT LOAD x";
/// Verifies the primary that Sentinel names.
const SENTINEL: &str = "ROLE";
/// Finds the node that serves a key.
const CLUSTER: &str = "CLUSTER SHARDS, ASKING";
const STREAM: &str = "EVALSHA x 1 KEY, XADD KEY * x x, TYPE KEY, EXISTS KEY, XREAD STREAMS KEY 0-0, XRANGE KEY - +, \
    XINFO STREAM KEY, XGROUP SETID KEY x 0-0, XGROUP CREATE KEY x 0-0";
/// Only with `stream.trim = "consumed"`.
const TRIMMED: &str = "XINFO GROUPS KEY, XPENDING KEY x, XTRIM KEY MINID 0-0";
const CHECKPOINT: &str = "HINCRBY KEY x 1, HGET KEY x, HMGET KEY x, HSET KEY x x, HSETNX KEY x x, PERSIST KEY";
const USAGE: &str = "HEXISTS KEY x, HDEL KEY x, HSCAN KEY 0, HGET KEY x, HMGET KEY x, HSET KEY x x, EXPIRE KEY 1";
const RAISED: &str = "HDEL KEY x, TYPE KEY, HMGET KEY x, HSCAN KEY 0, HLEN KEY, HVALS KEY, HSET KEY x x, EXPIRE KEY 1";
const HISTORY: &str = "TYPE KEY, HGET KEY x, HSCAN KEY 0, HSET KEY x x, HDEL KEY x, EXPIRE KEY 1";
/// What is usual for subjects.
const PROFILES: &str = "TYPE KEY, HGET KEY x, HMGET KEY x, HSCAN KEY 0, HSET KEY x x, HDEL KEY x, EXPIRE KEY 1";
const HISTORY_METRICS: &str =
    "TYPE KEY, ZRANGE KEY 0 0, ZSCORE KEY x, ZADD KEY 0 x, ZREMRANGEBYSCORE KEY 0 0, EXPIRE KEY 1";
/// The children of a subject.
const CHILDREN: &str = "TYPE KEY, ZADD KEY 0 x, ZREMRANGEBYSCORE KEY 0 0, EXPIRE KEY 1, ZRANGE KEY 0 0, ZSCAN KEY 0, \
    ZREM KEY x, UNLINK KEY";
const HISTORY_PROGRESS: &str = "TYPE KEY, HGET KEY x, HGETALL KEY, HSET KEY x x, EXPIRE KEY 1, UNLINK KEY";
const METRICS: &str = "SMEMBERS KEY, SADD KEY x, EXPIRE KEY 1";
const FLAG: &str = "TYPE KEY, GET KEY, SET KEY x, EXISTS KEY, UNLINK KEY";
const OUTBOX: &str = "XLEN KEY, XRANGE KEY - +, XREVRANGE KEY + -, XADD KEY * x x, XDEL KEY 0-0";
const ALERT_LOG: &str = "XADD KEY * x x, EXPIRE KEY 1 NX, PEXPIREAT KEY 1, XRANGE KEY - +, XREVRANGE KEY + -, \
    EXISTS KEY, XDEL KEY 0-0";
const ACTIONS: &str = "XDEL KEY 0-0, XRANGE KEY - +, XREVRANGE KEY + -, XADD KEY * x x";
const REFUSED: &str = "XDEL KEY 0-0, XRANGE KEY - +, XREVRANGE KEY + -, XADD KEY * x x";
const EVENT_IDS: &str = "LRANGE KEY 0 -1, TYPE KEY, RPUSH KEY x, EXPIRE KEY 1, UNLINK KEY";
const SCHEDULE: &str = "ZADD KEY 0 x, ZREM KEY x, ZSCORE KEY x, ZCARD KEY, ZCOUNT KEY 0 0, ZRANGE KEY 0 0, \
    ZRANGEBYSCORE KEY 0 0, ZREVRANGEBYSCORE KEY 0 0, ZRANGEBYLEX KEY - +, TYPE KEY";
const DELIVERY: &str = "UNLINK KEY, HGETALL KEY, HMGET KEY x, HKEYS KEY, HSET KEY x x, HDEL KEY x, EXPIRE KEY 1, \
    PERSIST KEY, EXISTS KEY";
const DESTINATION: &str = "HMGET KEY x, HSET KEY x x, HDEL KEY x, EXPIRE KEY 1";
/// The deliveries of a subject.
const SUBJECT_DELIVERIES: &str = "ZADD KEY 0 x, ZREM KEY x, ZCARD KEY, ZRANGE KEY 0 0, ZRANGEBYSCORE KEY 0 0, \
    EXPIRE KEY 1, PERSIST KEY";
/// The failing contacts of a subject.
const FAILING: &str = "HGET KEY x, HMGET KEY x, HSET KEY x x, HDEL KEY x, EXPIRE KEY 1, UNLINK KEY";
const TOTALS: &str = "HGET KEY x, HGETALL KEY, HINCRBY KEY x 1";
/// The counter of a fixed window.
const FIXED_CAP: &str = "GET KEY, SET KEY x, INCRBY KEY 1, PTTL KEY, PEXPIRE KEY 1";
/// The members of a sliding window.
const SLIDING_CAP: &str = "ZRANGE KEY 0 0, ZCARD KEY, ZCOUNT KEY 0 0, ZADD KEY 0 x, ZREMRANGEBYRANK KEY 0 0, \
    PEXPIRE KEY 1, UNLINK KEY";
const LEASE: &str = "GET KEY, SET KEY x, PTTL KEY, DEL KEY";
const DAEMONS: &str = "TYPE KEY, ZADD KEY 0 x, ZREM KEY x, ZREMRANGEBYSCORE KEY 0 0, ZRANGE KEY 0 0, PEXPIRE KEY 1";
/// The windows of the check API, for every limiter of a plan.
const WINDOW: &str = "GET KEY, SET KEY x, INCRBY KEY 1, PTTL KEY, PEXPIRE KEY 1, ZADD KEY 0 x, ZCARD KEY, \
    ZCOUNT KEY 0 0, ZRANGE KEY 0 0, ZREMRANGEBYRANK KEY 0 0, UNLINK KEY";
/// The sets of requests and guesses of a verification, and of what customers sent in an hour.
const VERIFY_SET: &str = "ZADD KEY 0 x, ZCARD KEY, ZSCORE KEY x, ZRANGE KEY 0 0, ZREM KEY x, \
    ZREMRANGEBYSCORE KEY 0 0, PEXPIREAT KEY 1";
/// The contacts that are not confirmed yet.
const UNVERIFIED: &str = "ZADD KEY 0 x, ZREM KEY x, ZRANGEBYSCORE KEY 0 0";
/// The codes and confirm links of a verification.
const VERIFY_SECRET: &str = "SET KEY x, GET KEY, UNLINK KEY";
/// The key that signs links to the portal.
const PORTAL_KEY: &str = "EXISTS KEY, SET KEY x, GET KEY";
/// Other texts: the key that signs unsubscribe links, revocations, and when the newest digest was due.
const TEXT: &str = "SET KEY x, GET KEY";
/// The grants of a subject, and when they must be looked at.
const GRANTS: &str = "HGET KEY x, HGETALL KEY, HSET KEY x x, HDEL KEY x, UNLINK KEY";
const GRANTS_DUE: &str = "TYPE KEY, EXISTS KEY, ZRANGE KEY 0 0, ZADD KEY 0 x, ZREM KEY x";
/// Why and since when sending is paused.
const PAUSED: &str = "EXISTS KEY, HGETALL KEY";
/// Written when settings are replaced, and contacts added and verified, through the API.
const SUBJECT: &str = "HGET KEY x, HGETALL KEY, HSET KEY x x, HDEL KEY x, DEL KEY";

/// The rights of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permissions {
    /// All rights of the daemon.
    Enough,
    /// These are missing: commands with their keys, or whole keys.
    Lacking(Vec<String>),
    /// The user may not open a transaction, so the rights could not be checked.
    Unknown,
}

/// Asks the server. Nothing else may use `client`: its connection is inside a transaction until this ends.
///
/// # Errors
///
/// A failure of Redis or the connection, except a denied command.
pub async fn check(
    client: &RedisClient,
    deployment: Deployment,
    keys: &Keys,
    trim: TrimPolicy,
) -> RedisResult<Permissions> {
    match client.query::<String>(&redis::cmd("MULTI")).await {
        Ok(_) => {}
        Err(error) if error_kind(&error) == ErrorKind::Denied => return Ok(Permissions::Unknown),
        Err(error) => return Err(error),
    }
    // A proxy may accept MULTI and then run the commands: only queued commands are discarded.
    if client.query::<String>(&redis::cmd("PING")).await? != "QUEUED" {
        return Ok(Permissions::Unknown);
    }
    let needs = needs(deployment, keys, trim);
    let mut pipeline = redis::pipe();
    for need in &needs {
        pipeline.add_command(command_of(need));
    }
    pipeline.cmd("DISCARD");
    let replies: Vec<RedisResult<Value>> = client.pipe(pipeline.ignore_errors()).await?;
    let denied = |reply: &RedisResult<Value>| reply.as_ref().is_err_and(|error| error_kind(error) == ErrorKind::Denied);
    let (lacking, granted): (Vec<_>, Vec<_>) = needs.iter().zip(&replies).partition(|(_, reply)| denied(reply));
    if lacking.is_empty() {
        return Ok(Permissions::Enough);
    }
    let granted: BTreeSet<&str> = granted.into_iter().filter_map(|(need, _)| need.key.as_deref()).collect();
    let mut named: Vec<String> = lacking.into_iter().map(|(need, _)| need.named(&granted)).collect();
    // A key without any right is named once: its commands are adjacent.
    named.dedup();
    Ok(Permissions::Lacking(named))
}

/// A command with enough arguments for the server to judge it.
struct Need {
    words: &'static str,
    key: Option<String>,
}

impl Need {
    /// `XADD on usage`, or only the key if no command is allowed on it.
    fn named(&self, granted: &BTreeSet<&str>) -> String {
        match self.key.as_deref() {
            None => self.name(),
            Some(key) if granted.contains(key) => format!("{} on {key}", self.name()),
            Some(key) => format!("anything on {key}"),
        }
    }

    /// `XADD`, `XGROUP SETID`.
    fn name(&self) -> String {
        let words: Vec<&str> = self.words.split(' ').collect();
        let has_subcommand = matches!(words[0], "CLUSTER" | "XGROUP" | "XINFO" | "SCRIPT");
        words[..if has_subcommand { 2 } else { 1 }].join(" ")
    }
}

fn command_of(need: &Need) -> Cmd {
    let mut command = Cmd::new();
    for word in need.words.split(' ') {
        match &need.key {
            Some(key) if word == KEY => command.arg(key),
            _ => command.arg(word),
        };
    }
    command
}

/// The commands of the daemon, each once for each kind of key.
fn needs(deployment: Deployment, keys: &Keys, trim: TrimPolicy) -> Vec<Need> {
    let (metric, day) = (Metric::default(), Day::parse("2026-01-01").expect("a legal day"));
    let subject = Subject::parse(b"check-config").expect("a legal subject");
    let threshold = Threshold::Used(Units::ONE);
    let bucket = keys::bucket(subject.as_str());
    let destination = Destination::from_stored("check-config");
    let of_keys = [
        (keys.checkpoint(), CHECKPOINT),
        (keys.usage(&metric, day, bucket), USAGE),
        (keys.raised(&metric, day, bucket), RAISED),
        (keys.history(&metric, bucket), HISTORY),
        (keys.profiles(&metric, bucket), PROFILES),
        (keys.history_metrics(), HISTORY_METRICS),
        (keys.history_progress(day), HISTORY_PROGRESS),
        (keys.metrics(day), METRICS),
        (keys.flag(&AlertKey { subject: &subject, metric: &metric, period: day.into(), threshold, units: 1 }), FLAG),
        (keys.outbox(), OUTBOX),
        (keys.refused(), REFUSED),
        (keys.actions(), ACTIONS),
        (format!("{}2026-01", keys.alert_log_prefix()), ALERT_LOG),
        (keys.event_ids(0), EVENT_IDS),
        (keys.destinations(), SCHEDULE),
        (keys.destinations_unhealthy(), SCHEDULE),
        (keys.circuits(), SCHEDULE),
        (keys.due(&destination), SCHEDULE),
        (format!("{}{destination}", keys.leased_prefix()), SCHEDULE),
        (format!("{}{destination}", keys.destination_prefix()), DESTINATION),
        (format!("{}{subject}", keys.failing_prefix()), FAILING),
        (format!("{}{subject}", keys.subject_deliveries_prefix()), SUBJECT_DELIVERIES),
        (children::key(keys, &subject), CHILDREN),
        (keys.grants(&subject), GRANTS),
        (keys.grants_due(), GRANTS_DUE),
        (keys.pending(), SCHEDULE),
        (keys.waiting(), SCHEDULE),
        (keys.grouped(), SCHEDULE),
        (keys.deliveries(), SCHEDULE),
        (keys.dead(), SCHEDULE),
        (keys.totals(), TOTALS),
        (keys.lease(), LEASE),
        (keys::DAEMONS.to_owned(), DAEMONS),
        // Checked even without a rate, so that the user is ready when one is set.
        (keys.limiter("gcra", &metric, &subject), WINDOW),
        (keys.verify_requests("check-config"), VERIFY_SET),
        (keys.verify_guesses("check-config"), VERIFY_SET),
        (keys.unverified(), UNVERIFIED),
        (keys.verify_open("check-config"), VERIFY_SET),
        (keys.verify_sent("check-config"), VERIFY_SET),
        (keys.unsubscribe_key(), TEXT),
        (keys.console_key(), TEXT),
        (keys.portal_key(), PORTAL_KEY),
        (keys.portal_revoked("check-config"), TEXT),
        (keys.portal_sent("check-config", "check-config"), VERIFY_SET),
        (keys.console_link("check-config"), "SET KEY x, DEL KEY"),
        (keys.console_form("check-config"), "SET KEY x, GET KEY, DEL KEY"),
        (keys.digest(), TEXT),
        (keys.paused(), PAUSED),
        (keys.verify_code("check-config"), VERIFY_SECRET),
        (keys.verify_link("check-config"), VERIFY_SECRET),
        (keys.delivery(&DeliveryId::from_stored("check-config")), DELIVERY),
    ];
    // Checked even without a cap, so that the user is ready when one is set.
    let of_caps = REGISTRY.into_iter().map(|definition| match definition.server_absence {
        Some(_) => (keys.cap(definition.channel, None), FIXED_CAP),
        None => (keys.cap(definition.channel, Some("https://example.com")), SLIDING_CAP),
    });
    let of_deployment = match deployment {
        Deployment::Standalone => None,
        Deployment::Sentinel => Some(SENTINEL),
        Deployment::Cluster => Some(CLUSTER),
    };
    let of_stream = [STREAM].into_iter().chain((trim == TrimPolicy::Consumed).then_some(TRIMMED));
    let of_stream = of_stream.map(|commands| (keys.stream().to_owned(), commands));
    let of_subject = (keys.subject(&subject), SUBJECT);
    let with_key = of_stream.chain(of_keys).chain(of_caps).chain([of_subject]);
    let with_key = with_key.map(|(key, commands)| (Some(key), commands));
    let without_key = [SERVER].into_iter().chain(of_deployment).map(|commands| (None, commands));
    let needs = without_key
        .chain(with_key)
        .flat_map(|(key, commands)| commands.split(", ").map(move |words| Need { words, key: key.clone() }));
    needs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Commands of Rust code that are not sent to a server with data, or are sent before anything else.
    const NOT_JUDGED: [(&str, &str); 4] = [
        ("SENTINEL", "Sentinels have users of their own"),
        ("AUTH", "needs no right"),
        ("SELECT", "every connection begins with it"),
        ("CLIENT", "would change the connection that asks"),
    ];
    /// Parts of the code that act as another user, or on another server.
    const OTHER_USERS: [(&str, &str); 5] = [
        ("cli/", "commands have the rights of the operator"),
        ("demo/", "has a server of its own"),
        ("migration/", "a command"),
        ("redis_client/embedded.rs", "the server is the daemon's own"),
        ("redis_client/launch.rs", "the server is the daemon's own"),
    ];

    /// A file below `src`.
    struct Source {
        path: String,
        text: String,
    }

    fn sources(folder: &str) -> Vec<Source> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let (mut folders, mut found) = (vec![root.join(folder)], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).expect("text");
                let path = path.strip_prefix(&root).expect("below").to_string_lossy().into_owned();
                found.push(Source { path, text });
            }
        }
        found
    }

    /// The commands that a file sends: those of a script, or of Rust code without its tests.
    fn commands_of(Source { path, text }: &Source) -> Vec<&str> {
        let (call, end) = if path.ends_with(".lua") { ("call('", '\'') } else { ("cmd(\"", '"') };
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        code.split(call).skip(1).filter_map(|rest| rest.split(end).next()).collect()
    }

    fn names_of(needs: &[Need]) -> BTreeSet<&str> {
        needs.iter().filter_map(|need| need.words.split(' ').next()).collect()
    }

    fn all_needs() -> Vec<Need> {
        let of = |deployment| needs(deployment, &Keys::new("usage"), TrimPolicy::Consumed);
        [Deployment::Standalone, Deployment::Sentinel, Deployment::Cluster].into_iter().flat_map(of).collect()
    }

    /// The rights in the documented line of a user, such as `XADD` and `XGROUP|CREATE`.
    fn granted_to(user: &str) -> BTreeSet<String> {
        let document = include_str!("../../../docs/operations.md");
        let beginning = format!("ACL SETUSER {user} ");
        let mut lines = document.lines().skip_while(|line| !line.starts_with(&beginning));
        let first = lines.next().expect("the user is documented");
        let words = std::iter::once(first).chain(lines.take_while(|line| line.starts_with(' ')));
        words.flat_map(str::split_whitespace).filter_map(|word| word.strip_prefix('+')).map(str::to_uppercase).collect()
    }

    /// A new command in the code must be checked here, or check-config would promise a start that fails.
    #[test]
    fn every_command_of_the_daemon_is_checked() {
        let sources = sources("");
        assert!(sources.iter().filter(|source| source.path.ends_with(".lua")).count() >= 9, "the scripts are found");
        let needs = all_needs();
        let checked = names_of(&needs);
        let mut sent = BTreeSet::new();
        for source in sources.iter().filter(|source| !OTHER_USERS.iter().any(|(of, _)| source.path.starts_with(of))) {
            let code = source.text.split("#[cfg(test)]").next().unwrap_or_default();
            let is_text = !code.replace("redis::cmd(\"", "").contains("redis::cmd(");
            assert!(is_text, "{}: a command whose name is not written there", source.path);
            for command in commands_of(source) {
                sent.insert(command);
                // commit.lua works without PUBSUB, with a more expensive command.
                let is_judged = command == "PUBSUB" || checked.contains(command);
                let path = &source.path;
                assert!(
                    is_judged || NOT_JUDGED.iter().any(|(name, _)| *name == command),
                    "{path}: {command} is not checked"
                );
            }
        }
        assert!(["XREVRANGE", "ASKING", "XTRIM"].iter().all(|command| sent.contains(command)), "{sent:?}");
    }

    /// Kinds of keys for which the daemon's user needs no checked right.
    const NOT_ASKED_ABOUT: [(&str, &str); 2] =
        [("probe", "the dry run at start touches them"), ("cooldown", "the operator's: `send-test` writes them")];

    /// The user may lack access to a new kind of key although each command is granted.
    #[test]
    fn every_kind_of_key_is_asked_about() {
        let table = include_str!("../../../docs/redis-keys.md");
        let kinds = table.lines().filter_map(|line| line.strip_prefix("| `quota_")?.split_once([':', '`']));
        let kinds: BTreeSet<&str> = kinds.map(|(kind, _)| kind).collect();
        assert!(kinds.len() > 30 && NOT_ASKED_ABOUT.iter().all(|(kind, _)| kinds.contains(kind)), "{kinds:?}");
        let needs = all_needs();
        let asked: BTreeSet<&str> = needs
            .iter()
            .filter_map(|need| need.key.as_deref()?.strip_prefix("quota_"))
            .map(|key| key.split(':').next().unwrap_or_default())
            .chain(NOT_ASKED_ABOUT.map(|(kind, _)| kind))
            .collect();
        assert_eq!(
            kinds.difference(&asked).collect::<Vec<_>>(),
            Vec::<&&str>::new(),
            "needs() lacks a key of this kind"
        );
    }

    /// A right that is missing in the documents is only noticed in production, when it is needed.
    #[test]
    fn every_command_that_is_checked_is_documented() {
        let granted = granted_to("quotabell");
        for need in needs(Deployment::Standalone, &Keys::new("usage"), TrimPolicy::Consumed) {
            assert!(granted.contains(&need.name().replace(' ', "|")), "the daemon's user lacks {}", need.name());
        }
        let granted = granted_to("operator");
        let of_commands = sources("cli").into_iter().chain(sources("views"));
        for source in of_commands.filter(|source| !source.path.starts_with("cli/check_config")) {
            for command in commands_of(&source).into_iter().filter(|command| *command != "SCRIPT") {
                assert!(granted.contains(command), "{}: the operator lacks {command}", source.path);
            }
        }
    }
}
