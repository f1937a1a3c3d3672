//! Thousands of faults of every kind: killed daemons and servers, failovers, moving slots, torn files, broken networks,
//! entries of random bytes, wrong clocks. Afterwards everything must agree with a plain model of the surviving streams.
//!
//! `cargo test` runs each scenario briefly. `make torture` runs them in full: see [`USAGE`].

#[path = "../support/mod.rs"]
mod support;

mod aof_cuts;
mod clock;
mod cluster;
mod delivery_attempts;
mod fuzz;
mod kills;
mod load;
mod messages;
mod misbehaving_receiver;
mod network;
mod notices;
mod receivers;
mod sentinel;
mod server_kills;
mod top_ups;
mod trial;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use support::checker::Findings;
use trial::{Told, Trial};

const USAGE: &str = "torture [--minutes N] [--seed N] [--partitions N] [NAME ...]
  --minutes N     how long all of them may take together; without it each is played for a moment
  --seed N        repeats the choices of a run
  --partitions N  over how many streams events are spread, 1 unless said otherwise
  NAME            plays only the scenarios whose name holds one of these
";
/// Maximum number of differences to print.
const SHOWN_MAX: usize = 20;
/// Maximum time of a scenario without a given time, unless its minimum number of rounds takes longer.
const MOMENT: Duration = Duration::from_secs(20);
/// The time limit of scenarios that are bounded by rounds.
const FOR_EVER: Duration = Duration::from_secs(7 * 86_400);

type Playing = Pin<Box<dyn Future<Output = Told> + Send>>;

struct Scenario {
    name: &'static str,
    /// Number of rounds in a brief run and in a full run.
    moment: u64,
    full: u64,
    /// Approximate duration of the full number of rounds on two cores, minutes: its share of the given time.
    minutes: u32,
    play: fn(Trial) -> Playing,
}

const SCENARIOS: [Scenario; 9] = [
    Scenario { name: "kills", moment: 25, full: 10_000, minutes: 36, play: |trial| Box::pin(kills::run(trial)) },
    Scenario { name: "sentinel", moment: 1, full: 100, minutes: 12, play: |trial| Box::pin(sentinel::run(trial)) },
    Scenario { name: "cluster", moment: 1, full: 30, minutes: 4, play: |trial| Box::pin(cluster::run(trial)) },
    Scenario {
        name: "server_kills",
        moment: 8,
        full: 200,
        minutes: 3,
        play: |trial| Box::pin(server_kills::run(trial)),
    },
    Scenario { name: "aof_cuts", moment: 8, full: 1_000, minutes: 9, play: |trial| Box::pin(aof_cuts::run(trial)) },
    Scenario { name: "fuzz", moment: 1, full: 50, minutes: 2, play: |trial| Box::pin(fuzz::run(trial)) },
    Scenario { name: "clock", moment: 3, full: 30, minutes: 2, play: |trial| Box::pin(clock::run(trial)) },
    Scenario { name: "network", moment: 15, full: 20_000, minutes: 30, play: |trial| Box::pin(network::run(trial)) },
    Scenario { name: "receivers", moment: 1, full: 20, minutes: 3, play: |trial| Box::pin(receivers::run(trial)) },
];

/// The command line.
#[derive(Debug, Default)]
struct Arguments {
    minutes: Option<u64>,
    seed: Option<u64>,
    partitions: Option<u64>,
    names: Vec<String>,
    /// From `cargo test`, which passes it to every binary.
    skipped: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = match read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(what) => {
            eprint!("error: {what}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(play(&arguments))
}

fn read(words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut words = words;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let mut number = || {
            let value = value()?;
            value.parse::<u64>().map_err(|_| format!("{word} takes a whole number, not {value:?}"))
        };
        match word.as_str() {
            "--minutes" => arguments.minutes = Some(number()?),
            "--seed" => arguments.seed = Some(number()?),
            "--partitions" => arguments.partitions = Some(number()?.clamp(1, 64)),
            "--skip" => arguments.skipped.push(value()?),
            "--test-threads" => drop(value()?),
            // Other options of `cargo test` concern the output of its own binaries.
            _ if word.starts_with('-') => {}
            _ => arguments.names.push(word),
        }
    }
    Ok(arguments)
}

impl Arguments {
    fn plays(&self, scenario: &Scenario) -> bool {
        let name = format!("torture::{}", scenario.name);
        let holds = |words: &[String]| words.iter().any(|word| name.contains(word.as_str()));
        (self.names.is_empty() || holds(&self.names)) && !holds(&self.skipped)
    }
}

async fn play(arguments: &Arguments) -> ExitCode {
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let chosen: Vec<&Scenario> = SCENARIOS.iter().filter(|scenario| arguments.plays(scenario)).collect();
    println!("\nrunning {} scenarios, --seed {seed}", chosen.len());
    let (mut passed, mut failed) = (0, 0);
    let over = arguments.minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    for (at, scenario) in chosen.iter().enumerate() {
        let left: u32 = chosen[at..].iter().map(|scenario| scenario.minutes).sum();
        let (rounds, time) = match over {
            None => (scenario.moment, MOMENT),
            Some(over) => (scenario.full, over.saturating_duration_since(Instant::now()) * scenario.minutes / left),
        };
        let partitions = u32::try_from(arguments.partitions.unwrap_or(1)).expect("at most 64");
        let began = Instant::now();
        let trial = Trial { seed, partitions, rounds, deadline: began + time.min(FOR_EVER) };
        // In a separate task, so that a panic ends only this scenario.
        let told = tokio::spawn((scenario.play)(trial)).await.unwrap_or_else(|panic| Told {
            findings: Findings { other: vec![format!("it panicked: {panic}")], ..Findings::default() },
            ..Told::default()
        });
        show(scenario, &told, began.elapsed());
        if told.findings.is_clean() { passed += 1 } else { failed += 1 }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored; --seed {seed}\n");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(scenario: &Scenario, told: &Told, took: Duration) {
    let Told { tried, entries, absent, alerts, findings } = told;
    println!(
        "scenario {}: {tried}; {entries} entries, {absent} absent from what survived; {alerts} alerts; \
         lost {}, doubled {}, raised twice {}, never raised {}, other {}; {} s",
        scenario.name,
        findings.lost.len(),
        findings.doubled.len(),
        findings.raised_twice.len(),
        findings.never_raised.len(),
        findings.other.len(),
        took.as_secs()
    );
    for line in findings.all().take(SHOWN_MAX) {
        println!("  {line}");
    }
}
