//! The machine: cores, versions, and CPU times of processes. Linux only, because it needs `/proc`.

use std::process::{Command, Stdio};

use anyhow::Context as _;
use nix::sys::resource::{UsageWho, getrusage};

use crate::Size;

/// The cores of server and worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// The core of the Redis server.
    pub server: usize,
    /// The core of the worker.
    pub worker: usize,
}

impl Placement {
    /// The placement in words.
    pub const fn name(self) -> &'static str {
        if self.server == self.worker { "one core shared" } else { "a core each" }
    }
}

/// Separate cores and a shared core; only the latter on a machine with one core.
pub fn placements() -> anyhow::Result<Vec<Placement>> {
    let cores = cores()?;
    let shared = *cores.first().context("no core is allowed")?;
    let mut placements = Vec::new();
    if let Some(other) = cores.get(1) {
        placements.push(Placement { server: shared, worker: *other });
    }
    placements.push(Placement { server: shared, worker: shared });
    Ok(placements)
}

/// The cores that this process may use.
fn cores() -> anyhow::Result<Vec<usize>> {
    let list = status_of("self", "Cpus_allowed_list")?;
    let mut cores = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse()?, last.trim().parse()?);
        cores.extend(first..=last);
    }
    Ok(cores)
}

/// A line of `/proc/<process>/status`, without its name.
pub fn status_of(process: &str, name: &str) -> anyhow::Result<String> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(line.with_context(|| format!("find {name} in {path}"))?.trim().to_owned())
}

/// Moves every thread of a running process to one core.
pub fn pin(process: u32, core: usize) -> anyhow::Result<()> {
    let moved = Command::new("taskset")
        .args(["-acp", &core.to_string(), &process.to_string()])
        .stdout(Stdio::null())
        .status()
        .context("run taskset (of the package util-linux)")?;
    anyhow::ensure!(moved.success(), "taskset could not move process {process} to core {core}");
    Ok(())
}

/// CPU time of this process so far, user and system, microseconds.
pub fn cpu_us() -> anyhow::Result<f64> {
    used_us(UsageWho::RUSAGE_SELF)
}

/// The same for all ended child processes.
pub fn children_cpu_us() -> anyhow::Result<f64> {
    used_us(UsageWho::RUSAGE_CHILDREN)
}

/// The same for a running process, from `/proc`, in steps of 10 ms.
pub fn process_cpu_us(process: u32) -> anyhow::Result<f64> {
    /// Unit of `/proc`, independent of the kernel's tick rate.
    const TICKS_S: f64 = 100.0;
    let path = format!("/proc/{process}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    // The name of the program is in parentheses and may contain spaces. User and system time are fields 14 and 15 of
    // all.
    let (_, fields) = stat.rsplit_once(')').with_context(|| format!("find the program in {path}"))?;
    let ticks = fields.split_ascii_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / TICKS_S * 1e6)
}

fn used_us(who: UsageWho) -> anyhow::Result<f64> {
    let usage = getrusage(who).context("ask for the processor's time")?;
    let micros = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 * 1e6 + time.tv_usec() as f64;
    Ok(micros(usage.user_time()) + micros(usage.system_time()))
}

/// Prints the conditions of the measurement.
pub fn describe(bench: &str, size: Size) -> anyhow::Result<()> {
    let first_line = |program: &str| {
        let output = Command::new(program).arg("--version").output().with_context(|| format!("run {program}"))?;
        anyhow::Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned())
    };
    let model = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown processor");
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("quotabell {} {bench} bench, {}", env!("CARGO_PKG_VERSION"), chrono_day());
    println!("processor: {}, {} cores", model.trim_start_matches([':', ' ', '\t']), cores()?.len());
    println!("server:    {}, no persistence", first_line("redis-server")?);
    println!("load before the start (1, 5, 15 min): {}", load.split(' ').take(3).collect::<Vec<_>>().join(" "));
    if size == Size::Quick {
        println!("QUICK RUN: it shows that everything runs; its figures mean nothing");
    }
    println!();
    Ok(())
}

fn chrono_day() -> String {
    today().to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

/// The time of this machine's clock.
pub fn today() -> chrono::DateTime<chrono::Utc> {
    #[allow(clippy::disallowed_methods, reason = "the bench is a loop of its own: it says when it ran")]
    chrono::Utc::now()
}
