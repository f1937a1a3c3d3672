//! A client that has subjects use so much that a forecast or a spike is due, or nothing at all, and makes hourly passes
//! as a daemon does that lost its lease and does not know.

use std::collections::BTreeMap;
use std::time::Duration;

use quotabell::evaluation::HourlyPass;
use quotabell::forecast::silence::DAYS_BEFORE;
use quotabell::ledger::usage_profiles::{self, PassMark};
use quotabell::redis_client::{Partition, Partitions};
use quotabell::subjects::Plans;
use quotabell::subjects::config::PlanConfig;
use quotabell::types::{Day, DaySpan, Metric, ResolvedNotice, Subject, UnixMs, UsageNotice, UsageNoticeKind, keys};
use quotabell::zones::Zone;
use redis::RedisResult;
use tokio_util::sync::CancellationToken;

use crate::support::checker::Findings;
use crate::support::eventually::eventually;
use crate::support::raised_notices::{entries_beside_alerts, raised};
use crate::support::stream_model::{Customer, Limit};
use crate::support::usual_usage::{store_past, usual_until};
use crate::trial::Background;

/// What every plan asks for.
pub const FORECAST: &str = r#"{"windows":["day"]}"#;
pub const SPIKE: &str = "2";
pub const SILENCE: &str = "1d";
/// The last day with usage of silent subjects, in days before today: other subjects use nothing on this day.
const SILENT_DAYS: u64 = 3;
/// Longer than any silence, ms.
const BUSY_MS: i64 = 30 * 86_400_000;
/// Number of subjects.
const SUBJECTS: usize = 400;
/// Interval of new ones, and of passes.
const PACE: Duration = Duration::from_millis(200);
/// Maximum time of a call or a pass.
const CALL_MAX: Duration = Duration::from_secs(1);
/// Maximum time until all is raised when nothing fails any more.
const RAISED_WITHIN: Duration = Duration::from_secs(30);
/// The notice of every third subject, its daily limit, and what it uses.
const KINDS: [UsageNoticeKind; 3] = UsageNoticeKind::ALL;
const LIMITS: [u64; 3] = [3_000, 90_000, 3_000];
const UNITS: [u64; 3] = [2_600, 9_000, 0];

/// The subjects in this zone, in which no day begins soon.
pub fn customers(zone: Zone) -> impl Iterator<Item = Customer> {
    let zone = zone.name().parse().expect("a zone");
    (0..SUBJECTS).map(move |number| {
        let limit = Limit { window: "day", units: LIMITS[number % 3] };
        Customer { zone, limits: [("requests", vec![limit])].into(), ..Customer::plain(subject(number).as_str()) }
    })
}

fn subject(number: usize) -> Subject {
    format!("foreseen {number}").parse().expect("legal")
}

/// A running client.
pub struct Notices {
    raiser: Raiser,
    raising: Background<usize>,
}

/// What was raised when it ended.
pub struct EndedNotices {
    raiser: Raiser,
    sent: usize,
}

#[derive(Clone)]
struct Raiser {
    partitions: Partitions,
    plans: Plans,
    today: Day,
}

impl Notices {
    /// Has one subject after another be due until stopped. The zone is that of [`customers`]: after a midnight of UTC
    /// another one would be chosen.
    pub async fn start(partitions: Partitions, zone: Zone) -> Self {
        let client = partitions.first().client.clone();
        let now = eventually("Redis tells the time", || async { client.server_time().await.ok() }).await;
        let today = DaySpan::containing(zone, now).expect("a day").day;
        let past = SILENT_DAYS..SILENT_DAYS + DAYS_BEFORE;
        let past: Vec<Day> = past.filter_map(|back| today.before(back)).collect();
        for partition in partitions.iter() {
            let numbers = (0..SUBJECTS).filter(|number| KINDS[number % 3] == UsageNoticeKind::Silence);
            let mut silent: Vec<Subject> = numbers.map(subject).collect();
            silent.retain(|subject| partitions.partition_of(subject).keys.stream() == partition.keys.stream());
            store_past(partition, &silent, &past, now).await;
        }
        let plan = format!(r#"{{"limits":{{}},"forecast":{FORECAST},"spike":{SPIKE},"silence":"{SILENCE}"}}"#);
        let plan: PlanConfig = serde_json::from_str(&plan).expect("a plan");
        let plans = Plans::new(&[("free".to_owned(), plan)].into(), "free").expect("there");
        let raiser = Raiser { partitions, plans, today };
        let stop = CancellationToken::new();
        let (of_task, stopped) = (raiser.clone(), stop.clone());
        let task = tokio::spawn(async move {
            let (mut paced, mut sent) = (tokio::time::interval(PACE), 0);
            let become_due = async {
                while sent < SUBJECTS && !stopped.is_cancelled() {
                    paced.tick().await;
                    of_task.become_due(sent).await;
                    sent += 1;
                }
            };
            let make_passes = async {
                let mut paced = tokio::time::interval(PACE);
                while !stopped.is_cancelled() {
                    paced.tick().await;
                    of_task.pass().await;
                }
            };
            tokio::join!(become_due, make_passes);
            sent
        });
        Self { raiser, raising: Background { stop, task } }
    }

    /// Stops it, and repeats everything until all is raised.
    pub async fn end(self) -> EndedNotices {
        let Self { raiser, raising } = self;
        let sent = raising.end().await;
        let all_raised = async {
            while raised::<UsageNotice>(&raiser.partitions, "usage_notice").await.len() < sent {
                for number in 0..sent {
                    raiser.become_due(number).await;
                }
                raiser.pass().await;
            }
        };
        // What is missing is a finding.
        let _ = tokio::time::timeout(RAISED_WITHIN, all_raised).await;
        EndedNotices { raiser, sent }
    }
}

impl EndedNotices {
    /// Checks that each notice was raised once, and returns their number. Everything must be fanned out.
    pub async fn compare(&self, findings: &mut Findings) -> usize {
        let Self { raiser: Raiser { partitions, .. }, sent } = self;
        let mut of_subjects: BTreeMap<Subject, Vec<UsageNoticeKind>> = BTreeMap::new();
        let ends = raised::<ResolvedNotice>(partitions, "resolved").await.len();
        let raised = raised::<UsageNotice>(partitions, "usage_notice").await;
        let (all, entries) = (raised.len(), entries_beside_alerts(partitions).await);
        for of in raised {
            of_subjects.entry(of.notice.subject).or_default().push(of.notice.kind);
        }
        for number in 0..*sent {
            let (subject, expected) = (subject(number), [KINDS[number % 3]]);
            let found = of_subjects.remove(&subject).unwrap_or_default();
            if found != expected {
                findings.other.push(format!("{subject} has the notices {found:?}, expected {expected:?}"));
            }
        }
        findings.other.extend(of_subjects.into_iter().map(|(subject, kinds)| format!("{subject} has {kinds:?}")));
        if entries != (all + ends) as u64 {
            findings.raised_twice.push(format!("{entries} entries of the outbox for {all} notices and {ends} ends"));
        }
        all
    }
}

impl Raiser {
    /// Stores what is usual for a subject, and has it use more. Repeatable: the event has an id, and a pass that finds
    /// an older profile learns again.
    async fn become_due(&self, number: usize) {
        let (subject, metric) = (subject(number), Metric::default());
        let partition = self.partitions.partition_of(&subject);
        let Partition { client, keys } = partition;
        let is_silent = KINDS[number % 3] == UsageNoticeKind::Silence;
        let last = self.today.before(if is_silent { SILENT_DAYS } else { 1 }).expect("a day");
        let (profile, bucket) = (usual_until(last), keys::bucket(subject.as_str()));
        let mut event = redis::cmd("XADD");
        event.arg(keys.stream()).arg(&["*", "subject", subject.as_str(), "id", "1", "units"]).arg(UNITS[number % 3]);
        let call = async {
            let now = client.server_time().await?;
            let mark = usage_profiles::mark(partition).await?;
            // The stream itself was never silent.
            let mark = PassMark { used: Some(now), resumed: Some(UnixMs(now.0 - BUSY_MS)), ..mark };
            usage_profiles::write(partition, mark, &metric, bucket, &[(&subject, &profile)]).await?;
            if !is_silent {
                client.query::<()>(&event).await?;
            }
            RedisResult::Ok(())
        };
        let _ = tokio::time::timeout(CALL_MAX, call).await;
    }

    /// A pass over all partitions, which asks the daemons for one too.
    async fn pass(&self) {
        for partition in self.partitions.iter() {
            let _ = tokio::time::timeout(CALL_MAX, self.pass_over(partition)).await;
        }
    }

    async fn pass_over(&self, partition: &Partition) -> RedisResult<()> {
        let Partition { client, keys } = partition;
        let mark = usage_profiles::mark(partition).await?;
        let now = client.server_time().await?;
        let mut pass = HourlyPass::begin(partition, &self.plans, now, mark).await?;
        while pass.next().await?.is_some() {}
        client.query(redis::cmd("HDEL").arg(keys.checkpoint()).arg("profiled_ms")).await
    }
}
