//! The daemon under demonstration: the same binary as a child process, with a configuration file of its own.
//!
//! It has a process group of its own, so that Ctrl-C in a terminal reaches only the demonstration, which then ends it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{interval, timeout};

use super::scenario::{FALLBACK_ADDRESS, FREE_LIMIT, PLAN_THRESHOLDS, PRO_LIMIT};
use crate::terminal::hint;

/// How long it may take until it is ready.
const READY_MAX: Duration = Duration::from_secs(20);
/// How long it may take to drain. Longer than an attempt's deadline.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Between two looks at a daemon that is not ready yet.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// How many lines of its log an error shows.
const LAST_LINES: usize = 3;

/// Where the parts are that the daemon is told about.
#[derive(Debug)]
pub(super) struct DaemonEndpoints<'a> {
    /// The embedded server's port.
    pub(super) redis_port: u16,
    /// The catcher of mail.
    pub(super) smtp_url: &'a str,
}

/// Writes the configuration and tells where it is.
pub(super) fn configure(folder: &Path, endpoints: &DaemonEndpoints<'_>) -> anyhow::Result<PathBuf> {
    let path = folder.join("demo.toml");
    fs::write(&path, configuration(endpoints)).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// Deadlines are short, because a delivery whose daemon was killed waits until its lease (deadline + 5 s) has run out.
fn configuration(DaemonEndpoints { redis_port, smtp_url }: &DaemonEndpoints<'_>) -> String {
    let thresholds = PLAN_THRESHOLDS;
    format!(
        r#"default_plan = "free"

[redis]
url = "redis://127.0.0.1:{redis_port}"

[plans.free]
limits = {{ requests = {FREE_LIMIT} }}
thresholds = {thresholds:?}

[plans.pro]
limits = {{ requests = {PRO_LIMIT} }}
thresholds = {thresholds:?}

[fallback]
contacts = [{{ channel = "email", address = "{FALLBACK_ADDRESS}" }}]

[retry]
first = "400ms"
factor = 2.0

[webhook]
timeout = "5s"
allow_http = true
allow_private_networks = true

[email]
smtp_url = "{smtp_url}"
timeout = "5s"

[http]
listen = "127.0.0.1:0"

[log]
format = "json"
"#
    )
}

/// A running daemon. Killed when dropped.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    pid: u32,
    log: PathBuf,
}

impl Daemon {
    /// Starts `quotabell run` of this very binary; its log goes to `log`. One that follows another listens where that one did, which
    /// is how it knows that it need not wait for its lease to run out.
    pub(super) fn start(configuration: &Path, log: PathBuf, follows: Option<SocketAddr>) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("find this program")?;
        let file = File::create(&log).with_context(|| format!("write {}", log.display()))?;
        let mut command = Command::new(&program);
        command.arg("run").arg("--config").arg(configuration);
        // Variables of the user's own daemon would change this one, and its supervisor must not hear of it.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("QUOTABELL") || name == "NOTIFY_SOCKET" {
                command.env_remove(name);
            }
        }
        if let Some(address) = follows {
            command.env("QUOTABELL__HTTP__LISTEN", address.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).process_group(0).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("start {} run", program.display()))?;
        let pid = child.id().context("the daemon's process id")?;
        Ok(Self { child, pid, log })
    }

    /// Its process id.
    pub(super) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until `/readyz` says 200; where it serves.
    pub(super) async fn ready(&mut self) -> anyhow::Result<SocketAddr> {
        let waiting = async {
            let mut looks = interval(POLL_EVERY);
            loop {
                looks.tick().await;
                if let Some(status) = self.child.try_wait().context("look at the daemon")? {
                    return Err(self.ended_with(status));
                }
                if let Some(address) = served_at(&self.log)
                    && is_ready(address).await.unwrap_or(false)
                {
                    return Ok(address);
                }
            }
        };
        match timeout(READY_MAX, waiting).await {
            Ok(ready) => ready,
            Err(_) => Err(hint::failed(
                format_args!("the daemon was not ready within {} s{}", READY_MAX.as_secs(), log_tail(&self.log)),
                HINT,
            )),
        }
    }

    /// Waits until it ends by itself, which it must not; the error says how.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        match self.child.wait().await {
            Ok(status) => self.ended_with(status),
            Err(error) => anyhow::Error::new(error).context("wait for the daemon"),
        }
    }

    /// Kills it as a crash would, and waits until it is gone.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await.with_context(|| format!("kill the daemon (pid {})", self.pid))
    }

    /// Asks it to end and waits until it has; kills it when it takes too long. How it ended.
    pub(super) async fn drain(&mut self) -> anyhow::Result<ExitStatus> {
        // A child that was not waited for keeps its process id, so this reaches nobody else.
        if self.child.try_wait().context("look at the daemon")?.is_none()
            && let Ok(pid) = i32::try_from(self.pid)
        {
            signal::kill(Pid::from_raw(pid), Signal::SIGTERM).context("ask the daemon to end")?;
        }
        match timeout(DRAIN_MAX, self.child.wait()).await {
            Ok(status) => status.context("wait for the daemon"),
            Err(_) => {
                self.kill().await?;
                self.child.wait().await.context("wait for the daemon")
            }
        }
    }

    fn ended_with(&self, status: ExitStatus) -> anyhow::Error {
        hint::failed(format_args!("the daemon ended by itself ({status}){}", log_tail(&self.log)), HINT)
    }
}

const HINT: &str = "`quotabell demo --keep` keeps the folder with the daemon's log";

/// Where it serves, as its log says; `None` while it has not said so.
fn served_at(log: &Path) -> Option<SocketAddr> {
    let text = fs::read_to_string(log).ok()?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut said = lines.filter(|line| line["message"] == "http listens");
    said.find_map(|line| line["address"].as_str()?.parse().ok())
}

async fn is_ready(address: SocketAddr) -> io::Result<bool> {
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer.split_whitespace().nth(1) == Some("200"))
    };
    timeout(Duration::from_secs(2), asking).await.unwrap_or(Ok(false))
}

/// The end of its log, for an error.
fn log_tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let mut words = String::new();
    for line in &lines[lines.len().saturating_sub(LAST_LINES)..] {
        let _ = write!(words, "\n  {line}");
    }
    if words.is_empty() { words } else { format!("; its log ends with{words}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// A setting that was renamed would make the demonstration fail at its start.
    #[test]
    fn the_configuration_is_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let endpoints = DaemonEndpoints { redis_port: 6399, smtp_url: "smtp://127.0.0.1:2525" };
        let path = configure(folder.path(), &endpoints).expect("written");
        let config = Config::load(Some(&path), []).expect("valid");
        assert_eq!(config.plans["pro"].limits.len(), 1);
        assert_eq!(config.fallback.contacts.len(), 1);
    }
}
