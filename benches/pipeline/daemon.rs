//! The real binary, started as an operator would.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::machine;

/// A running daemon. Killed on drop.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    /// Its HTTP address.
    pub address: SocketAddr,
}

impl Daemon {
    /// Starts it on the server at this port, with further settings as environment variables, and waits until it is
    /// ready.
    pub fn start(port: u16, settings: &[(&str, String)]) -> anyhow::Result<Self> {
        let child = Command::new(env!("CARGO_BIN_EXE_quotabell"))
            .arg("run")
            .env_clear()
            .env("QUOTABELL__REDIS__URL", format!("redis://127.0.0.1:{port}"))
            .env("QUOTABELL__HTTP__LISTEN", "127.0.0.1:0")
            .env("QUOTABELL__CONSOLE__LISTEN", "off")
            .env("QUOTABELL__REDIS__DATA_DIR", "/nonexistent/data")
            .envs(settings.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("start the daemon")?;
        // From here on killed on drop, also after errors.
        let mut daemon = Self { child, address: ([127, 0, 0, 1], 0).into() };
        let mut log = BufReader::new(daemon.child.stderr.take().context("stderr is piped")?);
        let mut line = String::new();
        while !line.contains("quotabell is ready") {
            line.clear();
            anyhow::ensure!(log.read_line(&mut line)? > 0, "the daemon ended before it was ready");
            if let Some((_, address)) = line.split_once("http listens address=") {
                daemon.address = address.trim().parse().context("the address of the daemon")?;
            }
        }
        // It logs until its end, so a thread has to read the log.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Ok(daemon)
    }

    /// Stops its process for a while.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Continues after [`Self::pause`].
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?)
    }

    /// Its peak memory so far (`VmHWM`), bytes.
    pub fn peak_bytes(&self) -> anyhow::Result<f64> {
        self.bytes("VmHWM")
    }

    /// Its current memory (`VmRSS`), bytes.
    pub fn resident_bytes(&self) -> anyhow::Result<f64> {
        self.bytes("VmRSS")
    }

    /// Its CPU time so far, user and system, microseconds.
    pub fn cpu_us(&self) -> anyhow::Result<f64> {
        machine::process_cpu_us(self.child.id())
    }

    fn bytes(&self, name: &str) -> anyhow::Result<f64> {
        let text = machine::status_of(&self.child.id().to_string(), name)?;
        let kibibytes: f64 =
            text.trim_end_matches("kB").trim().parse().with_context(|| format!("{name} is no number"))?;
        Ok(kibibytes * 1024.0)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
