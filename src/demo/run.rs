//! The course of a demonstration: traffic, a kill, arriving alerts, refused events, a drain.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::HumanCount;
use tokio::time::{interval, timeout};

use super::compare::{Comparison, ObservedRun, compare};
use super::daemon::{self, Daemon};
use super::environment::DemoEnvironment;
use super::expected::SimulatedAlert;
use super::received::{AlertNumbers, FAILURES, LocalReceivers, ReceivedAttempt};
use super::scenario::{self, Hold, HoldName, SECOND_GRANT, Scenario, SimulatedSubject, SubjectUse};
use super::screen::Screen;
use crate::console::config::OFF;
use crate::ledger::query;
use crate::outbox::{Totals, totals};
use crate::redis_client::{Partition, Partitions, RedisEndpoint};
use crate::terminal::table::Color;
use crate::types::keys::{self, SUBJECT_PREFIX_DEFAULT};
use crate::types::{Alert, Keys, PartitionNumber, Percent, Period, Separator};
use crate::views::refused;

/// The stream's name, as in the defaults.
const STREAM: &str = "usage";
/// Maximum time until the summary; the daemon needs some seconds more if it does not drain.
const WITHIN: Duration = Duration::from_secs(50);
/// Share of the traffic before the kill, in percent.
const KILL_AT_PERCENT: u64 = 45;
/// Interval between two reads of the counts.
const LOOK_EVERY: Duration = Duration::from_millis(120);

pub(super) struct DemoTraffic {
    pub(super) duration: Duration,
    /// Number of streams.
    pub(super) partitions: u32,
}

/// Sends the traffic, kills the daemon meanwhile, and compares expected and observed numbers. Returns the receivers
/// too: they receive until they are dropped.
pub(super) async fn run(
    environment: &mut DemoEnvironment,
    screen: &Screen,
    DemoTraffic { duration, partitions: count }: DemoTraffic,
) -> anyhow::Result<(Vec<Comparison>, LocalReceivers)> {
    let receivers = LocalReceivers::start().await.context("start the receivers of mail and webhooks")?;
    let (folder, redis) = (environment.folder.path.as_path(), &environment.redis);
    let keys = Keys::of_partition(STREAM, PartitionNumber::first(count)).with_separator(scenario::separator());
    let partitions = Partitions::new(&RedisEndpoint::of_node(redis.node().clone()).client(keys.stream())?, &keys);
    let now = partitions.first().client.server_time().await.context("ask for the time")?;
    let (steady, flaky) = (receivers.steady.url(""), receivers.flaky.url(""));
    let file = scenario::FILE.replace("{steady}", &steady).replace("{flaky}", &flaky);
    let scenario = Scenario::parse(&file, now)?;
    let written = scenario.write_subjects(&partitions).await?;
    scenario.add_grants(&partitions).await?;
    daemon::configure(folder, redis.node(), count, &receivers.mail.url())?;

    screen.set_up("folder", folder.display())?;
    let (version, port, pid) = (&redis.info().version, redis.port(), redis.pid());
    screen.set_up("redis", format_args!("{version} on 127.0.0.1:{port} (pid {pid})"))?;
    screen.set_up("mail", format_args!("{} takes mail", receivers.mail.url()))?;
    screen.set_up("webhooks", format_args!("{steady} checks signatures"))?;
    screen.set_up("", format_args!("{flaky}/frank fails {FAILURES} times first"))?;
    let hset = format!("HSET {SUBJECT_PREFIX_DEFAULT}alice plan free ...");
    screen.set_up("subjects", format_args!("{written} by {hset}, one without contacts"))?;
    let daemon = environment.daemon.insert(Daemon::start(folder, "daemon-1.log", None, OFF)?);
    let address = daemon.ready().await?;
    screen.set_up("daemon", format_args!("quotabell run (pid {}), http://{address}/metrics", daemon.pid))?;
    let (events, seconds) = (HumanCount(scenario.events()), duration.as_secs());
    let stream = PartitionNumber::of_subject(b"alice", Separator::NONE, count).stream(STREAM);
    screen
        .set_up("traffic", format_args!("{events} usage events in {seconds} s: XADD {stream} * subject alice ...\n"))?;

    let (sent, seen) = (Cell::new(0), ObservedRun::default());
    let allowed = Cell::new(scenario.held_at(&BTreeSet::new()));
    let (scenario, partitions) = (&scenario, &partitions);
    let refused_said = BTreeSet::new();
    let mut run = Run {
        screen,
        folder,
        scenario,
        partitions,
        address,
        receivers,
        sent: &sent,
        seen,
        refused_said,
        allowed: &allowed,
        holds_over: BTreeSet::new(),
    };
    let all = async { tokio::try_join!(scenario.send(partitions, duration, &sent, &allowed), run.follow(daemon)) };
    match timeout(WITHIN.saturating_sub(screen.elapsed()), all).await {
        Ok(done) => drop(done?),
        // The summary shows what is missing.
        Err(_) => screen.say(Color::Red, "failed", "not everything was done in time")?,
    }
    run.seen.ended = daemon.drain().await?;
    while let Ok(arrivals) = timeout(Duration::ZERO, run.receivers.next(&scenario.subjects)).await {
        run.take(arrivals)?;
    }
    screen.say(Color::Gray, "daemon", format_args!("drained after SIGTERM, {}", run.seen.ended))?;
    run.look().await?;
    let expected = scenario.subjects.iter().flat_map(SimulatedSubject::raised);
    let periods: BTreeSet<Period> = expected.map(|expected| expected.period).collect();
    let periods: Vec<Period> = periods.into_iter().collect();
    for partition in partitions.iter() {
        let now = partition.client.server_time().await.context("ask for the time")?;
        let alerts = query::alerts(partition, &periods, now).await.context("read the alerts")?;
        run.seen.raised.extend(alerts.into_iter().map(|alert| {
            let Alert { id, threshold, used, limit, .. } = alert;
            // The plans of the demonstration have percentages alone.
            (id, AlertNumbers { percent: threshold.percent().map_or(0, Percent::get), used, limit })
        }));
    }
    Ok((compare(scenario, &run.seen), run.receivers))
}

/// A running demonstration.
struct Run<'a> {
    screen: &'a Screen,
    folder: &'a Path,
    scenario: &'a Scenario,
    partitions: &'a Partitions,
    /// Address of the first daemon.
    address: SocketAddr,
    receivers: LocalReceivers,
    sent: &'a Cell<u64>,
    seen: ObservedRun,
    /// Stream and entry of the refused events that were already printed.
    refused_said: BTreeSet<(String, String)>,
    /// Number of events that may be sent so far.
    allowed: &'a Cell<u64>,
    /// The holds that are over.
    holds_over: BTreeSet<HoldName>,
}

impl Run<'_> {
    /// Prints events, kills the daemon and starts another one during the traffic, and ends when everything was sent,
    /// read, counted and delivered. The caller limits the time.
    async fn follow(&mut self, daemon: &mut Daemon) -> anyhow::Result<()> {
        let kill_after = self.scenario.events() * KILL_AT_PERCENT / 100;
        let mut looks = interval(LOOK_EVERY);
        loop {
            tokio::select! {
                arrivals = self.receivers.next(&self.scenario.subjects) => self.take(arrivals)?,
                _ = looks.tick() => {
                    daemon.check_running()?;
                    self.end_holds().await?;
                    if self.seen.taken_over.is_none() && self.sent.get() >= kill_after {
                        self.replace(daemon).await?;
                    }
                    let all_sent = self.sent.get() == self.scenario.events();
                    self.look().await?;
                    let ObservedRun { unread, totals, taken_over, .. } = &self.seen;
                    if all_sent && taken_over.is_some() && *unread == 0 && totals.outbox == 0 && totals.pending == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Ends the holds whose alert has arrived, and changes the limits of their subjects.
    async fn end_holds(&mut self) -> anyhow::Result<()> {
        if self.sent.get() < self.allowed.get() {
            return Ok(());
        }
        for (name, SimulatedSubject { uses, alerts, .. }, Hold { after, fields, grant, .. }) in self.scenario.holds() {
            let mut arrived = self.seen.arrivals.iter().map(|arrival| &arrival.alert);
            let is_told = arrived.any(|id| alerts.iter().any(|alert| alert.what == *after && alert.id == *id));
            if !is_told || !self.holds_over.insert(name) {
                continue;
            }
            let done = match grant {
                None if fields.is_empty() => continue,
                Some(units) => {
                    scenario::add_grant(self.partitions, uses, *units, SECOND_GRANT).await?;
                    let SubjectUse { subject, metric, .. } = uses;
                    format!("quotabell grant add {subject} {units} --metric {metric} --id {SECOND_GRANT}")
                }
                None => {
                    let Partition { client, keys } = self.partitions.first();
                    let key = keys.subject(&uses.subject);
                    let set = redis::cmd("HSET").arg(&key).arg(fields).to_owned();
                    let () = client.query(&set).await.with_context(|| format!("write {key}"))?;
                    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name} {value}")).collect();
                    format!("HSET {key} {}", fields.join(" "))
                }
            };
            self.screen.say(Color::Gray, "upgrade", format_args!("{} buys more: {done}", uses.subject))?;
        }
        self.allowed.set(self.scenario.held_at(&self.holds_over));
        Ok(())
    }

    /// Kills the daemon and starts another one.
    async fn replace(&mut self, daemon: &mut Daemon) -> anyhow::Result<()> {
        let pid = daemon.pid;
        daemon.kill().await?;
        let sent = events(self.sent.get());
        self.screen.say(Color::Red, "kill -9", format_args!("the daemon (pid {pid}) is dead after {sent}"))?;
        *daemon = Daemon::start(self.folder, "daemon-2.log", Some(self.address), OFF)?;
        let unread = HumanCount(unread(self.partitions).await?);
        daemon.ready().await?;
        self.seen.taken_over = Some(Instant::now());
        let pid = daemon.pid;
        let what = format_args!("another (pid {pid}) continues with what is in Redis, {unread} unread");
        self.screen.say(Color::Gray, "daemon", what)
    }

    /// Reads the daemon's results from Redis and prints new ones.
    async fn look(&mut self) -> anyhow::Result<()> {
        let Self { partitions, screen, seen, refused_said, .. } = self;
        // In this order: a sent event is unread or counted, and a counted event has its alert in the outbox or as a
        // delivery. In the reverse order something could be missed between two reads.
        seen.unread = unread(partitions).await?;
        let mut pipeline = redis::pipe();
        for SimulatedSubject { uses, day, .. } in &self.scenario.subjects {
            let subject = uses.subject.as_str();
            let Partition { keys, .. } = partitions.partition_of(&uses.subject);
            pipeline.hget(keys.usage(&uses.metric, *day, keys::bucket(subject)), subject);
        }
        let counts: Vec<Option<u64>> = partitions.first().client.pipe(&pipeline).await.context("read the counts")?;
        seen.counts = counts.into_iter().map(Option::unwrap_or_default).collect();
        seen.refused.clear();
        for event in refused::newest(partitions, None, usize::MAX).await.context("read the refused events")? {
            seen.refused.push(event.reason.clone());
            if !refused_said.insert((event.stream, event.entry)) {
                continue;
            }
            let fields: Vec<String> = event.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let what = format_args!("{:16}  {}: {}", event.reason, fields.join(" "), event.detail);
            screen.say(Color::Yellow, "refused", what)?;
        }
        seen.totals = Totals::default();
        for Partition { client, keys } in partitions.iter() {
            seen.totals.add(&totals(client, keys).await?);
        }
        Ok(())
    }

    /// Prints the attempts that reached a receiver in one message.
    fn take(&mut self, arrivals: Vec<ReceivedAttempt>) -> anyhow::Result<()> {
        arrivals.into_iter().try_for_each(|arrival| self.take_one(arrival))
    }

    fn take_one(&mut self, arrival: ReceivedAttempt) -> anyhow::Result<()> {
        let before = self.seen.arrivals.iter();
        let attempt = 1 + before.filter(|one| (&one.alert, &one.contact) == (&arrival.alert, &arrival.contact)).count();
        let all = self.scenario.subjects.iter();
        let mut all = all.flat_map(|one| one.alerts.iter().map(|alert| (one.uses.subject.as_str(), alert)));
        let found = all.find(|(_, expected)| expected.id == arrival.alert);
        let (subject, what) = found.map_or(("nobody", ""), |(subject, SimulatedAlert { what, .. })| (subject, what));
        let what = what.split(" of ").next().unwrap_or_default();
        let AlertNumbers { used, limit, .. } = arrival.numbers;
        let whose = format!("{:7}  {subject:11} {what:>8}", arrival.channel.as_str());
        if arrival.is_accepted() {
            let judged = arrival.problem.as_ref().map_or(arrival.sound.clone(), |problem| format!("WRONG: {problem}"));
            let judged = judged + &arrival.told.to_string();
            let again = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
            let what = format!("{whose}  {} of {}, {judged}{again}", HumanCount(used), HumanCount(limit));
            self.screen.say(Color::Green, "alert", what)?;
        } else {
            let what = format!("{whose}  receiver answered {}, attempt {attempt}", arrival.status);
            self.screen.say(Color::Yellow, "failed", what)?;
        }
        self.seen.arrivals.push(arrival);
        Ok(())
    }
}

/// Number of uncounted events in all streams.
async fn unread(partitions: &Partitions) -> anyhow::Result<u64> {
    let mut unread = 0;
    for Partition { client, keys } in partitions.iter() {
        unread += query::lag(client, keys).await.context("read the lag")?;
    }
    Ok(unread)
}

fn events(number: u64) -> String {
    let noun = if number == 1 { "event" } else { "events" };
    format!("{} {noun}", HumanCount(number))
}
