//! `emit`: appends usage events to the stream, as any Redis client can.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use redis::Pipeline;
use serde::Serialize;
use tokio::time::{Instant, interval};
use url::Url;

use super::connect::{self, CliConnection};
use super::context::CliContext;
use super::whole_number::from_one;
use crate::events::parse;
use crate::terminal::hint;
use crate::terminal::output::{self, FormatArgs};
use crate::terminal::progress::{self, ProgressUnit};
use crate::types::{Metric, Subject, Units};

/// Maximum number of events per write: about 100 KB, so the reply comes before the next write.
const CHUNK: u64 = 1000;
/// Maximum length of an event id, in bytes.
const ID_BYTES_MAX: usize = 128;
/// With fewer events, a progress bar would disappear before anybody saw it.
const BAR_EVENTS_MIN: u64 = 10_000;
/// The minimum duration of paced events for a progress bar.
const BAR_SECONDS_MIN: u64 = 2;
/// Paced events that are due within this time are sent together.
const TICK_MIN: Duration = Duration::from_millis(10);

#[derive(Debug, Args)]
#[command(
    after_help = "Values are checked before anything is sent. With --count above 1, an --id gets the event's number as its \
    suffix (order-1, order-2, ...), so that every event counts and a repeated run counts none. A --credit corrects a count: it gives units back, at most those used before it. It takes no alert back.

Examples:
  quotabell emit --subject alice
  quotabell emit --subject alice --units 3 --metric tokens
  quotabell emit --subject alice --id 7f3c --ts 2026-11-21T08:37:00Z
  quotabell emit --subject alice --credit 200 --id refund-81
  quotabell emit --subject alice --count 5000 --rate 500
  quotabell emit --subject alice --http http://127.0.0.1:9464"
)]
pub struct EmitArgs {
    /// The subject, 1 to 256 bytes
    #[arg(long)]
    pub subject: Subject,
    /// Units of each event, 1 to 9007199254740991 [default: 1]
    #[arg(long, allow_negative_numbers = true)]
    pub units: Option<Units>,
    /// Units that each event gives back, instead of --units: 1 to 9007199254740991
    #[arg(long, value_name = "UNITS", conflicts_with = "units", allow_negative_numbers = true)]
    pub credit: Option<Units>,
    /// The metric: [a-z0-9_.-]{1,64} [default: requests]
    #[arg(long)]
    pub metric: Option<Metric>,
    /// The event's time: Unix milliseconds, or RFC 3339 with offset [default: its arrival]
    #[arg(long, value_name = "TIME", value_parser = event_time)]
    pub ts: Option<String>,
    /// The event's id, up to 128 bytes; an id counts once
    #[arg(long)]
    pub id: Option<String>,
    /// Number of events to append
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = from_one::<u64>)]
    pub count: u64,
    /// Events per second [default: as fast as Redis accepts them]
    #[arg(long, value_name = "N", value_parser = from_one::<u32>)]
    pub rate: Option<u32>,
    /// Send the events to the daemon at this URL instead of Redis, with http.token or a token for events:write
    #[arg(long, value_name = "URL")]
    pub http: Option<Url>,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Serialize)]
struct EmitSummary {
    stream: String,
    count: u64,
    first_id: String,
    last_id: String,
}

/// Appends the events and prints the id of the last one. An error says which of them it could not append.
pub async fn run(args: EmitArgs, context: &CliContext) -> anyhow::Result<()> {
    check_id(&args)?;
    let config = context.config()?;
    let path = config.subjects.separator.check(args.subject.as_str());
    path.map_err(|error| hint::usage(error.to_string(), "subjects.separator decides how ids are divided"))?;
    let redis = connect::redis(&config).await?;
    let stream = redis.partitions.partition_of(&args.subject).keys.stream().to_owned();
    let emitted = append_all(&args, &redis, stream).await?;
    output::print(&args.format, &emitted, |output| output.line(&emitted.last_id))
}

async fn append_all(args: &EmitArgs, redis: &CliConnection, stream: String) -> anyhow::Result<EmitSummary> {
    let mut due = DueEvents::new(args);
    let mut emitted = EmitSummary { stream, count: 0, first_id: String::new(), last_id: String::new() };
    while let Some((from, to)) = due.next(emitted.count).await.map(RangeInclusive::into_inner) {
        let what = format!("append events {from} to {to} of {} to {}", args.count, emitted.stream);
        let mut ids: Vec<String> = redis.pipe(what, &chunk(args, &emitted.stream, from, to)).await?;
        emitted.last_id = ids.pop().unwrap_or_default();
        if from == 1 {
            emitted.first_id = ids.into_iter().next().unwrap_or_else(|| emitted.last_id.clone());
        }
        emitted.count = to;
    }
    due.finish();
    Ok(emitted)
}

/// The numbers of the events that are due, some at a time, with a progress bar.
pub(super) struct DueEvents {
    count: u64,
    pace: Option<Pace>,
    bar: Option<ProgressBar>,
}

impl DueEvents {
    pub(super) fn new(args: &EmitArgs) -> Self {
        let EmitArgs { count, rate, .. } = *args;
        let is_long = rate.map_or(count >= BAR_EVENTS_MIN, |rate| count / u64::from(rate) >= BAR_SECONDS_MIN);
        let bar = is_long.then(|| progress::bar(count, ProgressUnit::Items));
        Self { count, pace: rate.map(Pace::new), bar }
    }

    /// Waits for the events after the first `done`, which are sent. `None` if that is all of them.
    pub(super) async fn next(&mut self, done: u64) -> Option<RangeInclusive<u64>> {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
        while done < self.count {
            let due = match &mut self.pace {
                Some(pace) => pace.due().await.min(self.count),
                None => self.count,
            };
            if due > done {
                return Some(done + 1..=due.min(done + CHUNK));
            }
        }
        None
    }

    /// Removes the progress bar.
    pub(super) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// When paced events are due: the first at once, the others evenly, even if a tick is late.
struct Pace {
    per_second: u32,
    started: Instant,
    ticks: tokio::time::Interval,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        let period = (Duration::from_secs(1) / per_second).max(TICK_MIN);
        Self { per_second, started: Instant::now(), ticks: interval(period) }
    }

    /// Waits for the next tick; returns the number of events due since the start.
    async fn due(&mut self) -> u64 {
        self.ticks.tick().await;
        1 + (self.started.elapsed().as_secs_f64() * f64::from(self.per_second)) as u64
    }
}

fn chunk(args: &EmitArgs, stream: &str, from: u64, to: u64) -> Pipeline {
    let mut pipeline = redis::pipe();
    for number in from..=to {
        let command = pipeline.cmd("XADD").arg(stream).arg("*");
        for (name, value) in event_fields(args, number) {
            command.arg(name).arg(value);
        }
    }
    pipeline
}

/// The fields of the event with this number, from 1.
pub(super) fn event_fields(args: &EmitArgs, number: u64) -> Vec<(&'static str, String)> {
    let fields = [
        ("subject", Some(args.subject.to_string())),
        ("units", args.units.map(|units| units.to_string())),
        ("credit", args.credit.map(|units| units.to_string())),
        ("metric", args.metric.as_ref().map(Metric::to_string)),
        ("ts", args.ts.clone()),
        ("id", args.id.as_ref().map(|id| event_id(id, number, args.count))),
    ];
    fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The id of one event. With several events, each needs its own id, or only the first would count.
fn event_id(id: &str, number: u64, count: u64) -> String {
    if count == 1 { id.to_owned() } else { format!("{id}-{number}") }
}

/// Checks that the ids of all events are legal.
pub(super) fn check_id(args: &EmitArgs) -> anyhow::Result<()> {
    let Some(id) = &args.id else { return Ok(()) };
    let longest = event_id(id, args.count, args.count);
    if !id.is_empty() && longest.len() <= ID_BYTES_MAX {
        return Ok(());
    }
    let message =
        format!("--id has {} bytes, 1 to {ID_BYTES_MAX} are allowed", if id.is_empty() { 0 } else { longest.len() });
    Err(hint::usage(message, "the length includes the suffix that --count adds"))
}

/// Checks a time with the daemon's rules.
fn event_time(text: &str) -> Result<String, String> {
    parse::event_time(text.as_bytes()).map(|_| text.to_owned()).map_err(|broken| broken.detail)
}
