//! Locks on files in the data folder of the embedded server. The system releases them when a process is killed.
//!
//! Every daemon that uses the server holds a shared lock; only the last one may stop the server. A daemon that looks
//! for the server and starts it holds an exclusive lock, so that two daemons never start two servers. Read next:
//! [`embedded`](super::embedded).

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use tokio::time::sleep;

use super::embedded_error::{EmbeddedError, LOCK_TIMEOUT};

/// Shared lock of every daemon that uses the server.
const USE: &str = "embedded.use";
/// Exclusive lock of the daemon that looks for the server and starts it.
const START: &str = "embedded.start";
/// Interval between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A lock in the data folder; released on drop.
#[derive(Debug)]
pub(super) struct FileLock(Flock<File>);

impl FileLock {
    /// Takes the shared lock on the server's use. Waits while another daemon stops the server.
    pub(super) async fn in_use(data_dir: &Path) -> Result<Self, EmbeddedError> {
        Self::acquire(data_dir, USE, FlockArg::LockSharedNonblock).await
    }

    /// Takes the exclusive lock on the server's start. Waits for other daemons.
    pub(super) async fn starting(data_dir: &Path) -> Result<Self, EmbeddedError> {
        Self::acquire(data_dir, START, FlockArg::LockExclusiveNonblock).await
    }

    /// Whether no other daemon uses the server. If so, the lock becomes exclusive; otherwise it is released.
    pub(super) fn is_last(&self) -> bool {
        self.0.relock(FlockArg::LockExclusiveNonblock).is_ok()
    }

    async fn acquire(data_dir: &Path, name: &str, kind: FlockArg) -> Result<Self, EmbeddedError> {
        let path = data_dir.join(name);
        let failed = |source: io::Error| EmbeddedError::DataDir { path: path.clone(), source };
        let mut file = File::options().create(true).append(true).open(&path).map_err(failed)?;
        let begun = Instant::now();
        loop {
            match Flock::lock(file, kind) {
                Ok(lock) => return Ok(Self(lock)),
                Err((_, errno)) if errno != Errno::EWOULDBLOCK => return Err(failed(errno.into())),
                Err(_) if begun.elapsed() > LOCK_TIMEOUT => {
                    return Err(EmbeddedError::Busy { data_dir: data_dir.to_path_buf() });
                }
                Err((same, _)) => file = same,
            }
            sleep(RETRY_INTERVAL).await;
        }
    }
}
