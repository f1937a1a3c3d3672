//! Relations between settings that a type can't express: order, sums, names that must exist.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::error::ConfigError;
use super::settings::Config;
use crate::api::config::TokenConfig;
use crate::channels::{self, InvalidSetting, REGISTRY};
use crate::console::config::{self as console, ConsoleConfig};
use crate::contacts::{CONTACTS_BOUND, Contact, OperatorContact};
use crate::forecast::silence::DAYS_BEFORE;
use crate::outbox::alert_log::ALERTS_DAYS_MAX;
use crate::portal::config::is_origin;
use crate::redis_client::client::RESPONSE_TIMEOUT;
use crate::redis_client::redis_url::SCHEMES;
use crate::signing::portal_gate::PORTAL_LIFETIME_MAX;
use crate::subjects::record::parse_timezone;
use crate::types::duration::HumanDuration;
use crate::types::metric_format::SCALE_MAX;
use crate::types::subject::LEVELS_MAX;
use crate::types::threshold::{THRESHOLDS_MAX, ThresholdsError};
use crate::types::{PARTITIONS_MAX, keys};
use quotabell_throttle::MEMBERS_MAX;

/// Maximum lateness of an event: counters live 14 days after the last write, and half of that remains for an outage.
const LATE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Maximum number of days of history: archiving rewrites each value as a whole every day.
const HISTORY_DAYS_MAX: u32 = 1000;
/// Maximum length of the stream key. It is the hash tag of all other keys, and shortened keys of limiters must still
/// contain it.
const STREAM_KEY_BYTES_MAX: usize = 128;
/// Maximum number of named tokens: each request is compared with all of them.
const TOKENS_MAX: usize = 100;
/// Maximum length of a token's name.
const TOKEN_NAME_BYTES_MAX: usize = 64;
/// Maximum length of the prefix of subjects' keys, which is a part of each of them.
const SUBJECT_PREFIX_BYTES_MAX: usize = 64;
/// Minimum of `stream.age_max`: an outage of hours must cost no event.
const AGE_MAX_LEAST: Duration = Duration::from_secs(86_400);
/// Maximum number of entries in one commit; the commit script blocks the server.
const BATCH_ENTRIES_MAX: u32 = 10_000;
/// Maximum number of metrics: archiving takes a second for each, so that a day's metrics are archived on the next day.
const METRICS_MAX: usize = 100_000;
/// Bounds of `stream.event_ids_window`: the window of one list of ids, and what the memory of a machine can hold.
const EVENT_IDS_WINDOWS: RangeInclusive<Duration> = Duration::from_secs(600)..=Duration::from_secs(86_400);
/// Bounds of `stream.event_ids_max`: fewer ids than an ordinary batch has would be forgotten before they are stored;
/// more exceed the memory of any machine.
const EVENT_IDS_RANGE: RangeInclusive<usize> = 1_000..=1_000_000_000;
/// Maximum number of rules for types of CloudEvents.
const EVENT_TYPES_MAX: usize = 1_000;
/// Maximum number of metrics of such a rule: the entries that one event becomes.
const RULE_METRICS_MAX: usize = 16;
/// Maximum timeout of a check: after this time the connection is closed, so a longer timeout would never apply.
const CHECK_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// Why a URL can't be the start of links.
const NO_BASE_URL: &str = "is not an http or https URL of a host, without user, query and fragment";

const _: () = assert!(CHECK_TIMEOUT_MAX.as_millis() <= RESPONSE_TIMEOUT.as_millis());

/// Bounds of the lifetime of a one-time code: an email must arrive and be read, and an older code in a mailbox may be
/// found by somebody else.
const LIFETIMES: RangeInclusive<HumanDuration> =
    HumanDuration(Duration::from_secs(60))..=HumanDuration(Duration::from_secs(24 * 3600));

/// A broken rule: the key's segments, those of the other key if two disagree, and the problem.
struct Violation {
    path: Vec<String>,
    other: Option<Vec<String>>,
    problem: String,
}

/// The first broken rule, if there is one.
#[derive(Default)]
struct Violations(Option<Violation>);

/// Checks the relations.
///
/// # Errors
///
/// The first broken relation.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let mut violations = Violations::default();
    for part in [
        redis,
        stream,
        events,
        subjects,
        plans,
        metrics,
        fallback,
        operator,
        retry,
        channel_sections,
        verification,
        rest,
    ] {
        part(config, &mut violations);
    }
    let Some(Violation { path, other, problem }) = violations.0 else { return Ok(()) };
    // If two keys disagree, the error points to the one that somebody wrote, not to the default.
    let place_of = |path: &[String]| config.places.place_of(path);
    let path = other.filter(|other| place_of(other).is_own() && !place_of(&path).is_own()).unwrap_or(path);
    Err(ConfigError::Value { place: place_of(&path), path, problem })
}

impl Violations {
    /// Records the problem if the rule is broken.
    fn require(&mut self, holds: bool, path: &[&str], problem: impl fmt::Display) {
        self.require_beside(holds, path, None, problem);
    }

    /// Records a problem if the value is not in the range.
    fn require_in<T: PartialOrd + fmt::Display>(&mut self, range: RangeInclusive<T>, value: &T, path: &[&str]) {
        let (least, most) = (range.start(), range.end());
        self.require(range.contains(value), path, format_args!("{value} is not between {least} and {most}"));
    }

    /// As [`Self::require`], for a rule about two keys.
    fn require_beside(&mut self, holds: bool, path: &[&str], other: Option<&[&str]>, problem: impl fmt::Display) {
        if !holds && self.0.is_none() {
            self.0 = Some(Violation { path: owned(path), other: other.map(owned), problem: problem.to_string() });
        }
    }
}

fn owned(path: &[&str]) -> Vec<String> {
    path.iter().map(ToString::to_string).collect()
}

fn redis(config: &Config, violations: &mut Violations) {
    let url = config.redis.url.reveal();
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    // The URL itself may hold a password, so the error does not show it.
    let problem = match scheme {
        Some(scheme) => format!("scheme {scheme:?} is not one of Redis"),
        None => "is neither \"embedded\" nor a URL".to_owned(),
    };
    let known = config.redis.url_file.is_some()
        || config.redis.is_embedded()
        || scheme.is_some_and(|scheme| SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()));
    violations.require(known, &["redis", "url"], problem);
    violations.require(config.redis.embedded_port != 0, &["redis", "embedded_port"], "is 0");
}

fn stream(config: &Config, violations: &mut Violations) {
    let stream = &config.stream;
    violations.require(!stream.key.is_empty(), &["stream", "key"], "is empty");
    let braces = stream.key.contains(['{', '}']);
    violations.require(!braces, &["stream", "key"], format!("{:?} contains a brace", stream.key));
    let long = format!("has {} bytes", stream.key.len());
    violations.require(stream.key.len() <= STREAM_KEY_BYTES_MAX, &["stream", "key"], long);
    violations.require_in(1..=PARTITIONS_MAX, &stream.partitions, &["stream", "partitions"]);
    let late = format!("{} is longer than {}", HumanDuration(stream.late_max), HumanDuration(LATE_MAX));
    violations.require(stream.late_max <= LATE_MAX, &["stream", "late_max"], late);
    let age = format!("{} is shorter than {}", HumanDuration(stream.age_max), HumanDuration(AGE_MAX_LEAST));
    violations.require(stream.age_max >= AGE_MAX_LEAST, &["stream", "age_max"], age);
    violations.require_in(1..=BATCH_ENTRIES_MAX, &stream.batch_entries, &["stream", "batch_entries"]);
    let window = stream.event_ids_window;
    let range = format!("{} is not between 10m and 24h", HumanDuration(window));
    violations.require(EVENT_IDS_WINDOWS.contains(&window), &["stream", "event_ids_window"], range);
    violations.require_in(EVENT_IDS_RANGE, &stream.event_ids_max, &["stream", "event_ids_max"]);
    violations.require_in(1..=METRICS_MAX, &stream.metrics_max, &["stream", "metrics_max"]);
}

/// Every request with events looks the rules up, and an event of a rule has an entry for each of its metrics.
fn events(config: &Config, violations: &mut Violations) {
    let types = &config.events.types;
    let many = format!("has {} rules, at most {EVENT_TYPES_MAX} are allowed", types.len());
    violations.require(types.len() <= EVENT_TYPES_MAX, &["events", "types"], many);
    for (kind, rule) in types {
        violations.require(!kind.is_empty(), &["events", "types", kind], "a rule needs a type");
        let problem = format!("has {} metrics", rule.metrics.len());
        let legal = (1..=RULE_METRICS_MAX).contains(&rule.metrics.len());
        violations.require(legal, &["events", "types", kind, "metrics"], problem);
    }
}

/// Names of callers stand in logs and metrics, so they are few and plain.
fn check_tokens(config: &Config, violations: &mut Violations) {
    let tokens = &config.http.tokens;
    let many = format!("{} tokens are too many, at most {TOKENS_MAX} are allowed", tokens.len());
    violations.require(tokens.len() <= TOKENS_MAX, &["http", "tokens"], many);
    for (at, TokenConfig { name, scopes, .. }) in tokens.iter().enumerate() {
        let index = format!("[{at}]");
        let of = |key| ["http", "tokens", index.as_str(), key];
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let is_legal = (1..=TOKEN_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain);
        violations.require(is_legal, &of("name"), format!("{name:?} is not a name"));
        let is_new = !tokens[..at].iter().any(|other| other.name == *name) && !name.starts_with("http.token");
        violations.require(is_new, &of("name"), format!("{name:?} is the name of another token"));
        violations.require(!scopes.is_empty(), &of("scopes"), "is empty");
    }
}

/// The prefix is used as a pattern of SCAN, of an ACL and of client tracking, so it must select only the keys of
/// subjects.
fn subjects(config: &Config, violations: &mut Violations) {
    let prefix = config.subjects.prefix.as_str();
    let path = ["subjects", "prefix"];
    let long = format!("has {} bytes", prefix.len());
    violations.require((1..=SUBJECT_PREFIX_BYTES_MAX).contains(&prefix.len()), &path, long);
    let forbidden = prefix.chars().find(|char| !char.is_ascii_graphic() || "{}*?[]\\".contains(*char));
    if let Some(forbidden) = forbidden {
        violations.require(false, &path, format!("{prefix:?} holds {forbidden:?}"));
    }
    violations.require(prefix.ends_with(':'), &path, format!("{prefix:?} does not end with a colon"));
    let own = prefix.starts_with(keys::FAMILY_PREFIX) && !prefix.starts_with(keys::SUBJECT_PREFIX_DEFAULT);
    violations.require(!own, &path, format!("{prefix:?} may begin other keys of quotabell"));
    let stream = format!("stream.key = {:?} begins with {prefix:?}", config.stream.key);
    violations.require_beside(!config.stream.key.starts_with(prefix), &path, Some(&["stream", "key"]), stream);
    let plans = &config.subjects.default_plans;
    let path = ["subjects", "default_plans"];
    let problem = format!("names {} plans, but a subject has at most {LEVELS_MAX} levels", plans.len());
    violations.require(plans.len() <= LEVELS_MAX, &path, problem);
    let flat = config.subjects.separator.is_none() && !plans.is_empty();
    violations.require(!flat, &path, "names plans of levels, but subjects.separator is empty: subjects have no levels");
    for (index, plan) in plans.iter().enumerate() {
        let path = ["subjects", "default_plans", &format!("[{index}]")];
        violations.require(config.plans.contains_key(plan), &path, no_such_plan(config, plan));
    }
    violations.require(config.subjects.cache_entries >= 1, &["subjects", "cache_entries"], "is 0");
    violations.require_in(1..=CONTACTS_BOUND, &config.subjects.contacts_max, &["subjects", "contacts_max"]);
}

fn plans(config: &Config, violations: &mut Violations) {
    for (name, plan) in &config.plans {
        violations.require(!name.is_empty(), &["plans", name], "a plan needs a name");
        let path = ["plans", name, "thresholds"];
        let problem = ThresholdsError::TooMany(plan.thresholds.len());
        violations.require(plan.thresholds.len() <= THRESHOLDS_MAX, &path, problem);
        let mut seen = BTreeSet::new();
        for (index, threshold) in plan.thresholds.iter().enumerate() {
            let path = ["plans", name, "thresholds", &format!("[{index}]")];
            violations.require(seen.insert(*threshold), &path, ThresholdsError::Doubled(*threshold));
        }
        for (index, window) in plan.forecast.iter().flat_map(|forecast| forecast.windows.iter().enumerate()) {
            let path = ["plans", name, "forecast", "windows", &format!("[{index}]")];
            violations.require(window.has_forecast(), &path, format_args!("{window} has no forecasts"));
        }
        if let Err(unlimitable) = plan.rate.limiters() {
            violations.require(false, &["plans", name, "rate", unlimitable.metric.as_str()], &unlimitable);
        }
    }
    violations.require_beside(
        config.plans.contains_key(&config.default_plan),
        &["default_plan"],
        Some(&["plans", &config.default_plan]),
        no_such_plan(config, &config.default_plan),
    );
}

fn metrics(config: &Config, violations: &mut Violations) {
    for (metric, format) in &config.metrics {
        violations.require_in(0..=SCALE_MAX, &format.scale, &["metrics", metric.as_str(), "scale"]);
    }
}

fn no_such_plan(config: &Config, plan: &str) -> String {
    let known: Vec<&str> = config.plans.keys().map(String::as_str).collect();
    format!("there is no plan {plan:?}, only {}", known.join(", "))
}

fn fallback(config: &Config, violations: &mut Violations) {
    configured_contacts("fallback", config.fallback.contacts.iter(), violations);
}

fn operator(config: &Config, violations: &mut Violations) {
    let operator = &config.operator;
    configured_contacts("operator", operator.contacts.iter().map(|one| &one.contact), violations);
    for (index, OperatorContact { plans, .. }) in operator.contacts.iter().enumerate() {
        for plan in plans.iter().filter(|plan| !config.plans.contains_key(*plan)) {
            let path = ["operator", "contacts", &format!("[{index}]")];
            violations.require(false, &path, no_such_plan(config, plan));
        }
    }
    let zone = &operator.timezone;
    let problem = format!("there is no time zone {zone:?}");
    violations.require(parse_timezone(zone).is_ok(), &["operator", "timezone"], problem);
}

fn configured_contacts<'a>(
    section: &str,
    contacts: impl ExactSizeIterator<Item = &'a Contact>,
    violations: &mut Violations,
) {
    let many = format!("has {} contacts, more than {CONTACTS_BOUND}", contacts.len());
    violations.require(contacts.len() <= CONTACTS_BOUND, &[section, "contacts"], many);
    let mut ids = BTreeSet::new();
    for (index, contact) in contacts.enumerate() {
        let path = [section, "contacts", &format!("[{index}]")];
        if let Err(error) = channels::check_contact(contact) {
            violations.require(false, &path, error);
        }
        // Nobody could confirm it: confirmation is for contacts of subjects.
        violations.require(contact.verified, &path, "verified = false has no meaning here");
        violations.require(contact.disabled.is_none(), &path, "disabled has no meaning here, leave the contact out");
        violations.require(ids.insert(&contact.id), &path, format!("contact {} is listed twice", contact.id));
    }
}

fn retry(config: &Config, violations: &mut Violations) {
    let retry = &config.retry;
    violations.require(!retry.first.is_zero(), &["retry", "first"], "is 0");
    let order = format!(
        "retry.first = {} is above retry.max_interval = {}",
        HumanDuration(retry.first),
        HumanDuration(retry.max_interval)
    );
    let ordered = retry.first <= retry.max_interval;
    violations.require_beside(ordered, &["retry", "max_interval"], Some(&["retry", "first"]), order);
    let factor = format!("{} is not a number of 1 or more", retry.factor);
    violations.require(retry.factor.is_finite() && retry.factor >= 1.0, &["retry", "factor"], factor);
    violations.require(!retry.give_up_after.is_zero(), &["retry", "give_up_after"], "is 0");
}

fn channel_sections(config: &Config, violations: &mut Violations) {
    for definition in REGISTRY {
        if let Err(InvalidSetting { key, problem }) = definition.channel.check_settings(config.channel_settings()) {
            violations.require(false, &[definition.channel.as_str(), key], problem);
        }
    }
}

fn verification(config: &Config, violations: &mut Violations) {
    let requests = config.verification.requests;
    let many = format!("{} requests are more than {MEMBERS_MAX}", requests.limit());
    violations.require(requests.limit().get() <= MEMBERS_MAX, &["verification", "requests"], many);
    let lifetime = HumanDuration(config.verification.lifetime);
    violations.require_in(LIFETIMES, &lifetime, &["verification", "lifetime"]);
    let legal = config.http.public_url.is_none() || config.http.confirm_links_below().is_some();
    violations.require(legal, &["http", "public_url"], NO_BASE_URL);
}

fn rest(config: &Config, violations: &mut Violations) {
    let alerts_days = config.history.alerts_days;
    let bounds = format!("{alerts_days} days are not between 1 and {ALERTS_DAYS_MAX}");
    violations.require((1..=ALERTS_DAYS_MAX).contains(&alerts_days), &["history", "alerts_days"], bounds);
    let many = format!("{} days are more than {HISTORY_DAYS_MAX}", config.history.days);
    violations.require(config.history.days <= HISTORY_DAYS_MAX, &["history", "days"], many);
    for (name, silence) in config.plans.iter().filter_map(|(name, plan)| Some((name, Duration::from(plan.silence?)))) {
        // The days before it are judged, and it is told up to two days late.
        let needed = silence.as_secs().div_ceil(86_400) + DAYS_BEFORE + 2;
        let few = format!("needs history.days = {needed}, which is {}", config.history.days);
        violations.require(u64::from(config.history.days) >= needed, &["plans", name, "silence"], few);
    }
    violations.require(config.delivery.concurrency >= 1, &["delivery", "concurrency"], "is 0");
    violations.require(config.delivery.per_destination_max >= 1, &["delivery", "per_destination_max"], "is 0");
    let (first, max) = (config.delivery.probe_first, config.delivery.probe_max);
    violations.require(!first.is_zero(), &["delivery", "probe_first"], "is 0");
    let problem = format!("{} is longer than delivery.probe_max, {}", HumanDuration(first), HumanDuration(max));
    violations.require(first <= max, &["delivery", "probe_first"], problem);
    if let Some(problem) = config.check.subject_header_problem() {
        let problem = format!("{:?} {problem}", config.check.subject_header);
        violations.require(false, &["check", "subject_header"], problem);
    }
    let path = ["check", "timeout"];
    violations.require(!config.check.timeout.is_zero(), &path, "is 0");
    let timeout =
        format!("{} is longer than {}", HumanDuration(config.check.timeout), HumanDuration(CHECK_TIMEOUT_MAX));
    violations.require(config.check.timeout <= CHECK_TIMEOUT_MAX, &path, timeout);
    check_tokens(config, violations);
    let listen = config.http.listen.as_str();
    let problem = format!("{listen:?} is not an address and a port");
    violations.require(listen.parse::<SocketAddr>().is_ok(), &["http", "listen"], problem);
    check_console(&config.console, violations);
    for origin in config.portal.origins.iter().filter(|origin| !is_origin(origin)) {
        violations.require(false, &["portal", "origins"], format!("{origin:?} is not the origin of a site"));
    }
    let lifetime = config.portal.link_lifetime;
    let long = format!("{} is longer than {}", HumanDuration(lifetime), HumanDuration(PORTAL_LIFETIME_MAX));
    violations.require(lifetime <= PORTAL_LIFETIME_MAX, &["portal", "link_lifetime"], long);
}

fn check_console(console: &ConsoleConfig, violations: &mut Violations) {
    let listen = console.listen.as_str();
    let problem = format!("{listen:?} is neither an address and a port nor \"off\"");
    let legal = listen == console::OFF || listen.parse::<SocketAddr>().is_ok();
    violations.require(legal, &["console", "listen"], problem);
    let legal = console.public_url.is_none() || console.public_base().is_some();
    violations.require(legal, &["console", "public_url"], NO_BASE_URL);
}
