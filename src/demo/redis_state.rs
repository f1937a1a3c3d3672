//! Looks at what the daemon wrote in Redis: counts, refusals, totals, raised alerts. Writes nothing but the subjects' hashes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;

use super::scenario::{INSTANCE, SimulatedSubject};
use crate::ledger::query;
use crate::outbox::{Totals, totals};
use crate::terminal::output::lossless;
use crate::types::{Alert, Keys, UnixMs, keys};
use crate::wire::RedisClient;

/// The most refusals of one look.
const REFUSALS_MAX: usize = 500;

/// `entry`, `reason` and `detail` of a refused event.
const OWN_FIELDS: usize = 3;

/// A connection that looks at the state of one stream.
#[derive(Debug)]
pub(super) struct StateReader {
    client: RedisClient,
    keys: Keys,
    /// The last refusal that was seen.
    last_refusal: String,
}

/// One refused event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RefusedEntry {
    /// Why.
    pub(super) reason: String,
    /// What exactly.
    pub(super) detail: String,
    /// The event as it was sent, `subject bob, units 1e3`.
    pub(super) event: String,
}

/// Everything at the end.
#[derive(Debug, Clone, Default)]
pub(super) struct FinalState {
    /// Units counted, in the order of the scenario.
    pub(super) counts: Vec<u64>,
    /// What was done and what is left.
    pub(super) totals: Totals,
    /// Unread entries.
    pub(super) unread: u64,
    /// Refused events by reason.
    pub(super) refused: BTreeMap<String, u64>,
    /// Alerts of the days concerned.
    pub(super) raised: Vec<Alert>,
}

/// An entry as XRANGE gives it: id, then names and values in turn.
type RawEntry = (String, Vec<Vec<u8>>);

impl StateReader {
    /// A look through this connection.
    pub(super) fn new(client: RedisClient, keys: Keys) -> Self {
        Self { client, keys, last_refusal: "-".to_owned() }
    }

    /// The server's clock.
    pub(super) async fn now(&self) -> anyhow::Result<UnixMs> {
        self.client.server_time().await.context("ask for the time")
    }

    /// Writes the subjects' hashes with plain HSET, as a platform does.
    pub(super) async fn write_subjects(&self, subjects: &[SimulatedSubject]) -> anyhow::Result<()> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("HSET").arg(self.keys.checkpoint()).arg("instance").arg(INSTANCE);
        for simulated in subjects.iter().filter(|simulated| !simulated.fields.is_empty()) {
            let command = pipeline.cmd("HSET").arg(self.keys.subject(&simulated.subject));
            for field in &simulated.fields {
                command.arg(&field.name).arg(&field.value);
            }
        }
        self.client.pipe::<()>(&pipeline).await.context("write the subjects")
    }

    /// Units counted so far, in the order of the scenario.
    pub(super) async fn counts(&self, subjects: &[SimulatedSubject]) -> anyhow::Result<Vec<u64>> {
        let mut pipeline = redis::pipe();
        for SimulatedSubject { subject, metric, day, .. } in subjects {
            let key = self.keys.usage(metric, *day, keys::bucket(subject.as_str()));
            pipeline.cmd("HGET").arg(key).arg(subject.as_str());
        }
        let counts: Vec<Option<u64>> = self.client.pipe(&pipeline).await.context("read the counts")?;
        Ok(counts.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Number of unread entries.
    pub(super) async fn unread(&self) -> anyhow::Result<u64> {
        query::lag(&self.client, &self.keys).await.context("read the lag")
    }

    /// What was done and what is left.
    pub(super) async fn totals(&self) -> anyhow::Result<Totals> {
        Ok(totals(&self.client, &self.keys).await?)
    }

    /// The refusals since the last look.
    pub(super) async fn new_refusals(&mut self) -> anyhow::Result<Vec<RefusedEntry>> {
        let entries = self.refusals(&self.last_refusal).await?;
        if let Some((id, _)) = entries.last() {
            self.last_refusal = format!("({id}");
        }
        Ok(entries.iter().map(|(_, fields)| refusal(fields)).collect())
    }

    /// Everything.
    pub(super) async fn final_state(&self, subjects: &[SimulatedSubject]) -> anyhow::Result<FinalState> {
        let mut refused = BTreeMap::new();
        let mut from = "-".to_owned();
        loop {
            let entries = self.refusals(&from).await?;
            let Some((last, _)) = entries.last() else { break };
            from = format!("({last}");
            for (_, fields) in &entries {
                *refused.entry(refusal(fields).reason).or_default() += 1;
            }
        }
        let days: BTreeSet<_> = subjects.iter().map(|simulated| simulated.day).collect();
        let mut raised = Vec::new();
        for day in days {
            raised.extend(query::alerts(&self.client, &self.keys, &[day.into()]).await.context("read the alerts")?);
        }
        Ok(FinalState {
            counts: self.counts(subjects).await?,
            totals: self.totals().await?,
            unread: self.unread().await?,
            refused,
            raised,
        })
    }

    async fn refusals(&self, from: &str) -> anyhow::Result<Vec<RawEntry>> {
        let mut command = redis::cmd("XRANGE");
        command.arg(self.keys.refused()).arg(from).arg("+").arg("COUNT").arg(REFUSALS_MAX);
        self.client.query(&command).await.context("read the refused events")
    }
}

fn refusal(fields: &[Vec<u8>]) -> RefusedEntry {
    let value = |name: &str| {
        let mut pairs = fields.chunks_exact(2);
        let found = pairs.find(|pair| pair[0] == name.as_bytes()).map(|pair| pair[1].as_slice());
        String::from_utf8_lossy(found.unwrap_or_default()).into_owned()
    };
    // Our own fields stand first, the event's behind them.
    let shown = |pair: &[Vec<u8>]| match pair[1].as_slice() {
        b"" => format!("{} \"\"", lossless(&pair[0])),
        text => format!("{} {}", lossless(&pair[0]), lossless(text)),
    };
    let event: Vec<String> = fields.chunks_exact(2).skip(OWN_FIELDS).map(shown).collect();
    RefusedEntry { reason: value("reason"), detail: value("detail"), event: event.join(", ") }
}
