//! What the demonstration starts, and how all of it is stopped: the folder, Redis, the daemon.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use anyhow::Context as _;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use tokio::signal::unix::{self, SignalKind};

use super::daemon::Daemon;
use super::temp_folder::{FolderCleanup, TempFolder};
use crate::terminal::hint::with_hint;
use crate::wire::{EmbeddedError, EmbeddedServer, RedisConfig};

/// How many free ports are tried: between our look and the server's bind another program may take one.
const PORTS_MAX: usize = 10;

/// Everything that was started.
#[derive(Debug)]
pub(super) struct DemoEnvironment {
    /// Where everything is written.
    pub(super) folder: TempFolder,
    /// The server.
    pub(super) redis: EmbeddedServer,
    /// The daemon that runs now.
    pub(super) daemon: Option<Daemon>,
}

impl DemoEnvironment {
    /// Makes the folder and starts Redis in it, on a free port.
    pub(super) async fn start(cleanup: FolderCleanup) -> anyhow::Result<Self> {
        let folder = TempFolder::make(cleanup)?;
        let redis = start_redis(folder.path().join("redis")).await?;
        Ok(Self { folder, redis, daemon: None })
    }

    /// Stops whatever still runs and removes the folder, unless it is to be kept.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let Self { folder, redis, daemon } = self;
        let killed = match daemon {
            Some(mut daemon) => daemon.kill().await,
            None => Ok(()),
        };
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

async fn start_redis(data_dir: PathBuf) -> anyhow::Result<EmbeddedServer> {
    let mut tried = 0;
    loop {
        tried += 1;
        let config = RedisConfig {
            url: "embedded".to_owned(),
            url_file: None,
            data_dir: data_dir.clone(),
            embedded_port: free_port()?,
            ca_file: None,
        };
        match EmbeddedServer::ensure(&config).await {
            Err(EmbeddedError::Foreign { .. } | EmbeddedError::Ended { .. }) if tried < PORTS_MAX => {}
            started => {
                let hint = "the demo starts a server of its own; on Debian `make demo` installs one first";
                return with_hint(started, hint);
            }
        }
    }
}

fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("look for a free port")?;
    Ok(listener.local_addr().context("look for a free port")?.port())
}

/// The signals that end the demonstration early.
#[derive(Debug)]
pub(super) struct Interrupts {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
}

impl Interrupts {
    /// Listens from now on; the default, to die at once and leave everything running, is off.
    pub(super) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| unix::signal(kind).context("listen to signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for one of them.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
