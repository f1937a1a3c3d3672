//! The environment of the demonstration: the folder, Redis, the daemon; starts and stops them.

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

/// Number of ports to try: another program may take a port between the check and the server's bind.
const PORTS_MAX: usize = 10;

/// Everything that the demonstration started.
pub(super) struct DemoEnvironment {
    pub(super) folder: TempFolder,
    pub(super) redis: EmbeddedServer,
    /// The running daemon.
    pub(super) daemon: Option<Daemon>,
}

/// The folder for all files, readable by its owner only. Removed on drop, also after errors, unless `keep` is set.
pub(super) struct TempFolder {
    pub(super) path: PathBuf,
    /// Whether the folder stays for inspection.
    pub(super) keep: bool,
}

impl DemoEnvironment {
    /// Creates the folder and starts Redis in it, on a free port.
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
            // No later daemon knows this folder, so nobody else would stop the server.
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
            // The system cleans its folder for temporary files later.
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
