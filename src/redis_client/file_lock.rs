//! Locks on files in the data folder of the embedded server, which the system releases when a process is killed.
//!
//! Every daemon that uses the server holds the lock on its use, shared; only the last of them may stop it. Whoever
//! looks for the server, and starts it where there is none, holds the lock on the start alone, so that two daemons
//! never start two. Read next: [`embedded`](super::embedded).

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use tokio::time::sleep;

use super::embedded_error::{EmbeddedError, LOCK_TIMEOUT};

/// Locked, shared, by every daemon that uses the server.
const USE: &str = "embedded.use";
/// Locked by the one daemon that looks for the server and starts it.
const START: &str = "embedded.start";
/// Between two tries.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A lock in the data folder; ends when dropped.
#[derive(Debug)]
pub(super) struct FileLock(Flock<File>);

impl FileLock {
    /// The shared lock on the server's use. Waits where another daemon is just stopping it.
    pub(super) async fn in_use(data_dir: &Path) -> Result<Self, EmbeddedError> {
        Self::acquire(data_dir, USE, FlockArg::LockSharedNonblock).await
    }

    /// The exclusive lock on the server's start. Waits for others.
    pub(super) async fn starting(data_dir: &Path) -> Result<Self, EmbeddedError> {
        Self::acquire(data_dir, START, FlockArg::LockExclusiveNonblock).await
    }

    /// Whether nobody else uses the server. If so, the lock is exclusive from now on; if not, it is released.
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
