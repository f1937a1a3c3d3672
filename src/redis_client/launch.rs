//! The binary, the data folder and the process of the embedded server. [`embedded`](super::embedded) decides when to
//! use them.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, PipeReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use redis::RedisResult;
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::client::RedisClient;
use super::embedded_error::EmbeddedError;
use super::embedded_listener::LOOK_EVERY;
use super::embedded_password::close_to_others;
use super::node::RedisNode;
use super::server::ServerInfo;

/// Names of the binary, in the order of preference.
const BINARIES: [&str; 2] = ["redis-server", "valkey-server"];
/// File name of the server's log in the data folder.
const LOG: &str = "redis.log";
/// File name of the record that identifies our server, in the data folder.
const RECORD: &str = "embedded.json";
/// File name of a snapshot in Redis and Valkey.
const SNAPSHOT: &str = "dump.rdb";
const MANIFEST: &str = "appendonlydir/appendonly.aof.manifest";
/// Number of bytes at the end of the log that are searched for an error message.
const TAIL_BYTES: u64 = 4096;
const TAIL_LINES: usize = 3;

/// The record in the data folder that identifies our server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ServerRecord {
    pub(super) pid: u32,
    pub(super) port: u16,
    /// Known after the server has replied.
    pub(super) run_id: Option<String>,
}

impl ServerRecord {
    /// The record in the folder; `None` if there is none, or if a crash left it incomplete.
    pub(super) fn read(data_dir: &Path) -> Result<Option<Self>, EmbeddedError> {
        let path = data_dir.join(RECORD);
        match fs::read(&path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(EmbeddedError::DataDir { path, source }),
        }
    }

    /// Replaces the record atomically.
    pub(super) fn write(&self, data_dir: &Path) -> Result<(), EmbeddedError> {
        let path = data_dir.join(RECORD);
        let new = path.with_extension("new");
        let written = serde_json::to_vec(self).map_err(io::Error::from).and_then(|json| {
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&json)?;
            fs::rename(&new, &path)
        });
        written.map_err(|source| EmbeddedError::DataDir { path, source })
    }

    /// Removes the record.
    pub(super) fn remove(data_dir: &Path) -> Result<(), EmbeddedError> {
        let path = data_dir.join(RECORD);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(EmbeddedError::DataDir { path, source }),
            _ => Ok(()),
        }
    }

    /// Whether `info` describes the server of the record. The process id decides only if the daemon was killed before
    /// it learned the run id.
    pub(super) fn is_of(&self, info: &ServerInfo) -> bool {
        match &self.run_id {
            Some(run_id) => *run_id == info.run_id,
            None => self.pid == info.process_id,
        }
    }
}

/// Creates the folder if it is missing, removes the access of other users, and returns its full path.
pub(super) fn prepare(data_dir: &Path) -> Result<PathBuf, EmbeddedError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(data_dir);
    let folder = made
        .and_then(|()| data_dir.canonicalize())
        .map_err(|source| EmbeddedError::DataDir { path: data_dir.to_path_buf(), source })?;
    close_to_others(&folder);
    Ok(folder)
}

/// The first binary in the folders of `search`, Redis before Valkey.
pub(super) fn find(search: &OsStr) -> Option<PathBuf> {
    let runs =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    BINARIES.iter().find_map(|name| std::env::split_paths(search).map(|folder| folder.join(name)).find(runs))
}

/// Whether the folder holds an append-only file.
pub(super) fn has_file(data_dir: &Path) -> bool {
    data_dir.join(MANIFEST).exists()
}

/// Whether the server has to load a snapshot: the folder has a snapshot and no append-only file, for example after a
/// restore. A server with an append-only file ignores the snapshot and would start empty.
fn loads_snapshot(data_dir: &Path) -> bool {
    match (data_dir.join(SNAPSHOT), has_file(data_dir)) {
        (snapshot, _) if !snapshot.exists() => false,
        (_, false) => true,
        (snapshot, true) => {
            tracing::info!(
                snapshot = %snapshot.display(),
                "the embedded redis loads its append-only file and ignores the snapshot: \
                 remove appendonlydir to restore the snapshot"
            );
            false
        }
    }
}

/// Starts the server in the folder, without an append-only file if it has to load a snapshot. The server survives the
/// drop of the handle.
pub(super) fn spawn(binary: &Path, port: u16, password: &str, data_dir: &Path) -> Result<Child, EmbeddedError> {
    let append_only = if loads_snapshot(data_dir) { "no" } else { "yes" };
    // Paths are relative to the folder, because Redis reads its arguments as lines of a configuration file, in which a
    // space or a quote in a path would need escaping.
    let spawned = |stdin: PipeReader| {
        Command::new(binary)
            // "-": the password arrives on stdin, because every user can read the arguments of a process.
            .args(["-", "--port", &port.to_string(), "--bind", "127.0.0.1", "--dir", ".", "--logfile", LOG])
            .args(["--appendonly", append_only, "--appendfsync", "everysec", "--save", ""])
            .args(["--maxmemory-policy", "noeviction", "--daemonize", "no"])
            .current_dir(data_dir)
            .process_group(0)
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    };
    io::pipe()
        .and_then(|(reader, mut writer)| {
            // A pipe buffers this much without a reader. The server reads until the writer is closed.
            writer.write_all(format!("requirepass \"{password}\"\n").as_bytes())?;
            drop(writer);
            spawned(reader)
        })
        .map_err(|source| EmbeddedError::Start { binary: binary.to_path_buf(), source })
}

/// Fails if the process has ended, with the end of its log.
pub(super) fn still_running(child: &mut Child, data_dir: &Path) -> Result<(), EmbeddedError> {
    match child.try_wait() {
        Ok(Some(status)) => {
            let log = log_of(data_dir);
            let log_end = tail(&log).unwrap_or_else(|_| "nothing".to_owned());
            Err(EmbeddedError::Ended { status, log, log_end })
        }
        // If the state is unknown, assume that it runs; the answer timeout bounds the wait.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Progress of the server's rewrite of its append-only file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RewriteState {
    /// No rewrite was requested since the start.
    Idle,
    /// It is rewriting, or about to.
    Running,
    /// It has finished.
    Written,
    /// It failed.
    Failed,
}

impl RewriteState {
    /// Reads the state from `INFO persistence`. Redis retries the very first file without end, so one failure counts as
    /// failed.
    fn from_info(info: &str, is_first: bool) -> Self {
        let says = |what: &str| info.lines().any(|line| line == what);
        if is_first && says("aof_last_bgrewrite_status:err") {
            return Self::Failed;
        }
        if !says("aof_rewrite_in_progress:0") || !says("aof_rewrite_scheduled:0") {
            return Self::Running;
        }
        match says("aof_last_bgrewrite_status:ok") {
            _ if says("aof_last_rewrite_time_sec:-1") => Self::Idle,
            true => Self::Written,
            false => Self::Failed,
        }
    }
}

/// Makes the server rewrite its append-only file, unless it has done so since its start. Returns whether it succeeded.
pub(super) async fn file_written(node: &RedisNode, is_first: bool) -> RedisResult<bool> {
    let client = RedisClient::new(node.client()?);
    let mut is_asked = false;
    loop {
        let info: String = client.query(redis::cmd("INFO").arg("persistence")).await?;
        match RewriteState::from_info(&info, is_first) {
            RewriteState::Idle if !std::mem::replace(&mut is_asked, true) => {
                client.query::<redis::Value>(&redis::cmd("BGREWRITEAOF")).await?;
            }
            RewriteState::Idle | RewriteState::Running => {}
            RewriteState::Written => return Ok(true),
            RewriteState::Failed => return Ok(false),
        }
        sleep(LOOK_EVERY).await;
    }
}

/// The server's log.
pub(super) fn log_of(data_dir: &Path) -> PathBuf {
    data_dir.join(LOG)
}

/// The last lines of the log, joined to one line.
fn tail(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut end = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut end)?;
    let text = String::from_utf8_lossy(&end);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    Ok(lines[lines.len().saturating_sub(TAIL_LINES)..].join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder on PATH may hold a file of that name that is not executable, and most folders hold none.
    #[test]
    fn the_first_program_on_the_path_is_found() {
        let folders: Vec<_> = (0..4).map(|_| tempfile::tempdir().expect("a folder")).collect();
        let file = |folder: usize, name: &str, mode| {
            let path = folders[folder].path().join(name);
            fs::write(&path, "").expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
            path
        };
        let search = std::env::join_paths(folders.iter().map(tempfile::TempDir::path)).expect("a path");
        assert_eq!(find(&search), None);
        let valkey = file(1, "valkey-server", 0o755);
        file(2, "redis-server", 0o644);
        assert_eq!(find(&search), Some(valkey));
        let redis = file(3, "redis-server", 0o755);
        assert_eq!(find(&search), Some(redis));
        assert_eq!(find(OsStr::new("")), None);
    }

    /// If the first file after a snapshot can't be written, Redis retries, and everything that it counts meanwhile
    /// would be lost with its process.
    #[test]
    fn a_first_file_that_fails_is_known() {
        use RewriteState::{Failed, Idle, Running, Written};
        for (progress, scheduled, seconds, status, file, first) in [
            (1, 0, -1, "ok", Running, Running),
            (0, 1, -1, "ok", Running, Running),
            (0, 0, -1, "ok", Idle, Idle),
            (0, 0, 2, "ok", Written, Written),
            (0, 0, 2, "err", Failed, Failed),
            (0, 1, 2, "err", Running, Failed),
            (1, 0, 2, "err", Running, Failed),
        ] {
            let info = format!(
                "aof_rewrite_in_progress:{progress}\r\naof_rewrite_scheduled:{scheduled}\r\n\
                 aof_last_rewrite_time_sec:{seconds}\r\naof_last_bgrewrite_status:{status}\r\n"
            );
            assert_eq!([false, true].map(|is_first| RewriteState::from_info(&info, is_first)), [file, first], "{info}");
        }
    }

    /// A record truncated by a full disk must not prevent the daemon from starting.
    #[test]
    fn a_record_is_read_back_and_a_broken_one_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let record = ServerRecord { pid: 1, port: 2, run_id: Some("abc".to_owned()) };
        assert_eq!(ServerRecord::read(folder.path()).expect("readable"), None);
        record.write(folder.path()).expect("writable");
        assert_eq!(ServerRecord::read(folder.path()).expect("readable"), Some(record));
        fs::write(folder.path().join(RECORD), "{\"pid\":").expect("a file");
        assert_eq!(ServerRecord::read(folder.path()).expect("readable"), None);
        ServerRecord::remove(folder.path()).expect("removable");
        ServerRecord::remove(folder.path()).expect("nothing to remove");
    }
}
