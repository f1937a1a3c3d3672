//! The streams of several partitions, and the plain map of their expected counts.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::collections::{BTreeMap, BTreeSet};

use quotabell::outbox::totals;
use quotabell::redis_client::{Partition, Partitions, RedisClient, RedisConfig, RedisEndpoint};
use quotabell::types::{Day, Keys, Metric, PartitionNumber, Separator, Subject, UnixMs, keys};

use super::daemon::DaemonSetup;
use super::eventually::eventually;

/// Daily limit of each subject, with thresholds at 80 and 100 percent.
pub const LIMIT: u64 = 40;

/// Partitions of one deployment, and the events sent to them.
#[derive(Clone)]
pub struct Streams {
    pub partitions: Partitions,
    url: String,
    /// The time of every event, so that a midnight changes no count.
    at: UnixMs,
    /// Units of each subject, and of each level above it if subjects are paths.
    sent: BTreeMap<Subject, u64>,
    events: u64,
    /// Number of alerts of other limits than the daily ones.
    others: u64,
}

impl Streams {
    /// `count` partitions on the deployment of this URL.
    pub async fn on(url: &str, count: u32) -> Self {
        Self::with_separator(url, count, Separator::NONE).await
    }

    /// The same for subjects that are paths with slashes. Each level has the same limit.
    pub async fn of_trees(url: &str, count: u32) -> Self {
        Self::with_separator(url, count, "/".parse().expect("a separator")).await
    }

    async fn with_separator(url: &str, count: u32, separator: Separator) -> Self {
        let config =
            RedisConfig { url: url.into(), url_file: None, data_dir: "unused".into(), embedded_port: 1, ca_file: None };
        let endpoint = RedisEndpoint::from_config(&config).expect("a good URL");
        let keys = Keys::of_partition("usage", PartitionNumber::first(count)).with_separator(separator);
        let client: RedisClient = endpoint.client(keys.stream()).expect("a client");
        let partitions = Partitions::new(&client, &keys);
        let at = partitions.first().client.server_time().await.expect("it tells the time");
        Self { partitions, url: url.to_owned(), at, sent: BTreeMap::new(), events: 0, others: 0 }
    }

    /// The same events after they were moved to another deployment and number of partitions.
    pub async fn moved_to(&self, url: &str, count: u32) -> Self {
        let moved = Self::with_separator(url, count, self.partitions.first().keys.separator()).await;
        Self { at: self.at, sent: self.sent.clone(), events: self.events, others: self.others, ..moved }
    }

    /// Expects one more alert than those of the daily limits, and the entry that had it judged.
    pub fn expect_judged_alert(&mut self) {
        self.others += 1;
        self.events += 1;
    }

    /// A daemon that reads them.
    pub fn daemon(&self) -> DaemonSetup {
        let separator = self.partitions.first().keys.separator();
        let levels = if separator.is_none() { "[]" } else { r#"["free","free","free"]"# };
        DaemonSetup::on(&self.url)
            .env("QUOTABELL__SUBJECTS__SEPARATOR", &separator.to_string())
            .env("QUOTABELL__SUBJECTS__DEFAULT_PLANS", levels)
            .env("QUOTABELL__STREAM__PARTITIONS", &self.partitions.count().to_string())
            .env("QUOTABELL__PLANS__FREE__LIMITS", &format!(r#"{{"requests":{LIMIT}}}"#))
    }

    /// The day of every event.
    pub fn day(&self) -> Day {
        Day::in_utc(self.at).expect("a day")
    }

    /// Appends one event to the stream of each of these subjects, as a producer does, and adds it to the map.
    pub async fn send(&mut self, subjects: impl Iterator<Item = String>) {
        self.append(subjects, None).await;
    }

    /// As [`Self::send`], with event ids: the same id for the same position in the same `batch`.
    pub async fn send_with_ids(&mut self, subjects: impl Iterator<Item = String>, batch: u32) {
        self.append(subjects, Some(batch)).await;
    }

    async fn append(&mut self, subjects: impl Iterator<Item = String>, ids_of: Option<u32>) {
        let mut pipeline = redis::pipe();
        for (at, subject) in subjects.enumerate() {
            let subject: Subject = subject.parse().expect("a legal subject");
            let stream = self.partitions.partition_of(&subject).keys.stream().to_owned();
            let event =
                pipeline.cmd("XADD").arg(stream).arg("*").arg("subject").arg(subject.as_str()).arg("ts").arg(self.at.0);
            if let Some(batch) = ids_of {
                event.arg("id").arg(format!("{batch}/{at}"));
            }
            let above = self.partitions.first().keys.separator().ancestors(&subject);
            for level in above.into_iter().chain([subject]) {
                *self.sent.entry(level).or_default() += 1;
            }
            self.events += 1;
        }
        let _: Vec<String> = self.partitions.first().client.pipe(&pipeline).await.expect("appended");
    }

    /// Waits until everything is counted; checks every count against the map, and that every alert was raised once.
    pub async fn agree(&self) {
        let sent = self.events;
        let raised = |used: u64| [80, 100].iter().filter(|percent| used * 100 >= LIMIT * **percent).count() as u64;
        let reached: u64 = self.sent.values().map(|used| raised(*used)).sum::<u64>() + self.others;
        eventually("everything is counted, and every alert has its delivery", || async {
            let (mut counted, mut alerts, mut made) = (0, 0, 0);
            for Partition { client, keys } in self.partitions.iter() {
                let totals = totals(client, keys).await.ok()?;
                assert_eq!((totals.refused, totals.duplicates), (0, 0), "{}", keys.stream());
                (counted, alerts, made) = (counted + totals.counted, alerts + totals.raised, made + totals.made);
            }
            assert!(counted <= sent && alerts <= reached && made <= reached, "{counted} {alerts} {made}");
            ((counted, alerts, made) == (sent, reached, reached)).then_some(())
        })
        .await;
        let day = self.day();
        for (subject, used) in &self.sent {
            let Partition { client, keys } = self.partitions.partition_of(subject);
            let key = keys.usage(&Metric::default(), day, keys::bucket(subject.as_str()));
            let count: Option<u64> =
                client.query(redis::cmd("HGET").arg(key).arg(subject.as_str())).await.expect("answered");
            assert_eq!(count, Some(*used), "{subject}");
        }
    }

    /// The holder of each partition's lease; `None` if one has no holder.
    pub async fn holders(&self) -> Option<Vec<String>> {
        let mut holders = Vec::new();
        for Partition { client, keys } in self.partitions.iter() {
            let holder: Option<String> = client.query(redis::cmd("GET").arg(keys.lease())).await.ok()?;
            holders.push(holder?);
        }
        Some(holders)
    }

    /// Waits until this number of daemons reads equal shares, without those in `gone`. Returns the readers.
    pub async fn are_shared_by(&self, daemons: usize, gone: &BTreeSet<String>) -> BTreeSet<String> {
        let count = self.partitions.count() as usize;
        eventually("every daemon reads its share", || async {
            let holders = self.holders().await?;
            let readers: BTreeSet<String> = holders.iter().cloned().collect();
            let share = |reader: &String| holders.iter().filter(|holder| *holder == reader).count();
            let is_even =
                readers.iter().all(|reader| [count / daemons, count.div_ceil(daemons)].contains(&share(reader)));
            (readers.len() == daemons && is_even && readers.is_disjoint(gone)).then_some(readers)
        })
        .await
    }
}
