//! What the demonstration starts, and how all of it is stopped: the folder, Redis, the daemon.

use std::fs::{self, DirBuilder};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use super::daemon::Daemon;
use crate::redis_client::{EmbeddedError, EmbeddedServer, RedisConfig};
use crate::terminal::hint::with_hint;

/// How many free ports are tried: between our look and the server's bind another program may take one.
const PORTS_MAX: usize = 10;

/// Everything that was started.
pub(super) struct DemoEnvironment {
    pub(super) folder: TempFolder,
    pub(super) redis: EmbeddedServer,
    /// The daemon that runs now.
    pub(super) daemon: Option<Daemon>,
}

/// Where everything is written, for its owner only. Removed when dropped, so that no error leaves it behind, unless it
/// is to be kept.
pub(super) struct TempFolder {
    pub(super) path: PathBuf,
    /// It stays, to be looked at.
    pub(super) keep: bool,
}

impl DemoEnvironment {
    /// Makes the folder and starts Redis in it, on a free port.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("quotabell-demo-{:08x}", rand::random::<u32>()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        let made = made.with_context(|| format!("make the folder {}", path.display()));
        with_hint(made, "TMPDIR names the place for temporary files")?;
        let folder = TempFolder { path, keep: false };
        let redis = start_redis(folder.path.join("redis")).await?;
        Ok(Self { folder, redis, daemon: None })
    }

    /// Stops whatever still runs and removes the folder, unless it is to be kept.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let Self { folder, redis, daemon } = self;
        let killed = if let Some(mut daemon) = daemon { daemon.kill().await } else { Ok(()) };
        let pid = redis.pid();
        let stopped = redis.stop().await;
        if stopped.is_err()
            && let Ok(pid) = i32::try_from(pid)
        {
            // Nobody else will end it: no later daemon knows its folder.
            let _ = signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        drop(folder);
        killed?;
        stopped.context("stop redis").map(drop)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        if !self.keep {
            // What can't be removed is left to the system, which cleans its place for temporary files.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

async fn start_redis(data_dir: PathBuf) -> anyhow::Result<EmbeddedServer> {
    let mut tried = 0;
    loop {
        tried += 1;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("look for a free port")?;
        let embedded_port = listener.local_addr().context("look for a free port")?.port();
        drop(listener);
        let url = "embedded".into();
        let config = RedisConfig { url, url_file: None, data_dir: data_dir.clone(), embedded_port, ca_file: None };
        match EmbeddedServer::ensure(&config).await {
            Err(EmbeddedError::Foreign { .. } | EmbeddedError::Ended { .. }) if tried < PORTS_MAX => {}
            started => {
                let hint = "the demo starts a server of its own; on Debian `make demo` installs one first";
                return with_hint(started, hint);
            }
        }
    }
}
