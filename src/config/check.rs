//! Relations that one key's type can't tell: order, sums, names that must exist.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::Config;
use super::error::ConfigError;
use super::tree::Node;
use crate::channels::{self, InvalidSetting, REGISTRY};
use crate::throttle::MEMBERS_MAX;
use crate::types::duration::HumanDuration;
use crate::types::keys;
use crate::wire::client::RESPONSE_TIMEOUT;

/// How late an event may be: counters live 14 days from the last write, and half of that is left for an outage.
const LATE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// The longest stream key. It is the hash tag of all others and must stay whole where a limiter shortens a key.
const STREAM_KEY_BYTES_MAX: usize = 128;
/// The longest prefix of subjects' keys: it stands in each of them.
const SUBJECT_PREFIX_BYTES_MAX: usize = 64;
/// The most entries that one commit script may hold the server for.
const BATCH_ENTRIES_MAX: u32 = 10_000;
/// The longest deadline of a check: a connection is given up after as long, so a longer one would never pass.
const CHECK_TIMEOUT_MAX: Duration = Duration::from_secs(5);

const _: () = assert!(CHECK_TIMEOUT_MAX.as_millis() <= RESPONSE_TIMEOUT.as_millis());

/// The shortest life of a one-time password: a mail has to arrive and be read.
const LIFETIME_MIN: Duration = Duration::from_secs(60);
/// The longest. One that lies in a mailbox for longer is found by somebody else.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// A broken rule: the key's segments, those of the other key where two disagree, and the problem.
struct Violation {
    path: Vec<String>,
    other: Option<Vec<String>>,
    problem: String,
}

type Checked = Result<(), Violation>;

/// Checks every relation; the first broken one is the error.
pub(super) fn check(config: &Config, tree: &Node) -> Result<(), ConfigError> {
    let parts = [redis, stream, subjects, plans, fallback, retry, channel_sections, verification, rest];
    parts.iter().try_for_each(|part| part(config)).map_err(|fault| fault.into_error(tree))
}

impl Violation {
    fn into_error(self, tree: &Node) -> ConfigError {
        let place = |path: &[String]| tree.place_of(&path.iter().map(String::as_str).collect::<Vec<_>>());
        // Of two keys that disagree, the one that somebody wrote is at fault, not the default.
        let path = match self.other {
            Some(other) if place(&other).is_own() && !place(&self.path).is_own() => other,
            _ => self.path,
        };
        ConfigError::Value { place: place(&path), path, problem: self.problem }
    }
}

fn holds(rule: bool, path: &[&str], problem: impl fmt::Display) -> Checked {
    if rule {
        return Ok(());
    }
    Err(Violation { path: owned(path), other: None, problem: problem.to_string() })
}

fn owned(path: &[&str]) -> Vec<String> {
    path.iter().map(ToString::to_string).collect()
}

fn redis(config: &Config) -> Checked {
    let url = config.redis.url.as_str();
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    // The URL itself is not shown: it may hold a password.
    let problem = match scheme {
        Some(scheme) => format!("scheme {scheme:?} is not one of Redis"),
        None => "is neither \"embedded\" nor a URL".to_owned(),
    };
    let known = config.redis.url_file.is_some()
        || url == "embedded"
        || matches!(scheme, Some("redis" | "rediss" | "redis+unix" | "unix"));
    holds(known, &["redis", "url"], problem)?;
    holds(config.redis.embedded_port != 0, &["redis", "embedded_port"], "is 0")
}

fn stream(config: &Config) -> Checked {
    let stream = &config.stream;
    holds(!stream.key.is_empty(), &["stream", "key"], "is empty")?;
    let braces = stream.key.contains(['{', '}']);
    holds(!braces, &["stream", "key"], format!("{:?} holds a brace", stream.key))?;
    let long = format!("has {} bytes", stream.key.len());
    holds(stream.key.len() <= STREAM_KEY_BYTES_MAX, &["stream", "key"], long)?;
    let partitions = format!("{} partitions are not supported yet", stream.partitions);
    holds(stream.partitions == 1, &["stream", "partitions"], partitions)?;
    let late = format!("{} is longer than {}", HumanDuration(stream.late_max), HumanDuration(LATE_MAX));
    holds(stream.late_max <= LATE_MAX, &["stream", "late_max"], late)?;
    let batch = format!("{} is not between 1 and {BATCH_ENTRIES_MAX}", stream.batch_entries);
    holds((1..=BATCH_ENTRIES_MAX).contains(&stream.batch_entries), &["stream", "batch_entries"], batch)
}

/// The prefix is a pattern of SCAN, of an ACL and of client tracking, so it must select the keys of subjects and no others.
fn subjects(config: &Config) -> Checked {
    let prefix = config.subjects.prefix.as_str();
    let path = ["subjects", "prefix"];
    let long = format!("has {} bytes", prefix.len());
    holds((1..=SUBJECT_PREFIX_BYTES_MAX).contains(&prefix.len()), &path, long)?;
    let forbidden = prefix.chars().find(|char| !char.is_ascii_graphic() || "{}*?[]\\".contains(*char));
    if let Some(forbidden) = forbidden {
        holds(false, &path, format!("{prefix:?} holds {forbidden:?}"))?;
    }
    holds(prefix.ends_with(':'), &path, format!("{prefix:?} does not end with a colon"))?;
    let own = prefix.starts_with(keys::FAMILY_PREFIX) && !prefix.starts_with(keys::SUBJECT_PREFIX_DEFAULT);
    holds(!own, &path, format!("{prefix:?} may begin other keys of quotabell"))?;
    let stream = format!("stream.key = {:?} begins with {prefix:?}", config.stream.key);
    holds(!config.stream.key.starts_with(prefix), &path, stream)
        .map_err(|fault| Violation { other: Some(owned(&["stream", "key"])), ..fault })?;
    holds(config.subjects.cache_entries >= 1, &["subjects", "cache_entries"], "is 0")
}

fn plans(config: &Config) -> Checked {
    for (name, plan) in &config.plans {
        holds(!name.is_empty(), &["plans", name], "a plan needs a name")?;
        let mut seen = BTreeSet::new();
        for (index, percent) in plan.thresholds.iter().enumerate() {
            let path = ["plans", name, "thresholds", &format!("[{index}]")];
            holds(seen.insert(*percent), &path, format!("{percent} stands there twice"))?;
        }
        if let Err(unlimitable) = plan.rate.limiters() {
            holds(false, &["plans", name, "rate", unlimitable.metric.as_str()], &unlimitable)?;
        }
    }
    let known: Vec<&str> = config.plans.keys().map(String::as_str).collect();
    let problem = format!("there is no plan {:?}, only {}", config.default_plan, known.join(", "));
    holds(config.plans.contains_key(&config.default_plan), &["default_plan"], problem)
}

fn fallback(config: &Config) -> Checked {
    let mut ids = BTreeSet::new();
    for (index, contact) in config.fallback.contacts.iter().enumerate() {
        let index = format!("[{index}]");
        let path = ["fallback", "contacts", &index];
        if let Err(fault) = channels::check_contact(contact) {
            holds(false, &path, fault)?;
        }
        holds(ids.insert(&contact.id), &path, format!("contact {} stands there twice", contact.id))?;
        // Nobody could ever confirm it: that is for contacts of subjects.
        holds(contact.verified, &path, "verified = false has no meaning here")?;
    }
    Ok(())
}

fn retry(config: &Config) -> Checked {
    let retry = &config.retry;
    holds(!retry.first.is_zero(), &["retry", "first"], "is 0")?;
    let order = format!(
        "retry.first = {} is above retry.max_interval = {}",
        HumanDuration(retry.first),
        HumanDuration(retry.max_interval)
    );
    holds(retry.first <= retry.max_interval, &["retry", "max_interval"], order)
        .map_err(|fault| Violation { other: Some(owned(&["retry", "first"])), ..fault })?;
    let factor = format!("{} is not a number of 1 or more", retry.factor);
    holds(retry.factor.is_finite() && retry.factor >= 1.0, &["retry", "factor"], factor)?;
    holds(!retry.give_up_after.is_zero(), &["retry", "give_up_after"], "is 0")
}

fn channel_sections(config: &Config) -> Checked {
    REGISTRY.into_iter().try_for_each(|definition| {
        let judged = (definition.check_settings)(&config.channel_settings());
        judged.or_else(|InvalidSetting { key, problem }| holds(false, &[definition.channel.as_str(), key], problem))
    })
}

fn verification(config: &Config) -> Checked {
    let requests = config.verification.requests;
    let many = format!("{} requests are more than {MEMBERS_MAX}", requests.limit());
    holds(requests.limit().get() <= MEMBERS_MAX, &["verification", "requests"], many)?;
    let lifetime = config.verification.lifetime;
    let range = format!(
        "{} is not between {} and {}",
        HumanDuration(lifetime),
        HumanDuration(LIFETIME_MIN),
        HumanDuration(LIFETIME_MAX)
    );
    holds((LIFETIME_MIN..=LIFETIME_MAX).contains(&lifetime), &["verification", "lifetime"], range)?;
    let legal = config.http.public_url.is_none() || config.http.confirm_links_below().is_some();
    holds(legal, &["http", "public_url"], "is not an http or https URL of a host, without user, query and fragment")
}

fn rest(config: &Config) -> Checked {
    holds(config.delivery.concurrency >= 1, &["delivery", "concurrency"], "is 0")?;
    let path = ["check", "timeout"];
    holds(!config.check.timeout.is_zero(), &path, "is 0")?;
    let timeout =
        format!("{} is longer than {}", HumanDuration(config.check.timeout), HumanDuration(CHECK_TIMEOUT_MAX));
    holds(config.check.timeout <= CHECK_TIMEOUT_MAX, &path, timeout)?;
    let listen = config.http.listen.as_str();
    let problem = format!("{listen:?} is not an address and a port");
    holds(listen.parse::<SocketAddr>().is_ok(), &["http", "listen"], problem)
}
