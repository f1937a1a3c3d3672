//! The daemon of the demonstration: the same binary as a child process, with its own configuration file.
//!
//! It has its own process group, so that Ctrl-C in a terminal reaches only the demonstration, which then stops the
//! daemon.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::{interval, timeout};

use super::scenario::{FALLBACK_ADDRESS, SEPARATOR};
use crate::redis_client::RedisNode;
use crate::terminal::hint;

/// Maximum time until it is ready.
const READY_MAX: Duration = Duration::from_secs(20);
/// Maximum time to drain. Longer than an attempt's deadline.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Interval between two checks of a daemon that is starting.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// Number of log lines in an error.
const LAST_LINES: usize = 3;
/// File name of the configuration.
pub(super) const CONFIGURATION: &str = "demo.toml";

/// Writes the configuration into the folder. Deadlines are short, because a delivery of a killed daemon waits until its
/// lease (deadline + 5 s) has ended. The file holds the password of Redis; only its owner can read the folder.
pub(super) fn configure(folder: &Path, redis: &RedisNode, partitions: u32, smtp_url: &str) -> anyhow::Result<()> {
    let login = redis.login.current().map(|login| format!(":{}@", login.password)).unwrap_or_default();
    let address = &redis.address;
    let text = format!(
        r#"default_plan = "free"
redis.url = "redis://{login}{address}"
stream.partitions = {partitions}
subjects.separator = "{SEPARATOR}"
plans.free = {{ limits.requests = 5000, thresholds = [80, 100] }}
plans.pro = {{ limits.requests = 20000, thresholds = [80, 100] }}
plans.foreseen = {{ limits.requests = 1300, thresholds = [100], forecast = {{ windows = ["day"] }} }}
fallback.contacts = [{{ channel = "email", address = "{FALLBACK_ADDRESS}" }}]
retry = {{ first = "400ms", factor = 2.0 }}
delivery = {{ probe_first = "1s", probe_max = "2s" }}
webhook = {{ timeout = "5s", allow_http = true, allow_private_networks = true }}
email = {{ timeout = "5s", smtp_url = "{smtp_url}" }}
http.listen = "127.0.0.1:0"
log.format = "json"
"#
    );
    let path = folder.join(CONFIGURATION);
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// A command of this binary with the configuration in the folder.
pub(super) fn quotabell(folder: &Path, command: &str) -> anyhow::Result<Command> {
    let mut quotabell = Command::new(std::env::current_exe().context("find this program")?);
    quotabell.arg(command).arg("--config").arg(folder.join(CONFIGURATION));
    // Variables of the user's own daemon must not affect this one, nor may its supervisor be notified.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("QUOTABELL") || name == "NOTIFY_SOCKET" {
            quotabell.env_remove(name);
        }
    }
    Ok(quotabell)
}

/// A running daemon. Killed when dropped.
pub(super) struct Daemon {
    child: Child,
    pub(super) pid: u32,
    log: PathBuf,
}

impl Daemon {
    /// Starts `quotabell run` with this binary; its log goes to `log` in the folder. A second daemon listens on the
    /// address of the first, so that it need not wait for the end of the first one's lease. `console` is the address of
    /// the console, or `off`: a real daemon on this machine may want the port.
    pub(super) fn start(folder: &Path, log: &str, follows: Option<SocketAddr>, console: &str) -> anyhow::Result<Self> {
        let log = folder.join(log);
        let file = File::create(&log).with_context(|| format!("write {}", log.display()))?;
        let mut command = quotabell(folder, "run")?;
        command.env("QUOTABELL__REDIS__DATA_DIR", folder);
        command.env("QUOTABELL__CONSOLE__LISTEN", console);
        if let Some(address) = follows {
            command.env("QUOTABELL__HTTP__LISTEN", address.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).process_group(0).kill_on_drop(true);
        let child = command.spawn().context("start quotabell run")?;
        let pid = child.id().context("the daemon's process id")?;
        Ok(Self { child, pid, log })
    }

    /// Waits until the daemon logs that it is ready; returns its address.
    pub(super) async fn ready(&mut self) -> anyhow::Result<SocketAddr> {
        let waiting = async {
            let mut looks = interval(POLL_EVERY);
            loop {
                looks.tick().await;
                self.check_running()?;
                if self.logged("quotabell is ready").is_some() {
                    return self.address("http listens");
                }
            }
        };
        match timeout(READY_MAX, waiting).await {
            Ok(ready) => ready,
            Err(_) => Err(self.failed(&format!("was not ready within {} s", READY_MAX.as_secs()))),
        }
    }

    /// The address in the log entry with this message.
    pub(super) fn address(&self, message: &str) -> anyhow::Result<SocketAddr> {
        let listens = self.logged(message).with_context(|| format!("{message:?} is not in the daemon's log"))?;
        listens["address"].as_str().unwrap_or_default().parse().context("the daemon's address")
    }

    /// Fails if the daemon ended by itself.
    pub(super) fn check_running(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait().context("look at the daemon")? {
            None => Ok(()),
            Some(status) => Err(self.failed(&format!("ended by itself ({status})"))),
        }
    }

    /// Kills it with SIGKILL, and waits for its end.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await.with_context(|| format!("kill the daemon (pid {})", self.pid))
    }

    /// Sends SIGTERM and waits for the end; kills it after too long. Returns how it ended, in a few words.
    pub(super) async fn drain(&mut self) -> anyhow::Result<String> {
        // A child that was not waited for keeps its process id, so the signal reaches no other process.
        if self.child.try_wait().context("look at the daemon")?.is_none()
            && let Ok(pid) = i32::try_from(self.pid)
        {
            signal::kill(Pid::from_raw(pid), Signal::SIGTERM).context("ask the daemon to end")?;
        }
        if timeout(DRAIN_MAX, self.child.wait()).await.is_err() {
            self.kill().await?;
        }
        let status = self.child.wait().await.context("wait for the daemon")?;
        Ok(status.code().map_or_else(|| status.to_string(), |code| format!("exit {code}")))
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The first log entry with this message.
    fn logged(&self, message: &str) -> Option<serde_json::Value> {
        let log = self.log();
        let mut entries = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        entries.find(|entry| entry["message"] == message)
    }

    /// An error with the end of the daemon's log.
    fn failed(&self, what: &str) -> anyhow::Error {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n  ");
        let hint = "`quotabell demo --keep` keeps the folder with the daemon's log";
        hint::failed(format_args!("the daemon {what}; its log ends with\n  {tail}"), hint)
    }
}
