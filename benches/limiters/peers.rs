//! Limiters of other projects, each in its own process and language, with the same calls on the same server.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde::Deserialize;

use crate::figures::Series;
use crate::load::{AT_ONCE, LIMIT, Load};

/// The folder into which tools/peers.sh installs them.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/peers");
const DRIVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/limiters/peers");

/// A limiter of another project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// `limits` of PyPI, fixed window.
    LimitsFixed,
    /// The same, moving window.
    LimitsMoving,
    /// `rate-limiter-flexible` of npm, which has a fixed window.
    Flexible,
}

/// Measurements of a round.
#[derive(Debug, Deserialize)]
pub struct Seen {
    /// Time of all calls.
    pub seconds: f64,
    /// Number of admitted calls.
    pub admitted: usize,
    /// Time of each call.
    pub took_us: Vec<f64>,
}

impl Peer {
    /// Name in the output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LimitsFixed => "limits (Python), fixed window",
            Self::LimitsMoving => "limits (Python), moving window",
            Self::Flexible => "rate-limiter-flexible (Node), fixed window",
        }
    }

    /// Whether it and the program that runs it are installed.
    pub fn is_there(self) -> bool {
        let [program, package] = match self {
            Self::LimitsFixed | Self::LimitsMoving => ["python3", "python/limits"],
            Self::Flexible => ["node", "node/node_modules/rate-limiter-flexible"],
        };
        Path::new(FOLDER).join(package).exists()
            && Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
    }

    /// Makes the calls of a round.
    pub fn run(self, port: u16, load: &Load) -> anyhow::Result<Seen> {
        let mut order = serde_json::json!({
            "port": port, "at_once": AT_ONCE, "calls": load.calls(), "keys": load.keys, "limit": LIMIT,
            "prefix": load.prefix,
        });
        let mut command = match self {
            Self::LimitsFixed | Self::LimitsMoving => {
                order["strategy"] = if self == Self::LimitsFixed { "fixed".into() } else { "moving".into() };
                let mut command = Command::new("python3");
                command.arg(format!("{DRIVERS}/limits_load.py")).env("PYTHONPATH", format!("{FOLDER}/python"));
                command
            }
            Self::Flexible => {
                let mut command = Command::new("node");
                command
                    .arg(format!("{DRIVERS}/flexible_load.js"))
                    .env("NODE_PATH", format!("{FOLDER}/node/node_modules"));
                command
            }
        };
        let output = command.arg(order.to_string()).output().with_context(|| format!("run {}", self.name()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{} failed: {said}", self.name());
        serde_json::from_slice(&output.stdout).with_context(|| format!("read what {} saw", self.name()))
    }
}

impl Seen {
    /// Time of each call, as a series.
    pub fn series(&self) -> Series {
        let mut series = Series::default();
        self.took_us.iter().for_each(|took_us| series.push(*took_us));
        series
    }
}
