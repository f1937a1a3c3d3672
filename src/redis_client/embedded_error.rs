//! Errors of the embedded server with their hints, and the timeouts that they name. Read next:
//! [`embedded`](super::embedded).

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use redis::RedisError;

use super::raw::ReadError;

/// Maximum time without a sign that the server is starting. Loading its data is such a sign.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for the server to write its file and exit.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for another daemon to start or stop the server.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Why the embedded server did not start or did not stop.
#[expect(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    #[error("no redis-server or valkey-server on PATH; {INSTALL}")]
    NoBinary,
    #[error("use redis.data_dir {}", .path.display())]
    DataDir {
        /// The folder, or the file in it.
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "port {port} of 127.0.0.1 is taken by a server that is not the one of redis.data_dir {}; stop it, or set \
         redis.embedded_port to a free port, or name the server in redis.url", .data_dir.display()
    )]
    Foreign { port: u16, data_dir: PathBuf },
    /// The server of this folder runs on another port. Two servers would corrupt the file.
    #[error(
        "the server of redis.data_dir {} still runs on port {running}, not on redis.embedded_port {wanted}; stop it with \
         `redis-cli -p {running} shutdown`, or set redis.embedded_port to {running}", .data_dir.display()
    )]
    OtherPort { data_dir: PathBuf, running: u16, wanted: u16 },
    #[error(
        "another quotabell has been starting or stopping the server of redis.data_dir {} for {} s", .data_dir.display(),
        LOCK_TIMEOUT.as_secs()
    )]
    Busy { data_dir: PathBuf },
    #[error("start {}", .binary.display())]
    Start { binary: PathBuf, source: io::Error },
    #[error("the embedded server ended at once ({status}); its log {} ends with: {log_end}", .log.display())]
    Ended { status: ExitStatus, log: PathBuf, log_end: String },
    #[error("the embedded server does not answer on port {port} after {} s; its log is {}", ANSWER_TIMEOUT.as_secs(), .log.display())]
    Silent { port: u16, log: PathBuf },
    #[error("prepare the connection to the embedded server")]
    Client(#[from] RedisError),
    #[error("set the password and the append-only file of the embedded server")]
    Configure { source: RedisError },
    /// The server keeps running and retrying; the next start adopts it.
    #[error(
        "the embedded server has loaded a snapshot and could not write its append-only file: what it counts would be \
         lost; make room for it, and start again; its log is {}", .log.display()
    )]
    NoFile { log: PathBuf },
    #[error("stop the embedded server, process {pid}")]
    Stop { pid: u32, source: ReadError },
    #[error("the embedded server, process {pid}, did not end within {} s", STOP_TIMEOUT.as_secs())]
    StillRunning { pid: u32 },
}

/// What to do if there is no binary.
const INSTALL: &str = "install one (Debian, Ubuntu: apt-get install redis-server; Fedora: dnf install valkey; macOS: brew \
                       install redis), or set redis.url to a server that runs";
