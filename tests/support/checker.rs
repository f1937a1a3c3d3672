//! Compares everything that Redis holds of a partition with the plain model of its stream: counters of every window, refused events,
//! totals, records, flags, the outbox and the deliveries. Everything must have been counted and fanned out, and limits must not have
//! changed.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::{Debug, Display};

use quotabell::outbox::totals;
use quotabell::types::{Alert, AlertId, ContactId, DeliveryId, Instance, Keys, RaisedRecord};
use quotabell::wire::RedisClient;
use redis::FromRedisValue;

use super::stream_model::{Counter, Reached, StreamModel};

/// So many keys are asked for at once.
const KEYS_AT_ONCE: usize = 1_000;

/// What differs, in words; empty where all is well.
#[derive(Debug, Default)]
pub struct Findings {
    /// Events that are in the stream and not in the counts, or neither counted nor refused.
    pub lost: Vec<String>,
    /// Events that are in the counts more than once, or both counted and refused.
    pub doubled: Vec<String>,
    pub raised_twice: Vec<String>,
    /// Thresholds that were reached without an alert, and alerts that nobody is told of.
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

    /// Fails with what differs.
    pub fn expect_none(&self) {
        assert!(self.is_clean(), "{}", self.all().map(String::as_str).collect::<Vec<_>>().join("\n"));
    }

    /// Takes those of another partition.
    pub fn extend(&mut self, other: Self) {
        self.lost.extend(other.lost);
        self.doubled.extend(other.doubled);
        self.raised_twice.extend(other.raised_twice);
        self.never_raised.extend(other.never_raised);
        self.other.extend(other.other);
    }
}

/// What a comparison found, and the alerts that were raised.
#[derive(Debug, Default)]
pub struct Compared {
    pub findings: Findings,
    pub alerts: Vec<Alert>,
}

/// Enters the stream as it is, of which nothing was trimmed, and gives the ids of its entries.
pub async fn enter_stream(client: &RedisClient, stream: &str, model: &mut StreamModel) -> HashSet<String> {
    let mut ids = HashSet::new();
    let mut after = "-".to_owned();
    loop {
        let mut command = redis::cmd("XRANGE");
        command.arg(stream).arg(&after).arg("+").arg("COUNT").arg(10_000);
        let entries: Vec<(String, Vec<Vec<u8>>)> = client.query(&command).await.expect("the stream is read");
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

/// Compares a partition with the model of its stream. Nothing may be uncounted or in the outbox, and nobody may write meanwhile.
pub async fn compare(client: &RedisClient, keys: &Keys, model: &StreamModel) -> Compared {
    let mut checker = Checker { client, keys, findings: Findings::default() };
    checker.counts(model).await;
    checker.refused(model).await;
    checker.totals(model).await;
    let alerts = checker.alerts(model).await;
    checker.flags(&alerts).await;
    let pending = checker.deliveries(&alerts).await;
    checker.lives(&pending).await;
    Compared { findings: checker.findings, alerts }
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
        self.client.query(&command).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The names of the partition's keys of one kind, as `quota_usage`.
    async fn names(&self, kind: &str) -> Vec<String> {
        let prefix = format!("{kind}:{{{}}}:", self.keys.stream());
        // Brackets in a pattern stand for themselves only in brackets; the stream of a test has none.
        self.run(&["KEYS", &format!("{prefix}*")]).await
    }

    /// The answers to one command a key.
    async fn of_each<T: FromRedisValue>(&self, name: &str, keys: &[String], arguments: &[&str]) -> Vec<T> {
        let mut answers = Vec::with_capacity(keys.len());
        for some in keys.chunks(KEYS_AT_ONCE) {
            let mut pipeline = redis::pipe();
            for key in some {
                pipeline.cmd(name).arg(key).arg(arguments);
            }
            answers.extend(self.client.pipe::<Vec<T>>(&pipeline).await.expect("redis answers"));
        }
        answers
    }

    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.findings.other.push(what());
        }
    }

    fn expect_equal<T: PartialEq + Debug>(&mut self, what: impl Display, found: T, expected: T) {
        self.expect(found == expected, || format!("{what}: {found:?}, expected {expected:?}"));
    }

    /// I1: the counters.
    async fn counts(&mut self, model: &StreamModel) {
        let mut counts: BTreeMap<Counter, u64> = BTreeMap::new();
        let names = self.names("quota_usage").await;
        let hashes: Vec<HashMap<String, u64>> = self.of_each("HGETALL", &names, &[]).await;
        for (key, hash) in names.iter().zip(hashes) {
            // The stream may have a colon in its name; what follows it has none.
            let parts: Vec<&str> = key.rsplitn(4, ':').collect();
            for (subject, units) in hash {
                let counter = Counter { subject, metric: parts[2].to_owned(), period: parts[1].to_owned() };
                let other = counts.insert(counter.clone(), units);
                self.expect(other.is_none(), || format!("{counter:?} lies in two buckets"));
            }
        }
        for counter in counts.keys().chain(model.counts.keys()).collect::<BTreeSet<_>>() {
            let of = |counts: &BTreeMap<Counter, u64>| counts.get(counter).copied().unwrap_or(0);
            let (found, expected) = (of(&counts), of(&model.counts));
            let told = format!("{counter:?}: {found} units, expected {expected}");
            match found.cmp(&expected) {
                std::cmp::Ordering::Less => self.findings.lost.push(told),
                std::cmp::Ordering::Greater => self.findings.doubled.push(told),
                // A credit leaves a counter of zero, and so does what was never counted.
                std::cmp::Ordering::Equal => {}
            }
        }
    }

    /// I1, I8: what was refused, with its reason, once.
    async fn refused(&mut self, model: &StreamModel) {
        let stream: Vec<(String, Vec<Vec<u8>>)> = self.run(&["XRANGE", &self.keys.refused(), "-", "+"]).await;
        let mut refused = BTreeMap::new();
        for (_, words) in &stream {
            // Ours come first; the entry's own fields, which may bear any name and hold any bytes, follow.
            let text = |at: usize| String::from_utf8(words[at].clone()).expect("ours is text");
            self.expect_equal(
                "names of a refused event",
                (text(0), text(2)),
                ("entry".to_owned(), "reason".to_owned()),
            );
            let (id, reason) = (text(1), text(3));
            let expected = model.refused.get(&id).copied();
            if refused.insert(id.clone(), ()).is_some() {
                self.findings.doubled.push(format!("{id} is refused twice"));
            } else if expected.is_none() {
                self.findings.doubled.push(format!("{id} is refused as {reason}, and it is good"));
            } else {
                self.expect_equal(format!("the reason of {id}"), Some(reason.as_str()), expected);
            }
        }
        let missing = model.refused.iter().filter(|(id, _)| !refused.contains_key(*id));
        self.findings.lost.extend(missing.map(|(id, reason)| format!("{id} is not refused as {reason}")));
    }

    /// I1, I4: the sums of what happened, and how far the stream was read.
    async fn totals(&mut self, model: &StreamModel) {
        let found = totals(self.client, self.keys).await.expect("the totals are read");
        let expected = (model.counted, model.duplicates, model.refused.len() as u64);
        self.expect_equal("counted, duplicates, refused", (found.counted, found.duplicates, found.refused), expected);
        let ended = found.delivered + found.dead + found.muted + found.expired + found.cancelled;
        self.expect_equal("deliveries made", found.made, ended + found.pending);
        self.expect_equal("alerts that are not fanned out", found.outbox, 0);
        let read: Option<u64> = self.run(&["HGET", &self.keys.checkpoint(), "entries_read"]).await;
        self.expect_equal("entries read", read.unwrap_or(0), model.entries);
    }

    /// I3: records name exactly the thresholds that were reached.
    async fn alerts(&mut self, model: &StreamModel) -> Vec<Alert> {
        let names = self.names("quota_raised").await;
        let hashes: Vec<HashMap<String, String>> = self.of_each("HGETALL", &names, &[]).await;
        let instance: Option<String> = self.run(&["HGET", &self.keys.checkpoint(), "instance"]).await;
        let instance = Instance::from_stored(&instance.unwrap_or_default());
        let (limits, mut alerts) = (model.reached(), Vec::new());
        let mut raised = BTreeSet::new();
        for (field, json) in hashes.into_iter().flatten() {
            let record: RaisedRecord = serde_json::from_str(&json).expect("a record");
            let RaisedRecord { alert, earlier } = record;
            self.expect_equal("a record's field", field, format!("{}:{}", alert.threshold_percent, alert.subject));
            let reached = reached_of(&alert);
            if !earlier.is_empty() || !raised.insert(reached.clone()) {
                self.findings.raised_twice.push(format!("{alert:?} after {earlier:?}"));
            }
            match limits.get(&reached) {
                None => self.findings.other.push(format!("{reached:?} is raised and was not reached")),
                Some(limit) => {
                    let least = (u128::from(*limit) * u128::from(reached.percent)).div_ceil(100);
                    let is_right = alert.limit == *limit
                        && u128::from(alert.used) >= least
                        && alert.used <= model.peak(&reached.counter)
                        && alert.id == AlertId::of(&instance, &alert.key());
                    self.expect(is_right, || format!("{alert:?}: the limit is {limit}, of which {least} are reached"));
                }
            }
            alerts.push(alert);
        }
        let missing = limits.keys().filter(|reached| !raised.contains(*reached));
        self.findings.never_raised.extend(missing.map(|reached| format!("{reached:?} is not raised")));
        let total = totals(self.client, self.keys).await.expect("the totals are read").raised;
        match total.cmp(&(alerts.len() as u64)) {
            std::cmp::Ordering::Less => self.findings.never_raised.push(format!("{total} alerts of {}", alerts.len())),
            std::cmp::Ordering::Greater => {
                self.findings.raised_twice.push(format!("{total} alerts, and records of {}", alerts.len()));
            }
            std::cmp::Ordering::Equal => {}
        }
        alerts
    }

    /// I2: no flag without its alert, and no alert without its flag.
    async fn flags(&mut self, alerts: &[Alert]) {
        let expected: Vec<String> = alerts.iter().map(|alert| self.keys.flag(&alert.key())).collect();
        let ids: Vec<Option<String>> = self.of_each("GET", &expected, &[]).await;
        for (alert, id) in alerts.iter().zip(ids) {
            self.expect_equal("the flag's alert", id.as_deref(), Some(alert.id.as_str()));
        }
        let expected: BTreeSet<String> = expected.into_iter().collect();
        let found = self.names("quota_alert").await;
        let lonely = found.into_iter().filter(|flag| !expected.contains(flag));
        self.findings.never_raised.extend(lonely.map(|flag| format!("{flag} is claimed, and there is no alert")));
    }

    /// I4: every alert has a delivery, each delivery has its alert, and what is pending is in the schedule.
    /// Gives the keys of those that are pending.
    async fn deliveries(&mut self, alerts: &[Alert]) -> BTreeSet<String> {
        let names = self.names("quota_delivery").await;
        let fields = ["type", "alert_id", "contact_id", "state", "channel"];
        let hashes: Vec<[Option<String>; 5]> = self.of_each("HMGET", &names, &fields).await;
        let mut open: BTreeSet<&str> = alerts.iter().map(|alert| alert.id.as_str()).collect();
        let known = open.clone();
        let (mut made, mut waiting, mut pending, mut pending_keys) = (0, 0, BTreeSet::new(), BTreeSet::new());
        for (name, hash) in names.iter().zip(&hashes) {
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
            let id = DeliveryId::of(&AlertId::from_stored(alert), &ContactId::from_stored(contact));
            self.expect_equal("a delivery's key", name.as_str(), self.keys.delivery(&id).as_str());
        }
        self.findings.never_raised.extend(open.into_iter().map(|alert| format!("{alert} has no delivery")));
        let all = self.run::<u64>(&["ZCARD", &self.keys.deliveries()]).await;
        self.expect_equal("deliveries by creation", all, made);
        let indexed = self.run::<u64>(&["ZCARD", &self.keys.waiting()]).await;
        self.expect_equal("deliveries that wait for a contact", indexed, waiting);
        for schedule in [self.keys.due(), self.keys.pending()] {
            let ids: BTreeSet<String> = self.run(&["ZRANGE", &schedule, "0", "-1"]).await;
            let odd: Vec<&String> = ids.symmetric_difference(&pending).collect();
            self.expect(odd.is_empty(), || format!("{schedule} or the deliveries lack {odd:?}"));
        }
        pending_keys
    }

    /// Only the keys that docs/redis-keys.md names live for ever; what a killed start has left behind goes by itself.
    async fn lives(&mut self, pending: &BTreeSet<String>) {
        let keys = self.keys;
        let lasting = [keys.checkpoint(), keys.outbox(), keys.refused(), keys.totals(), keys.deliveries(), keys.dead()];
        let lasting = [lasting.as_slice(), &[keys.due(), keys.pending(), keys.waiting()]].concat();
        let names: Vec<String> = self.run(&["KEYS", &format!("quota_*{{{}}}*", keys.stream())]).await;
        let lives: Vec<i64> = self.of_each("TTL", &names, &[]).await;
        for (name, ttl_s) in names.iter().zip(lives) {
            let may_last = lasting.contains(name) || pending.contains(name) || name.starts_with(keys.subject_prefix());
            // Below zero: no time to live, or gone since it was listed.
            self.expect(may_last || ttl_s != -1, || format!("{name} has no time to live"));
        }
    }
}

/// Which threshold an alert is of.
pub fn reached_of(alert: &Alert) -> Reached {
    let counter = Counter {
        subject: alert.subject.to_string(),
        metric: alert.metric.to_string(),
        period: alert.period.to_string(),
    };
    Reached { counter, percent: alert.threshold_percent.get().into() }
}
