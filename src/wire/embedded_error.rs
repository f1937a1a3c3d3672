//! What can go wrong with the embedded server, what to do about it, and the timeouts that the errors name. Read next:
//! [`embedded`](super::embedded).

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use redis::RedisError;

use super::raw::ReadError;

/// How long the server may go without a sign of being up. Loading its data is a sign.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the server may take to write its file and exit.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long another daemon may take to start or stop the server.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Why there is no embedded server, or why it did not stop.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// Nothing to start.
    #[error("no redis-server or valkey-server on PATH; {INSTALL}")]
    NoBinary,
    /// The data folder can't be used.
    #[error("use redis.data_dir {}", .path.display())]
    DataDir {
        /// The folder, or the file in it.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another program has the port.
    #[error(
        "port {port} of 127.0.0.1 is taken by a server that is not the one of redis.data_dir {}; stop it, or set \
         redis.embedded_port to a free port, or name the server in redis.url", .data_dir.display()
    )]
    Foreign {
        /// The port.
        port: u16,
        /// The data folder.
        data_dir: PathBuf,
    },
    /// A server of the same folder runs on another port. Two of them would ruin the file.
    #[error(
        "the server of redis.data_dir {} still runs on port {running}, not on redis.embedded_port {wanted}; stop it with \
         `redis-cli -p {running} shutdown`, or set redis.embedded_port to {running}", .data_dir.display()
    )]
    OtherPort {
        /// The data folder.
        data_dir: PathBuf,
        /// Where it runs.
        running: u16,
        /// Where it ought to run.
        wanted: u16,
    },
    /// Another daemon takes too long to start or stop the server.
    #[error(
        "another quotabell has been starting or stopping the server of redis.data_dir {} for {} s", .data_dir.display(),
        LOCK_TIMEOUT.as_secs()
    )]
    Busy {
        /// The data folder.
        data_dir: PathBuf,
    },
    /// The binary can't be started.
    #[error("start {}", .binary.display())]
    Start {
        /// Its path.
        binary: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It ended before it was up.
    #[error("the embedded server ended at once ({status}); its log {} ends with: {log_end}", .log.display())]
    Ended {
        /// How.
        status: ExitStatus,
        /// Its log.
        log: PathBuf,
        /// The end of the log.
        log_end: String,
    },
    /// It runs but does not answer.
    #[error("the embedded server does not answer on port {port} after {} s; its log is {}", ANSWER_TIMEOUT.as_secs(), .log.display())]
    Silent {
        /// The port.
        port: u16,
        /// Its log.
        log: PathBuf,
    },
    /// The connection to it can't be prepared.
    #[error("prepare the connection to the embedded server")]
    Client(#[from] RedisError),
    /// It refused to end.
    #[error("stop the embedded server, process {pid}")]
    Stop {
        /// Its process id.
        pid: u32,
        /// Why.
        source: ReadError,
    },
    /// It did not end.
    #[error("the embedded server, process {pid}, did not end within {} s", STOP_TIMEOUT.as_secs())]
    StillRunning {
        /// Its process id.
        pid: u32,
    },
}

/// What to do without a binary.
const INSTALL: &str = "install one (Debian, Ubuntu: apt-get install redis-server; Fedora: dnf install valkey; macOS: brew \
                       install redis), or set redis.url to a server that runs";
