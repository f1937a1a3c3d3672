//! Who uses the embedded server: locks on files in its data folder, which the system takes back from a process that was killed.
//!
//! Every daemon that uses the server holds a share of it; only the last one may stop it. Whoever looks for the server, and starts
//! it if there is none, takes a turn, so that two daemons never start two. Read next: [`embedded`](super::embedded).

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use tokio::time::sleep;

use super::embedded::EmbeddedError;

/// Shared by all who use the server.
const USE: &str = "embedded.use";
/// Held while it is looked for and started.
const TURN: &str = "embedded.turn";
/// How long another daemon may take to start or stop the server.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(60);
/// Between two tries.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// A lock in the data folder; ends when dropped.
#[derive(Debug)]
pub(super) struct FileLock(Flock<File>);

impl FileLock {
    /// A share of the server. Waits where another daemon is just stopping it.
    pub(super) async fn share(data_dir: &Path) -> Result<Self, EmbeddedError> {
        Self::take(data_dir, USE, FlockArg::LockSharedNonblock).await
    }

    /// The turn to look for the server and to start it. Waits for others.
    pub(super) async fn turn(data_dir: &Path) -> Result<Self, EmbeddedError> {
        Self::take(data_dir, TURN, FlockArg::LockExclusiveNonblock).await
    }

    /// Whether nobody else has a share. From then on nobody gets one while this lives; otherwise this one is given back.
    pub(super) fn is_last(&self) -> bool {
        self.0.relock(FlockArg::LockExclusiveNonblock).is_ok()
    }

    async fn take(data_dir: &Path, name: &str, how: FlockArg) -> Result<Self, EmbeddedError> {
        let path = data_dir.join(name);
        let failed = |source: io::Error| EmbeddedError::DataDir { path: path.clone(), source };
        let mut file = File::options().create(true).append(true).open(&path).map_err(failed)?;
        let begun = Instant::now();
        loop {
            match Flock::lock(file, how) {
                Ok(lock) => return Ok(Self(lock)),
                Err((_, errno)) if errno != Errno::EWOULDBLOCK => return Err(failed(errno.into())),
                Err(_) if begun.elapsed() > WAIT_MAX => {
                    return Err(EmbeddedError::Busy { data_dir: data_dir.to_path_buf() });
                }
                Err((same, _)) => file = same,
            }
            sleep(TRY_EVERY).await;
        }
    }
}
