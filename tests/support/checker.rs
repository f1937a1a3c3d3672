//! Compares everything that Redis stores of a partition with the plain model of its stream: counters of every window,
//! refused events, totals, records, flags, the outbox and the deliveries. All events must be counted and fanned out,
//! and limits must not have changed.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::{Debug, Display};
use std::future::Future;

use quotabell::ledger::commit_settings::REFUSED_KEPT;
use quotabell::outbox::totals;
use quotabell::redis_client::RedisClient;
use quotabell::types::{
    Alert, AlertId, ContactId, DeliveryId, DeploymentId, Keys, Period, RaisedRecord, StreamId, Threshold,
    UsageNoticeKind,
};
use redis::{FromRedisValue, RedisResult};

use super::stream_model::{Counter, DueAt, Reached, StreamModel};

/// Number of keys or entries per request.
const KEYS_AT_ONCE: usize = 1_000;
/// Maximum number of attempts per request.
const TRIES_MAX: u32 = 10;
/// Maximum number of repeated reads, if deliveries end while they are read.
const READINGS_MAX: u32 = 1_000;

/// The differences, in words; empty if there are none.
#[derive(Debug, Default)]
pub struct Findings {
    /// Events in the stream that are not in the counts, or are neither counted nor refused.
    pub lost: Vec<String>,
    /// Events that were counted twice, or both counted and refused.
    pub doubled: Vec<String>,
    pub raised_twice: Vec<String>,
    /// Reached thresholds without an alert, and alerts without a delivery.
    pub never_raised: Vec<String>,
    pub other: Vec<String>,
}

impl Findings {
    pub fn all(&self) -> impl Iterator<Item = &String> {
        [&self.lost, &self.doubled, &self.raised_twice, &self.never_raised, &self.other].into_iter().flatten()
    }

    pub fn is_clean(&self) -> bool {
        self.all().next().is_none()
    }

    /// Fails if there is a difference.
    pub fn expect_none(&self) {
        assert!(self.is_clean(), "{}", self.all().map(String::as_str).collect::<Vec<_>>().join("\n"));
    }

    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.other.push(what());
        }
    }

    fn expect_equal<T: PartialEq + Debug>(&mut self, what: impl Display, found: T, expected: T) {
        self.expect(found == expected, || format!("{what}: {found:?}, expected {expected:?}"));
    }

    /// Compares the commits' data with the model of the stream.
    pub fn judge(&mut self, keys: &Keys, stored: &Stored, model: &StreamModel) {
        self.judge_counts(stored, model);
        self.judge_refused(stored, model);
        let found = (stored.counted, stored.duplicates, stored.refused_total);
        let expected = (model.counted, model.duplicates, model.refused.len() as u64);
        self.expect_equal("counted, duplicates, refused", found, expected);
        self.expect_equal("entries read", stored.entries_read, model.entries);
        self.judge_alerts(stored, model);
        self.judge_flags(keys, stored);
        self.judge_children(stored, model);
    }

    /// I1: the counters.
    fn judge_counts(&mut self, stored: &Stored, model: &StreamModel) {
        let mut counts: BTreeMap<&Counter, u64> = BTreeMap::new();
        for (counter, units) in &stored.counts {
            let other = counts.insert(counter, *units);
            self.expect(other.is_none(), || format!("{counter:?} lies in two buckets"));
        }
        for counter in counts.keys().copied().chain(model.counts.keys()).collect::<BTreeSet<_>>() {
            // A credit leaves a counter of zero, like a counter that never existed.
            let found = counts.get(counter).copied().unwrap_or(0);
            let expected = model.counts.get(counter).copied().unwrap_or(0);
            let told = format!("{counter:?}: {found} units, expected {expected}");
            match found.cmp(&expected) {
                Ordering::Less => self.lost.push(told),
                Ordering::Greater => self.doubled.push(told),
                Ordering::Equal => {}
            }
        }
    }

    /// I1, I8: refused events, each once, with the reason.
    fn judge_refused(&mut self, stored: &Stored, model: &StreamModel) {
        let mut refused = BTreeSet::new();
        for (id, reason) in &stored.refused {
            let expected = model.refused.get(id).copied();
            if !refused.insert(id) {
                self.doubled.push(format!("{id} is refused twice"));
            } else if expected.is_none() {
                self.doubled.push(format!("{id} is refused as {reason}, and it is good"));
            } else {
                self.expect_equal(format!("the reason of {id}"), Some(reason.as_str()), expected);
            }
        }
        // Refused events are kept up to a bound: the oldest ones are dropped, which is no loss.
        let is_bounded = stored.refused.len() as u64 >= REFUSED_KEPT;
        let oldest = stored.refused.first().filter(|_| is_bounded).map(|(id, _)| StreamId::from_stored(Some(id)));
        let is_kept = |id: &str| oldest.is_none_or(|oldest| StreamId::from_stored(Some(id)) >= oldest);
        let missing = model.refused.iter().filter(|(id, _)| !refused.contains(id) && is_kept(id));
        self.lost.extend(missing.map(|(id, reason)| format!("{id} is not refused as {reason}")));
    }

    /// I3: records name exactly the thresholds that were reached.
    fn judge_alerts(&mut self, stored: &Stored, model: &StreamModel) {
        let instance = DeploymentId::from_stored(&stored.instance);
        let limits = model.reached();
        let mut raised = BTreeSet::new();
        for (field, RaisedRecord { alert, earlier }) in &stored.records {
            let expected = format!("{}:{}", reached_of(alert).due.in_key(), alert.subject);
            self.expect_equal("a record's field", field, &expected);
            let reached = reached_of(alert);
            if !earlier.is_empty() || !raised.insert(reached.clone()) {
                self.raised_twice.push(format!("{alert:?} after {earlier:?}"));
            }
            match limits.get(&reached) {
                None => self.other.push(format!("{reached:?} is raised and was not reached")),
                Some(limit) => {
                    let is_right = alert.limit == *limit
                        && reached.due.is_reached(alert.used, *limit)
                        && alert.used <= model.peak(&reached.counter)
                        && alert.id == AlertId::derive(&instance, &alert.key());
                    self.expect(is_right, || format!("{alert:?}: the limit is {limit}"));
                }
            }
        }
        let missing = limits.keys().filter(|reached| !raised.contains(*reached));
        self.never_raised.extend(missing.map(|reached| format!("{reached:?} is not raised")));
        let records = stored.records.len() as u64;
        match stored.raised.cmp(&records) {
            Ordering::Less => self.never_raised.push(format!("{} alerts of {records}", stored.raised)),
            Ordering::Greater => self.raised_twice.push(format!("{} alerts, and records of {records}", stored.raised)),
            Ordering::Equal => {}
        }
    }

    /// I2: each flag has its alert, and each alert has its flag.
    fn judge_flags(&mut self, keys: &Keys, stored: &Stored) {
        let mut expected = BTreeSet::new();
        for (_, RaisedRecord { alert, .. }) in &stored.records {
            let flag = keys.flag(&alert.key());
            let id = stored.flags.get(&flag).map(String::as_str);
            self.expect_equal("the flag's alert", id, Some(alert.id.as_str()));
            expected.insert(flag);
        }
        let lonely = stored.flags.keys().filter(|flag| !expected.contains(*flag));
        self.never_raised.extend(lonely.map(|flag| format!("{flag} is claimed, and there is no alert")));
    }

    /// Each level lists the subjects of the level below that were counted, and no others.
    fn judge_children(&mut self, stored: &Stored, model: &StreamModel) {
        let listed: BTreeSet<&(String, String)> = stored.children.iter().collect();
        let expected: BTreeSet<&(String, String)> = model.children.iter().collect();
        for pair in listed.symmetric_difference(&expected) {
            let what = if expected.contains(pair) { "does not list" } else { "lists" };
            let (parent, child) = pair;
            self.other.push(format!("{parent} {what} its child {child}"));
        }
    }

    /// Adds the differences of another partition.
    pub fn extend(&mut self, other: Self) {
        self.lost.extend(other.lost);
        self.doubled.extend(other.doubled);
        self.raised_twice.extend(other.raised_twice);
        self.never_raised.extend(other.never_raised);
        self.other.extend(other.other);
    }
}

/// The result of a comparison, and the raised alerts.
#[derive(Debug, Default)]
pub struct Compared {
    pub findings: Findings,
    pub alerts: Vec<Alert>,
}

/// Enters the untrimmed stream into the model, and returns the ids of its entries.
pub async fn enter_stream(client: &RedisClient, stream: &str, model: &mut StreamModel) -> HashSet<String> {
    let mut ids = HashSet::new();
    let mut after = "-".to_owned();
    loop {
        let mut command = redis::cmd("XRANGE");
        command.arg(stream).arg(&after).arg("+").arg("COUNT").arg(KEYS_AT_ONCE);
        let entries: Vec<(String, Vec<Vec<u8>>)> = answered("XRANGE", || client.query(&command)).await;
        for (id, words) in &entries {
            model.enter(id, words.chunks_exact(2).map(|pair| (pair[0].as_slice(), pair[1].as_slice())));
        }
        match entries.last() {
            Some((id, _)) => after = format!("({id}"),
            None => return ids,
        }
        ids.extend(entries.into_iter().map(|(id, _)| id));
    }
}

/// Compares a partition with the model of its stream. Everything must be counted and fanned out, and nobody may write
/// meanwhile.
pub async fn compare(client: &RedisClient, keys: &Keys, model: &StreamModel) -> Compared {
    let mut checker = Checker { client, keys, findings: Findings::default() };
    let stored = checker.stored().await;
    checker.findings.judge(keys, &stored, model);
    let alerts: Vec<Alert> = stored.records.into_iter().map(|(_, record)| record.alert).collect();
    checker.totals().await;
    let pending = checker.deliveries(&alerts).await;
    checker.deliveries_are_found_by_subject().await;
    checker.lives(&pending).await;
    Compared { findings: checker.findings, alerts }
}

/// Everything that commits have written to a partition.
pub async fn stored_of(client: &RedisClient, keys: &Keys) -> Stored {
    Checker { client, keys, findings: Findings::default() }.stored().await
}

/// The stored indexes of deliveries.
struct Schedule {
    /// Number of deliveries that were created and still exist.
    made: u64,
    /// Number of deliveries that wait for a contact.
    waiting: u64,
    /// The ids in each queue, by its key.
    queues: BTreeMap<String, BTreeSet<String>>,
    pending: BTreeSet<String>,
    destinations: BTreeSet<String>,
}

/// The data that commits have written to a partition.
#[derive(Debug, Default)]
pub struct Stored {
    pub instance: String,
    pub entries_read: u64,
    pub counts: Vec<(Counter, u64)>,
    /// Entry and reason.
    pub refused: Vec<(String, String)>,
    /// Field and record.
    pub records: Vec<(String, RaisedRecord)>,
    /// Key and alert.
    pub flags: HashMap<String, String>,
    /// Level and child.
    pub children: Vec<(String, String)>,
    pub counted: u64,
    pub duplicates: u64,
    pub refused_total: u64,
    pub raised: u64,
}

/// Asks again if a busy machine is too slow to reply.
async fn answered<T, F: Future<Output = RedisResult<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let mut tries = 0;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if tries == TRIES_MAX => panic!("{what}: {error}"),
            Err(_) => tries += 1,
        }
    }
}

struct Checker<'a> {
    client: &'a RedisClient,
    keys: &'a Keys,
    findings: Findings,
}

impl Checker<'_> {
    async fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        answered(words[0], || self.client.query(&command)).await
    }

    /// The names of the partition's keys of one kind, such as `quota_usage`.
    async fn names(&self, kind: &str) -> Vec<String> {
        let prefix = format!("{kind}:{{{}}}:", self.keys.stream());
        // Brackets in a pattern would need escaping; streams of tests have none.
        self.run(&["KEYS", &format!("{prefix}*")]).await
    }

    /// The replies to one command per key.
    async fn of_each<T: FromRedisValue>(&self, name: &str, keys: &[String], arguments: &[&str]) -> Vec<T> {
        let mut answers = Vec::with_capacity(keys.len());
        for some in keys.chunks(KEYS_AT_ONCE) {
            let mut pipeline = redis::pipe();
            for key in some {
                pipeline.cmd(name).arg(key).arg(arguments);
            }
            answers.extend(answered(name, || self.client.pipe::<Vec<T>>(&pipeline)).await);
        }
        answers
    }

    /// Everything that commits have written.
    async fn stored(&self) -> Stored {
        let mut counts = Vec::new();
        let names = self.names("quota_usage").await;
        let hashes: Vec<HashMap<String, u64>> = self.of_each("HGETALL", &names, &[]).await;
        for (key, hash) in names.iter().zip(hashes) {
            // The stream may have a colon in its name; what follows it has none.
            let parts: Vec<&str> = key.rsplitn(4, ':').collect();
            let counter = |subject| Counter { subject, metric: parts[2].to_owned(), period: parts[1].to_owned() };
            counts.extend(hash.into_iter().map(|(subject, units)| (counter(subject), units)));
        }
        let stream: Vec<(String, Vec<Vec<u8>>)> = self.run(&["XRANGE", &self.keys.refused(), "-", "+"]).await;
        let refused = stream.iter().map(|(_, words)| {
            // Our fields come first, then the entry's own fields with arbitrary names and bytes.
            let text = |at: usize| String::from_utf8(words[at].clone()).expect("ours is text");
            assert_eq!((text(0), text(2)), ("entry".to_owned(), "reason".to_owned()));
            (text(1), text(3))
        });
        let names = self.names("quota_raised").await;
        let hashes: Vec<HashMap<String, String>> = self.of_each("HGETALL", &names, &[]).await;
        let record = |(field, json): (String, String)| (field, serde_json::from_str(&json).expect("a record"));
        let mut flags = self.names("quota_alert").await;
        // Those of notices have the kind in place of the threshold.
        let is_of_notice = |of: &str| UsageNoticeKind::ALL.iter().any(|kind| of == kind.as_str());
        flags.retain(|flag| !flag.rsplit(':').nth(2).is_some_and(is_of_notice));
        let ids: Vec<String> = self.of_each("GET", &flags, &[]).await;
        let names = self.names("quota_children").await;
        let lists: Vec<Vec<String>> = self.of_each("ZRANGE", &names, &["0", "-1"]).await;
        let parents = names.iter().map(|name| name.trim_start_matches(&self.keys.children_prefix()).to_owned());
        let children =
            parents.zip(lists).flat_map(|(parent, names)| names.into_iter().map(move |child| (parent.clone(), child)));
        let children = children.collect();
        let totals = totals(self.client, self.keys).await.expect("the totals are read");
        let (instance, entries_read): (Option<String>, Option<u64>) =
            self.run(&["HMGET", &self.keys.checkpoint(), "instance", "entries_read"]).await;
        Stored {
            instance: instance.unwrap_or_default(),
            entries_read: entries_read.unwrap_or(0),
            counts,
            refused: refused.collect(),
            records: hashes
                .into_iter()
                .flatten()
                .filter(|(field, _)| !field.starts_with("ends:"))
                .map(record)
                .collect(),
            flags: flags.into_iter().zip(ids).collect(),
            children,
            counted: totals.counted,
            duplicates: totals.duplicates,
            refused_total: totals.refused,
            raised: totals.raised,
        }
    }

    /// I4: the sums of deliveries.
    async fn totals(&mut self) {
        let found = totals(self.client, self.keys).await.expect("the totals are read");
        let ended = found.delivered + found.dead + found.muted + found.expired + found.cancelled;
        self.findings.expect_equal("deliveries made", found.made, ended + found.pending);
        self.findings.expect_equal("alerts that are not fanned out", found.outbox, 0);
    }

    /// I4: every alert has a delivery, each delivery has its alert, and pending deliveries are scheduled. Returns the
    /// keys of the pending ones.
    async fn deliveries(&mut self, alerts: &[Alert]) -> BTreeSet<String> {
        let mut deliveries = self.stored_deliveries().await;
        let mut readings = 0;
        let schedule = loop {
            readings += 1;
            assert!(readings < READINGS_MAX, "deliveries of {} change all the time", self.keys.stream());
            let schedule = self.schedule().await;
            let before = std::mem::replace(&mut deliveries, self.stored_deliveries().await);
            // Deliveries of an hour that ended long ago end at once, possibly during the read.
            if before == deliveries {
                break schedule;
            }
        };
        let mut open: BTreeSet<&str> = alerts.iter().map(|alert| alert.id.as_str()).collect();
        let known = open.clone();
        let (mut made, mut waiting, mut pending, mut pending_keys) = (0, 0, BTreeSet::new(), BTreeSet::new());
        for (name, hash) in &deliveries {
            let [kind, alert, contact, state, channel] =
                hash.each_ref().map(|field| field.as_deref().unwrap_or_default());
            made += 1;
            if state == "pending" {
                pending.insert(name.rsplit_once(':').expect("an id").1.to_owned());
                pending_keys.insert(name.clone());
                waiting += u64::from(channel == "none");
            }
            if kind != "alert" {
                continue;
            }
            open.remove(alert);
            if !known.contains(alert) {
                self.findings.raised_twice.push(format!("{name} is of {alert}, of which there is no record"));
            }
            let id = DeliveryId::derive(&AlertId::from_stored(alert), &ContactId::from_stored(contact));
            self.findings.expect_equal("a delivery's key", name.as_str(), self.keys.delivery(&id).as_str());
        }
        self.findings.never_raised.extend(open.into_iter().map(|alert| format!("{alert} has no delivery")));
        let Schedule { made: all, waiting: indexed, queues, pending: listed, destinations } = schedule;
        self.findings.expect_equal("deliveries by creation", all, made);
        self.findings.expect_equal("deliveries that wait for a contact", indexed, waiting);
        let queued: BTreeSet<String> = queues.values().flatten().cloned().collect();
        for (schedule, ids) in [("a queue", queued), ("the list of pending ones", listed)] {
            let odd: Vec<&String> = ids.symmetric_difference(&pending).collect();
            self.findings.expect(odd.is_empty(), || format!("{schedule} or the deliveries lack {odd:?}"));
        }
        for queue in queues.keys() {
            let destination = queue.trim_start_matches(&self.keys.due_prefix()).to_owned();
            self.findings.expect(destinations.contains(&destination), || format!("nobody looks into {queue}"));
        }
        pending_keys
    }

    /// Type, alert, contact, state and channel of each delivery, by its key.
    async fn stored_deliveries(&self) -> BTreeMap<String, [Option<String>; 5]> {
        let names = self.names("quota_delivery").await;
        let fields = ["type", "alert_id", "contact_id", "state", "channel"];
        let hashes = self.of_each("HMGET", &names, &fields).await;
        names.into_iter().zip(hashes).collect()
    }

    /// Each existing delivery is listed under its subject, because an erasure looks only there.
    async fn deliveries_are_found_by_subject(&mut self) {
        let mut found = BTreeSet::new();
        for key in self.names("quota_subject_deliveries").await {
            let subject = key.trim_start_matches(&self.keys.subject_deliveries_prefix()).to_owned();
            let ids: Vec<String> = self.run(&["ZRANGE", &key, "0", "-1"]).await;
            found.extend(ids.into_iter().map(|id| (subject.clone(), id)));
        }
        let names = self.names("quota_delivery").await;
        let subjects: Vec<Option<String>> = self.of_each("HGET", &names, &["subject"]).await;
        for (name, subject) in names.iter().zip(subjects) {
            let id = name.rsplit_once(':').expect("an id").1.to_owned();
            // A delivery without a subject has expired since it was listed.
            let is_found = subject.is_none_or(|subject| found.contains(&(subject, id)));
            self.findings.expect(is_found, || format!("{name} is not found by its subject"));
        }
    }

    async fn schedule(&self) -> Schedule {
        let mut queues = BTreeMap::new();
        for queue in self.names("quota_due").await {
            let ids = self.run::<BTreeSet<String>>(&["ZRANGE", &queue, "0", "-1"]).await;
            queues.insert(queue, ids);
        }
        let mut destinations = BTreeSet::new();
        for index in [self.keys.destinations(), self.keys.destinations_unhealthy()] {
            destinations.extend(self.run::<BTreeSet<String>>(&["ZRANGE", &index, "0", "-1"]).await);
        }
        Schedule {
            made: self.run(&["ZCARD", &self.keys.deliveries()]).await,
            waiting: self.run(&["ZCARD", &self.keys.waiting()]).await,
            queues,
            pending: self.run(&["ZRANGE", &self.keys.pending(), "0", "-1"]).await,
            destinations,
        }
    }

    /// Only keys that docs/redis-keys.md names live forever; remains of a killed start expire.
    async fn lives(&mut self, pending: &BTreeSet<String>) {
        let keys = self.keys;
        let lasting = [keys.checkpoint(), keys.outbox(), keys.refused(), keys.totals(), keys.deliveries(), keys.dead()];
        let pending_only =
            [keys.destinations(), keys.destinations_unhealthy(), keys.pending(), keys.waiting(), keys.grouped()];
        // Grants of a total live as long as their subject.
        let grants = [keys.grants_due(), format!("quota_grants:{{{}}}:", keys.stream())];
        let lasting = [lasting.as_slice(), &pending_only].concat();
        let names: Vec<String> = self.run(&["KEYS", &format!("quota_*{{{}}}*", keys.stream())]).await;
        let lives: Vec<i64> = self.of_each("TTL", &names, &[]).await;
        for (name, ttl_s) in names.iter().zip(lives) {
            let is_queue = [keys.due_prefix(), keys.leased_prefix(), keys.subject_deliveries_prefix()]
                .iter()
                .any(|prefix| name.starts_with(prefix));
            let may_last = lasting.contains(name)
                || is_queue
                || grants.iter().any(|of| name.starts_with(of))
                || pending.contains(name)
                || name.starts_with(keys.subject_prefix());
            // What belongs to a total lives as long as its subject. The period follows the metric, or ends the name.
            let of_total = name.contains(":all:") && !name.contains(":silence:all:");
            let of_total = of_total || *name == keys.metrics(Period::ALL_TIME);
            self.findings.expect(!of_total || ttl_s == -1, || format!("{name} of a total has a time to live"));
            let may_last = may_last || of_total;
            // Below zero: no TTL, or the key has expired since it was listed.
            self.findings.expect(may_last || ttl_s != -1, || format!("{name} has no time to live"));
        }
    }
}

/// The threshold of an alert.
pub fn reached_of(alert: &Alert) -> Reached {
    let counter = Counter {
        subject: alert.subject.to_string(),
        metric: alert.metric.to_string(),
        period: alert.period.to_string(),
    };
    Reached { counter, due: due_at(alert.threshold) }
}

/// The threshold as the model has it.
pub fn due_at(threshold: Threshold) -> DueAt {
    match threshold {
        Threshold::Percent(percent) => DueAt::Percent(percent.get().into()),
        Threshold::Used(units) => DueAt::Used(units.get()),
        Threshold::Remaining(units) => DueAt::Remaining(units.get()),
    }
}
